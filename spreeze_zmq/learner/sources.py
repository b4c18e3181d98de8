"""The data of a run beside what it samples, as one learner keeps them: each process reads them again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from spreeze_zmq import data
from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component import Component
from spreeze_zmq.learner.setup import rows_of
from spreeze_zmq.replay import Mixture, NoRoom, ObservationReplay, Relabelling, Replay, replay_of

log = logging.getLogger("spreeze")


class Sources:
    """The ``[data]`` of a run: some sources fill a learner's replay, others have replays of their own.

    Args:
        component: the learner.
        half: the half of the algorithm that it trains.
        own: the replay of what is sampled.
        how: relabels episodes; None where they stay as they are.

    Attributes:
        num_filled: transitions that :meth:`read` has put into the learner's own replay.
    """

    def __init__(
        self,
        component: Component,
        half: AutogradHalf,
        own: Replay | ObservationReplay,
        how: Relabelling | None,
    ) -> None:
        self._component, self._half, self._own, self._how = component, half, own, how
        self._plans = component.plan.data
        opened = {name: data.Dataset.open(Path(plan.path)) for name, plan in self._plans.items()}
        self._datasets = opened
        self._shared = {
            name: self._replay(number, name)
            for number, (name, plan) in enumerate(self._plans.items())
            if plan.share is not None
        }
        shares = [(self._plans[name].share or 0.0, replay) for name, replay in self._shared.items()]
        self.drawn = Mixture(own, shares) if shares else own
        self.num_filled = 0

    def _replay(self, number: int, name: str) -> Replay | ObservationReplay:
        """An empty replay that one source fits in. Raises InputError where there is no memory for it."""
        plan_of_run, options = self._component.plan, self._half.options
        kind, capacity = type(self._half.algorithm), rows_of(plan_of_run, self._plans[name])
        small = replace(options, replay_capacity=capacity, learning_starts=1)
        env, device = self._component.environment, self._component.options["device"]
        fields = kind.kept_fields(self._half.part, options)
        try:
            made = replay_of(fields, env, small, device, plan_of_run.run.seed + 1 + number)
        except NoRoom as error:
            raise InputError(f"data.{name}: {error.lack}: read fewer by data.{name}.episodes") from None
        made.scale = self._own.scale  # what a reward is worth is the same wherever it was paid
        if self._how is not None:
            made.relabel_by(replace(self._how, seed=self._how.seed + 1 + number))
        return made

    def read(self, observe: Callable[[Rollout, str], None]) -> None:
        """Read all sources: those with a share into their replays, the others into the learner's own, unless
        that has outlived a process or come back from a checkpoint.

        Args:
            observe: is given every episode, for statistics of observations, and what it is of, whatever that
                is called in this run.

        Raises:
            InputError: a source has changed since the run was planned, or its replay does not hold all that
                a relabelling makes of it, or the images of its episodes.
        """
        fill, scale = not len(self._own), self._own.scale
        counted = None if fill or scale is None or not scale.counts.any() else scale.sums()
        with self._own.ring.filling() if fill else nullcontext():
            for name, plan in self._plans.items():
                try:
                    number = self._read(name, observe, fill=fill)
                except InputError as error:
                    raise InputError(f"data.{name}: {error}") from None
                how = "fill the replay" if fill else "are in the replay, which is back"
                how = how if plan.share is None else f"are {plan.share:.0%} of each batch"
                log.info("data.%s: %s transitions %s", name, f"{number:,}", how)
        if scale is not None and counted is not None:  # what outlived a process has counted the sources, too
            scale.adopt(counted)
        self.num_filled = len(self._own) if fill else 0
        if fill:
            self._own.num_sampled = 0

    def _read(self, name: str, observe: Callable[[Rollout, str], None], *, fill: bool) -> int:
        """Read one source; returns its transitions."""
        into, number, plan = self._shared.get(name, self._own), 0, self._plans[name]
        what = f"{plan.source}, {plan.transitions} transitions"
        about = self._component.environment, name, plan.episodes, self._half.options.frame_stack
        for rollout in data.rollouts_of(self._datasets[name], *about):
            if odd := into.unfit(rollout):
                raise InputError(odd)
            observe(rollout, what)
            if fill or into is not self._own:
                into.add(rollout)
            number += rollout.num_steps
            self._component.breathe()
        ring = into.ring
        if ring.num_added > len(ring) and (fill or into is not self._own):
            what = "transitions that came, with those that relabel makes,"
            key = "replay_capacity" if into is self._own else "hindsight_goals, or let relabel return fewer"
            raise InputError(
                f"of {ring.num_added:,} {what} its replay holds {len(ring):,}; raise algorithm.{key}"
            )
        return number

    def state(self) -> dict[str, Any]:
        """The state of the drawing from the replays of sources."""
        return {name: replay.ring.random_state() for name, replay in self._shared.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`; a source that was not there begins."""
        for name in state.keys() & self._shared.keys():
            self._shared[name].ring.set_random_state(state[name])
