"""Critic-learner: owns a replay, trains the critics at the stated replay ratio, and publishes them.

Several of them train as one, each with a shard of the replay; the first publishes. Where the algorithm has no
actor-learner, what the critics say is the policy, and this learner publishes that.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.balance import RatioGate
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import Weights
from spreeze_zmq.device import Work
from spreeze_zmq.learner import (
    Intake,
    KnownPolicies,
    LiveBatch,
    Outbox,
    OwnPolicies,
    PolicyOutlet,
    Record,
    RoundLearner,
    Staleness,
    algorithm_of,
    cadence_of,
    learn,
    seed_of,
    settle_device,
    share_of,
    updates_of,
)
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, PART_OF, POLICY, SAMPLER, publisher_of_policy
from spreeze_zmq.replay import transition_replay
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.topology import dial
from spreeze_zmq.wire import Message


class CriticLearner:
    """Experience and policies in, critics out."""

    def __init__(self, component: Component) -> None:
        plan, device, part = component.plan, settle_device(component), PART_OF[component.role]
        algorithm, options = algorithm_of(plan)
        environment = component.environment
        self.component = component
        options = share_of(component, options)
        self.is_first, self.seed = component.index == 0, seed_of(component)
        self.balance = plan.balance
        self.schedule = dial.schedule(plan)
        self.cadence = cadence_of(component)
        self.half = algorithms.make(part, algorithm, options, environment, device, plan.run.seed)
        self.own_policy: PolicyOutlet | None = None
        self.actors_policies: Weights | None = None
        if publisher_of_policy(plan.learning.learners) == component.role:
            self.own_policy = PolicyOutlet(component, self.half, self.cadence, device)
            self.policies: KnownPolicies = OwnPolicies(self.own_policy.versions)
        else:
            in_order = self.balance.in_order
            self.policies = self.actors_policies = Weights(component.open(POLICY), in_turn=in_order)
        self.staleness = Staleness(self.balance.max_policy_lag, self.policies, self.cadence)
        self.intake = Intake(component, environment, self.staleness.too_stale)
        self.replay = transition_replay(environment, options, device, self.seed)
        self.enough: float = plan.run.stop.env_steps or math.inf
        starts: int = options.learning_starts
        if self.balance.in_order and self.schedule is not None:
            starts = self.schedule.first_update_at
        self.gate = RatioGate(self.balance.replay_ratio, options.batch_size, starts, slack=0)
        self.batch = LiveBatch(component, self.half)
        self.updates = updates_of(component, self.half, self.batch, self.cadence, device)
        self.work = Work(device)
        self.outbox: Outbox | None = None
        if self.own_policy is not None:
            self.outbox = self.own_policy.outbox
        elif self.is_first:
            self.outbox = Outbox(component.open(CRITIC), self.cadence, device)
        self.record = Record(component.folder.learning / f"{component.role}.jsonl", self.cadence)
        self.version = self.env_steps = 0
        self.received = self.trained = self.trained_before = 0
        self.updates_before = self.updates_published = 0
        self.told: dict[str, int] = {}
        self.metrics: Mapping[str, Any] = {}
        self.updates.join()
        if not self.is_first:
            self.half.reseed(self.seed)
        component.figures.update(counters=self.counters, gauges=self.gauges, policy_lag=self.policy_lag)
        component.figures["device"] = self.work.figures
        if self.is_first:
            component.figures["publication"] = self.cadence.figures

    # --- what it may do

    @property
    def policies_needed(self) -> int:
        """Versions that must have been taken before the next update. In order: all but the one that the
        actor-learner makes meanwhile.
        """
        return max(1, self.cadence.published) if self.policies.in_turn else 1

    @property
    def may_update(self) -> bool:
        """A policy is there and the ratio allows another batch; who is being stopped trains no further."""
        if self.policies.num_taken < self.policies_needed or self.stopping:
            return False
        return self.gate.may_update and self.updates.may_begin

    @property
    def may_pull(self) -> bool:
        """The ratio and the run allow more samples, and a policy is there to tell how old they are; samplers
        that stop are emptied in any case.
        """
        wanted = self.gate.may_pull and self.env_steps < self.enough
        return (wanted and self.policies.num_taken > 0) or self.stopping

    @property
    def stopping(self) -> bool:
        """Whether nothing new is collected any more."""
        return SAMPLER in self.component.stopping_roles

    @property
    def settled(self) -> bool:
        """It has all the samples that the run wants, and has trained on them as often as the ratio allows."""
        return self.env_steps >= self.enough and not self.gate.may_update

    # --- what it does

    def wait(self) -> None:
        """Wait for what the balance lacks: samples, a policy, or nothing when an update is possible; or for
        the others, where an update has begun. Between two updates is the place to take up another batch.
        """
        self.adopt_batch()
        self.updates.attend(self.stopping)
        sources: list[Any] = []
        policies = self.actors_policies
        if policies is not None and (not policies.in_turn or policies.num_taken < self.policies_needed):
            sources.append(policies.subscriber)
        if self.may_pull:
            sources.append(self.intake.puller)
        if self.may_update or (self.may_pull and self.intake.ready):
            self.component.poll(sources)
            return
        if owed := self.updates.waiting_for:
            self.component.poll(sources)
            self.component.wait_elsewhere(self.finish_update, charge="idle", waiting_for=owed)
            return
        lacks_policy = self.policies.num_taken < self.policies_needed
        owed = f"a policy from {ACTOR_LEARNER}" if lacks_policy else f"rollouts from {SAMPLER}"
        self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_weights(self) -> None:
        """Adopt the newest policy, or the next one in its turn, for the target actions and their entropy."""
        policies = self.actors_policies
        if policies is None or (policies.in_turn and policies.num_taken >= self.policies_needed):
            return
        message = policies.take()
        if message is None:
            return
        extras = message.fields["extras"]
        self.half.load_policy(message.arrays, extras)
        if policies.num_taken == 1:
            self.staleness.begin()
            # To a life that begins with an older checkpoint the actor-learner says how many were received.
            # Of several the first one hears it for all.
            self.receive(max(0, int(extras.get("env_steps", 0)) - self.env_steps) if self.is_first else 0)

    def take_rollouts(self) -> None:
        """Store what waits, as far as the ratio allows."""
        while self.may_pull:
            rollout = next(self.intake.rollouts(at_most=1), None)
            if rollout is None:
                return
            self.store(rollout)

    def store(self, rollout: Rollout) -> None:
        """Enter one rollout in the replay, the ratio, the account and the lag."""
        self.replay.add(rollout)
        if self.own_policy is not None:
            self.half.observe(rollout.acted_on)
        self.gate.slack = self.balance.slack_rollouts * rollout.num_transitions
        self.gate.received += 0 if self.stopping else rollout.num_transitions
        self.receive(rollout.num_transitions)
        if self.env_steps - rollout.num_transitions < self.enough <= self.env_steps:
            self.component.send_report()  # the broker ends the run; nobody overshoots while it does not know
        self.staleness.add(rollout)

    def receive(self, transitions: int) -> None:
        """Count what the run has received by this process."""
        self.env_steps += transitions
        self.half.env_steps = self.env_steps
        self.received += transitions
        self.updates.receive(transitions)

    def update(self) -> None:
        """One critic update; where several train as one, its beginning."""
        self.metrics = self.updates.begin(self.replay.sample(self.gate.batch_size))
        if self.replay.prioritized:
            self.replay.prioritize(self.half.priorities())
        if not self.updates.waiting_for:
            self.finish_update()

    def finish_update(self) -> bool:
        """Count the update that has begun, once all have their part in it; whether that has come."""
        outcome = self.updates.finish()
        if outcome is None:
            return False
        self.env_steps += outcome.received_by_others
        if outcome.took_place:
            self.gate.trained += self.gate.batch_size
            self.trained += self.gate.batch_size
            self.adopt_batch()
        return True

    def adopt_batch(self) -> None:
        """Make the next updates of as many transitions as is wanted; of several, all after the same one."""
        if self.batch.adopt(self.updates.batch_size):
            self.gate.batch_size = self.batch.size

    def publish_if_due(self) -> None:
        """By the clock or by the count; once more at the run's last sample, and where a sampler waits to hear
        that its rollouts have been taken. Of several, the first does.
        """
        if self.outbox is None:
            return
        self.outbox.serve(wait=not self.may_update)
        if self.outbox.busy:
            return
        updates = self.half.num_updates - self.updates_before
        news = updates > self.updates_published
        due = news and (self.cadence.due(updates) or self.settled)
        if due or self.must_tell():
            self.updates_published = updates
            self.version += 1
            if due and self.own_policy is not None:
                self.own_policy.versions.advance()
            self.publish()
            if due:
                counts = {"critic_updates": self.half.num_updates, "env_steps": self.env_steps}
                self.record.write(counts, self.metrics)

    def must_tell(self) -> bool:
        """Whether it waits for samplers that may be waiting for it."""
        if self.schedule is None or self.balance.in_order or self.gate.may_update:
            return False
        return self.schedule.used_up(self.intake.taken(), self.told)

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to everybody; of several, the first does."""
        if self.own_policy is not None:
            self.publish_policy(self.own_policy)
            return
        if self.outbox is None:
            return
        fields: dict[str, Any] = {
            "version": self.version,
            "critic_updates": self.half.num_updates,
            "env_steps": self.env_steps,
        }
        if self.schedule is not None and not self.balance.in_order:
            fields["taken"] = self.told = self.intake.taken()
        self.outbox.put(
            self.half.weights,
            lambda weights: Message("critic", fields, {"parameters": weights}),
            wait=self.cadence.every > 0 or not self.may_update,
        )

    def publish_policy(self, outlet: PolicyOutlet) -> None:
        """Send the policy; version 0 says that it has not learned anything yet."""
        collect_until = None
        if self.schedule is not None:
            self.told = self.intake.taken()
            collect_until = {stream: position + self.schedule.share for stream, position in self.told.items()}
            if self.balance.in_order:
                since_first = outlet.versions.newest - outlet.versions.first
                collect_until = {"*": self.schedule.collect_until(since_first)}
        outlet.publish(
            critic_updates=self.half.num_updates,
            policy_updates=self.half.num_updates,
            env_steps=self.env_steps,
            collect_until=collect_until,
            wait=self.cadence.every > 0 or not self.may_update,
        )

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report. Of several each tells its own part, the first also what was
        counted in earlier lives, and the updates, which are the same for all.
        """
        counted: dict[str, float] = {"env_steps": self.received, "trained_transitions": self.trained}
        if self.own_policy is not None:
            counted["policy_version"] = self.own_policy.versions.newest
        return {**counted, "critic_updates": self.half.num_updates} if self.is_first else counted

    def policy_lag(self) -> dict[str, float]:
        """Of the transitions received; ``stale`` counts those that were dropped."""
        return {**self.staleness.received.summary(), "stale": self.intake.stale_transitions}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report; the metrics wait for the device here, twice a second, alone. Of
        several the first tells its own.
        """
        if not self.is_first:
            return {}
        metrics = {name: float(value) for name, value in self.metrics.items()}
        return {
            "replay_ratio": self.gate.measured,
            "replay_size": len(self.replay),
            "learning_rate": self.batch.learning_rate,
            "batch_size": self.batch.size,
            **metrics,
        }

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs; the replay itself is saved only where the topology asks."""
        trained = self.trained_before + self.updates.count * (self.trained - self.trained_before)
        counters = {"version": self.version, "env_steps": self.env_steps, "trained": trained}
        counters["policy_version"] = self.policies.version
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`. The ratio counts what the replay holds as trained on already; a run in
        order counts from 0, as its samplers do.
        """
        if not self.balance.in_order:
            self.gate.received = len(self.replay)
            self.gate.trained = int(self.gate.replay_ratio * self.gate.received)
        self.half.load_state_dict(state["half"])
        self.version, self.env_steps, trained = (
            state["counters"][k] for k in ("version", "env_steps", "trained")
        )
        if self.own_policy is not None:
            self.own_policy.versions.restore(state["counters"]["policy_version"])
        if self.is_first:
            self.replay.set_random_state(state["replay"])
            self.received, self.trained, self.trained_before = self.env_steps, trained, trained
        else:
            self.half.reseed(self.seed)
        self.updates_before = self.half.num_updates


def main(component: Component) -> None:
    """Learn, and leave no update behind that others have taken."""
    if component.plan.learning.on_policy:
        learn(component, RoundLearner(component), component.restore_point)
        return
    learner = CriticLearner(component)
    learn(component, learner, learner.updates.restore_point)
    learner.updates.leave(learner.finish_update)


if __name__ == "__main__":
    sys.exit(run("critic_learner", main))
