"""The actor-learner of an off-policy algorithm: observations and critics in, policies out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import DelayGate
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.lag import CollectionLimits
from spreeze_zmq.learner.learner import Learner
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.publication import PolicyOutlet
from spreeze_zmq.learner.setup import keep
from spreeze_zmq.plan.roles import CRITIC_LEARNER, SAMPLER
from spreeze_zmq.replay import ObservationReplay, Replay, replay_of
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: Rollouts stored between two updates, at most.
ROLLOUTS_AT_ONCE = 8


class ActorLearner(Learner):
    """Trains the policy against the newest critics, one update for each ``policy_delay`` critic updates.

    In order, it follows every version of the critics with exactly the samples that they were trained on.
    """

    replay: Replay | ObservationReplay
    policy: PolicyOutlet
    others: Weights

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        options = self.options
        self.limits = CollectionLimits(self.plan)
        self.intake = Intake(component, options.frame_stack)
        fields, environment = self.intake.fields, component.environment
        self.replay = replay_of(fields, environment, options, self.device, self.plan.run.seed)
        keep(self.replay)
        self.batch = LiveBatch(component, self.half)
        self.gate = DelayGate(options.policy_delay, component.options["slack_updates"])
        self.critics_from = self.received = self.received_wanted = self.updates_published = 0
        self.taken: Mapping[str, int] = {}

    # --- what it may do

    @property
    def lacks_samples(self) -> bool:
        """In order: whether samples that the critics were trained on have not been stored yet."""
        return self.balance.in_order and self.received < self.received_wanted

    @property
    def may_pull(self) -> bool:
        """Always, except in order: then up to the samples that the critics were trained on."""
        return not self.balance.in_order or self.lacks_samples or self.stopping

    @property
    def may_update(self) -> bool:
        """Whether critics and observations have come, and the policy is not too far ahead of the critics."""
        return len(self.replay) > 0 and self.gate.may_update and not self.lacks_samples and not self.stopping

    @property
    def may_load(self) -> bool:
        """Always, except in order: then the next critics wait until the present ones are used up."""
        return not self.balance.in_order or not (self.gate.may_update or self.lacks_samples)

    @property
    def settled(self) -> bool:
        """Whether it has followed the last critics of the run, after all updates that the ratio allows."""
        schedule = self.limits.schedule
        if self.env_steps < self.enough or self.may_update or schedule is None:
            return False
        return self.gate.critic_updates == schedule.updates_allowed(self.received)

    @property
    def owed(self) -> str:
        """Observations or critics."""
        if len(self.replay) == 0 or not self.may_load:
            return f"observations from {SAMPLER}"
        return f"critics from {CRITIC_LEARNER}"

    # --- what it does

    def wait(self) -> None:
        """Adopt a new batch size, then as every learner."""
        self.batch.adopt()
        super().wait()

    def sources(self) -> list[Any]:
        """Critics while they may be loaded, and rollouts always: samplers never wait for this learner."""
        return [self.intake.puller, *([self.others.subscriber] if self.may_load else [])]

    def load(self, message: Message) -> None:
        """Load critics, and note how far the critic-learner is."""
        self.half.load_critic(message.arrays["parameters"])
        updates, env_steps = message.fields["critic_updates"], message.fields["env_steps"]
        if message.incarnation != self.critics_from:
            self.critics_from = message.incarnation
            self.limits.published = None  # by the earlier critic-learner: samplers may wait for a new limit
            self.gate.meet(updates)
            self.cadence.restart()
            self.env_steps = env_steps
        self.gate.hear(updates)
        self.received_wanted += env_steps - self.env_steps
        self.env_steps = env_steps
        self.taken = message.fields.get("taken", {})

    def take_rollouts(self) -> None:
        """Store some of the observations that have arrived."""
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
        """Take one policy update (SAC: policy and temperature)."""
        self.train_on(self.replay.sample(self.batch.size))
        self.trained += self.batch.size
        self.gate.actor_updates += 1

    def publish_if_due(self) -> None:
        """Publish by the clock or by the count; the same policy again when samplers wait for a new limit."""
        if not self.outbox.serve(wait=not self.may_update):
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
        """Send the policy to all its readers. In order the first one waits for the first critics."""
        if self.balance.in_order and not self.others.num_taken:
            return
        self.policy.publish(
            critic_updates=self.gate.critic_updates,
            env_steps=self.env_steps,
            collect_until=self.limits.collect_until(self.taken, self.policy.versions.since_first),
            wait=not self.may_update,
        )
        self.updates_published = self.half.num_updates

    # --- what it reports and keeps

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
