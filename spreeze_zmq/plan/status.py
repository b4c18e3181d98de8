"""The status of a run as its broker publishes it: plain numbers and names, nothing that must be imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class ReplayRatio(TypedDict):
    """Transitions trained on for each transition sampled."""

    target: float
    measured: float


class PolicyLag(TypedDict):
    """Versions that the policy was ahead of the rollouts which were taken in; transitions dropped as staler
    than the bound, and the bound itself.
    """

    p50: float
    p99: float
    max: float
    stale: float
    bound: int | None


class Samples(TypedDict):
    """The account of transitions: produced = received + dropped + in_flight."""

    produced: int
    received: int
    dropped: int
    in_flight: int


class Workers(TypedDict):
    """All processes of one role: means of the shares (0 to 1), sums of the rest (100 % is one core)."""

    count: int
    busy: float
    blocked: float
    starved: float
    cpu_percent: float
    rss_bytes: float


class Episodes(TypedDict):
    """Episodes that ended while samples were collected: means over the last 100, ``recent_return`` over the
    last 16.
    """

    count: int
    mean_return: float | None
    recent_return: float | None
    mean_length: float | None


class Score(TypedDict):
    """One evaluation; ``env_steps`` had been taken when its policy was made, ``t_s`` is when it came."""

    t_s: float
    env_steps: int
    mean_return: float
    std_return: float


class Evaluation(TypedDict):
    """The newest evaluation and the best one."""

    last: Score | None
    best: Score | None


#: Stop conditions by their names in the topology, one of them a keyword; None where it is not set.
Stop = TypedDict(
    "Stop",
    {
        "return": float | None,
        "env_steps": int | None,
        "trained_transitions": int | None,
        "minutes": float | None,
    },
)


class LiveProcess(TypedDict):
    """One process that is alive: whether it is set up, seconds since its last report, and what it has waited
    for longer than a moment ("" for nothing).
    """

    pid: int
    ready: bool
    silent_s: float
    waiting_for: str


class Balance(TypedDict):
    """Whether worker counts may move, whether the last steady window asked for no change, and the last change
    with its reason; "" for none.
    """

    movable: bool
    settled: bool
    last_change: str


class Figures(TypedDict):
    """What status and summary share; ``learners`` are the roles that train."""

    learners: list[str]
    env_steps: int
    trained_transitions: int
    critic_updates: int
    actor_updates: int
    replay_ratio: ReplayRatio
    policy_lag: PolicyLag
    #: For each learner: seconds between two publications, their cost as a share of the updates' time, bytes.
    publication: Mapping[str, Mapping[str, float]]
    #: For each learner's GPU: share of time that updates take, memory held, memory free.
    devices: Mapping[str, Mapping[str, float]]


class Status(Figures):
    """A run at ``t_s`` seconds after its start, as its broker publishes it."""

    t_s: float
    state: str
    env_steps_per_s: float
    trained_transitions_per_s: float
    critic_updates_per_s: float
    actor_updates_per_s: float
    samples: Samples
    workers: dict[str, Workers]
    episodes: Episodes
    evaluation: Evaluation
    stop: Stop
    processes: dict[str, LiveProcess]
    balance: Balance
