"""The learner of an on-policy algorithm: rounds of rollouts in, critics or policies out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.interface import RoundHalf
from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.device import Work
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.policy_outlet import PolicyOutlet
from spreeze_zmq.learner.publication import Outbox, Record
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, settle_device
from spreeze_zmq.plan.roles import CRITIC, PART_OF, POLICY, SAMPLER, publisher_of_policy
from spreeze_zmq.replay import RewardScale, RoundStore, minibatches, updates_per_round
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: Version of the first policy. It acts by its network, since its log probabilities are learned from.
FIRST_VERSION = 1


class RoundLearner:
    """Either learner of an algorithm with ``RolloutOptions``; both train on the same round at the same time.

    A round is one rollout of each sampler. Round ``r`` is trained on with the values as they were before it:
    the actor-learner begins it when the critics have been trained on rollouts of the version before, the
    critic-learner when it knows the policy that made them. ``max_policy_lag`` rounds may be collected while
    another is trained on; what is older when its turn comes is dropped and counted.
    """

    def __init__(self, component: Component) -> None:
        plan, device = component.plan, settle_device(component)
        kind, options = algorithm_of(plan)
        learners, part = plan.learning.learners, PART_OF[component.role]
        self.component = component
        self.options = options
        self.balance = plan.balance
        self.half: RoundHalf = algorithms.make(
            part, kind, options, component.environment, device, plan.run.seed
        )
        self.intake = Intake(component, component.environment)
        rewards = RewardScale(options.gamma) if options.normalize_rewards else None
        self.rewards = rewards
        samplers = plan.components[SAMPLER].count.initial
        self.replay = RoundStore(samplers, device, rewards, options.frame_stack)
        self.cadence = cadence_of(component)
        self.policy: PolicyOutlet | None = None
        if publisher_of_policy(learners) == component.role:
            self.policy = PolicyOutlet(component, self.half, self.cadence, device, FIRST_VERSION)
        channel = CRITIC if self.policy is not None else POLICY
        self.others: Weights | None = None
        if len(learners) > 1:
            self.others = Weights(component.open(channel), in_turn=self.balance.in_order)
        self.outbox = (
            Outbox(component.open(CRITIC), self.cadence, device)
            if self.policy is None
            else self.policy.outbox
        )
        self.work = Work(device)
        self.record = Record(component.folder.learning / f"{component.role}.jsonl", self.cadence)
        self.lag = LagHistogram()
        self.generator = torch.Generator(device).manual_seed(plan.run.seed)
        self.enough: float = plan.run.stop.env_steps or math.inf
        self.rounds = self.env_steps = self.trained = 0
        self.values_from = self.trained_version = 0
        self.consumed: dict[str, int] = {}
        self.metrics: Mapping[str, Any] = {}
        self._batches: Iterator[Mapping[str, torch.Tensor]] = iter(())
        self._left = 0
        self._rollouts: list[Rollout] = []
        self._due = self._tell = False
        component.figures.update(counters=self.counters, gauges=self.gauges)
        component.figures.update(publication=self.cadence.figures, device=self.work.figures)
        if self.policy is not None:
            component.figures["policy_lag"] = self.policy_lag

    # --- what it may do

    @property
    def stopping(self) -> bool:
        """Whether nothing new is collected any more."""
        return SAMPLER in self.component.stopping_roles

    @property
    def may_pull(self) -> bool:
        """No round waits already, and the run wants more samples; samplers that stop are emptied."""
        return self.stopping or (not self.replay.complete and self.env_steps < self.enough)

    @property
    def may_update(self) -> bool:
        """A round is under way, or a whole one has come and what it needs of the other half."""
        if self.stopping:
            return False
        return self._left > 0 or (self.replay.complete and not self.lacks_others)

    @property
    def lacks_others(self) -> bool:
        """Whether the next round has to wait for what the other learner publishes."""
        if self.others is None:
            return False
        if self.others.in_turn:
            return self.others.num_taken <= self.rounds
        if self.others.num_taken == 0:
            return True
        known = self.others.version if self.policy is None else self.values_from + 1
        return self.replay.complete and known < self.replay.newest_version

    @property
    def settled(self) -> bool:
        """It has trained on everything that the run's samples allow."""
        return self.env_steps >= self.enough and not self.may_update and not self.replay.complete

    # --- what it does

    def wait(self) -> None:
        """Wait for rollouts or for the other learner; for nothing while a round is trained on."""
        sources: list[Any] = [self.intake.puller] if self.may_pull else []
        if self.others is not None and (not self.others.in_turn or self.lacks_others):
            sources.append(self.others.subscriber)
        if self.may_update or (self.may_pull and self.intake.ready):
            self.component.poll(sources)
            return
        other = self.others.subscriber.endpoint if self.others is not None else ""
        owed = f"weights ({other})" if self.replay.complete else f"rollouts from {SAMPLER}"
        self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_weights(self) -> None:
        """Adopt the other half's weights between two rounds: the newest, or the next in its turn."""
        if self.others is None or self._left > 0 or (self.others.in_turn and not self.lacks_others):
            return
        if (message := self.others.take()) is None:
            return
        if self.policy is None:
            self.half.load_policy(message.arrays, message.fields["extras"])
        else:
            self.half.load_critic(message.arrays["parameters"])
            self.values_from = message.fields.get("policy_version", 0)

    def take_rollouts(self) -> None:
        """Store what waits, as far as the next round has room."""
        while self.may_pull:
            rollout = next(self.intake.rollouts(at_most=1), None)
            if rollout is None:
                return
            self.store(rollout)

    def store(self, rollout: Rollout) -> None:
        """Keep one rollout for the next round."""
        self.replay.add(rollout)
        before, self.env_steps = self.env_steps, self.env_steps + rollout.num_transitions
        if before < self.enough <= self.env_steps:
            self.component.send_report()

    def update(self) -> None:
        """One step on a batch of the round under way; the next round is begun where none is."""
        if self._left == 0 and not self.begin_round():
            return
        batch = next(self._batches)
        self.metrics = self.half.update(batch)
        self.trained += len(batch["log_prob"])
        self._left -= 1
        if self._left == 0:
            self.end_round()

    def begin_round(self) -> bool:
        """Prepare the next round; False where some of it has grown too old."""
        if self.policy is not None and self.balance.max_policy_lag is not None:
            oldest = self.policy.versions.newest - self.balance.max_policy_lag
            for rollout in self.replay.drop_older(oldest):
                self.intake.drop(rollout)
                self.consume(rollout)
                self._tell = True
            if not self.replay.complete:
                return False
        self.half.env_steps = self.env_steps
        self.trained_version = max(self.trained_version, self.replay.newest_version)
        made, self._rollouts = self.replay.take()
        if self.policy is not None:
            for rollout in self._rollouts:
                self.lag.add(self.policy.versions.newest - rollout.policy_version, rollout.num_transitions)
        fields = self.half.prepare(made)
        if self.policy is not None:
            self.half.observe(made.obs[:-1].flatten(0, 1).cpu().numpy())
        size = len(fields["log_prob"])
        self._left = updates_per_round(size, self.options.epochs, self.options.batch_size)
        self._batches = minibatches(fields, self.options.epochs, self.options.batch_size, self.generator)
        return True

    def end_round(self) -> None:
        """Everything has been trained on; the weights are due."""
        self.rounds += 1
        for rollout in self._rollouts:
            self.consume(rollout)
        self._rollouts, self._due = [], True

    def consume(self, rollout: Rollout) -> None:
        """Note how far a stream has been used, for the limit of what its sampler collects next."""
        stream = f"{rollout.sampler}/{rollout.incarnation}"
        self.consumed[stream] = max(self.consumed.get(stream, 0), rollout.produced)

    def publish_if_due(self) -> None:
        """After each round; the same policy once more where rollouts were dropped for their age."""
        self.outbox.serve(wait=not self.may_update)
        if self.outbox.busy:
            return
        if self._due:
            if self.policy is not None:
                self.policy.versions.advance()
            self.publish()
            counts = {"rounds": self.rounds, "updates": self.half.num_updates, "env_steps": self.env_steps}
            self.record.write(counts, self.metrics)
        elif self._tell and not self.may_update:
            self.publish()

    def publish(self) -> None:
        """Send the critics to the actor-learner, or the policy to everybody."""
        self._due = self._tell = False
        if self.policy is not None:
            self.policy.publish(
                critic_updates=self.half.num_updates,
                policy_updates=self.half.num_updates,
                env_steps=self.env_steps,
                collect_until=self.collect_until(self.policy),
                wait=True,
            )
            return
        fields = {
            "version": self.rounds,
            "critic_updates": self.half.num_updates,
            "env_steps": self.env_steps,
            "policy_version": self.trained_version,
        }
        self.outbox.put(
            self.half.weights, lambda weights: Message("critic", fields, {"parameters": weights}), wait=True
        )

    def collect_until(self, outlet: PolicyOutlet) -> dict[str, int] | None:
        """Stream -> position up to which its sampler may begin rollouts: ``max_policy_lag`` rollouts beyond
        the next one. A later life does not know how far streams have come that it has not heard of.
        """
        if self.balance.max_policy_lag is None:
            return None
        ahead = (1 + self.balance.max_policy_lag) * self.balance.rollout_transitions
        limits = {stream: position + ahead for stream, position in self.consumed.items()}
        return {**limits, "*": ahead} if outlet.versions.first_life else limits

    # --- what it reports and keeps

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report, as both kinds of learner have them."""
        found: dict[str, float] = {}
        if self.policy is not None:
            found |= {"actor_updates": self.half.num_updates, "policy_version": self.policy.versions.newest}
        if self.policy is None or self.others is None:
            found |= {"env_steps": self.env_steps, "trained_transitions": self.trained}
            found["critic_updates"] = self.half.num_updates
        return found

    def policy_lag(self) -> dict[str, float]:
        """Versions that rollouts were behind when their round began; ``stale`` transitions were dropped."""
        return {**self.lag.summary(), "stale": self.intake.stale_transitions}

    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
        found = {name: float(value) for name, value in self.metrics.items()}
        if self.policy is None or self.others is None:
            used = self.env_steps - len(self.replay)
            found["replay_ratio"] = self.trained / used if used else 0.0
        return found

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs; a round that is under way is lost with the life."""
        counters = {"rounds": self.rounds, "env_steps": self.env_steps, "trained": self.trained}
        counters["trained_version"] = self.trained_version
        if self.policy is not None:
            counters["policy_version"] = self.policy.versions.newest
        rewards = {} if self.rewards is None else self.rewards.state_dict()
        order = self.generator.get_state()
        return {"half": self.half.state_dict(), "counters": counters, "rewards": rewards, "order": order}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.half.load_state_dict(state["half"])
        counters = state["counters"]
        self.env_steps, self.trained = counters["env_steps"], counters["trained"]
        if self.rewards is not None and state["rewards"]:
            self.rewards.load_state_dict(state["rewards"])
        self.generator.set_state(state["order"].cpu())
        self.trained_version = counters["trained_version"]
        if self.policy is not None:
            self.policy.versions.restore(counters["policy_version"])
