"""Policies that are published by the name of their class, because no table of layers describes them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.options import options_from
from spreeze_zmq.algorithms.registry import get
from spreeze_zmq.base.errors import PolicyFailure
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.policy.actor import (
    SHIPPED,
    Actions,
    Actor,
    ClassActor,
    ClassLoader,
    Drawn,
    Floats,
    is_trusted,
    module_of,
    register_class_loader,
    trusted,
)
from spreeze_zmq.policy.heads import make_head
from spreeze_zmq.policy.observations import ObservationScaling
from spreeze_zmq.policy.own_environment import limits_of

#: Most entries of an option of a shipped algorithm, such as its hidden sizes.
MOST_LAYERS = 100


def loader_of_run(name: str) -> ClassLoader:
    """A loader of policies of the run's algorithm, called ``name`` in its topology, and of what code of the
    user's may load beside it, such as an opponent: shipped algorithms and those in trusted modules.
    """
    others = loader_of_modules(trusted)

    def load(description: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]) -> ClassActor:
        if is_trusted(module_of(description), trusted):
            return others(description, arrays)
        kind = get(name)
        own = f"{kind.__module__}:{kind.__qualname__}"
        if description["class"] != own:
            raise ValueError(f"it is of the class {description['class']!r}, this run's algorithm is {own!r}")
        return ClassPolicy(kind, description, arrays)

    return load


def loader_of_modules(trust: Collection[str]) -> ClassLoader:
    """A loader of policies of the shipped algorithms and of those in trusted modules."""

    def load(description: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]) -> ClassActor:
        if not is_trusted(module_of(description), trust):
            raise ValueError(f"its class {description['class']!r} is of no module that is trusted")
        return ClassPolicy(get(description["class"]), description, arrays)

    return load


def let_trusted_act() -> None:
    """Let this process make policies of the shipped algorithms and of those in trusted modules. The loader of
    a component, which makes them too, stays: code that its run imports may ask for this.
    """
    register_class_loader(loader_of_modules(trusted), unless_there=True)


class ClassPolicy:
    """A policy that acts by an algorithm's network in torch, and its distribution or its ``act``. To make one
    leaves torch's generator as it was, from which ``act`` may draw.

    Args:
        kind: the algorithm.
        description: ``options``, ``environment``, ``observation`` and ``distribution`` of it are read.
        arrays: ``parameters`` of the acting part, action bounds and observation statistics.

    Attributes:
        algorithm: the instance, with the modules of its acting part as attributes.
        modules: these modules by name.
        network: the acting network.
        memory_size: size of the network's memory for each environment.
        acts_by_itself: whether the algorithm's ``act`` chooses the actions, not a distribution.

    Raises:
        ValueError: the arrays or the description do not fit the class.
    """

    def __init__(
        self,
        kind: type[Algorithm],
        description: Mapping[str, Any],
        arrays: Mapping[str, NDArray[np.float32]],
    ) -> None:
        import torch

        from spreeze_zmq.algorithms.acting import Withdrawn, acting_part, frozen_targets, set_networks
        from spreeze_zmq.algorithms.declared import blaming
        from spreeze_zmq.algorithms.flat_networks import FlatNetworks

        self._torch, self._is_own = torch, not kind.__module__.startswith(SHIPPED)
        env = EnvironmentSpec.from_dict(description["environment"])
        # the first numbers of networks are drawn, and replaced below; the caller may have a default device
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            self.algorithm = kind(options_from(kind.Options, description["options"]), env)
            if not self._is_own:  # options of a stranger could ask for any size
                _check_lists(description["options"])
                with torch.device("meta"):
                    _check_size(acting_part(self.algorithm.networks()), arrays["parameters"])
            networks = self.algorithm.networks()
            part = acting_part(networks)
            FlatNetworks(part, networks.acting, trained=False).load(arrays["parameters"], "a policy")
            frozen = frozen_targets(networks)
            set_networks(self.algorithm, networks)
            num_outputs = self.algorithm.distribution().num_outputs
            self._withdrawn = Withdrawn(self.algorithm, networks, frozen)
        self.modules, self.network = part, part[networks.acting]
        self._rows = ObservationScaling(description["observation"], arrays)
        self._head = make_head(description["distribution"], arrays, num_outputs)
        low, high = env.action_low, env.action_high
        self._bounds = limits_of(description["environment"]) if low is None or high is None else (low, high)
        self.acts_by_itself = kind.acts_by_itself()
        self.memory_size = kind.memory_size(self.algorithm.options)
        acts = "act" if self.acts_by_itself else f"the network {networks.acting!r}"
        self._blaming = partial(blaming, kind, acts, raising=PolicyFailure)

    def tell_env_steps(self, env_steps: int) -> None:
        """Let the algorithm's ``act`` know how far the run was, for schedules."""
        self.algorithm.env_steps = env_steps

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` uniformly random actions and their log densities; None for a distribution without them."""
        return self._head.uniform(num, rng)

    def draw(
        self, output: NDArray[Any], rng: np.random.Generator, place: Floats | None, log_prob: bool
    ) -> Drawn:
        """An action for each row of :meth:`output`, and its log density if ``log_prob``."""
        if self.acts_by_itself:
            if log_prob:
                raise ValueError("an algorithm with an act() of its own gives no log probabilities")
            return self._own_action(output, greedy=False), None
        return self._head.draw(output, rng, place, log_prob)

    def mode(self, output: NDArray[Any]) -> Actions:
        """The deterministic action for each row of :meth:`output`."""
        if self.acts_by_itself:
            return self._own_action(output, greedy=True)
        return self._head.mode(output)

    def env_action(self, action: Actions) -> Actions:
        """Actions in the environment's units and shape."""
        return self._head.env_action(action)

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """The distribution restricted to legal actions ``[N, A]``. Raises ValueError where there is none."""
        if self.acts_by_itself:
            raise ValueError("an algorithm with an act() of its own takes no action_mask")
        return self._head.among(legal)

    def output(self, obs: NDArray[Any], memory: Floats | None) -> NDArray[Any]:
        """The network's output for observations ``[N, *obs_shape]``, or for an algorithm that acts by itself
        the observations. ``memory`` becomes the next one in place.
        """
        if self.acts_by_itself:
            return obs
        rows = self._torch.from_numpy(self._rows(obs))
        with self._acting():
            if self.memory_size == 0 or memory is None:
                output: Floats = self.network(rows).detach().numpy()
            else:
                outputs, after = self.network(rows, self._torch.from_numpy(memory))
                output, memory[:] = outputs.detach().numpy(), after.detach().numpy()
        return output

    def _own_action(self, obs: NDArray[Any], *, greedy: bool) -> Actions:
        """What the algorithm's ``act`` chooses, within the bounds: learners are to see the action that the
        environment is given. One that is not finite or of another shape is left as it is, for the caller to
        refuse.
        """
        rows = self._torch.from_numpy(self._rows(obs))
        with self._acting():
            action: Actions = self.algorithm.act(rows, greedy).detach().numpy()
        if self._bounds is None or not np.isfinite(action).all():
            return action
        if action.shape != (len(action), *np.shape(self._bounds[0])):
            return action
        return np.clip(action, *self._bounds)

    def _acting(self) -> contextlib.AbstractContextManager[Any]:
        """Around what acts: without gradients, which a plan of a user's own may enable inside."""
        return self._own_code() if self._is_own else self._torch.inference_mode()

    @contextlib.contextmanager
    def _own_code(self) -> Iterator[None]:
        """Raises PolicyFailure for what a user's own code raises, which the next life may not meet, and
        AlgorithmError for the use of a network that samplers do not get.
        """
        with self._torch.no_grad(), self._blaming(), self._withdrawn.refused():
            yield


def _check_lists(options: Mapping[str, Any]) -> None:
    """Raise ValueError for more layers than any network has."""
    for name, value in options.items():
        if isinstance(value, list | tuple) and len(value) > MOST_LAYERS:
            raise ValueError(f"{name} has {len(value):,} entries, at most {MOST_LAYERS}")


def _check_size(part: Mapping[str, Any], parameters: Floats) -> None:
    """Raise ValueError unless ``parameters`` has as many numbers as the networks."""
    tensors = [t for module in part.values() for t in (*module.parameters(), *module.buffers())]
    if (size := sum(tensor.numel() for tensor in tensors)) != len(parameters):
        raise ValueError(f"{len(parameters):,} parameters for networks of {size:,}")
