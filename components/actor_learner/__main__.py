"""Actor-learner: keeps the observations, trains the policy against the newest critics, and publishes it."""

import sys
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import DelayGate
from spreeze_zmq.channels import Publisher, Subscriber
from spreeze_zmq.component import Component, run
from spreeze_zmq.learner import Cadence, Intake, Vault, algorithm_of, settle_device
from spreeze_zmq.replay import ObservationReplay
from spreeze_zmq.wire import Message

#: Rollouts taken in before the next update gets its turn.
ROLLOUTS_AT_ONCE = 8


class ActorLearner:
    """Observations and critics in, policies out."""

    def __init__(self, component: Component) -> None:
        plan, device = component.plan, settle_device(component)
        algorithm, options = algorithm_of(component)
        environment = component.environment
        self.component = component
        self.intake = Intake(component, environment)
        self.critics: Subscriber = component.open("critic")
        self.publisher: Publisher = component.open("policy")
        self.half = algorithm.make_actor(options, environment, device, plan.run.seed)
        self.replay = ObservationReplay.for_environment(environment, options, device, plan.run.seed)
        self.batch_size: int = options.batch_size
        self.gate = DelayGate(options.policy_delay, component.options["slack_updates"])
        self.cadence = Cadence(component.options["publish_interval_s"])
        self.version = self.env_steps = 0
        self.metrics: Mapping[str, Any] = {}
        component.figures.update(counters=self.counters, gauges=self.gauges)

    @property
    def may_update(self) -> bool:
        """Trained critics are there, observations too, and the critics are not too far behind."""
        return len(self.replay) > 0 and self.gate.may_update

    def wait(self) -> None:
        """Wait for critics and observations, or for nothing when an update is possible."""
        sources = [self.critics, self.intake.puller]
        if self.may_update:
            self.component.poll(sources)
            return
        owed = "observations from sampler" if len(self.replay) == 0 else "critics from critic_learner"
        self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_critic(self) -> None:
        """Adopt the newest critics."""
        message = self.critics.newest()
        if message is not None:
            self.half.load_critic(message.arrays["parameters"])
            self.gate.critic_updates = message.fields["critic_updates"]
            self.env_steps = message.fields["env_steps"]

    def take_rollouts(self) -> None:
        """Store the observations that wait."""
        for rollout in self.intake.rollouts(ROLLOUTS_AT_ONCE):
            self.half.observe(self.replay.add(rollout))

    def update(self) -> None:
        """One actor and temperature update."""
        self.metrics = self.half.update(self.replay.sample(self.batch_size))
        self.gate.actor_updates += 1

    def publish(self) -> None:
        """Send the policy to everybody; version 0 says that it has not learned anything yet."""
        fields = {
            "version": self.version,
            "critic_updates": self.gate.critic_updates,
            "actor_updates": self.half.num_updates,
            "description": self.half.description(),
            "extras": {**self.half.extras(), "env_steps": self.env_steps},
        }
        self.publisher.publish(Message("policy", fields, self.half.policy_arrays()))

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""
        return {"actor_updates": self.half.num_updates, "policy_version": self.version}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report; the metrics wait for the device here, twice a second, alone."""
        return {
            "actor_replay_size": len(self.replay),
            **{name: float(value) for name, value in self.metrics.items()},
        }

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs."""
        counters = {
            "version": self.version,
            "actor_updates": self.gate.actor_updates,
            "env_steps": self.env_steps,
        }
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        self.version, self.env_steps = state["counters"]["version"], state["counters"]["env_steps"]
        self.gate.actor_updates = state["counters"]["actor_updates"]


def main(component: Component) -> None:
    """Wait for what is missing, take it in, update, publish when due."""
    learner = ActorLearner(component)
    vault = Vault(component, learner.state, learner.replay)
    if (state := vault.restore()) is not None:
        learner.restore(state)
    component.ready()
    learner.publish()
    while component.running:
        learner.wait()
        learner.take_critic()
        learner.take_rollouts()
        if learner.may_update:
            learner.update()
            if learner.cadence.due():
                learner.version += 1
                learner.publish()
    for rollout in learner.intake.drain():
        learner.replay.add(rollout)


if __name__ == "__main__":
    sys.exit(run("actor_learner", main))
