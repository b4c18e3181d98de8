"""The experience of an off-policy learner: a replay, beside the run's data, with episodes in hindsight."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.relabelled import checked, goals_of
from spreeze_zmq.algorithms.shared_model import Statistics
from spreeze_zmq.balance.refill import refill
from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component import Component
from spreeze_zmq.envs.goals import LACK, GoalRewards, NoRewards, is_goal_dict
from spreeze_zmq.envs.seeds import seed_for, shared_generators_kept
from spreeze_zmq.envs.settings import theirs
from spreeze_zmq.learner.device import remark
from spreeze_zmq.learner.experience import Experience
from spreeze_zmq.learner.paid import PAID, paid_alike, paid_by
from spreeze_zmq.learner.sources import Sources
from spreeze_zmq.plan import sizing
from spreeze_zmq.plan.moves import BATCH
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.replay import ObservationReplay, Relabelling, Replay, replay_of
from spreeze_zmq.replay.hindsight import Rewards

#: One update in this many computes the expensive metrics: three means take a tenth of a short update.
MEASURED_EVERY = 8
#: It is told where 1,000 transitions take longer than this to be relabelled, s.
DEAR_S = 0.1

log = logging.getLogger("spreeze")


class ReplayExperience(Experience):
    """A replay whose batches the broker may resize where the topology says ``batch_size = "auto"``.

    Attributes:
        batch_size: transitions of an update.
        refill: transitions that must come before the next update, after a restart without the replay and
            with the networks that other groups have trained; else 0.
    """

    replay: Replay | ObservationReplay

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        component, plan = self.component, self.component.plan
        device, seed = component.options["device"], plan.run.seed
        kind = type(self.half.algorithm)
        fields = kind.kept_fields(self.half.part, self.options)
        drawn = self.options.drawn(self.half.part)
        self.replay = replay_of(fields, component.environment, drawn, device, seed)
        how = relabelling(component, self.half) if kind.relabels(self.options) else None
        if how is not None:
            self.replay.relabel_by(how)
        self.sources = Sources(component, self.half, self.replay, how) if plan.data else None
        if (descriptor := kept_memory.inherited()) is not None:
            self.replay.keep_in(descriptor)  # so that it survives a crash of the learner
        self._has_outlived = len(self.replay) > 0
        if count := len(self.replay):
            log.info("the replay is back: %s transitions outlived the process before this one", f"{count:,}")
        self.batch_size = self._largest_batch = plan.learning.batch_size
        self.refill = 0
        component.lacks = self.lacks

    def begin(self) -> None:
        """Read the data that the run does not sample itself, and know what rewards are divided by."""
        if self.sources is not None:
            self.sources.read(self.outlet.observe)
        self._tell_scale()

    def lacks(self) -> str:
        """What it waits for although samples come: those that replace a replay that did not come back, or
        that it never had.
        """
        missing = self.refill - self.replay.num_sampled if self.refill else 0
        return f"{missing:,} more transitions, too few for its trained networks" if missing > 0 else ""

    @property
    def num_filled(self) -> int:
        """Transitions of the replay that this process has filled it with."""
        return 0 if self.sources is None else self.sources.num_filled

    def set(self, option: str, value: Any) -> None:
        """Follow a change of the batch size."""
        if option == BATCH and BATCH in self.component.plan.measured and type(value) is int:
            self._resize(value)

    def unfit(self, rollout: Rollout) -> str:
        """Why its replay cannot keep a rollout that fits the environment; empty if it can."""
        return self.replay.unfit(rollout)

    def _resize(self, size: int) -> None:
        """Use another batch size and scale the rates to it. Messages are handled between two updates."""
        if 0 < size <= self._largest_batch and size != self.batch_size:
            scaling = sizing.scaling_of(self.component.plan, size)
            rates = {name: option["scaled"] for name, option in scaling["options"].items()}
            self.half.set_rates(rates)
            log.info("batch size %d -> %d; %s", self.batch_size, size, sizing.scaling_line(scaling))
            self.batch_size = size

    def next(self) -> tuple[Any, bool]:
        """A batch drawn from the replay; where publications are counted, and recorded, each is measured."""
        measured = bool(self.cadence.every) or self.half.num_updates % MEASURED_EVERY == 0
        drawn = self.replay if self.sources is None else self.sources.drawn
        self._tell_scale()
        return drawn.sample(self.batch_size), measured

    @property
    def pooled(self) -> Sequence[Statistics]:
        """Those of the returns that rewards are divided by."""
        return () if self.replay.scale is None else (self.replay.scale,)

    def state(self) -> dict[str, Any]:
        """The state of the drawing, how many transitions the replay has been given, and what rewards are
        divided by; the replay is saved only with ``save_replay``.
        """
        scale, plan = {}, self.component.plan
        if self.replay.scale is not None:
            scale = {"returns": self.replay.scale.state_dict(), PAID: paid_by(plan)}
        episodes = {} if (made := self.replay.relabeller) is None else {"episodes": made.num_episodes}
        data = {} if self.sources is None else {"data": self.sources.state()}
        given = {"num_sampled": self.replay.num_sampled}
        return {"replay": self.replay.ring.random_state(), **given, **data, **scale, **episodes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`. Without the replay, updates wait for a share of its transitions to
        come again, and returns that were paid or discounted otherwise count no more.
        """
        self.replay.ring.set_random_state(state["replay"])
        env_steps = self.counts.env_steps
        is_new = not (self.replay.num_sampled or self._has_outlived)
        is_back = is_new and len(self.replay) > self.num_filled  # it was saved with this state
        if is_back:
            self.replay.num_sampled = state.get("num_sampled", env_steps)
        if needed := self._lacking(env_steps):
            self.refill = needed
            log.warning("without its replay: updates go on after %d transitions", self.refill)
        if self.replay.scale is not None and (is_back or paid_alike(state, self.component.plan)):
            self.replay.scale.load_state_dict(state["returns"])
        if self.replay.relabeller is not None:
            self.replay.relabeller.num_episodes = state.get("episodes", 0)
        if self.sources is not None:
            self.sources.restore(state.get("data", {}))
        self._tell_scale()

    def join(self, env_steps: int) -> None:
        """Wait as without a replay, where the run has many transitions and this learner has few."""
        if (needed := self._lacking(env_steps)) > max(self.refill, self.options.learning_starts):
            self.refill = needed
            log.info("with few transitions for trained networks: updates go on after %d", self.refill)

    def _lacking(self, env_steps: int) -> int:
        """Transitions that must come before updates go on with networks that a run of so many has trained;
        0 where the replay has them.
        """
        options, each = self.options, self.component.plan.learning.rows_each
        lost = env_steps - self.replay.num_sampled  # not what it was given and has forgotten since
        needed = refill(options.learning_starts, lost, options.replay_capacity, each)
        lacks = self.replay.num_sampled < min(needed, env_steps)
        return needed if lacks and not self.in_order and not self.component.plan.offline else 0

    @property
    def keeps_order(self) -> bool:
        """Only with a replay that is saved."""
        return self.in_order and self.component.plan.run.save_replay and self.limits.schedule is not None

    def order(self) -> dict[str, Any]:
        """What the samplers' next rollouts are joined to."""
        scale, made = self.replay.scale, self.replay.relabeller
        running = {} if scale is None else scale.running()
        unended = {} if made is None else made.state()
        return {"streams": self.replay.ring.streams(), "running": running, "unended": unended}

    def go_on(self, order: Mapping[str, Any]) -> int:
        """Join the next rollouts to those of the run before."""
        self.replay.ring.go_on(order["streams"])
        if self.replay.scale is not None:
            self.replay.scale.go_on(order["running"])
        if self.replay.relabeller is not None:
            self.replay.relabeller.go_on(order["unended"])
        return 0

    def _tell_scale(self) -> None:
        """Let the algorithm know what rewards are divided by, for values in the environment's units."""
        if self.replay.scale is not None:
            self.half.algorithm.reward_divisor = self.replay.scale.divisor


log = logging.getLogger("spreeze")


def relabelling(component: Component, half: AutogradHalf) -> Relabelling:
    """How the replay of a learner relabels episodes. A learner that keeps rewards makes one environment, for
    its ``compute_reward``, and so does one whose ``relabel`` is the author's own, which may choose by them;
    otherwise one that keeps observations alone needs none. The process stays heard while many episodes that
    have ended together are relabelled; messages wait until then.

    Raises:
        InvalidEnvironment: it cannot be made, or its ``compute_reward`` fails.
    """
    plan, algorithm = component.plan, half.algorithm
    kind, rewards = type(algorithm), None

    def breathe() -> None:
        component.breathe(listens=False)

    reads_rewards = kind.relabel is not Algorithm.relabel or "reward" in kind.fields_of(half.part)
    if reads_rewards and is_goal_dict(component.environment.obs_parts):
        lack = plan.tried.get(LACK)
        rewards = NoRewards(str(lack)) if lack else _rewards(component, half, breathe)
    goals = goals_of(component.environment, rewards)
    return Relabelling(checked(algorithm), goals, plan.run.seed, breathe)


def _rewards(component: Component, half: AutogradHalf, breathe: Callable[[], object]) -> Rewards:
    from spreeze_zmq.envs.in_process import choose  # imports Gymnasium, which other learners do not need

    plan = component.plan
    number = first_index(plan, component.role)
    with theirs(), shared_generators_kept():  # the learner has been set up, and seeded by the run
        env = choose(plan.environment.id, plan.environment.kwargs).make_one(number)
        component.at_end.append(env.close)
        env.reset(seed=seed_for(plan.run.seed, 1))
        rewards = GoalRewards(env, plan.environment.id, breathe)
    how = "many goals at once" if rewards.in_batches else "one goal at a time"
    log.info("episodes are kept once more in hindsight; compute_reward takes %s", how)
    asked = 1000 * max(1, plan.learning.rows_each - 1) * half.options.n_step
    if not rewards.in_batches and (lasts_s := asked * rewards.each_s) >= DEAR_S:
        line = f"1,000 transitions take about {lasts_s:.2g} s to be relabelled: compute_reward takes one"
        remark(component, f"{line} goal at a time; one that takes many at once, [M, size], is faster")
    return rewards
