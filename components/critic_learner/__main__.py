"""Critic-learner: owns a replay, trains the critics at the stated replay ratio, and publishes them."""

import math
import sys
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import LagHistogram, RatioGate
from spreeze_zmq.channels import Publisher, Subscriber
from spreeze_zmq.component import Component, run
from spreeze_zmq.learner import Cadence, Intake, Vault, algorithm_of, settle_device
from spreeze_zmq.replay import transition_replay
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message


class CriticLearner:
    """Experience and policies in, critics out."""

    def __init__(self, component: Component) -> None:
        plan, device = component.plan, settle_device(component)
        algorithm, options = algorithm_of(component)
        environment = component.environment
        self.component = component
        self.balance = plan.balance
        self.intake = Intake(component, environment)
        self.policies: Subscriber = component.open("policy")
        self.publisher: Publisher = component.open("critic")
        self.half = algorithm.make_critic(options, environment, device, plan.run.seed)
        self.replay = transition_replay(environment, options, device, plan.run.seed)
        self.enough: float = plan.run.stop.env_steps or math.inf
        self.gate = RatioGate(plan.balance.replay_ratio, options.batch_size, options.learning_starts, slack=0)
        self.lag = LagHistogram()
        self.learning_rate: float = options.learning_rate
        self.cadence = Cadence(component.options["publish_interval_s"])
        self.policy_version = -1
        self.version = self.env_steps = self.trained = 0
        self.metrics: Mapping[str, Any] = {}
        component.figures.update(counters=self.counters, gauges=self.gauges, policy_lag=self.lag.summary)

    @property
    def may_update(self) -> bool:
        """A policy is there and the ratio allows another batch."""
        return self.policy_version >= 0 and self.gate.may_update

    @property
    def may_pull(self) -> bool:
        """The ratio and the run allow more samples; samplers that stop are emptied in any case."""
        wanted = self.gate.may_pull and self.env_steps < self.enough
        return wanted or "sampler" in self.component.stopping_roles

    def wait(self) -> None:
        """Wait for what the balance lacks: samples, a policy, or nothing when an update is possible."""
        sources: list[Any] = [self.policies]
        if self.may_pull:
            sources.append(self.intake.puller)
        if self.may_update:
            self.component.poll(sources)
            return
        owed = "a policy from actor_learner" if self.policy_version < 0 else "rollouts from sampler"
        self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_policy(self) -> None:
        """Adopt the newest policy, for the target actions and their entropy."""
        message = self.policies.newest()
        if message is not None:
            self.half.load_policy(message.arrays, message.fields["extras"])
            self.policy_version = message.fields["version"]

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
        self.gate.slack = self.balance.slack_rollouts * rollout.num_transitions
        self.gate.received += rollout.num_transitions
        self.env_steps += rollout.num_transitions
        if self.env_steps - rollout.num_transitions < self.enough <= self.env_steps:
            self.component.send_report()  # the broker ends the run; nobody overshoots while it does not know
        self.lag.add(self.policy_version - rollout.policy_version, rollout.num_transitions)

    def update(self) -> None:
        """One critic update."""
        self.metrics = self.half.update(self.replay.sample(self.gate.batch_size))
        if self.replay.prioritized:
            self.replay.prioritize(self.half.priorities())
        self.gate.trained += self.gate.batch_size
        self.trained += self.gate.batch_size

    def publish(self) -> None:
        """Send the critics to the actor-learner."""
        self.version += 1
        fields = {
            "version": self.version,
            "critic_updates": self.half.num_updates,
            "env_steps": self.env_steps,
        }
        self.publisher.publish(Message("critic", fields, {"parameters": self.half.parameters()}))

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""
        return {
            "env_steps": self.env_steps,
            "critic_updates": self.half.num_updates,
            "trained_transitions": self.trained,
        }

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report; the metrics wait for the device here, twice a second, alone."""
        metrics = {name: float(value) for name, value in self.metrics.items()}
        return {
            "replay_ratio": self.gate.measured,
            "replay_size": len(self.replay),
            "learning_rate": self.learning_rate,
            **metrics,
        }

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs; the replay itself is saved only where the topology asks."""
        counters = {"version": self.version, "env_steps": self.env_steps, "trained": self.trained}
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`. The ratio counts what the replay holds as trained on already."""
        self.gate.received = len(self.replay)
        self.gate.trained = int(self.gate.replay_ratio * self.gate.received)
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        self.version, self.env_steps, self.trained = (
            state["counters"][k] for k in ("version", "env_steps", "trained")
        )


def main(component: Component) -> None:
    """Wait for what is missing, take it in, update, publish when due."""
    learner = CriticLearner(component)
    vault = Vault(component, learner.state, learner.replay)
    if (state := vault.restore()) is not None:
        learner.restore(state)
    component.ready()
    learner.publish()
    while component.running:
        learner.wait()
        learner.take_policy()
        learner.take_rollouts()
        if learner.may_update:
            learner.update()
            if learner.cadence.due():
                learner.publish()
    for rollout in learner.intake.drain():
        learner.store(rollout)


if __name__ == "__main__":
    sys.exit(run("critic_learner", main))
