"""The learner of an on-policy algorithm: rounds of rollouts in, critics or policies out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.errors import WireError
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.learner import Learner
from spreeze_zmq.learner.policy_outlet import PolicyOutlet
from spreeze_zmq.learner.publication import Outbox
from spreeze_zmq.plan.roles import CRITIC, POLICY, SAMPLER, publisher_of_policy
from spreeze_zmq.replay import Minibatches, RewardScale, RoundStore
from spreeze_zmq.rollout import Rollout

#: Version of the first policy. It acts by its network, since its log probabilities are learned from.
FIRST_VERSION = 1


class RoundLearner(Learner):
    """Either learner of an algorithm with ``RolloutOptions``; both train on the same round at the same time.

    A round is one rollout of each sampler. Round ``r`` is trained on with the values as they were before it:
    the actor-learner begins it when it has the critics that were trained on rollouts of the version before,
    the critic-learner when it has the policy that collected it. ``max_policy_lag`` rounds may be collected
    while another is trained on; rollouts that are older when their round begins are dropped and counted.
    """

    replay: RoundStore

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        plan, options = self.plan, self.options
        self.balance = plan.balance
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
        self.policy: PolicyOutlet | None = None
        if publisher_of_policy(plan.learning.learners) == component.role:
            self.policy = PolicyOutlet(component, self.half, self.cadence, self.device, FIRST_VERSION)
            self.outbox = self.policy.outbox
        else:
            self.outbox = Outbox(component.open(CRITIC), self.cadence, self.device)
        self.others: Weights | None = None
        if len(plan.learning.learners) > 1:
            channel = CRITIC if self.policy is not None else POLICY
            self.others = Weights(component.open(channel), in_turn=self.balance.in_order)
        self.reports_experience = self.policy is None or self.others is None
        self.lag = LagHistogram()
        self.generator = torch.Generator(self.device).manual_seed(plan.run.seed)
        self.rounds = self.trained = self.values_from = self.trained_version = 0
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
        """Whether the next round lacks rollouts that the run wants, or stopped samplers are to be drained."""
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
    def lacks_turn(self) -> bool:
        """Whether the other half's weights of the last round, which are read in turn, have not come yet."""
        return self.others is not None and self.others.in_turn and self.lacks_others

    @property
    def settled(self) -> bool:
        """Whether it has trained on all rounds of the run and, in turn, has the other half's last weights."""
        if self.lacks_turn or self._due:
            return False
        return self.env_steps >= self.enough and not self.may_update and not self.replay.complete

    # --- what it does

    def wait(self) -> None:
        """Wait for rollouts or the other learner's weights; not at all while a round is trained on."""
        sources: list[Any] = [self.intake.puller] if self.may_pull else []
        if self.others is not None and (not self.others.in_turn or self.lacks_others):
            sources.append(self.others.subscriber)
        owed = f"rollouts from {SAMPLER}"
        if self.replay.complete and self.others is not None:
            owed = f"weights ({self.others.subscriber.endpoint})"
        self.poll(sources, owed)

    def take_weights(self) -> None:
        """Load the other half's weights between two rounds: the newest, or the next version in turn."""
        if self.others is None or self._left > 0 or (self.others.in_turn and not self.lacks_others):
            return
        if (message := self.others.take()) is None:
            return
        try:
            if self.policy is None:
                self.half.load_policy(message.arrays)
            else:
                self.half.load_critic(message.arrays["parameters"])
                self.values_from = message.fields.get("policy_version", 0)
        except WireError as error:
            self.others.refuse(message, error)

    def store(self, rollout: Rollout) -> None:
        """Keep one rollout for the next round."""
        self.replay.add(rollout)
        self.count_env_steps(rollout.num_transitions)

    def update(self) -> None:
        """Take one gradient step on a batch of the round; begin the next round if none is under way."""
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
        """Prepare the next round; False if some of its rollouts are too old, and are dropped."""
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
        made, self._rollouts = self.replay.take()
        if self.policy is not None:
            for rollout in self._rollouts:
                self.lag.add(self.policy.versions.newest - rollout.policy_version, rollout.num_transitions)
        batches = Minibatches(self.half.prepare(made), self.options.epochs, self.options.batch_size)
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
        """As in the base class; the unfinished round is dropped, since the lost networks made its targets."""
        super().go_back(state)
        if self._left:
            self._left = 0
            self.end_round()
        self._due = True

    def consume(self, rollout: Rollout) -> None:
        """Note the position up to which a stream has been used; limits of collection follow from it."""
        stream = f"{rollout.sampler}/{rollout.incarnation}"
        self.consumed[stream] = max(self.consumed.get(stream, 0), rollout.produced)

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
        """Whether the policy waits for the critics of its round, as it does in order: they show that the
        critic-learner has read the version before, which a late reader would pass over.
        """
        return self.policy is not None and self.lacks_turn

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to all its readers."""
        if self.holds_policy:
            return
        self._due = self._limits_due = False
        # Samples up to the round trained on: those of the next one may or may not have come by now.
        env_steps = self.half.env_steps
        if self.policy is None:
            counts = {"env_steps": env_steps, "policy_version": self.trained_version}
            self.publish_critics(self.outbox, self.rounds, wait=True, **counts)
            return
        self.policy.publish(
            critic_updates=self.half.num_updates,
            env_steps=env_steps,
            collect_until=self.collect_until(self.policy),
            wait=True,
        )

    def collect_until(self, outlet: PolicyOutlet) -> dict[str, int] | None:
        """Stream -> position up to which its sampler may begin rollouts: ``max_policy_lag`` rollouts beyond
        the next one. After a restart, streams from which nothing has come yet have no limit.
        """
        if self.balance.max_policy_lag is None:
            return None
        ahead = (1 + self.balance.max_policy_lag) * self.balance.rollout_transitions
        limits = {stream: position + ahead for stream, position in self.consumed.items()}
        return {**limits, "*": ahead} if outlet.versions.first_life else limits

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report; the critic-learner or a lone learner counts the experience."""
        found = self.flops(self.trained)
        if self.policy is not None:
            found |= {"actor_updates": self.half.num_updates, "policy_version": self.policy.versions.newest}
        if self.reports_experience:
            found |= {"env_steps": self.env_steps, "trained_transitions": self.trained}
            found["critic_updates"] = self.half.num_updates
        return found

    def policy_lag(self) -> dict[str, float]:
        """Lag of rollouts in versions when their round began; ``stale`` transitions were dropped."""
        return {**self.lag.summary(), "stale": self.intake.stale_transitions}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
        found = self.losses()
        if self.reports_experience:
            used = self.env_steps - len(self.replay)
            found["replay_ratio"] = self.trained / used if used else 0.0
        return found

    def state(self) -> dict[str, Any]:
        """Everything that a restart needs; the round under way is not saved."""
        counters = {"rounds": self.rounds, "env_steps": self.env_steps, "trained": self.trained}
        counters["trained_version"] = self.trained_version
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
        self.half.env_steps = self.env_steps
        if self.rewards is not None and state["rewards"]:
            self.rewards.load_state_dict(state["rewards"])
        self.generator.set_state(state["order"].cpu())
        self.trained_version = counters["trained_version"]
        if self.policy is not None:
            self.policy.versions.restore(counters["policy_version"])
