"""Rollouts off an experience channel: checked, accounted for, and in a fixed order where that is asked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from spreeze_zmq.channels import Puller
from spreeze_zmq.component.component import Component
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import WireError
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.roles import SAMPLER, experience_of
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.run.account import Receipts
from spreeze_zmq.wire import rollout_from

#: A stopping learner has drained its channel when nothing has come for this long; where samplers go on it
#: leaves them after this share of its grace.
QUIET_S, GRACE_SHARE = 0.1, 0.8


class Intake:
    """Takes rollouts off an experience channel, checks them against the environment, keeps the account.

    Args:
        component: the learner.
        environment: what a rollout must be of.
        too_stale: why a rollout is of no use any more; empty where it is. It is then refused and counted.

    Attributes:
        puller: the channel's end.
        receipts: this end of the account.
        stale_transitions: how many were refused as too stale.
    """

    def __init__(
        self,
        component: Component,
        environment: EnvironmentSpec,
        too_stale: Callable[[Rollout], str] = lambda _: "",
    ) -> None:
        self.component = component
        self.puller: Puller = component.open(experience_of(component.role))
        self.environment = environment
        self.fields = component.plan.channels[experience_of(component.role)].fields
        self.num_before: int = algorithm_of(component.plan)[1].frame_stack - 1
        self.too_stale = too_stale
        self.receipts = Receipts()
        self.stale_transitions = 0
        sampler = component.plan.components[SAMPLER]
        self._turns = Turns(sampler.count.initial) if component.plan.balance.in_order else None
        component.figures["taken"] = self.receipts.to_dict

    @property
    def ready(self) -> bool:
        """Whether the next rollout is here already, though nothing may wait in the channel."""
        return self._turns is not None and self._turns.ready

    def rollouts(self, at_most: int) -> Iterator[Rollout]:
        """The rollouts that wait, ``at_most`` so many; what is malformed, of something else or too stale is
        counted, logged and left out.
        """
        for _ in range(at_most):
            rollout = self._pull() if self._turns is None else self._pull_in_turn(self._turns)
            if rollout is None:
                return
            if self._accept(rollout):
                yield rollout

    def fetch(self) -> None:
        """In order: take everything off the channel to where it waits for its turn. Who must not let samplers
        wait for it does this even when it has no use for a rollout yet.
        """
        while self._turns is not None and (rollout := self._pull()) is not None:
            self._put(self._turns, rollout)

    def drain(self) -> Iterator[Rollout]:
        """Everything that is still under way from samplers that have stopped, in whatever order it is in."""
        if self._turns is not None:
            left, self._turns = self._turns.left(), None
            yield from filter(self._accept, left)
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        until_s = time.monotonic() + GRACE_SHARE * grace_s
        while self.component.poll([self.puller], timeout_s=QUIET_S, draining=True):
            yield from self.rollouts(at_most=100)
            if time.monotonic() >= until_s:
                return

    def drop(self, rollout: Rollout) -> None:
        """Count a rollout that was taken as refused for its age after all."""
        self.receipts.drop(rollout)
        self.stale_transitions += rollout.num_transitions

    def taken(self) -> dict[str, int]:
        """Stream -> position up to which it has been taken."""
        return {stream: receipt.last for stream, receipt in self.receipts.streams.items()}

    def _pull(self) -> Rollout | None:
        while (message := self.puller.pull()) is not None:
            try:
                return rollout_from(message)
            except WireError as error:
                self.puller.refuse(error)
        return None

    def _pull_in_turn(self, turns: Turns) -> Rollout | None:
        while not turns.ready:
            rollout = self._pull()
            if rollout is None:
                return None
            self._put(turns, rollout)
        return turns.next()

    def _put(self, turns: Turns, rollout: Rollout) -> None:
        try:
            turns.put(rollout)
        except WireError as error:
            self.receipts.take(rollout, refused=True)
            self.puller.refuse(error)

    def _accept(self, rollout: Rollout) -> bool:
        misfit = self._misfit(rollout)
        stale = "" if misfit else self.too_stale(rollout)
        self.receipts.take(rollout, refused=bool(misfit or stale))
        if stale:
            self.stale_transitions += rollout.num_transitions
        if misfit or stale:
            word = "misfit" if misfit else "stale"
            self.puller.refuse(WireError(word, f"rollout of {rollout.sampler}: {misfit or stale}"))
            return False
        return True

    def _misfit(self, rollout: Rollout) -> str:
        """Why a rollout cannot be of this run's environment, or for this learner; empty where it can."""
        env = self.environment
        expected = {name: (lead, env.obs_shape) for name, lead in (("obs", 2), ("final_obs", 1))}
        expected |= {"history": (2, env.obs_shape), "action": (2, env.action_shape)}
        for name in self.fields:
            array = getattr(rollout, name)
            if array is None:
                return f"{name} is missing"
            lead, shape = expected.get(name, (0, array.shape))
            if array.shape[lead:] != tuple(shape):
                return f"{name} is {array.shape[lead:]} for each step, expected {tuple(shape)}"
        if rollout.obs is not None and rollout.obs.dtype != env.obs_dtype:
            return f"obs is {rollout.obs.dtype}, expected {env.obs_dtype}"
        if rollout.history is not None and len(rollout.history) != self.num_before:
            return f"history is of {len(rollout.history)} steps, expected {self.num_before}"
        return ""


class Turns:
    """Brings rollouts of several samplers into one order whatever order they come in: the first of sampler-0,
    of sampler-1, ..., the second of sampler-0, and so on.

    What waits here is bounded by how far a sampler may collect under one policy.
    """

    def __init__(self, num_samplers: int) -> None:
        self._waiting: dict[str, deque[Rollout]] = {f"{SAMPLER}-{i}": deque() for i in range(num_samplers)}
        self._lives: dict[str, int] = {}
        self._num_taken = 0

    @property
    def _queue(self) -> deque[Rollout]:
        return self._waiting[f"sampler-{self._num_taken % len(self._waiting)}"]

    @property
    def ready(self) -> bool:
        """Whether the rollout whose turn it is has come."""
        return bool(self._queue)

    def put(self, rollout: Rollout) -> None:
        """Enter a rollout that has come.

        Raises:
            WireError: no place was laid for its sampler, or for that sampler's second life.
        """
        if rollout.sampler not in self._waiting:
            raise WireError("misfit", f"{rollout.sampler} has no place in the fixed order")
        life = self._lives.setdefault(rollout.sampler, rollout.incarnation)
        if life != rollout.incarnation:
            raise WireError("misfit", f"{rollout.sampler} has begun anew: the order of samples is lost")
        self._waiting[rollout.sampler].append(rollout)

    def next(self) -> Rollout:
        """The rollout whose turn it is."""
        rollout = self._queue.popleft()
        self._num_taken += 1
        return rollout

    def left(self) -> list[Rollout]:
        """Everything that still waits."""
        return [rollout for queue in self._waiting.values() for rollout in queue]
