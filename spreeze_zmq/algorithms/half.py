"""The half of an algorithm that one learner runs: gradient steps on its loss, and what it exchanges.

A half has no socket, file or clock. It draws from a random generator of its own, which is part of its state:
a run resumed from a checkpoint continues exactly where it stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.distributions import described
from spreeze_zmq.algorithms.encoders import seen
from spreeze_zmq.algorithms.gradient_steps import GradientSteps
from spreeze_zmq.algorithms.learner_networks import NOISE, LearnerNetworks, seed_of
from spreeze_zmq.algorithms.moving import MovingOptions
from spreeze_zmq.algorithms.observations import ObservationRows, RunningStatistics
from spreeze_zmq.algorithms.shared_model import SharedModel, Statistics
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs.packed import Packing
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn.device import default_generator, draw_on

Parameters = NDArray[np.float32]

LEARNING_RATE = "learning_rate"


class AutogradHalf(GradientSteps):
    """One part of an algorithm: the networks that it trains, those of the other part, and steps on its loss.

    Noise comes from torch's default generator, which only this half may use: a learner process has one half.

    Args:
        kind: the algorithm.
        options: an instance of its ``Options``.
        env: the environment's spec.
        device: as torch names it.
        seed: of the run; both halves derive the same first weights from it.
        part: ``"critic"`` or ``"policy"``.

    Raises:
        AlgorithmError: the algorithm's declarations do not fit together.
    """

    def __init__(
        self, kind: type[Algorithm], options: Any, env: EnvironmentSpec, device: str, seed: int, part: str
    ) -> None:
        place = torch.device(device)
        self._moving = MovingOptions(options, place)
        self._turned: dict[str, float] = {}
        self._turned_before: dict[str, float] = {}
        networks = LearnerNetworks(kind, self._moving, seen(env, options), place, seed, part)
        rows = ObservationRows(env, options.normalize_observations, place, options.frame_stack)
        super().__init__(networks, rows, part, place)
        self._make_statistics = partial(RunningStatistics, env, options.frame_stack)
        self._statistics, self._packing = self._make_statistics(), Packing.of(env)
        #: Source of data that this process has read -> its own statistics; and all sources observed so far.
        self._of_sources: dict[str, RunningStatistics] = {}
        self._observed: set[str] = set()
        torch.manual_seed(seed_of(seed, NOISE[part]))
        self.forget_recordings()

    # --- what it publishes and receives

    def shared_model(self, *pooled: Statistics, of_policy: bool) -> SharedModel:
        """What it has in common with the same half of other groups: the networks that it trains, the targets
        that it moves, ``pooled`` statistics, and ``of_policy`` those of observations if these are learned.
        """
        statistics = (*pooled, *[self._statistics] * (of_policy and self._rows.learned))
        return SharedModel(self._networks, statistics, moves_targets=self._may_move_targets)

    @property
    def weights(self) -> torch.Tensor:
        """Flat float32 on the device: the acting network first, the part's other networks, their buffers."""
        return self._networks.own.flat

    @property
    def layout(self) -> str:
        """The digest of how :attr:`weights` are packed, which travels with them."""
        return self._networks.own.packing.layout

    def load(self, kind: str, arrays: Mapping[str, Parameters], layout: str | None = None) -> None:
        """Take over the other half's published weights, of a message of this ``kind``, which names the
        ``layout`` of its packing or, None, does not. Raises WireError where they do not fit.
        """
        if layout is not None:
            self._networks.other.packing.check(layout, "a policy" if kind == "policy" else "critics")
        if kind == "policy":
            self.load_policy(arrays)
        else:
            self.load_critic(arrays["parameters"])

    def load_policy(self, arrays: Mapping[str, Parameters]) -> None:
        """Take over a published policy. Raises WireError where it does not fit."""
        auxiliary = arrays.get("auxiliary", np.empty(0, np.float32))
        self._networks.other.load(np.concatenate((arrays["parameters"], auxiliary)), "a policy")
        self._rows.adopt(arrays)

    def load_critic(self, parameters: Parameters) -> None:
        """Take over published critics. Raises WireError where they do not fit."""
        self._networks.other.load(parameters, "critics")

    def observe(self, obs: NDArray[Any], source: str = "") -> None:
        """Add observations ``[M, *obs_shape]``, or packed ones, to the statistics; the next publication puts
        them into use. Those of a ``source`` of data stay there in a state that is loaded without it.
        """
        if self._rows.learned:
            rows = obs if self._packing is None else self._packing.flat(obs)
            self._statistics.add(rows)
            if source:
                self._observed.add(source)
                self._of_sources.setdefault(source, self._make_statistics()).add(rows)

    def description(self) -> dict[str, Any]:
        """The policy in plain values, enough to evaluate it: its layers, or the name of its class."""
        self._tell_env_steps()
        kind, observation = type(self.algorithm), self._rows.description()
        about = {"observation": observation, "distribution": described(self.algorithm.distribution())}
        if self._networks.layers is not None:
            return {**about, "layers": self._networks.layers}
        return {
            **about,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "options": {**dataclasses.asdict(self.options), **self._moving.values()},
            "environment": self.algorithm.env.to_dict(),
        }

    def policy_arrays(self, weights: Parameters | None = None) -> dict[str, Parameters]:
        """Every array of a policy message; updates use its observation statistics from now on.

        Args:
            weights: a copy of :attr:`weights` on the host; None waits for the device to copy them.
        """
        if self._statistics.count:
            self._rows.adopt(self._statistics.arrays())
        flat = self._networks.own.flat.cpu().numpy().copy() if weights is None else weights
        acting = len(flat) if self._networks.layers is None else self._networks.own.num_acting
        auxiliary = {"auxiliary": flat[acting:]} if len(flat) > acting else {}
        bounds = self.algorithm.distribution().arrays()
        return {"parameters": flat[:acting], **auxiliary, **bounds, **self._rows.arrays()}

    # --- options that change between updates

    @property
    def options(self) -> Any:
        """The options as stated: schedules are tables."""
        return self._moving.stated

    @property
    def moves(self) -> bool:
        """Whether any option of the algorithm is a schedule."""
        return self._moving.moves

    def follow(self, reached: Mapping[str, float]) -> None:
        """Move every option that is a schedule to where the run is.

        Args:
            reached: count of the run -> how much of it has been reached: ``env_steps``,
                ``trained_transitions``, ``minutes``, and ``run``, the share of the whole; none goes back.
        """
        self._moving.follow(reached)
        self._networks.optimiser.follow()

    @property
    def reached(self) -> dict[str, float]:
        """The counts that the options have followed so far."""
        return self._moving.reached

    def shares(self) -> list[list[Any]]:
        """How far each schedule over the run is, for :meth:`go_on`."""
        return self._moving.shares()

    def go_on(self, reached: Mapping[str, float], shares: Sequence[Sequence[Any]]) -> None:
        """Go on at the counts of a run before, and where its schedules over the run were."""
        self._moving.go_on(shares)
        self.follow(reached)

    @property
    def adapts(self) -> bool:
        """Whether a loss moves the learning rate."""
        return self._networks.optimiser.multiplied

    @property
    def learning_rate(self) -> float:
        """That of the part, as it is."""
        return next(iter(self._networks.optimiser.rates().values()))

    def rates(self) -> dict[str, float]:
        """The learning rate as it is, and the numbers that move, by name; those of the policy's part, and of
        a network that an option names, begin with its name.
        """
        own = "" if self.part == "critic" else f"{self.part}_"
        rates = self._networks.optimiser.rates().items()
        shared = {} if own else self._moving.values()
        return shared | {f"{f'{name}_' if name else own}learning_rate": rate for name, rate in rates}

    def set_rates(self, rates: Mapping[str, Any]) -> None:
        """Change the options that follow the batch size, but for those that :meth:`turn` holds."""
        self._restate({name: rate for name, rate in rates.items() if name not in self._turned})
        self.forget_recordings()

    def turn(self, name: str, value: float) -> None:
        """Hold an option that may move at a number from the next update on, of every network that has it: as
        a schedule whose ends are equal, so that a recorded update reads it. A number that is only said again,
        also to a half that goes on from where it was held, leaves a learning rate where a loss has moved it.

        Raises:
            InputError: the options do not go together.
        """
        if self._turned.get(name) == value:
            return
        is_read, optimiser = name in self._turned, self._networks.optimiser
        is_said_again = not is_read and self._turned_before.get(name) == value
        moved = optimiser.kept_rates if is_said_again else None
        try:
            self._restate({name: {"from": value, "to": value}})
        except InputError:  # such as of a rate that a loss moves on from there
            self._restate({name: value})
            is_read = False
        if name == LEARNING_RATE:
            optimiser.go_on_from(moved)
        self._turned[name] = value
        if not is_read:
            self.forget_recordings()

    def _restate(self, values: Mapping[str, Any]) -> None:
        self._moving.restate(dataclasses.replace(self.options, **values))
        self.algorithm.options = self._moving.live
        self._networks.optimiser.restate(self.options)

    # --- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on, as tensors and plain numbers."""
        return {
            **self._networks.state_dict(),
            "observations": self._rows.state_dict(),
            "statistics": self._statistics.state_dict(),
            "sources": sorted(self._observed),
            "generator": default_generator(self._device).get_state(),
            "num_updates": self.num_updates,
            "env_steps": self.env_steps,
            "turned": {**self._turned_before, **self._turned},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken, with the observations of sources that were not there;
        what :meth:`turn` holds by now stays. A state of an earlier release does not name sources: it had all.
        """
        self._networks.load_state_dict(state)
        self._turned_before = dict(state.get("turned", {}))  # earlier releases have none
        held = self._turned.get(LEARNING_RATE)
        if held is not None and held != self._turned_before.get(LEARNING_RATE):
            self._networks.optimiser.go_on_from(None)
        self._rows.load_state_dict(state["observations"])
        self._statistics.load_state_dict(state["statistics"])
        self._observed = set(state.get("sources", self._of_sources))
        for source in self._of_sources.keys() - self._observed:
            self._statistics.merge(self._of_sources[source])
        self._observed.update(self._of_sources)
        draw_on(default_generator(self._device), state["generator"])
        self.num_updates, self.env_steps = int(state["num_updates"]), int(state["env_steps"])
