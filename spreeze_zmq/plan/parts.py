"""The parts of a plan about the run: its task, its end, balance, groups, data and learning.

Fields declared by ``option`` are keys of a topology, the others follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.balance import Schedule
from spreeze_zmq.base.schema import COUNTS, option
from spreeze_zmq.plan.processes import ComponentPlan


@dataclass(frozen=True)
class StopPlan:
    """The run ends at the first of these; ``None`` is no limit."""

    mean_return: float | None = option(
        None, "stop when fresh episodes of the saved policy have this mean return", name="return"
    )
    env_steps: int | None = option(None, "stop after this many transitions have been sampled", minimum=1)
    trained_transitions: int | None = option(
        None,
        "stop after this many transitions have been trained on, batch_size for each critic update",
        minimum=1,
    )
    minutes: float | None = option(None, "stop after this wall time", above=0)

    def reached(self, counts: Mapping[str, float], now_s: float) -> str:
        """The count or the time that has reached its limit, in words; empty if none has."""
        for name in ("env_steps", "trained_transitions"):
            limit, count = getattr(self, name), counts[name]
            if limit is not None and count >= limit:
                return f"{name} {count:.0f} >= {limit}"
        if self.minutes is not None and now_s >= 60 * self.minutes:
            return f"minutes {now_s / 60:.2f} >= {self.minutes:g}"
        return ""

    def counted(self, in_order: bool) -> dict[str, float]:
        """The limits that grow towards their end by counts; in a run in order without the clock."""
        limits = {name: getattr(self, name) for name in COUNTS if not (in_order and name == "minutes")}
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class RunPlan:
    """The task of a run and when it ends; ``resume_from`` is a run's folder or checkpoint."""

    env: str = option(help='a Gymnasium id, or "module:Id-v0" or "module:callable"')
    env_kwargs: dict[str, Any] = option(dict, "keyword arguments of the environment")
    randomize: dict[str, Any] = option(
        dict, "ranges of model parameters, drawn at each reset of a sampler's environment"
    )
    algorithm: str = option(
        "auto", 'a shipped one or "my_module:MyAlgorithm"; auto goes by the action and observation spaces'
    )
    seed: int = option(0, "the seed from which all others are drawn", minimum=0, maximum=2**32 - 1)
    stop: StopPlan = option(StopPlan, "when to stop, whichever comes first; never without it")
    checkpoint_minutes: float = option(5.0, "time between checkpoints", above=0)
    save_replay: bool = option(
        "auto", "whether checkpoints hold the replay too; auto does in a run in order", words=("auto",)
    )
    resume_from: str | None = None


@dataclass(frozen=True)
class BalancePlan:
    """The ratio of consumption to production of samples, and the bounds on both sides.

    Only topologies contain ``"auto"``: ``plan.topology.dial`` has the values of each mode.

    Attributes:
        max_policy_lag: ``None`` is no limit.
        publish_every_updates: 0 publishes by the clock.
        pin: ``auto``, ``always`` or ``never``.
        rollout_transitions: transitions of one rollout; 0 if they do not follow from the sampler's options.
    """

    mode: str = option(
        "free",
        "the values of the keys below that are left at auto",
        choices=("free", "bounded", "lockstep"),
    )
    replay_ratio: float = option(
        8.0, "transitions trained on per transition sampled after learning_starts", above=0
    )
    max_policy_lag: int | None = option(
        "auto",
        "versions that a received rollout may be behind; a staler one is dropped and counted",
        minimum=0,
        words=("auto",),
    )
    slack_rollouts: int = option(
        "auto", "rollouts that production may run ahead of the ratio", minimum=0, words=("auto",)
    )
    publish_every_updates: int = option(
        "auto",
        "critic updates between two publications, or as many as a rollout of each sampler allows; "
        "0 publishes by publish_interval_s",
        minimum=0,
        words=("round", "auto"),
    )
    in_order: bool = option(
        "auto",
        "take every rollout and version in a fixed order, so that a seed gives the same run again",
        words=("auto",),
    )
    pin: str = option(
        "auto",
        "whether learners get cores of their own; auto where these are a small part of the machine",
        type="bool",
        words=("auto",),
    )
    rollout_transitions: int = 0

    def schedule(self, components: Mapping[str, ComponentPlan], learning: LearningPlan) -> Schedule | None:
        """The schedule of a run that publishes by count; None without that, without a bound of the lag, and
        without samplers.

        Shares are sized for the smallest number of samplers, so that these alone can always continue.
        """
        num_samplers = components["sampler"].count.minimum
        if not self.publish_every_updates or self.max_policy_lag is None or not num_samplers:
            return None
        return Schedule(
            replay_ratio=self.replay_ratio,
            batch_size=learning.batch_size,
            learning_starts=learning.learning_starts,
            publish_every=self.publish_every_updates,
            max_policy_lag=self.max_policy_lag,
            num_samplers=num_samplers,
            rollout_transitions=self.rollout_transitions,
        )


@dataclass(frozen=True)
class GroupsPlan:
    """Whole sets of samplers and learners that train apart and fuse what they have learned.

    Attributes:
        number: which group this is the plan of; 0 is the run itself.
        left_open: keys such as ``sampler.count`` that each member decides by its own cores.
    """

    count: int = option(
        1, "sets of samplers and learners that train apart and fuse their models", minimum=1, maximum=64
    )
    every_updates: int = option(500, "updates of a learner between two models that it sends", minimum=1)
    outer: str = option(
        "average",
        "how models are fused: their mean, or a step towards it with momentum",
        choices=("average", "momentum"),
    )
    outer_learning_rate: float = option(0.7, "size of the step with momentum; 1 is to the mean", above=0)
    outer_momentum: float = option(0.9, "Nesterov momentum of that step", minimum=0, maximum=0.999)
    patience_s: float = option(
        20.0,
        "longest wait of a round for a group that is late for twice its own pace",
        type="duration",
        above=0,
    )
    number: int = 0
    left_open: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataPlan:
    """One source of transitions that the run does not sample itself.

    Attributes:
        share: ``None`` fills the run's own replay once, before training.
        path: the dataset's folder, absolute.
        transitions: of the episodes that are read.
        num_episodes: that are read.
        differs: how its environment was another than the run's, in words; empty if it was the same.
    """

    source: str = option(
        help='"minari:NAME", or the folder of a Minari dataset, "./NAME" beside the topology'
    )
    share: float | None = option(
        None,
        "share of each batch that is drawn from it; by default it fills the run's replay before training",
        above=0,
        maximum=1,
    )
    episodes: int | None = option(None, "read so many of its first episodes; all by default", minimum=1)
    path: str = ""
    transitions: int = 0
    num_episodes: int = 0
    differs: str = ""


@dataclass(frozen=True)
class LearningPlan:
    """Facts about the run's algorithm that processes need without importing it.

    Attributes:
        learners: the roles that train, in the order of ``plan.roles.LEARNERS``.
        on_policy: it trains on each round of rollouts for ``epochs``, then discards it; else it has a replay.
        batch_size: transitions per update; 0 until it is measured.
        learning_starts: transitions received before the replay ratio counts; on-policy, before an update.
        policy_delay: critic updates per policy update.
        epochs: passes over each round; 0 if the replay ratio decides.
        rows_each: rows of a replay that one transition takes, with those that relabelling makes of it.
        movable: the algorithm's options that may move while it trains, and the bounds of each, by their names
            in component.toml.
    """

    learners: tuple[str, ...]
    on_policy: bool
    batch_size: int
    learning_starts: int
    policy_delay: int
    epochs: int
    rows_each: int = 1
    movable: dict[str, dict[str, float]] = field(default_factory=dict)
