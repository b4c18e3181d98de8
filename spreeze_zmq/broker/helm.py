"""What the broker decides from the run's record, and tells the others on the channel ``control``."""

from __future__ import annotations

import logging
import math
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.checkpoint_request import CheckpointRequest
from spreeze_zmq.broker.crowd import smaller
from spreeze_zmq.broker.hosts import HERE
from spreeze_zmq.broker.last_checkpoint import COUNT_S, LEARNERS_BACK_S, RECONNECTED_S, parts_s
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import LONGEST_TEXT
from spreeze_zmq.broker.rule import Change
from spreeze_zmq.plan import moves
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CRITIC_LEARNER, SAMPLER
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher

log = logging.getLogger("spreeze")

#: In order: how far ahead the count lies at which the learners write a checkpoint, in seconds at the present
#: rate, at first and at most.
AHEAD_S, MOST_AHEAD_S = 1.0, 8.0
#: A checkpoint is said to be late so long after the next one was due.
LATE_S = 30.0
#: Interval at which the balance is checked.
BALANCE_INTERVAL_S = 1.0


class Helm:
    """Checkpoints, numbers of processes, options that move, the end; ``now_s`` is always the run's time.

    Args:
        plan: of the run.
        folder: the run's.
        record: what the broker knows of it.
        notes: where decisions are written down.
        control: the channel that everybody hears.

    Attributes:
        balancer: decides how many processes there are.
        checkpoints: the one that is asked for.
        state: ``starting``, ``warming up``, ``training`` or ``stopping``.
        exit_reason: why the run ends; empty until then.
    """

    def __init__(
        self, plan: Plan, folder: RunFolder, record: RunRecord, notes: Notes, control: Publisher
    ) -> None:
        self._plan, self._record, self._notes, self._control = plan, record, notes, control
        self.balancer = Balancer(plan)
        learners, interval_s = plan.learning.learners, 60 * plan.run.checkpoint_minutes
        self.checkpoints = CheckpointRequest(folder.checkpoints, learners, interval_s)
        self.state, self.exit_reason = "starting", ""
        self._next_balance_s = self._stop_by_s = self._heard_from_s = 0.0
        self._ahead_s, self._count_by_s, self._ask_by_s = AHEAD_S, math.inf, math.inf
        self._has_published_stop = self._has_asked_again = self._has_told_late = False

    def begin(self, now_s: float) -> None:
        """Ask for no checkpoint before all hear this broker: who was there first may reach it with ``hello``
        before it hears what is said here, and a request comes once.
        """
        self._heard_from_s = now_s + RECONNECTED_S
        self.checkpoints.next_s = max(self.checkpoints.next_s, self._heard_from_s)

    def restore(self, exit_reason: str, now_s: float) -> None:
        """Say again what an earlier broker of this run had decided, once the record is restored."""
        self.begin(now_s)
        if exit_reason:
            self._begin_end(exit_reason, now_s)
        if (size := self._record.moved(CRITIC_LEARNER, moves.BATCH)) is not None:
            self.balancer.set_batch_size(size)
            for role in self._plan.learning.learners:
                self.say("set", role=role, option=moves.BATCH, value=size)
        self.turn_again(now_s)
        if self._record.stopped:
            self._has_published_stop = True
            self.say_who_stops()

    def say(self, kind: str, **fields: Any) -> None:
        self._control.publish(Message(kind, fields))

    def say_who_stops(self) -> None:
        """Tell every role that is stopped by now: who comes late hears the last such message alone."""
        reason = self.exit_reason or "the launcher stops the run"
        self.say("stop", roles=self._record.stopped, reason=reason)

    def status(self, now_s: float) -> dict[str, Any]:
        return self._record.status(self.state, self.balancer.status(), now_s)

    def show(self, now_s: float) -> None:
        """Publish the status, or as much of it as fits."""
        self._notes.refusals(self._record.silent(now_s), now_s)
        for status in smaller(self.status(now_s)):
            try:
                self._notes.publish("status", status, status["t_s"])
                self.say("status", **status)
            except WireError as error:
                if error.reason != "oversize_header":
                    raise
            else:
                return

    def decide(self, now_s: float) -> None:
        """Checkpoint when due, keep the balance, end the run when a stop condition holds."""
        if self.exit_reason:
            self._ask_if_heard(now_s)
            if self.checkpoints.pending and now_s >= self._count_by_s:
                self._count_by_s = math.inf
                self.checkpoint(now_s, at_once=True)
            awaited = self.checkpoints.pending or self._ask_by_s < math.inf
            if not self._has_published_stop and (not awaited or now_s >= self._stop_by_s):
                self._has_published_stop = True
                roles = [*self._record.stopped, "launcher"] if self._record.workers else ["*"]
                self.say("stop", roles=roles, reason=self.exit_reason)
            return
        self._look()
        if said := self._record.learning.tell_left_out():
            self._remark(said, now_s)
        if self.state == "training" and now_s >= self.checkpoints.next_s:
            self._ask_for_the_next(now_s)
        if now_s >= self._next_balance_s:
            self.balance(now_s)
        self.end(self._record.stop_condition(now_s), now_s)

    def _look(self) -> None:
        """Note how far the run is."""
        learning = self._record.learning
        if learning.counts["critic_updates"] > 0 and self._record.learners_are_ready:
            self.state = "training"
        elif learning.counts["env_steps"] > learning.before.get("env_steps", 0):
            self.state = "warming up"

    def checkpoint(self, now_s: float, *, at_once: bool = False) -> str:
        """Ask the learners for a checkpoint, in order at a count which they have not reached unless it is to
        be ``at_once``; returns its folder name.
        """
        learning = self._record.learning
        env_steps, at = int(learning.counts["env_steps"]), {}
        if self._plan.offline:
            at["at"] = int(learning.counts["trained_transitions"])
        elif self._plan.balance.in_order and not at_once:
            ahead = env_steps + 1 + int(self._ahead_s * learning.rates.rate("env_steps", now_s))
            at["at"] = min(ahead, self._plan.run.stop.env_steps or ahead)
        folder = self.checkpoints.begin(env_steps, now_s)
        self.say("checkpoint", folder=folder, env_steps=env_steps, **at)
        return folder

    def _ask_for_the_next(self, now_s: float) -> None:
        """Ask for the checkpoint that is due, unless the last one is still written: of one that is asked for
        again and again none would ever be whole.
        """
        pending, missing = self.checkpoints.pending, " and ".join(self.checkpoints.missing)
        if not self.checkpoints.is_awaited(now_s):
            if missing:
                why = self.checkpoints.refused[:LONGEST_TEXT] or f"no part has come from {missing}"
                self._remark(f"checkpoint {pending} is given up: {why}", now_s)
            self._has_asked_again = False
            self.checkpoint(now_s)
        elif not self._has_told_late and now_s >= self.checkpoints.next_s + LATE_S:
            self._has_told_late = True
            late = f"within run.checkpoint_minutes = {self._plan.run.checkpoint_minutes:g}"
            what = f"no part of checkpoint {pending} has come from {missing} {late}"
            self._remark(f"{what}: the next one waits for it", now_s)

    def _remark(self, text: str, now_s: float) -> None:
        """Have the user see a line."""
        row = self._record.requests.note(BROKER, text, now_s)
        log.warning("%s", row.line)
        self._notes.note("request", to_plain(row), now_s)

    def welcome(self, role: str, now_s: float) -> None:
        """A process is set up. Where it is a learner, of which an earlier life has died with its part of a
        checkpoint, that is asked for again, but at once only once: the part itself may be what ends it.
        """
        if role not in self.checkpoints.missing:
            return
        if self._record.learners_are_ready and not self._has_asked_again:
            self._has_asked_again = True
            self.checkpoint(now_s)
        else:
            self.checkpoints.awaited_until_s = now_s

    def saved(self, now_s: float) -> None:
        """A checkpoint is whole. In order, one whose count a learner had passed comes again, farther on."""
        self.checkpoints.rest(now_s)
        late = self._plan.balance.in_order and not (self.checkpoints.exact or self._plan.offline)
        if late and not self.exit_reason and self._ahead_s < MOST_AHEAD_S:
            self._ahead_s *= 2
            self.checkpoints.next_s = now_s

    def balance(self, now_s: float) -> None:
        """Let the balancer decide from the rates, write these in the journal, and carry out a change."""
        self._next_balance_s = now_s + BALANCE_INTERVAL_S
        num_samplers, training = self._record.num_workers(SAMPLER), self.state == "training"
        machines = self._record.machines.present
        change = self.balancer.step(num_samplers, now_s, training=training, machines=machines)
        count = len(self._record.processes)
        self._notes.figures("balance", now_s, count, lambda rows: self.balancer.figures(now_s, rows=rows))
        if change is not None:
            log.info("%s", change.reason)
            self._carry_out(change, now_s)

    def _carry_out(self, change: Change, now_s: float) -> None:
        """Ask the launcher to change a number of processes, or the processes to change an option."""
        if not change.option:
            self._scale(change, now_s)
            return
        self._notes.note("set", vars(change), now_s)
        self._record.take_move(change.role, change.option, change.count, change.reason, now_s)
        self.say("set", role=change.role, option=change.option, value=change.count, reason=change.reason)
        if change.role in self._plan.learning.learners:  # without a reason, which is shown only once
            for role in set(self._plan.learning.learners) - {change.role}:
                self.say("set", role=role, option=change.option, value=change.count)

    def _scale(self, change: Change, now_s: float) -> None:
        """Ask the launcher to change the number of samplers on each machine that gets another one."""
        about = {"role": change.role, "before": change.before, "count": change.count, "reason": change.reason}
        self._notes.note("scale", about, now_s)
        for host, count in change.hosts.items():
            if host == HERE:
                self.say("scale", role=change.role, count=count, reason=change.reason)
            else:
                why = self._record.machines.change(host, count, change.reason)
                self.say("scale", role=change.role, count=count, reason=why, node=host)

    def turn(self, option: str, value: float, now_s: float) -> None:
        """Have the learners use another value of an option from now on."""
        for role in moves.followers(self._plan, option):
            self.say("set", role=role, option=option, value=value)
        if option == moves.REPLAY_RATIO:
            self.balancer.set_replay_ratio(value, now_s)

    def turn_again(self, now_s: float) -> None:
        """Have them use what was asked for before this broker was there."""
        for option, value in self._record.requests.values.items():
            self.turn(option, value, now_s)

    def end(self, reason: str, now_s: float) -> None:
        """Begin the end of the run: a last checkpoint, then the stop."""
        if not reason or self.exit_reason:
            return
        log.info("the run ends: %s", reason)
        self._notes.note("end", {"reason": reason}, now_s)
        self._begin_end(reason, now_s)
        self.show(now_s)  # the evaluator only receives policies from now on
        self._ask_if_heard(now_s)

    def _begin_end(self, reason: str, now_s: float) -> None:
        """Decide whether there is a last checkpoint; it is asked for when the learners hear this broker, and
        one that is about to start again is back.
        """
        self._look()
        ready = self._record.learners_are_ready
        # in order, it comes after updates that are not made yet
        learning = self.state == "training" or (self._plan.balance.in_order and ready)
        self._stop_by_s = max(now_s, self._heard_from_s)
        roles = set(self._plan.learning.learners)  # that the launcher starts again
        come_back = roles <= self._record.workers.keys() and roles.isdisjoint(self._record.stopped)
        if learning or (come_back and self._record.learning.has_trained):
            self._stop_by_s += 0.0 if ready else LEARNERS_BACK_S
            self._ask_by_s = self._stop_by_s
        self.exit_reason, self.state = reason, "stopping"

    def lose(self, name: str, now_s: float) -> None:
        """A process is gone for good: the end waits for no part of the last checkpoint that is its own."""
        if self.exit_reason and name.rpartition("-")[0] in self.checkpoints.missing:
            self._stop_by_s = min(self._stop_by_s, now_s)

    def _ask_if_heard(self, now_s: float) -> None:
        """Ask for the last checkpoint if all who write it can hear that, or it is late."""
        can_hear = now_s >= self._heard_from_s and self._record.learners_are_ready
        if now_s >= self._ask_by_s or (can_hear and self._ask_by_s < math.inf):
            self._ask_for_the_last(now_s)

    def _ask_for_the_last(self, now_s: float) -> None:
        """Ask for the last checkpoint, and set how long the end of the run waits for it."""
        self._ask_by_s = math.inf
        self.checkpoint(now_s)
        self._stop_by_s = now_s + parts_s(self._plan)
        if self._plan.balance.in_order and not self._is_at_its_last_step:
            self._stop_by_s += COUNT_S
            self._count_by_s = now_s + COUNT_S

    @property
    def _is_at_its_last_step(self) -> bool:
        """Whether the run has all samples that it may have: its last checkpoint comes after their updates."""
        enough = self._plan.run.stop.env_steps
        return enough is not None and self._record.learning.counts["env_steps"] >= enough
