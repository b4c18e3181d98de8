"""Actor-learner: keeps the observations, trains the policy against the newest critics, and publishes it."""

import math
import sys
from collections.abc import Mapping
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.balance import DelayGate, Schedule
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import Weights
from spreeze_zmq.device import Work
from spreeze_zmq.learner import (
    Intake,
    LiveBatch,
    PolicyOutlet,
    Record,
    RoundLearner,
    algorithm_of,
    cadence_of,
    learn,
    settle_device,
)
from spreeze_zmq.plan.roles import CRITIC, CRITIC_LEARNER, PART_OF, SAMPLER, experience_of
from spreeze_zmq.replay import replay_of
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.topology import dial

#: Rollouts taken in before the next update gets its turn.
ROLLOUTS_AT_ONCE = 8


class ActorLearner:
    """Observations and critics in, policies out."""

    def __init__(self, component: Component) -> None:
        plan, device, part = component.plan, settle_device(component), PART_OF[component.role]
        algorithm, options = algorithm_of(plan)
        environment = component.environment
        self.component = component
        self.schedule = dial.schedule(plan)
        self.intake = Intake(component, environment)
        self.critics = Weights(component.open(CRITIC), in_turn=plan.balance.in_order)
        self.half = algorithms.make(part, algorithm, options, environment, device, plan.run.seed)
        fields = plan.channels[experience_of(component.role)].fields
        self.replay = replay_of(fields, environment, options, device, plan.run.seed)
        self.batch = LiveBatch(component, self.half)
        self.gate = DelayGate(options.policy_delay, component.options["slack_updates"])
        self.cadence = cadence_of(component)
        self.work = Work(device)
        self.policy = PolicyOutlet(component, self.half, self.cadence, device)
        self.record = Record(component.folder.learning / f"{component.role}.jsonl", self.cadence)
        self.enough: float = plan.run.stop.env_steps or math.inf
        self.critics_from = 0
        self.env_steps = 0
        self.received = self.received_wanted = 0
        self.updates_published = 0
        self.taken: dict[str, int] = {}
        self.told: dict[str, int] | None = {}
        self.metrics: Mapping[str, Any] = {}
        component.figures.update(counters=self.counters, gauges=self.gauges)
        component.figures.update(publication=self.cadence.figures, device=self.work.figures)

    # --- what it may do

    @property
    def may_store(self) -> bool:
        """In order it keeps exactly the samples that its critics were trained on; else whatever comes."""
        return not self.critics.in_turn or self.received < self.received_wanted or self.stopping

    @property
    def may_update(self) -> bool:
        """Trained critics are there, their observations too, and the critics are not too far behind."""
        if self.critics.in_turn and self.received < self.received_wanted:
            return False
        return len(self.replay) > 0 and self.gate.may_update and not self.stopping

    @property
    def takes_critics(self) -> bool:
        """In order the next critics have their turn when everything has been done with the present ones."""
        return not self.critics.in_turn or not (self.gate.may_update or self.received < self.received_wanted)

    @property
    def stopping(self) -> bool:
        """Whether nothing new is collected any more."""
        return SAMPLER in self.component.stopping_roles

    @property
    def settled(self) -> bool:
        """It has followed the last critics of the run, which have trained all that the ratio allows."""
        if self.env_steps < self.enough or self.may_update or self.schedule is None:
            return False
        return self.gate.critic_updates == self.schedule.updates_allowed(self.received)

    # --- what it does

    def wait(self) -> None:
        """Wait for critics and observations, or for nothing when an update is possible. Between two updates
        another batch is taken up.
        """
        self.batch.adopt(self.batch.wanted)
        sources: list[Any] = [self.intake.puller]
        if self.takes_critics:
            sources.append(self.critics.subscriber)
        if self.may_update or (self.may_store and self.intake.ready):
            self.component.poll(sources)
            return
        lacks_samples = len(self.replay) == 0 or not self.takes_critics
        owed = f"observations from {SAMPLER}" if lacks_samples else f"critics from {CRITIC_LEARNER}"
        self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_weights(self) -> None:
        """Adopt the newest critics, or the next ones in their turn."""
        message = self.critics.take() if self.takes_critics else None
        if message is None:
            return
        self.half.load_critic(message.arrays["parameters"])
        updates, env_steps = message.fields["critic_updates"], message.fields["env_steps"]
        if message.incarnation != self.critics_from:
            self.critics_from = message.incarnation
            self.told = None  # what samplers wait for may have been lost with the life before
            self.gate.meet(updates)
            self.cadence.restart()
            self.env_steps = env_steps
        self.gate.hear(updates)
        self.received_wanted += env_steps - self.env_steps
        self.env_steps = env_steps
        self.taken = message.fields.get("taken", {})

    def take_rollouts(self) -> None:
        """Store the observations that wait; the samplers never wait for this learner."""
        self.intake.fetch()
        for _ in range(ROLLOUTS_AT_ONCE):
            rollout = next(self.intake.rollouts(at_most=1), None) if self.may_store else None
            if rollout is None:
                return
            self.store(rollout)

    def store(self, rollout: Rollout) -> None:
        """Keep the observations of one rollout."""
        self.replay.add(rollout)
        self.half.observe(rollout.acted_on)
        self.received += rollout.num_transitions

    def update(self) -> None:
        """One actor and temperature update."""
        self.metrics = self.half.update(self.replay.sample(self.batch.size))
        self.gate.actor_updates += 1

    def publish_if_due(self) -> None:
        """By the clock or by the count; the same policy once more where a sampler waits to hear that its
        rollouts have been taken.
        """
        self.policy.outbox.serve(wait=not self.may_update)
        if self.policy.outbox.busy:
            return
        if not self.policy.published:
            self.publish()
            return
        news = self.half.num_updates > self.updates_published or self.cadence.every
        if news and self.cadence.due(self.gate.followed):
            self.policy.versions.advance()
            self.publish()
            counts = {"version": self.policy.versions.newest, "actor_updates": self.half.num_updates}
            self.record.write({**counts, "env_steps": self.env_steps}, self.metrics)
        elif self.must_tell():
            self.publish()

    def must_tell(self) -> bool:
        """Whether it waits for samplers that may be waiting for it."""
        if self.schedule is None or self.critics.in_turn or self.may_update:
            return False
        return self.told is None or self.schedule.used_up(self.taken, self.told)

    def publish(self) -> None:
        """Send the policy to everybody; version 0 says that it has not learned anything yet. In order it
        waits until the critic-learner is heard.
        """
        if self.critics.in_turn and not self.critics.num_taken:
            return
        self.policy.publish(
            critic_updates=self.gate.critic_updates,
            policy_updates=self.half.num_updates,
            env_steps=self.env_steps,
            collect_until=None if self.schedule is None else self.collect_until(self.schedule),
            wait=self.cadence.every > 0 or not self.may_update,
        )
        self.updates_published, self.told = self.half.num_updates, self.taken

    def collect_until(self, schedule: Schedule) -> dict[str, int]:
        """Stream -> position up to which its sampler may begin rollouts under the present version."""
        if self.critics.in_turn:
            return {"*": schedule.collect_until(self.policy.versions.newest - self.policy.versions.first)}
        return {stream: position + schedule.share for stream, position in self.taken.items()}

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""
        return {"actor_updates": self.half.num_updates, "policy_version": self.policy.versions.newest}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report; the metrics wait for the device here, twice a second, alone."""
        return {
            "actor_replay_size": len(self.replay),
            **{name: float(value) for name, value in self.metrics.items()},
        }

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs."""
        counters = {"version": self.policy.versions.newest, "env_steps": self.env_steps}
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        self.policy.versions.restore(state["counters"]["version"])
        self.env_steps, self.updates_published = state["counters"]["env_steps"], self.half.num_updates


def main(component: Component) -> None:
    """Learn."""
    learner = RoundLearner if component.plan.learning.on_policy else ActorLearner
    learn(component, learner(component), component.restore_point)


if __name__ == "__main__":
    sys.exit(run("actor_learner", main))
