"""How far the run is, for options that move along it: applied between two updates, in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.moving import RUN
from spreeze_zmq.base.pauses import RunTime
from spreeze_zmq.base.schema import share_of
from spreeze_zmq.learner.experience import Counts
from spreeze_zmq.wire import Message


class Course:
    """Moves the options of a half to where the run is.

    The critic-learner, or the only learner, counts, in a run of several groups that of group 0: an
    actor-learner is where the newest critics say, another group where the fused model says. Minutes are those
    of the broker, which the run's limit counts: from the beginning of the first run, whoever was started
    again, and without the time in which all stood still. A run in order has no clock, so that it gives the
    same numbers again.

    Args:
        half: whose options move.
        counts: of the learner.
        limits: those of the run, by count.
        leads: whether this learner counts.
        in_order: whether the clock is left out.
        clock: in seconds.
    """

    def __init__(
        self,
        half: AutogradHalf,
        counts: Counts,
        limits: Mapping[str, float],
        leads: bool,
        in_order: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._half, self._counts, self._limits = half, counts, limits
        self._leads, self._in_order = leads, in_order
        self.time = RunTime(clock)

    def advance(self) -> None:
        """Before an update: follow the run."""
        if self._leads and self._half.moves:
            half, counts = self._half, self._counts
            reached: dict[str, float] = {"env_steps": half.env_steps, "trained_transitions": counts.trained}
            if not self._in_order:
                reached["minutes"] = self.time.now_s() / 60
            half.follow({**reached, RUN: share_of(self._limits, reached)})

    def hear(self, message: Message) -> None:
        """Follow the learner that counts, with its weights."""
        if not self._leads and (reached := message.fields.get("reached")) is not None:
            self._half.follow(reached)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; nothing where no option moves."""
        if not self._half.moves:
            return {}
        counts = {name: count for name, count in self._half.reached.items() if name != RUN}
        return {"reached": counts, "shares": self._half.shares()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`; in that of an earlier release all schedules were equally far."""
        reached = dict(state.get("reached", {}))
        share = reached.pop(RUN, 0.0)
        self.time.begin_at(60 * reached.get("minutes", 0.0))
        alike = [[*key, share] for *key, _ in self._half.shares()]
        self._half.go_on(reached, state.get("shares", alike))
