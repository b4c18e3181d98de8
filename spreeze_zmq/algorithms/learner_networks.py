"""The networks of an algorithm as one learner holds them, each group in one flat buffer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms.acting import frozen_targets, targets_alike
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declared import declared
from spreeze_zmq.algorithms.flat_networks import FlatNetworks, TensorPlaces
from spreeze_zmq.algorithms.moving import MovingOptions
from spreeze_zmq.algorithms.optimiser import Optimiser, Stretch, networks_apart
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn.device import set_parts

#: Streams of random numbers that are derived from a run's seed: the first weights, the noise of each part.
FIRST_WEIGHTS, NOISE = 0, {"critic": 2, "policy": 3}


def seed_of(seed: int, stream: int) -> int:
    """The seed of one stream of random numbers of a run with ``seed``."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> 1)


class Remarks:
    """What is odd about an algorithm without keeping it from training, and what is slow about its updates.

    Attributes:
        lines: one for each, in the order in which it was found.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._hear: Callable[[str], object] = lambda line: None

    def add(self, line: str) -> None:
        """Note a line, unless it has been noted."""
        if line not in self.lines:
            self.lines.append(line)
            self._hear(line)

    def tell(self, hear: Callable[[str], object]) -> None:
        """Have ``hear`` called with each line that there is, and with each that comes."""
        self._hear = hear
        for line in self.lines:
            hear(line)


#: The groups of a learner's networks in the words of a message.
NAMES = {"own": "trained ones", "other": "other half's", "targets": "targets"}


class LearnerNetworks:
    """An algorithm and its networks on the device of one learner.

    Args:
        kind: the algorithm.
        moving: its options.
        env: the environment as networks see it (:func:`seen`).
        device: where the networks go.
        seed: of the run; both learners derive the same first weights from it.
        part: ``"critic"`` or ``"policy"``, the networks that this learner trains.

    Attributes:
        algorithm: the instance, with every network as an attribute.
        own: the networks that are trained here.
        optimiser: steps them.
        other: the networks of the other learner.
        targets: the targets.
        modules: all networks by name.
        layers: description of the acting network's layers; None where only its class can act.
        remarks: what is odd about them.

    Raises:
        AlgorithmError: the algorithm's declarations do not fit together.
    """

    def __init__(
        self,
        kind: type[Algorithm],
        moving: MovingOptions,
        env: EnvironmentSpec,
        device: torch.device,
        seed: int,
        part: str,
    ) -> None:
        self.remarks = Remarks()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(seed, FIRST_WEIGHTS))
            self.algorithm, networks = declared(kind, moving, env)
        parts = {"critic": dict(networks.critic), "policy": dict(networks.policy)}
        own, other = parts.pop(part), *parts.values()
        self.modules: dict[str, torch.nn.Module] = {**own, **other, **networks.targets}
        for name, module in self.modules.items():
            setattr(self.algorithm, name, module.to(device))
        acting = {**own, **other}[networks.acting]
        self.layers = None if kind.acts_by_itself() else nn.describe(acting)
        self._own_names, self._target_names = own.keys(), networks.targets.keys()
        self._frozen = frozen_targets(networks)
        self.own = FlatNetworks(own, networks.acting, trained=True)
        self.other = FlatNetworks(other, networks.acting, trained=False)
        self.targets = FlatNetworks(networks.targets, networks.acting, trained=False)
        if part == "critic" and networks.targets and kind.after_critic_step is Algorithm.after_critic_step:
            names = ", ".join(networks.targets)
            about = f"{kind.__name__} has no after_critic_step"
            self.remarks.add(f"{about}: the targets {names} keep their first weights")
        stretches = self._stretches(own, networks_apart(moving.stated))
        self._places = [TensorPlaces(*each) for each in self.modules.items()]
        self._beside = {
            f"{name}.{place}": buffer
            for name, module in self.modules.items()
            for place, buffer in module.named_buffers()
            if not buffer.is_floating_point()
        }
        self._first_beside = {name: buffer.clone() for name, buffer in self._beside.items()}
        self._set_parts = set_parts()
        self._num_seen = self._set_parts[0]
        self.optimiser = Optimiser(
            self.own.trained, self.own.gradient, stretches, moving.stated, part, moving.value
        )

    def _stretches(self, own: Mapping[str, torch.nn.Module], apart: frozenset[str]) -> list[Stretch]:
        """The trained parameters by the network whose numbers hold: one stretch, unless some are named, or a
        0-d one, which neither decays nor is shortened, stands before others.
        """
        network_of = {id(each): name for name, module in own.items() for each in module.parameters()}
        found: list[Stretch] = []
        for parameter in self.own.parameters:
            name, size = network_of[id(parameter)], parameter.numel()
            each = Stretch(name if name in apart else "", size, size if parameter.dim() > 0 else 0)
            last = found[-1] if found else None
            joins = last is not None and (last.num_weights == last.size or not each.num_weights)
            if last is not None and joins and last.network == each.network:
                found[-1] = Stretch(each.network, last.size + size, last.num_weights + each.num_weights)
            else:
                found.append(each)
        return found

    def held(self) -> set[int]:
        """Ids of the parameters that are trained, and of those that stand in the place of others until
        :meth:`restore_replaced`.
        """
        kept = {id(parameter) for _, networks in self._groups() for parameter in networks.parameters}
        networks = [*self.modules.values(), *(getattr(self.algorithm, name) for name in self.modules)]
        return {id(each) for network in networks for each in network.parameters()} - kept | self.own.held

    def restore_replaced(self, gradients: bool = False) -> None:
        """Undo the replacement of a network, as in ``self.target = copy.deepcopy(self.q)``, of a part of one,
        and of a tensor's data: copy the new weights to the old place, which is trained, published and saved,
        and put it back. A wrapper of the same parameters stays.

        Args:
            gradients: whether the gradients of the new parameters are those of the old ones, too.

        Raises:
            ValueError: they do not fit there.
        """
        if self._set_parts[0] != self._num_seen:
            _settle([(places, None) for places in self._places], gradients)
            self._num_seen = self._set_parts[0]
        now = [(places, getattr(self.algorithm, places.name)) for places in self._places]
        replaced = [
            (places, other)
            for places, other in now
            if other is not places.network and not _wraps(other, places.network)
        ]
        _settle(replaced, gradients)
        for places, _ in replaced:
            setattr(self.algorithm, places.name, places.network)
        for _, networks in self._groups():
            networks.gather_data()

    def name_unpublished(self) -> None:
        """Remark on buffers of trained networks that have changed and, as no float ones, are not published;
        but for the count of a batch normalisation, which no evaluation reads.
        """
        for name, buffer in self._beside.items():
            if name.split(".")[0] not in self._own_names or name.endswith(".num_batches_tracked"):
                continue
            if not torch.equal(buffer, self._first_beside[name]):
                hint = "samplers keep its first value; a float buffer is published, too"
                self.remarks.add(f"self.{name} is saved but not published, it is {buffer.dtype}: {hint}")

    @contextlib.contextmanager
    def looking_at_targets(self, what: str) -> Iterator[None]:
        """Inside, remark on the targets that ``what``, a method of the policy's part, calls: what
        ``after_critic_step`` does to them is not done in this learner. Frozen ones that ``networks()`` makes
        the same each time, as from a file, do not move.
        """
        called: dict[str, None] = {}
        with contextlib.ExitStack() as hooks:
            for name in self._target_names:

                def note(*given: Any, name: str = name) -> None:
                    called[name] = None

                hooks.callback(self.modules[name].register_forward_pre_hook(note).remove)
            yield
        fixed = targets_alike(self.algorithm, self.modules, called.keys() & self._frozen)
        for name in (each for each in called if each not in fixed):
            hint = "an nn.Number or another float buffer of critic=... is sent"
            self.remarks.add(
                f"{what} reads the target {name!r}, which has its first weights in the actor-learner: what "
                f"after_critic_step moves, it moves in the critic-learner alone; {hint}"
            )

    def written(self) -> dict[str, torch.Tensor]:
        """The memory that an update writes to, by name."""
        groups = {f"{name} weights": networks.flat for name, networks in self._groups()}
        return {**groups, "the gradient": self.own.gradient, **self.optimiser.memory}

    def state_dict(self) -> dict[str, Any]:
        """Copies of the flat buffers, by group, and of the optimiser's state; how the buffers are packed, and
        copies of what they do not hold.
        """
        groups = {name: networks.flat.clone() for name, networks in self._groups()}
        layouts = {name: networks.packing.layout for name, networks in self._groups()}
        beside = {name: buffer.clone() for name, buffer in self._beside.items()}
        return {**groups, "adam": self.optimiser.state_dict(), "layouts": layouts, "beside": beside}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
            CheckpointError: the buffers hold other tensors, or the same in another order.
        """
        for name, networks in self._groups():  # before anything is changed; earlier releases packed unnamed
            packed = state.get("layouts", {}).get(name, networks.packing.layout)
            if difference := networks.packing.difference(packed):
                raise CheckpointError(
                    f"the checkpoint's networks differ from this run's: the {NAMES[name]} are {difference}; "
                    "resume with the options and the algorithm's file as they were"
                )
        for name, networks in self._groups():
            networks.flat.copy_(state[name])
        for name, buffer in self._beside.items():
            if name in state.get("beside", {}):
                buffer.copy_(state["beside"][name])
        self.own.gradient.zero_()
        self.optimiser.load_state_dict(state["adam"])

    def _groups(self) -> tuple[tuple[str, FlatNetworks], ...]:
        return ("own", self.own), ("other", self.other), ("targets", self.targets)


def _settle(replaced: Iterable[tuple[TensorPlaces, torch.nn.Module | None]], gradients: bool) -> None:
    """Copy what has come in the places of networks there: all is read before anything is written, since
    networks may have changed places.
    """
    for arrival in [each for places, other in replaced for each in places.arrivals(gradients, other)]:
        arrival.settle()


def _wraps(other: torch.nn.Module, network: torch.nn.Module) -> bool:
    """Whether another module has the parameters of a network, as they follow each other there. A Sequential
    in another order is another network; any other class may have them in any order.
    """
    theirs, ours = ([*map(id, each.parameters())] for each in (other, network))
    return theirs == ours or (sorted(theirs) == sorted(ours) and not isinstance(other, torch.nn.Sequential))
