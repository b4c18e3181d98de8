"""The experience of an on-policy learner: rounds of rollouts, trained on for some epochs each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from spreeze_zmq.algorithms.shared_model import Statistics
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.packed import Packing, flat
from spreeze_zmq.learner.experience import Experience
from spreeze_zmq.learner.lag import MOST_LIMITED, fitting
from spreeze_zmq.learner.paid import PAID, paid_alike, paid_by
from spreeze_zmq.nn.device import draw_on
from spreeze_zmq.plan.roles import ACTOR_LEARNER, SAMPLER
from spreeze_zmq.replay import Minibatches, RewardScale, RoundStore
from spreeze_zmq.wire import Message


class RoundExperience(Experience):
    """Rounds of one rollout of each sampler; both learners train on the same round at the same time.

    Targets use the values from before the round: the actor-learner begins a round when it has the critics
    that were trained on rollouts of the policy version before, the critic-learner when it has the policy that
    collected the round. ``max_policy_lag`` rounds may be collected while another is trained on; rollouts that
    are older when their round begins are dropped and counted.
    """

    replay: RoundStore

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        plan, options, device = self.component.plan, self.options, self.component.options["device"]
        self.rewards = RewardScale(options.gamma) if options.normalize_rewards else None
        num_samplers = plan.components[SAMPLER].count.initial
        self.replay = RoundStore(num_samplers, device, self.rewards, options.frame_stack)
        self.packing = Packing.of(self.component.environment)
        self.generator = torch.Generator(device).manual_seed(plan.run.seed)
        self.rounds = 0
        self._known_version: float = 0 if self.others else math.inf
        self._critics_from = 0  # the incarnation of the critic-learner; 0 before its first critics
        self.consumed: dict[str, int] = {}
        self._batches: Iterator[Mapping[str, torch.Tensor]] = iter(())
        self._left = 0
        self._rollouts: list[Rollout] = []
        self._due = self._limits_due = False
        self.intake.on_refused = self._use_up
        if self.outlet.of_policy:
            self.component.figures["policy_lag"] = self.policy_lag
        if self.outlet.of_policy and not self.in_order:
            self.component.on("status", self.on_status)

    # --- what it waits for

    @property
    def wants(self) -> bool:
        """Whether the next round lacks rollouts that the run wants, or the samplers have been stopped. Except
        in order the critic-learner alone says when that is enough: a learner that was started again has
        received fewer than the other one, which would keep the last ones from it.
        """
        counts_the_run = self.in_order or self.component.role != ACTOR_LEARNER
        enough = counts_the_run and self.counts.env_steps >= self.enough
        return self.stopping or not (self.replay.complete or enough)

    def _has_batch(self) -> bool:
        """Whether a round is being trained on, or the next one has come."""
        return self._left > 0 or self.replay.complete

    def _lacks_weights(self) -> bool:
        """Whether the next round has to wait for the other learner's weights; not in the middle of one."""
        if self._left:
            return False
        if self.in_order:
            return self._num_weights <= self.rounds
        too_old = self.replay.complete and self._known_version < self.replay.newest_version
        return self._num_weights == 0 or too_old

    @property
    def wants_weights(self) -> bool:
        """As always, but not in the middle of a round."""
        return self._left == 0 and super().wants_weights

    @property
    def pooled(self) -> Sequence[Statistics]:
        """Those of the returns that rewards are divided by."""
        return () if self.rewards is None else (self.rewards,)

    @property
    def may_change(self) -> bool:
        """Between a round and the publication that follows it, so that no rollout is of other weights."""
        return self._due and self._left == 0

    @property
    def done(self) -> bool:
        """Whether all rounds are trained on and, in order, the other half's last weights have come."""
        if self._due or (self.in_order and self._lacks_weights()):
            return False
        return self.counts.env_steps >= self.enough and not self.ready and not self.replay.complete

    @property
    def owed(self) -> str:
        """Rollouts or the other half's weights."""
        if self.replay.complete and self.others is not None:
            return f"weights ({self.others.subscriber.endpoint})"
        return f"rollouts from {SAMPLER}"

    # --- what comes in

    def on_status(self, status: Mapping[str, Any]) -> None:
        """Note how many samplers live: on machines that join they may be fewer than a round has rollouts."""
        row = status.get("workers", {}).get(SAMPLER)
        count = row.get("count") if isinstance(row, Mapping) else None
        self._limits_due |= self.limits.meet(count if type(count) is int else 0)

    def unfit(self, rollout: Rollout) -> str:
        """Why a rollout cannot be joined with the others of its round; empty if it can."""
        return self.replay.unfit(rollout)

    def add(self, rollout: Rollout) -> None:
        """Keep one rollout for the next round."""
        self.replay.add(flat(rollout, self.packing))
        self.count(rollout.num_transitions)

    def meet(self, message: Message) -> None:
        """Note the newest policy version whose rollouts the other half's weights allow to train on: that of
        the policy, or the one after the policy that collected what the critics were trained on. A
        critic-learner that was started again has lost rollouts that this learner holds, and will never train
        on them: all that have been collected so far are allowed. After a restart from an older checkpoint the
        other half knows better how many transitions were received.
        """
        assert self.others is not None
        fields = message.fields
        if self.others.num_taken == 1 and not self.in_order:
            self.catch_up(int(fields.get("extras", fields).get("env_steps", 0)))
        if message.kind == "policy":
            allowed = fields["version"]
        else:
            is_another_life = self._critics_from not in (0, message.incarnation)
            self._critics_from = message.incarnation
            followed = fields.get("policy_version", 0) + 1
            allowed = self.outlet.versions.newest if is_another_life else followed
        self._known_version = max(self._known_version, allowed)

    # --- an update

    def next(self) -> tuple[Mapping[str, torch.Tensor], bool] | None:
        """The next batch of the round, or the first of the next round; the last one of each is measured."""
        if self._left == 0 and not self._begin():
            return None
        return next(self._batches), self._left == 1

    def trained(self, batch: Mapping[str, torch.Tensor]) -> int:
        """Note an update; after the last one of a round the weights are due."""
        self._left -= 1
        if self._left == 0:
            self._end()
        return batch["log_prob"].numel()

    def _begin(self) -> bool:
        """Prepare the next round; False if it is incomplete after rollouts that are too old were dropped."""
        if self.outlet.of_policy and self.balance.max_policy_lag is not None:
            for rollout in self.replay.drop_older(self.outlet.versions.newest - self.balance.max_policy_lag):
                self.intake.drop(rollout)
                self._use_up(rollout)
            if not self.replay.complete:
                return False
        self.half.env_steps = self.counts.env_steps
        self.counts.trained_version = max(self.counts.trained_version, self.replay.newest_version)
        taken, self._rollouts = self.replay.take()
        batches = Minibatches(self.half.prepare(taken), self.options.epochs, self.options.batch_size)
        for rollout in self._rollouts:
            self.counts.sampled += rollout.num_transitions
            self.outlet.observe(rollout)
            if self.outlet.of_policy:
                lag = self.outlet.versions.newest - rollout.policy_version
                self.lag.add(lag, rollout.num_transitions)
        self._left, self._batches = len(batches), batches.drawn(self.generator)
        return True

    def _end(self) -> None:
        """Count the round, and its publication; the weights are due."""
        self.rounds += 1
        self.cadence.published = self.rounds
        for rollout in self._rollouts:
            self._consume(rollout)
        self._rollouts, self._due = [], True

    def _consume(self, rollout: Rollout) -> None:
        """Note the position up to which a stream has been used; limits of collection follow from it."""
        used = self.consumed.pop(rollout.stream, 0)
        self.consumed[rollout.stream] = max(used, rollout.produced)  # the newest last
        if len(self.consumed) > 2 * MOST_LIMITED:
            self.consumed = fitting(self.consumed)

    def _use_up(self, rollout: Rollout) -> None:
        """Note that a rollout is trained on by nobody: its sampler may collect another one for it."""
        self._consume(rollout)
        self._limits_due = True

    # --- what goes out

    def _holds(self) -> bool:
        """In order: whether the policy waits for the critics of its round. They show that the critic-learner
        has read the version before, which a new one would replace in the channel.
        """
        return self.outlet.of_policy and self.in_order and self._lacks_weights()

    def due(self) -> bool:
        """After each round."""
        return self._due and not self._holds()

    def limits_due(self) -> bool:
        """After rollouts were dropped for their age or refused, or as so few samplers live that each has to
        do more; never in the midst of a round, whose weights are of no version.
        """
        return self._limits_due and self._left == 0

    def news(self) -> dict[str, Any] | None:
        """Of samples up to the last round only: some of the next round may have arrived already."""
        if self._holds():
            return None
        self._due = self._limits_due = False
        about = {} if self.outlet.of_policy else {"policy_version": self.counts.trained_version}
        return {"critic_updates": self.half.num_updates, "positions": self.consumed, **about}

    def recorded(self) -> dict[str, int]:
        """Rounds, updates and samples."""
        return {"rounds": self.rounds, "updates": self.half.num_updates, "env_steps": self.half.env_steps}

    def gauges(self) -> dict[str, float]:
        """The ratio, by one learner."""
        if self.component.role == ACTOR_LEARNER:
            return {}
        return {"replay_ratio": self.counts.trained / self.counts.sampled if self.counts.sampled else 0.0}

    # --- what is kept

    def state(self) -> dict[str, Any]:
        """The scale of rewards and the order of batches; an unfinished round is not saved."""
        rewards = {} if self.rewards is None else self.rewards.state_dict()
        return {"rewards": rewards, PAID: paid_by(self.component.plan), "order": self.generator.get_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`; returns that were paid or discounted otherwise count no more."""
        if self.rewards is not None and state["rewards"] and paid_alike(state, self.component.plan):
            self.rewards.load_state_dict(state["rewards"])
        draw_on(self.generator, state["order"])
        self.begun = self.counts.env_steps

    @property
    def keeps_order(self) -> bool:
        """Only where no rollouts of the next round wait while one is trained on."""
        return self.in_order and self.balance.max_policy_lag == 0

    def order(self) -> dict[str, Any]:
        """The rounds, and what the samplers' next rollouts are joined to."""
        running = {} if self.rewards is None else self.rewards.running()
        return {"rounds": self.rounds, "begun": self.begun, "running": running}

    def go_on(self, order: Mapping[str, Any]) -> int:
        """Count the rounds on."""
        self.rounds, self.begun = order["rounds"], order["begun"]
        if self.rewards is not None:
            self.rewards.go_on(order["running"])
        return 0

    def go_back(self) -> None:
        """Give up the unfinished round, whose targets are of the networks that diverged."""
        if self._left:
            self._left = 0
            self._end()
        self._due = True
