"""The critic-learner of an off-policy algorithm: transitions and policies in, critics out.

Where the algorithm has no actor-learner, the critics define the policy, and this learner publishes it.
"""

from __future__ import annotations

import logging
from typing import Any

from spreeze_zmq.balance import RatioGate
from spreeze_zmq.component import Component
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.lag import CollectionLimits
from spreeze_zmq.learner.learner import Learner
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.setup import keep
from spreeze_zmq.plan.roles import ACTOR_LEARNER, SAMPLER
from spreeze_zmq.replay import Replay, transition_replay
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: After a restart without the replay: share of the lost transitions that must come before the next update.
REFILL_SHARE = 0.1

log = logging.getLogger("spreeze")


class CriticLearner(Learner):
    """Trains the critics on a replay, at the replay ratio of the run.

    Only this learner counts the experience of the run: its env steps, its replay ratio and its policy lag.
    """

    replay: Replay

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self.limits = CollectionLimits(self.plan)
        self.first_policy = 0
        self.intake = Intake(component, self.options.frame_stack, self.too_stale)
        seed = self.plan.run.seed
        self.replay = transition_replay(component.environment, self.options, self.device, seed)
        keep(self.replay)
        starts: int = self.options.learning_starts
        if self.balance.in_order and self.limits.schedule is not None:
            starts = self.limits.schedule.first_update_at
        self.gate = RatioGate(self.balance.replay_ratio, self.options.batch_size, starts, slack=0)
        self.count_replay_as_trained()
        self.batch = LiveBatch(component, self.half)
        self.version = self.updates_before = self.updates_published = 0
        component.figures["policy_lag"] = self.policy_lag
        self.refills = False
        component.lacks = self.lacks

    # --- what it may do

    @property
    def lacks_policy(self) -> bool:
        """Whether an update waits for a policy of the actor-learner: for the first one or, in order, for all
        but the one that is trained at the same time.
        """
        if self.others is None:
            return False
        return self.others.num_taken < (max(1, self.cadence.published) if self.others.in_turn else 1)

    def newest_policy(self) -> int | None:
        """The version of the newest policy; None before the first. In order this is the one that the
        actor-learner trains on the critics published last, even before it has been received.
        """
        if self.policy is not None:
            return self.policy.versions.newest
        if self.others is None or self.others.num_taken == 0:
            return None
        return self.first_policy + self.cadence.published if self.others.in_turn else self.others.version

    def too_stale(self, rollout: Rollout) -> str:
        """Why a rollout is older than ``max_policy_lag`` allows; empty if it is not."""
        if (bound := self.balance.max_policy_lag) is None:
            return ""
        if (newest := self.newest_policy()) is None:
            return "the newest policy is not known yet"
        lag = newest - rollout.policy_version
        return f"{lag} versions behind, max_policy_lag is {bound}" if lag > bound else ""

    @property
    def may_update(self) -> bool:
        """Whether a policy has come and the ratio allows another batch."""
        return self.gate.may_update and not self.lacks_policy and not self.stopping

    @property
    def may_pull(self) -> bool:
        """Whether the ratio and the run allow more samples and a policy has come to measure their lag by, or
        the samplers have been stopped.
        """
        wanted = self.gate.may_pull and self.env_steps < self.enough
        return (wanted and self.newest_policy() is not None) or self.stopping

    @property
    def may_load(self) -> bool:
        """Always, except in order: then the next policy waits until an update needs it."""
        return not self.balance.in_order or self.lacks_policy

    @property
    def trained_out(self) -> bool:
        """Whether all samples of the run have come and been trained on as often as the ratio allows."""
        return self.env_steps >= self.enough and not self.gate.may_update

    @property
    def settled(self) -> bool:
        """Whether all samples are trained on and the policies have come that another update would need."""
        return self.trained_out and not self.lacks_policy

    @property
    def owed(self) -> str:
        """A policy or rollouts."""
        return f"a policy from {ACTOR_LEARNER}" if self.lacks_policy else f"rollouts from {SAMPLER}"

    def lacks(self) -> str:
        """What it waits for although samples come: those that replace a replay that was not saved."""
        missing = self.gate.learning_starts - self.gate.received if self.refills else 0
        return f"{missing:,} more transitions, as its replay was not saved" if missing > 0 else ""

    # --- what it does

    def wait(self) -> None:
        """Adopt a new batch size, then as every learner."""
        if self.batch.adopt():
            self.gate.batch_size = self.batch.size
        super().wait()

    def load(self, message: Message) -> None:
        """Load a policy, for the target actions and their entropy."""
        assert self.others is not None
        extras = message.fields["extras"]
        self.half.load_policy(message.arrays)
        if self.others.num_taken == 1:
            self.first_policy = self.others.version
            # After a restart from an older checkpoint the actor-learner knows better how many were received.
            self.receive(max(0, int(extras.get("env_steps", 0)) - self.env_steps))

    def store(self, rollout: Rollout) -> None:
        """Add one rollout to the replay and count it for the ratio, the run and the lag."""
        self.replay.add(rollout)
        if self.policy is not None:
            self.half.observe(rollout.acted_on)
        self.gate.slack = self.balance.slack_rollouts * rollout.num_transitions
        usable = 0 if self.stopping else rollout.num_transitions
        self.gate.received += usable
        self.sampled += usable
        self.receive(rollout.num_transitions)
        self.lag.add((self.newest_policy() or 0) - rollout.policy_version, rollout.num_transitions)

    def receive(self, transitions: int) -> None:
        """Count transitions as received."""
        self.count_env_steps(transitions)
        self.half.env_steps = self.env_steps

    def update(self) -> None:
        """Take one critic update."""
        self.train_on(self.replay.sample(self.gate.batch_size))
        if self.replay.prioritized:
            self.replay.prioritize(self.half.priorities())
        self.gate.trained += self.gate.batch_size
        self.trained += self.gate.batch_size

    def publish_if_due(self) -> None:
        """Publish by the clock or the count, at the end of the run, and when samplers wait for a limit."""
        if not self.outbox.serve(wait=not self.may_update):
            return
        updates = self.half.num_updates - self.updates_before
        news = updates > self.updates_published
        due = news and (self.cadence.due(updates) or self.trained_out)
        if due or (not self.gate.may_update and self.limits.used_up(self.intake.taken())):
            self.updates_published = updates
            self.version += 1
            if due and self.policy is not None:
                self.policy.versions.advance()
            self.publish()
            if due:
                counts = {"critic_updates": self.half.num_updates, "env_steps": self.env_steps}
                self.record.write(counts, self.metrics)

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to all its readers."""
        wait = not self.may_update
        if self.policy is not None:
            self.policy.publish(
                critic_updates=self.half.num_updates,
                env_steps=self.env_steps,
                collect_until=self.limits.collect_until(
                    self.intake.taken(), self.policy.versions.since_first
                ),
                wait=wait,
            )
            return
        fields: dict[str, Any] = {}
        if self.limits.by_position:
            fields["taken"] = self.limits.published = self.intake.taken()
        self.publish_critics(self.version, wait=wait, **fields)

    # --- what it reports and keeps

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
        return {
            "replay_ratio": self.gate.measured,
            "replay_size": len(self.replay),
            "learning_rate": self.batch.learning_rate,
            "batch_size": self.batch.size,
            **self.losses(),
        }

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs besides the replay, which is saved only with ``save_replay``."""
        counters = {"version": self.version, "env_steps": self.env_steps, "trained": self.trained}
        counters["sampled"] = self.sampled
        if self.policy is not None:
            counters["policy_version"] = self.policy.versions.newest
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def count_replay_as_trained(self) -> None:
        """Count the transitions in the replay as received and trained on; a run in order counts from 0, as
        its samplers do.
        """
        if not self.balance.in_order:
            self.gate.received = len(self.replay)
            self.gate.trained = int(self.gate.replay_ratio * self.gate.received)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`. Without the replay, updates wait for a share of its transitions to
        come again: to train on a few fresh transitions would spoil trained networks.
        """
        self.count_replay_as_trained()
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        counters = state["counters"]
        self.version, self.env_steps = counters["version"], counters["env_steps"]
        self.trained = counters["trained"]
        self.sampled = counters.get("sampled", self.env_steps)  # older checkpoints lack it
        if not len(self.replay) and not self.balance.in_order:
            lost = min(self.env_steps, self.options.replay_capacity)
            self.gate.learning_starts = max(self.gate.learning_starts, int(REFILL_SHARE * lost))
            log.warning("without its replay: updates go on after %d transitions", self.gate.learning_starts)
            self.refills = True
        if self.policy is not None:
            self.policy.versions.restore(counters["policy_version"])
        self.updates_before = self.half.num_updates
