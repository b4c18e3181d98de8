"""Receives rollouts from an experience channel: checks, counts and, in a run in order, sorts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.masks import allows
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.broker.receipts import MOST_AT_ONCE, Receipts
from spreeze_zmq.component import Component
from spreeze_zmq.envs.packed import OBSERVATIONS, Packing, odd_choice, sent
from spreeze_zmq.learner.lag import Published
from spreeze_zmq.learner.turns import Turns
from spreeze_zmq.plan.roles import SAMPLER, experience_of
from spreeze_zmq.policy.legal import illegal
from spreeze_zmq.wire import MAX_COUNT, Message, odd_number, rollout_from
from spreeze_zmq.wire.channels import Puller

#: A stopping learner has drained its channel when nothing has arrived for ``QUIET_S``. If samplers go on
#: sending, it stops receiving after ``GRACE_SHARE`` of its ``stop_grace_s``. From another machine a rollout
#: may take ``AWAY_QUIET_S``.
QUIET_S, AWAY_QUIET_S, GRACE_SHARE = 0.1, 0.5, 0.8


class Intake:
    """Receives rollouts, refuses those that do not fit the learner, and accounts for all of them.

    Args:
        component: the learner.
        frame_stack: observations that the networks take at once.
        too_stale: says why a rollout is too old to be used; empty if it is not.
        unfit: says why the learner cannot keep a rollout that fits the environment; empty if it can.
        memory_size: numbers that the policy keeps from step to step.

    Attributes:
        puller: the learner's end of the channel.
        fields: the arrays of a rollout that the learner needs.
        receipts: the learner's side of the account of samples.
        stale_transitions: transitions refused as too stale.
        has_more: whether the last look at the channel found a rollout, so that others may wait behind it.
        states: in order: sampler -> the state that came with its newest rollout; see ``run.sampler_state``.
        on_refused: called with each rollout that is refused in its place in the stream.
    """

    def __init__(
        self,
        component: Component,
        frame_stack: int,
        too_stale: Callable[[Rollout], str],
        unfit: Callable[[Rollout], str],
        memory_size: int,
    ) -> None:
        self.component = component
        channel = experience_of(component.role)
        self.puller = component.open(channel, Puller)
        self.fields = component.plan.channels[channel].fields
        self.num_before, self.memory_size = frame_stack - 1, memory_size
        self.packing, self.sent = Packing.of(component.environment), sent(component.environment)
        self.too_stale, self.unfit = too_stale, unfit
        self.published = Published(Path(component.plan.socket_dir))
        self.puller.on_refused = self._on_unread
        self.receipts = Receipts()
        self.stale_transitions = 0
        self.has_more = False
        self.states: dict[str, NDArray[np.uint8]] = {}
        self.on_refused: Callable[[Rollout], None] = lambda rollout: None
        sampler = component.plan.components[SAMPLER]
        #: Code of each refusal and the check that gives its reason; the first reason decides.
        self._checks = (
            ("unordered", self.receipts.disorder),
            ("misfit", self._misfit),
            ("not_finite", self._not_finite),
            ("unknown_policy", self.published.unknown),
            ("stale", self.too_stale),
        )
        self._turns = Turns(sampler.count.initial) if component.plan.balance.in_order else None
        component.figures["taken"] = self.receipts.to_dict
        component.relist = self.receipts.relist
        component.has_more = lambda: bool(self.receipts.unlisted)

    @property
    def ready(self) -> bool:
        """Whether the next rollout has already been pulled, so that no wait on the channel is needed."""
        return self._turns is not None and self._turns.ready

    @property
    def has_heard_all(self) -> bool:
        """In order: whether each sampler has sent a rollout."""
        return self._turns is None or self._turns.has_heard_all

    def take(self) -> Rollout | None:
        """The next rollout; None if none has arrived, or if it is refused."""
        rollout = self._pull() if self._turns is None else self._pull_in_turn(self._turns)
        return rollout if rollout is not None and self._accept(rollout) else None

    def fetch(self) -> None:
        """In order: pull all rollouts that have arrived, so that samplers do not wait for this learner."""
        while self._turns is not None and (rollout := self._pull()) is not None:
            self._put(self._turns, rollout)

    def drain(self) -> Iterator[Rollout]:
        """The rollouts still in flight after the samplers have stopped, in order of arrival."""
        if self._turns is not None:
            left, self._turns = self._turns.left(), None
            yield from filter(self._accept, left)
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        until_s = time.monotonic() + GRACE_SHARE * grace_s
        quiet_s = AWAY_QUIET_S if self.puller.remote else QUIET_S
        while self.component.poll([self.puller], timeout_s=quiet_s, draining=True):
            if (rollout := self.take()) is not None:
                yield rollout
            if time.monotonic() >= until_s:
                return

    def drop(self, rollout: Rollout) -> None:
        """Count a rollout that has been taken as refused for its age after all."""
        self.receipts.drop(rollout)
        self.stale_transitions += rollout.num_transitions

    def taken(self) -> dict[str, int]:
        """Stream -> position up to which its rollouts have been received or refused, the newest last."""
        return {stream: receipt.last for stream, receipt in self.receipts.streams.items()}

    def _pull(self) -> Rollout | None:
        self.has_more = True
        while (message := self.puller.pull()) is not None:
            try:
                return self._asked(rollout_from(message))
            except WireError as error:
                self.puller.refuse(error, message.sender, message.kind)
        self.has_more = False
        return None

    def _asked(self, rollout: Rollout) -> Rollout:
        """A rollout without the arrays that nobody asked for, which no check has seen."""
        asked = {*self.fields, *(() if self._turns is None else ("state",))}
        odd = [name for name in ARRAY_FIELDS if name not in asked and getattr(rollout, name) is not None]
        none: dict[str, Any] = dict.fromkeys(odd)
        return replace(rollout, **none) if odd else rollout

    def _on_unread(self, claims: Message) -> None:
        """Enter a rollout that could not be decoded in the account, as its header describes it."""
        counts = [claims.fields.get(name) for name in ("num_steps", "num_envs", "produced")]
        steps, envs, produced = (count if type(count) is int and count > 0 else 0 for count in counts)
        if claims.kind != "rollout" or not 0 < steps * envs <= MOST_AT_ONCE:
            return
        origin = (claims.sender, claims.incarnation, claims.sequence)
        rollout = Rollout(*origin, produced, policy_version=0, num_steps=steps, num_envs=envs)
        if produced < MAX_COUNT and not self.receipts.disorder(rollout):
            self._take_refused(rollout)
        else:
            self.receipts.refuse(rollout.stream, rollout.sequence, steps * envs, sure=False)

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
            self._refuse(rollout, error)

    def _accept(self, rollout: Rollout) -> bool:
        """Whether a rollout passes all checks; either way it is entered in the account."""
        for code, check in self._checks:
            if problem := check(rollout):
                self._refuse(rollout, WireError(code, problem))
                return False
        self.receipts.take(rollout)
        if rollout.state is not None:
            self.states[rollout.sampler] = rollout.state
        return True

    def _refuse(self, rollout: Rollout, error: WireError) -> None:
        """Count a rollout as refused: in its own place if it follows its stream, else as the next one."""
        if self.receipts.disorder(rollout):
            self.receipts.refuse(rollout.stream, rollout.sequence, rollout.num_transitions, sure=True)
        else:
            self._take_refused(rollout)
        if error.reason == "stale":
            self.stale_transitions += rollout.num_transitions
        self.puller.refuse(error, rollout.sampler, "rollout")

    def _take_refused(self, rollout: Rollout) -> None:
        self.receipts.take(rollout, refused=True)
        self.on_refused(rollout)

    def _not_finite(self, rollout: Rollout) -> str:
        """The first number that must not be learned from; empty if there is none."""
        for name in self.fields:
            odd_in = self.packing.odd_number if self.packing and name in OBSERVATIONS else odd_number
            if odd := odd_in(getattr(rollout, name)):
                return f"rollout.{name} holds {odd}"
        return ""

    def _misfit(self, rollout: Rollout) -> str:
        """Why a rollout does not fit the environment or this learner; empty if it does."""
        return (
            self._wrong_shape(rollout)
            or self._wrong_action(rollout)
            or odd_choice(rollout, self.packing)
            or self.unfit(rollout)
        )

    def _wrong_action(self, rollout: Rollout) -> str:
        """Why actions are not the environment's; empty if they are."""
        env, action = self.component.environment, rollout.action
        if action is None:
            return ""
        expected = "float32" if env.action_kind == "box" else "int64"
        if action.dtype != expected:
            return f"action is {action.dtype}, expected {expected}"
        if env.action_kind != "box" and ((action < 0) | (action >= np.asarray(env.action_sizes))).any():
            return f"action is {action.min()} to {action.max()}, expected 0 to below {list(env.action_sizes)}"
        return "" if rollout.action_mask is None else self._illegal(rollout, action, rollout.action_mask)

    def _illegal(self, rollout: Rollout, action: NDArray[Any], masks: NDArray[np.bool_]) -> str:
        """The first action ``[T, N, ...]`` that its mask ``[T + 1, N, A]`` forbids, or the array by which
        none is legal where an episode goes on; empty if neither.
        """
        sizes = self.component.environment.action_sizes
        if (place := illegal(action, masks[:-1], sizes)) is not None:
            return f"action is {action[place].tolist()} at {list(place)}, which its action_mask forbids"
        if not allows(masks[-1], sizes).all():
            return "the last row of action_mask allows no action"
        finals, index, terminated = rollout.final_action_mask, rollout.final_index, rollout.terminated
        if finals is None or index is None or terminated is None:
            return ""
        goes_on = ~terminated[tuple(index.T)]
        odd = not allows(finals[goes_on], sizes).all()
        return "final_action_mask allows no action where an episode is truncated" if odd else ""

    def _wrong_shape(self, rollout: Rollout) -> str:
        """Which array is missing or has a wrong shape or dtype; empty if none."""
        env, obs = self.component.environment, rollout.obs
        flat = self.packing is None or obs is None or obs.dtype != np.uint8
        shape, dtype = (env.obs_shape, env.obs_dtype) if flat else self.sent
        sizes = {"k - 1": self.num_before}
        entries = {"obs": shape, "action": env.action_shape, "memory": (self.memory_size,)}
        entries["mask"] = (env.num_choices,)
        for name in self.fields:
            array, form = getattr(rollout, name), ARRAY_FIELDS[name]
            if array is None:
                return f"{name} is missing"
            if misfit := form.misfit(array.shape, sizes, entries):
                return f"{name} {misfit}"
            if form.entry == "obs" and array.dtype != dtype:
                return f"{name} is {array.dtype}, expected {dtype}"
        return ""
