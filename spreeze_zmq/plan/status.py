"""The types of the status that the broker publishes; the broker fills it, displays and the page read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class ReplayRatio(TypedDict):
    """``measured`` is ``trained_transitions`` / ``sampled_transitions`` of the same status or summary."""

    target: float
    measured: float


class PolicyLag(TypedDict):
    """Lag of received rollouts in policy versions; ``stale`` transitions exceeded ``bound`` and were
    dropped.
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


class Usage(TypedDict):
    """Shares of time (0 to 1), CPU use (100 % is one core), resident memory."""

    busy: float
    blocked: float
    starved: float
    cpu_percent: float
    rss_bytes: float


class Workers(Usage):
    """All processes of one role: means of the shares, sums of CPU use and memory."""

    count: int


class Episodes(TypedDict):
    """Training episodes: mean and spread over the last 100, ``recent_return`` over the last 16."""

    count: int
    mean_return: float | None
    std_return: float | None
    recent_return: float | None
    mean_length: float | None


class EvaluationRow(TypedDict):
    """One evaluation: when it arrived, and the run's env steps when its policy was published.

    ``interval`` is the 95 % interval of the mean return by Student's t, ``num_truncated`` counts the episodes
    that the evaluation cut, ``timed_out`` is whether its limit of time did, ``confirmed`` is whether the
    policy was chosen before they were played, ``info`` has the means of the environment's figures for their
    last steps.
    """

    t_s: float
    env_steps: int
    mean_return: float
    std_return: float
    interval: tuple[float, float] | None
    num_episodes: int
    mean_length: float
    num_truncated: int
    timed_out: bool
    confirmed: bool
    info: Mapping[str, float]


class Evaluation(TypedDict):
    """The newest evaluation, and that of the best policy so far."""

    last: EvaluationRow | None
    best: EvaluationRow | None


class LiveProcess(Usage):
    """One living process: whether it is ready, seconds since its last report, what it waits for ("" for
    nothing).
    """

    role: str
    pid: int
    ready: bool
    silent_s: float
    waiting_for: str


class RefusalRow(TypedDict):
    """Messages of one sender and kind that ``taker`` refuses: ``word`` is the reason, ``first`` what came
    first and what was expected, ``stuck`` whether all of the kind are refused, ``line`` a sentence with all
    that. Unreadable entries are empty.
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
    """A learner that returned to a checkpoint, ``t_s`` seconds after the run's start, because its loss or
    weights were not finite after ``updates``; ``why`` is the learner's message.
    """

    t_s: float
    learner: str
    env_steps: int
    updates: int
    checkpoint: str
    why: str


class FailureRow(TypedDict):
    """Failures of one role whose summaries differ in numbers only: their ``count``, the newest one's process,
    summary and time. ``survived``: their processes report them of their environments, and go on.
    """

    kind: str
    name: str
    summary: str
    count: int
    t_s: float
    survived: bool


class Efficiency(TypedDict):
    """Matrix products and convolutions of all updates, and the limit of the learners' GPUs, or of all cores,
    for them; ``share`` is their ratio.
    """

    flops_per_s: float
    limit_flops_per_s: float
    share: float


#: ``try`` is no name in Python's class syntax. ``rank`` is the finding's.
Found = TypedDict("Found", {"name": str, "seen": str, "why": str, "try": str, "rank": int, "t_s": float})


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
    #: Received until the samplers were stopped; on-policy, those of rounds that were trained on.
    sampled_transitions: int
    trained_transitions: int
    critic_updates: int
    actor_updates: int
    replay_ratio: ReplayRatio
    policy_lag: PolicyLag
    #: By learner: seconds between two publications, their share of the updates' time, bytes.
    publication: Mapping[str, Mapping[str, float]]
    #: By process: FLOP/s that its core or GPU reaches, share of time that updates take on a GPU, memory held,
    #: memory free.
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
    #: What samplers see of their environment; PROTOCOL.md, ``gauges`` of a sampler's report.
    experience: Mapping[str, float]
    #: ``cpus`` that the run may use, and of these ``cpus_idle`` and ``cpus_of_others``, which other programs
    #: hold.
    machine: Mapping[str, float]
    #: What keeps the run from learning, the worst first.
    findings: list[Found]
    #: Over the last seconds; None before it is known.
    efficiency: Efficiency | None
    balance: Balance
    refusals: list[RefusalRow]
    #: The latest ones.
    went_back: list[WentBack]
    num_failures: int
    #: Of the kinds that came last, the newest last.
    failures: list[FailureRow]
