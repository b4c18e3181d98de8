"""Either learner of an on-policy algorithm: rounds of rollouts in, critics or policies out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.component import Component
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.learner import Learner
from spreeze_zmq.learner.publication import PolicyOutlet
from spreeze_zmq.plan.roles import ACTOR_LEARNER, SAMPLER
from spreeze_zmq.replay import Minibatches, RewardScale, RoundStore
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message


class RoundLearner(Learner):
    """Trains on rounds, one rollout of each sampler; both learners train on the same round at the same time.

    Targets use the values from before the round: the actor-learner begins a round when it has the critics
    that were trained on rollouts of the policy version before, the critic-learner when it has the policy that
    collected the round. ``max_policy_lag`` rounds may be collected while another is trained on; rollouts that
    are older when their round begins are dropped and counted.
    """

    #: The first policy acts by its network, not at random, since its log probabilities are learned from.
    first_version = 1

    replay: RoundStore

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        plan, options = self.plan, self.options
        kind = algorithms.get(plan.run.algorithm)
        self.intake = Intake(
            component,
            options.frame_stack,
            unfit=lambda rollout: self.replay.unfit(rollout),
            memory_size=kind.memory_size(options),
        )
        self.rewards = RewardScale(options.gamma) if options.normalize_rewards else None
        num_samplers = plan.components[SAMPLER].count.initial
        self.replay = RoundStore(num_samplers, self.device, self.rewards, options.frame_stack)
        self.generator = torch.Generator(self.device).manual_seed(plan.run.seed)
        self.rounds = self.values_from = self.trained_version = 0
        self.consumed: dict[str, int] = {}
        self._batches: Iterator[Mapping[str, torch.Tensor]] = iter(())
        self._left = 0
        self._rollouts: list[Rollout] = []
        self._due = self._limits_due = False
        if self.policy is not None:
            component.figures["policy_lag"] = self.policy_lag

    # --- what it may do

    @property
    def may_pull(self) -> bool:
        """Whether the next round lacks rollouts that the run wants, or the samplers have been stopped."""
        return self.stopping or (not self.replay.complete and self.env_steps < self.enough)

    @property
    def may_update(self) -> bool:
        """Whether a round is being trained on, or the next one and the other half's weights have come."""
        if self.stopping:
            return False
        return self._left > 0 or (self.replay.complete and not self.lacks_others)

    @property
    def lacks_others(self) -> bool:
        """Whether the next round has to wait for the other learner's weights."""
        if self.others is None:
            return False
        if self.others.in_turn:
            return self.others.num_taken <= self.rounds
        if self.others.num_taken == 0:
            return True
        known = self.others.version if self.policy is None else self.values_from + 1
        return self.replay.complete and known < self.replay.newest_version

    @property
    def may_load(self) -> bool:
        """Whether no round is being trained on and, in order, the next round lacks the weights."""
        return self._left == 0 and (not self.balance.in_order or self.lacks_others)

    @property
    def lacks_turn(self) -> bool:
        """In order: whether the other half's weights of the last round have not come yet."""
        return self.balance.in_order and self.lacks_others

    @property
    def settled(self) -> bool:
        """Whether all rounds are trained on and, in order, the other half's last weights have come."""
        if self.lacks_turn or self._due:
            return False
        return self.env_steps >= self.enough and not self.may_update and not self.replay.complete

    @property
    def owed(self) -> str:
        """Rollouts or the other half's weights."""
        if self.replay.complete and self.others is not None:
            return f"weights ({self.others.subscriber.endpoint})"
        return f"rollouts from {SAMPLER}"

    # --- what it does

    def load(self, message: Message) -> None:
        """Load the policy, or the critics and the policy version of the rollouts they were trained on."""
        if self.policy is None:
            self.half.load_policy(message.arrays)
        else:
            self.half.load_critic(message.arrays["parameters"])
            self.values_from = message.fields.get("policy_version", 0)

    def store(self, rollout: Rollout) -> None:
        """Keep one rollout for the next round."""
        self.replay.add(rollout)
        self.count_env_steps(rollout.num_transitions)

    def update(self) -> None:
        """Take one gradient step on a batch of the round; begin the next round after the last batch."""
        if self._left == 0 and not self.begin_round():
            return
        batch = next(self._batches)
        metrics = self.half.update(batch, measured=self._left == 1)
        if self._left == 1:
            self.metrics = metrics
        self.trained += batch["log_prob"].numel()
        self._left -= 1
        if self._left == 0:
            self.end_round()

    def begin_round(self) -> bool:
        """Prepare the next round; False if it is incomplete after rollouts that are too old were dropped."""
        if self.policy is not None and self.balance.max_policy_lag is not None:
            oldest = self.policy.versions.newest - self.balance.max_policy_lag
            for rollout in self.replay.drop_older(oldest):
                self.intake.drop(rollout)
                self.consume(rollout)
                self._limits_due = True
            if not self.replay.complete:
                return False
        self.half.env_steps = self.env_steps
        self.trained_version = max(self.trained_version, self.replay.newest_version)
        taken, self._rollouts = self.replay.take()
        self.sampled += sum(rollout.num_transitions for rollout in self._rollouts)
        if self.policy is not None:
            for rollout in self._rollouts:
                self.lag.add(self.policy.versions.newest - rollout.policy_version, rollout.num_transitions)
        batches = Minibatches(self.half.prepare(taken), self.options.epochs, self.options.batch_size)
        if self.policy is not None:
            for rollout in self._rollouts:
                self.half.observe(rollout.acted_on)
        self._left, self._batches = len(batches), batches.drawn(self.generator)
        return True

    def end_round(self) -> None:
        """Count the round; the weights are due."""
        self.rounds += 1
        for rollout in self._rollouts:
            self.consume(rollout)
        self._rollouts, self._due = [], True

    def go_back(self, state: Mapping[str, Any]) -> None:
        """As every learner, without the unfinished round: its targets are of the networks that diverged."""
        super().go_back(state)
        if self._left:
            self._left = 0
            self.end_round()
        self._due = True

    def consume(self, rollout: Rollout) -> None:
        """Note the position up to which a stream has been used; limits of collection follow from it."""
        self.consumed[rollout.stream] = max(self.consumed.get(rollout.stream, 0), rollout.produced)

    def publish_if_due(self) -> None:
        """Publish after each round; publish the same policy again if rollouts were dropped for their age."""
        if not self.outbox.serve(wait=not self.may_update) or self.holds_policy:
            return
        if self.policy is not None and not self.policy.published:
            self.publish()
        elif self._due:
            if self.policy is not None:
                self.policy.versions.advance()
            self.publish()
            counts = {"rounds": self.rounds, "updates": self.half.num_updates}
            self.record.write({**counts, "env_steps": self.half.env_steps}, self.metrics)
        elif self._limits_due and not self.may_update:
            self.publish()

    @property
    def holds_policy(self) -> bool:
        """In order: whether the policy waits for the critics of its round. They show that the critic-learner
        has read the version before, which a new one would replace in the channel.
        """
        return self.policy is not None and self.lacks_turn

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to all its readers."""
        if self.holds_policy:
            return
        self._due = self._limits_due = False
        # Samples up to the last round only: some of the next round may have arrived already.
        env_steps = self.half.env_steps
        if self.policy is None:
            counts = {"env_steps": env_steps, "policy_version": self.trained_version}
            self.publish_critics(self.rounds, wait=True, **counts)
            return
        self.policy.publish(
            critic_updates=self.half.num_updates,
            env_steps=env_steps,
            collect_until=self.collect_until(self.policy),
            wait=True,
        )

    def collect_until(self, outlet: PolicyOutlet) -> dict[str, int] | None:
        """Stream -> position up to which its sampler may begin rollouts: ``max_policy_lag`` rollouts beyond
        the next one; None for no limit. After a restart, streams without a rollout so far have no limit.
        """
        if self.balance.max_policy_lag is None:
            return None
        ahead = (1 + self.balance.max_policy_lag) * self.balance.rollout_transitions
        limits = {stream: position + ahead for stream, position in self.consumed.items()}
        return {**limits, "*": ahead} if outlet.versions.first_life else limits

    # --- what it reports and keeps

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
        if self.component.role == ACTOR_LEARNER:
            return self.losses()
        return {**self.losses(), "replay_ratio": self.trained / self.sampled if self.sampled else 0.0}

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs; an unfinished round is not saved."""
        counters = {"rounds": self.rounds, "env_steps": self.env_steps, "trained": self.trained}
        counters |= {"sampled": self.sampled, "trained_version": self.trained_version}
        if self.policy is not None:
            counters["policy_version"] = self.policy.versions.newest
        rewards = {} if self.rewards is None else self.rewards.state_dict()
        order = self.generator.get_state()
        return {"half": self.half.state_dict(), "counters": counters, "rewards": rewards, "order": order}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.half.load_state_dict(state["half"])
        counters = state["counters"]
        self.env_steps, self.trained = counters["env_steps"], counters["trained"]
        self.sampled = counters.get("sampled", self.env_steps)  # older checkpoints lack it
        self.half.env_steps = self.env_steps
        if self.rewards is not None and state["rewards"]:
            self.rewards.load_state_dict(state["rewards"])
        self.generator.set_state(state["order"].cpu())
        self.trained_version = counters["trained_version"]
        if self.policy is not None:
            self.policy.versions.restore(counters["policy_version"])
