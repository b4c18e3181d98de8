"""The status of a run as its broker publishes it: types only, nothing is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class ReplayRatio(TypedDict):
    """Transitions trained on for each transition sampled."""

    target: float
    measured: float


class PolicyLag(TypedDict):
    """Versions by which received rollouts were behind; ``stale`` transitions were dropped for exceeding
    ``bound``.
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
    """Training episodes: mean and spread over the last 100, ``recent_return`` over the last 16."""

    count: int
    mean_return: float | None
    std_return: float | None
    recent_return: float | None
    mean_length: float | None


class EvaluationRow(TypedDict):
    """One evaluation: when it arrived, and the run's env steps when its policy was published.

    ``interval`` is the 95 % interval of the mean return by Student's t, ``num_truncated`` the episodes that
    the evaluation cut, ``confirmed`` whether the policy was chosen before they were played, ``info`` the
    means of what the environment said of their last steps.
    """

    t_s: float
    env_steps: int
    mean_return: float
    std_return: float
    interval: tuple[float, float] | None
    num_episodes: int
    mean_length: float
    num_truncated: int
    confirmed: bool
    info: Mapping[str, float]


class Evaluation(TypedDict):
    """The newest look at a policy, and the policy that is kept."""

    last: EvaluationRow | None
    best: EvaluationRow | None


class LiveProcess(TypedDict):
    """One living process: whether it is set up, seconds since its last report, what it waits for ("" for
    nothing), the shares of its time (0 to 1), cores used (100 % is one), resident memory.
    """

    role: str
    pid: int
    ready: bool
    silent_s: float
    waiting_for: str
    busy: float
    blocked: float
    starved: float
    cpu_percent: float
    rss_bytes: float


class RefusalRow(TypedDict):
    """Messages of one sender and kind that ``taker`` refuses; ``word`` names the rule, ``first`` says what
    came and what was expected, ``stuck`` that none of the kind got through, ``line`` all of it in words.
    What could not be read is empty.
    """

    taker: str
    sender: str
    kind: str
    word: str
    count: int
    first: str
    stuck: bool
    line: str


class WentBack(TypedDict):
    """A learner whose loss or weights were not finite after so many ``updates``, ``t_s`` seconds after the
    run's start, and that went back to a checkpoint; ``why`` is its own line.
    """

    t_s: float
    learner: str
    env_steps: int
    updates: int
    checkpoint: str
    why: str


class Efficiency(TypedDict):
    """The matrix products and convolutions of all updates, beside what the learners' GPUs, or all cores of
    the machine, could multiply meanwhile; ``share`` of it.
    """

    flops_per_s: float
    limit_flops_per_s: float
    share: float


class Balance(TypedDict):
    """Whether worker counts may change, whether the last steady window requested no change, and the last
    change with its reason ("" for none).
    """

    movable: bool
    settled: bool
    last_change: str


class Figures(TypedDict):
    """The figures that status and summary share; ``learners`` are the roles that train."""

    learners: list[str]
    env_steps: int
    trained_transitions: int
    critic_updates: int
    actor_updates: int
    replay_ratio: ReplayRatio
    policy_lag: PolicyLag
    #: By learner: seconds between two publications, their share of the updates' time, bytes.
    publication: Mapping[str, Mapping[str, float]]
    #: By process: what its core or GPU could multiply, FLOP/s; share of time that updates take on a GPU,
    #: memory held, memory free.
    devices: Mapping[str, Mapping[str, float]]


class Status(Figures):
    """A run, ``t_s`` seconds after its start."""

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
    #: Stop conditions by their names in the topology; None where not set.
    stop: Mapping[str, float | None]
    processes: dict[str, LiveProcess]
    #: The learners' newest losses and other momentary figures.
    gauges: Mapping[str, float]
    #: Of late; None before it is known.
    efficiency: Efficiency | None
    balance: Balance
    refusals: list[RefusalRow]
    #: The last few.
    went_back: list[WentBack]
