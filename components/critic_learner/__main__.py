"""Critic-learner: owns a replay, trains the critics at the stated replay ratio, and publishes them.

Where the algorithm has no actor-learner, the critics define the policy, and this learner publishes it.
"""

import logging
import sys
from typing import Any

from spreeze_zmq.balance import RatioGate
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import Weights
from spreeze_zmq.errors import WireError
from spreeze_zmq.learner import (
    CollectionLimits,
    Intake,
    Learner,
    LiveBatch,
    Outbox,
    PolicyOutlet,
    RoundLearner,
    Staleness,
    keep,
    learn,
)
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, POLICY, SAMPLER, publisher_of_policy
from spreeze_zmq.replay import Replay, transition_replay
from spreeze_zmq.rollout import Rollout

#: Share of a lost replay that comes again before the first update.
REFILL_SHARE = 0.1

log = logging.getLogger("spreeze")


class CriticLearner(Learner):
    """Experience and policies in, critics out."""

    replay: Replay

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self.balance = self.plan.balance
        self.limits = CollectionLimits(self.plan)
        self.own_policy: PolicyOutlet | None = None
        self.policies: Weights | None = None  # of the actor-learner
        self.first_policy = 0
        if publisher_of_policy(self.plan.learning.learners) == component.role:
            self.own_policy = PolicyOutlet(component, self.half, self.cadence, self.device)
            self.outbox = self.own_policy.outbox
        else:
            self.policies = Weights(component.open(POLICY), in_turn=self.balance.in_order)
            self.outbox = Outbox(component.open(CRITIC), self.cadence, self.device)
        self.staleness = Staleness(self.balance.max_policy_lag, self.newest_policy)
        self.intake = Intake(component, self.options.frame_stack, self.staleness.too_stale)
        seed = self.plan.run.seed
        self.replay = transition_replay(component.environment, self.options, self.device, seed)
        keep(self.replay)
        starts: int = self.options.learning_starts
        if self.balance.in_order and self.limits.schedule is not None:
            starts = self.limits.schedule.first_update_at
        self.gate = RatioGate(self.balance.replay_ratio, self.options.batch_size, starts, slack=0)
        self.go_on_with_replay()
        self.batch = LiveBatch(component, self.half)
        self.version = self.trained = self.updates_before = self.updates_published = 0
        component.figures["policy_lag"] = self.policy_lag

    # --- what it may do

    @property
    def lacks_policy(self) -> bool:
        """Whether an update has to wait for a policy of the actor-learner: for the first one or, in turn, for
        all but the one that is trained at the same time.
        """
        if self.policies is None:
            return False
        return self.policies.num_taken < (max(1, self.cadence.published) if self.policies.in_turn else 1)

    def newest_policy(self) -> int | None:
        """The version of the newest policy; None before the first. In turn it is the one that the
        actor-learner makes from the critics published last, even before it has been taken.
        """
        if self.own_policy is not None:
            return self.own_policy.versions.newest
        if self.policies is None or self.policies.num_taken == 0:
            return None
        return self.first_policy + self.cadence.published if self.policies.in_turn else self.policies.version

    @property
    def may_update(self) -> bool:
        """Whether a policy has come and the ratio allows another batch."""
        return self.gate.may_update and not self.lacks_policy and not self.stopping

    @property
    def may_pull(self) -> bool:
        """Whether the ratio and the run allow more samples and a policy has come to measure their lag by, or
        stopped samplers are to be drained.
        """
        wanted = self.gate.may_pull and self.env_steps < self.enough
        return (wanted and self.newest_policy() is not None) or self.stopping

    @property
    def trained_out(self) -> bool:
        """Whether all samples of the run have come and been trained on as often as the ratio allows."""
        return self.env_steps >= self.enough and not self.gate.may_update

    @property
    def settled(self) -> bool:
        """Whether it has also taken the policies that it would need for another update."""
        return self.trained_out and not self.lacks_policy

    # --- what it does

    def wait(self) -> None:
        """Wait for samples or a policy; not at all if an update may begin. A new batch size is adopted here,
        between two updates.
        """
        if self.batch.adopt(self.batch.wanted):
            self.gate.batch_size = self.batch.size
        policies, lacks_policy = self.policies, self.lacks_policy
        sources: list[Any] = [self.intake.puller] if self.may_pull else []
        if policies is not None and (not policies.in_turn or lacks_policy):
            sources.append(policies.subscriber)
        self.poll(sources, f"a policy from {ACTOR_LEARNER}" if lacks_policy else f"rollouts from {SAMPLER}")

    def take_weights(self) -> None:
        """Load the newest policy, or the next one in turn, for the target actions and their entropy."""
        policies = self.policies
        if policies is None or (policies.in_turn and not self.lacks_policy):
            return
        if (message := policies.take()) is None:
            return
        extras = message.fields["extras"]
        try:
            self.half.load_policy(message.arrays)
        except WireError as error:
            policies.refuse(message, error)
            return
        if policies.num_taken == 1:
            self.first_policy = policies.version
            # After a restart from an older checkpoint the actor-learner knows better how many were received.
            self.receive(max(0, int(extras.get("env_steps", 0)) - self.env_steps))

    def store(self, rollout: Rollout) -> None:
        """Add one rollout to the replay and count it for the ratio, the run and the lag."""
        self.replay.add(rollout)
        if self.own_policy is not None:
            self.half.observe(rollout.acted_on)
        self.gate.slack = self.balance.slack_rollouts * rollout.num_transitions
        self.gate.received += 0 if self.stopping else rollout.num_transitions
        self.receive(rollout.num_transitions)
        self.staleness.add(rollout)

    def receive(self, transitions: int) -> None:
        """Count transitions that have been received."""
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
            if due and self.own_policy is not None:
                self.own_policy.versions.advance()
            self.publish()
            if due:
                counts = {"critic_updates": self.half.num_updates, "env_steps": self.env_steps}
                self.record.write(counts, self.metrics)

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to all its readers."""
        wait = not self.may_update
        if self.own_policy is not None:
            taken, since_first = self.intake.taken(), self.own_policy.versions.since_first
            self.own_policy.publish(
                critic_updates=self.half.num_updates,
                env_steps=self.env_steps,
                collect_until=self.limits.collect_until(taken, since_first),
                wait=wait,
            )
        else:
            fields: dict[str, Any] = {}
            if self.limits.by_position:
                fields["taken"] = self.limits.published = self.intake.taken()
            self.publish_critics(self.outbox, self.version, wait=wait, **fields)

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""
        counted: dict[str, float] = {"env_steps": self.env_steps, "trained_transitions": self.trained}
        if self.own_policy is not None:
            counted["policy_version"] = self.own_policy.versions.newest
        return {**counted, "critic_updates": self.half.num_updates, **self.flops(self.trained)}

    def policy_lag(self) -> dict[str, float]:
        """Lag of the received transitions in versions; ``stale`` transitions were dropped."""
        return {**self.staleness.received.summary(), "stale": self.intake.stale_transitions}

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
        if self.own_policy is not None:
            counters["policy_version"] = self.own_policy.versions.newest
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def go_on_with_replay(self) -> None:
        """Count the replay as trained on already; a run in order counts from 0, as its samplers do."""
        if not self.balance.in_order:
            self.gate.received = len(self.replay)
            self.gate.trained = int(self.gate.replay_ratio * self.gate.received)

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`. Without the replay, updates wait for a share of it to come again:
        those of a trained network on a few fresh transitions would spoil it.
        """
        self.go_on_with_replay()
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        counters = state["counters"]
        self.version, self.env_steps = counters["version"], counters["env_steps"]
        self.trained = counters["trained"]
        if not len(self.replay) and not self.balance.in_order:
            lost = min(self.env_steps, self.options.replay_capacity)
            self.gate.learning_starts = max(self.gate.learning_starts, int(REFILL_SHARE * lost))
            log.warning("without its replay: updates go on after %d transitions", self.gate.learning_starts)
        if self.own_policy is not None:
            self.own_policy.versions.restore(counters["policy_version"])
        self.updates_before = self.half.num_updates


def main(component: Component) -> None:
    """Learn from a replay or, on-policy, from rounds of rollouts."""
    learner = RoundLearner if component.plan.learning.on_policy else CriticLearner
    learn(component, learner(component))


if __name__ == "__main__":
    sys.exit(run("critic_learner", main))
