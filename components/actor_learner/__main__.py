"""Actor-learner: keeps the observations, trains the policy against the newest critics, and publishes it."""

import sys
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import DelayGate
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import Weights
from spreeze_zmq.errors import WireError
from spreeze_zmq.learner import (
    CollectionLimits,
    Intake,
    Learner,
    LiveBatch,
    PolicyOutlet,
    RoundLearner,
    keep,
    learn,
)
from spreeze_zmq.plan.roles import CRITIC, CRITIC_LEARNER, SAMPLER
from spreeze_zmq.replay import ObservationReplay, Replay, replay_of
from spreeze_zmq.rollout import Rollout

#: Rollouts stored before the next update gets its turn.
ROLLOUTS_AT_ONCE = 8


class ActorLearner(Learner):
    """Observations and critics in, policies out."""

    replay: Replay | ObservationReplay

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        plan, options = self.plan, self.options
        self.limits = CollectionLimits(plan)
        self.intake = Intake(component, options.frame_stack)
        self.critics = Weights(component.open(CRITIC), in_turn=plan.balance.in_order)
        fields, environment = self.intake.fields, component.environment
        self.replay = replay_of(fields, environment, options, self.device, plan.run.seed)
        keep(self.replay)
        self.batch = LiveBatch(component, self.half)
        self.gate = DelayGate(options.policy_delay, component.options["slack_updates"])
        self.policy = PolicyOutlet(component, self.half, self.cadence, self.device)
        self.critics_from = 0
        self.received = self.received_wanted = self.updates_published = self.trained = 0
        self.taken: Mapping[str, int] = {}

    # --- what it may do

    @property
    def may_pull(self) -> bool:
        """Always, except in order: then the replay holds exactly what the critics were trained on."""
        return not self.critics.in_turn or self.received < self.received_wanted or self.stopping

    @property
    def may_update(self) -> bool:
        """Whether critics and observations have come, and the critics are not too far behind."""
        if self.critics.in_turn and self.received < self.received_wanted:
            return False
        return len(self.replay) > 0 and self.gate.may_update and not self.stopping

    @property
    def takes_critics(self) -> bool:
        """Always, except in order: then the next critics wait until all is done with the present ones."""
        return not self.critics.in_turn or not (self.gate.may_update or self.received < self.received_wanted)

    @property
    def settled(self) -> bool:
        """Whether it has followed the last critics of the run, after all updates that the ratio allows."""
        schedule = self.limits.schedule
        if self.env_steps < self.enough or self.may_update or schedule is None:
            return False
        return self.gate.critic_updates == schedule.updates_allowed(self.received)

    # --- what it does

    def wait(self) -> None:
        """Wait for critics and observations; not at all if an update may begin. A new batch size is adopted
        here, between two updates.
        """
        self.batch.adopt(self.batch.wanted)
        sources: list[Any] = [self.intake.puller]
        if self.takes_critics:
            sources.append(self.critics.subscriber)
        lacks_samples = len(self.replay) == 0 or not self.takes_critics
        owed = f"observations from {SAMPLER}" if lacks_samples else f"critics from {CRITIC_LEARNER}"
        self.poll(sources, owed)

    def take_weights(self) -> None:
        """Load the newest critics, or the next ones in turn."""
        message = self.critics.take() if self.takes_critics else None
        if message is None:
            return
        try:
            self.half.load_critic(message.arrays["parameters"])
        except WireError as error:
            self.critics.refuse(message, error)
            return
        updates, env_steps = message.fields["critic_updates"], message.fields["env_steps"]
        if message.incarnation != self.critics_from:
            self.critics_from = message.incarnation
            self.limits.published = None  # of the former critic-learner: samplers may wait for a new limit
            self.gate.meet(updates)
            self.cadence.restart()
            self.env_steps = env_steps
        self.gate.hear(updates)
        self.received_wanted += env_steps - self.env_steps
        self.env_steps = env_steps
        self.taken = message.fields.get("taken", {})

    def take_rollouts(self) -> None:
        """Store the observations that wait; samplers never wait for this learner."""
        self.intake.fetch()
        for _ in range(ROLLOUTS_AT_ONCE):
            if not self.may_pull or (rollout := self.intake.take()) is None:
                return
            self.store(rollout)

    def store(self, rollout: Rollout) -> None:
        """Keep the observations of one rollout."""
        self.replay.add(rollout)
        self.half.observe(rollout.acted_on)
        self.received += rollout.num_transitions

    def update(self) -> None:
        """Take one policy update (of SAC: policy and temperature)."""
        self.train_on(self.replay.sample(self.batch.size))
        self.trained += self.batch.size
        self.gate.actor_updates += 1

    def publish_if_due(self) -> None:
        """Publish by the clock or by the count; the same policy again when samplers wait for a new limit."""
        if not self.policy.outbox.serve(wait=not self.may_update):
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
        elif not self.may_update and self.limits.used_up(self.taken):
            self.publish()

    def publish(self) -> None:
        """Send the policy to all its readers; version 0 stands for random actions. In order the first one
        waits for the first critics.
        """
        if self.critics.in_turn and not self.critics.num_taken:
            return
        self.policy.publish(
            critic_updates=self.gate.critic_updates,
            env_steps=self.env_steps,
            collect_until=self.limits.collect_until(self.taken, self.policy.versions.since_first),
            wait=not self.may_update,
        )
        self.updates_published = self.half.num_updates

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""
        counted = {"actor_updates": self.half.num_updates, "policy_version": self.policy.versions.newest}
        return {**counted, **self.flops(self.trained)}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
        return {"actor_replay_size": len(self.replay), **self.losses()}

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs besides the replay, which is saved only with ``save_replay``."""
        counters = {"version": self.policy.versions.newest, "env_steps": self.env_steps}
        counters["trained"] = self.trained
        return {"half": self.half.state_dict(), "replay": self.replay.random_state(), "counters": counters}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.half.load_state_dict(state["half"])
        self.replay.set_random_state(state["replay"])
        self.policy.versions.restore(state["counters"]["version"])
        self.trained = state["counters"].get("trained", 0)  # older checkpoints lack it
        self.env_steps, self.updates_published = state["counters"]["env_steps"], self.half.num_updates


def main(component: Component) -> None:
    """Learn from a replay or, on-policy, from rounds of rollouts."""
    learner = RoundLearner if component.plan.learning.on_policy else ActorLearner
    learn(component, learner(component))


if __name__ == "__main__":
    sys.exit(run("actor_learner", main))
