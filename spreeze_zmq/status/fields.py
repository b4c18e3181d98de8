"""The status of a run as its broker publishes it: plain numbers and names, nothing that must be imported."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ReplayRatio(TypedDict):
    """Transitions trained on for each transition sampled."""

    target: float
    measured: float


class PolicyLag(TypedDict):
    """Versions that the policy was ahead of the rollouts which were taken in."""

    p50: float
    p99: float
    max: float


class Publication(TypedDict):
    """A learner's: seconds between two, their cost as a share of its updates' time, and bytes of one."""

    interval_s: float
    cost: float
    bytes: int


class Device(TypedDict):
    """A learner's GPU: the share of time that its updates take, the memory it holds, what is free."""

    busy: float
    memory_bytes: int
    memory_free_bytes: int


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
    """Episodes that ended while samples were collected; means over the last hundred."""

    count: int
    mean_return: float | None
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


class Life(TypedDict):
    """One process: whether it is set up, whom it has long waited for, how it left; "" where not."""

    ready: bool
    waiting_for: str
    gone: str


class Balance(TypedDict):
    """Whether worker counts may move, whether the last steady window asked for no change, and the last change
    with its reason; "" for none.
    """

    movable: bool
    settled: bool
    last_change: str


class Status(TypedDict):
    """A run at ``t_s`` seconds after its start, as its broker publishes it."""

    t_s: float
    state: str
    env_steps: int
    env_steps_per_s: float
    trained_transitions: int
    trained_transitions_per_s: float
    critic_updates: int
    critic_updates_per_s: float
    actor_updates: int
    actor_updates_per_s: float
    replay_ratio: ReplayRatio
    policy_lag: PolicyLag
    publication: NotRequired[dict[str, Publication]]
    devices: NotRequired[dict[str, Device]]
    samples: Samples
    workers: dict[str, Workers]
    episodes: Episodes
    evaluation: Evaluation
    stop: Stop
    processes: NotRequired[dict[str, Life]]
    balance: NotRequired[Balance]
