"""What the broker says of a run, in status messages and in summary.json: a field is a key, and their order is
that of the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spreeze_zmq.broker.account import Samples
from spreeze_zmq.broker.cores import CoreShares
from spreeze_zmq.broker.crowd import Others, others, shown
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.failures import FailureRow, WentBack
from spreeze_zmq.broker.figures import ProcessRecord, Workers, lateness, worker_rows
from spreeze_zmq.broker.groups import Group
from spreeze_zmq.broker.learning_figures import COUNTS, Efficiency, PolicyLag, ReplayRatio
from spreeze_zmq.broker.machines import Machine
from spreeze_zmq.broker.problems import Refused
from spreeze_zmq.broker.requests import Request
from spreeze_zmq.broker.returns import EpisodeStatistics, EvaluationRow
from spreeze_zmq.broker.rows import SPREAD
from spreeze_zmq.broker.sightings import experience_row
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, SAMPLER, experience_of

if TYPE_CHECKING:
    from spreeze_zmq.broker.record import RunRecord

#: The counts that a status has with their present rates.
SHOWN = ("env_steps", "critic_updates", "actor_updates", "trained_transitions")
#: Most rows of each of its lists.
SHOWN_ROWS = 8


@dataclass
class Shared:
    """The figures that status and summary share.

    Attributes:
        counts: ``env_steps`` and the like, as a resumed run continues them.
        sampled_transitions: received beyond ``learning_starts`` until the samplers were stopped; on-policy,
            those of rounds that were trained on.
        core_s: CPU seconds of all processes of the run so far, as they report them, on all of its machines.
        publication: by role, as of ``LearningFigures``.
        devices: by process, likewise.
    """

    learners: Sequence[str]
    counts: Mapping[str, int] = field(metadata=SPREAD)
    sampled_transitions: int
    core_s: float
    replay_ratio: ReplayRatio
    policy_lag: PolicyLag
    publication: Mapping[str, Mapping[str, float]]
    devices: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, record: RunRecord) -> Shared:
        """Those of a run now."""
        learning = record.learning
        return cls(
            learners=record.plan.learning.learners,
            counts={name: int(learning.counts[name]) for name in SHOWN},
            sampled_transitions=learning.sampled_transitions(),
            core_s=record.core_s,
            replay_ratio=learning.replay_ratio(record.requests.replay_ratio(record.plan)),
            policy_lag=learning.policy_lag(record.lives.instances(), record.plan.balance.max_policy_lag),
            publication=learning.publication,
            devices=learning.devices,
        )


@dataclass
class StatusMessage:
    """The status message, which people see and the launcher acts on.

    Attributes:
        rates: ``NAME_per_s`` of each count, now.
        samples: of the critic-learner's channel.
        evaluation: the ``last`` look and the ``best`` policy.
        processes: the living ones by name, of very many the worst.
        others: sums of those that ``processes`` leaves out.
        machines: those that have joined, by name.
        groups: the sets of samplers and learners that train apart, by number; only where there are several.
        late: ``reports_late_s``, where the broker is behind.
        experience: what samplers see of their environment.
        machine: the CPUs that other programs hold.
        num_refused: messages that broke a rule, those of rows that are left out too.
        num_sampler_failures: of ``num_failures``, those of environments that a sampler goes on after.
        refusals: the worst, as ``failures`` and ``went_back`` are the newest.
        requests: the last ones; only where there were any.
        values: ``values``, option -> the number that was set; only where one was, in an earlier run too.
    """

    t_s: float
    state: str
    figures: Shared = field(metadata=SPREAD)
    rates: Mapping[str, float] = field(metadata=SPREAD)
    samples: Samples
    workers: Mapping[str, Workers]
    episodes: EpisodeStatistics
    evaluation: Mapping[str, EvaluationRow | None]
    stop: StopPlan
    processes: Mapping[str, ProcessRecord]
    others: Mapping[str, Mapping[str, Others]] = field(metadata=SPREAD)
    machines: Mapping[str, Mapping[str, Machine]] = field(metadata=SPREAD)
    groups: Mapping[str, Mapping[str, Group]] = field(metadata=SPREAD)
    late: Mapping[str, float] = field(metadata=SPREAD)
    gauges: Mapping[str, float]
    experience: Mapping[str, float]
    machine: Mapping[str, float]
    findings: Sequence[Finding]
    efficiency: Efficiency | None
    balance: Mapping[str, Any]
    refusals: Sequence[Refused]
    num_refused: int
    went_back: Sequence[WentBack]
    num_went_back: int
    num_failures: int
    num_sampler_failures: int
    failures: Sequence[FailureRow]
    requests: Mapping[str, Sequence[Request]] = field(metadata=SPREAD)
    values: Mapping[str, Mapping[str, float]] = field(metadata=SPREAD)

    @classmethod
    def of(cls, record: RunRecord, state: str, balance: Mapping[str, Any], now_s: float) -> StatusMessage:
        """The status of a run now."""
        rates = {name: record.learning.rates.rate(name, now_s) for name in COUNTS}
        processes = {name: one for name, one in record.processes.items() if not one.gone}
        for one in processes.values():
            one.silent_s = now_s - one.heard_s
        rows = shown(processes, record.watched)
        return cls(
            t_s=now_s,
            state=state,
            figures=Shared.of(record),
            rates={f"{name}_per_s": rates[name] for name in SHOWN},
            samples=record.accounts[CRITIC_LEARNER].totals(),
            workers=worker_rows(processes.values()),
            episodes=record.episodes.row(),
            evaluation=record.evaluations.rows(),
            stop=record.plan.run.stop,
            processes=rows,
            others=others(processes, rows),
            machines=record.machines.rows(processes, now_s),
            groups={"groups": record.groups.rows} if record.groups.rows else {},
            late=lateness(processes.values()),
            gauges=record.learning.gauges,
            experience=experience_row(one.gauges for one in processes.values() if one.role == SAMPLER),
            machine=record.cores.row(now_s),
            findings=record.doctor.findings(),
            efficiency=record.efficiency(rates["critic_flops"], rates["actor_flops"]),
            balance=balance,
            refusals=record.refusals.rows(now_s, SHOWN_ROWS),
            num_refused=record.refusals.mistakes,
            went_back=record.went_back[-SHOWN_ROWS:],
            num_went_back=record.num_went_back,
            num_failures=record.failures.count,
            num_sampler_failures=record.failures.of_samplers,
            failures=record.failures.rows(SHOWN_ROWS),
            requests={"requests": record.requests.last} if record.requests.last else {},
            values={"values": record.requests.values} if record.requests.values else {},
        )


@dataclass
class Summary:
    """The contents of summary.json, to which the launcher adds ``failed``, true where it gave the run up, and
    ``lost``, what the run ended without.

    Attributes:
        exit_reason: empty while the run goes on.
        rates: mean ``NAME_per_s`` of each count, from the start of the run until its samplers are stopped; so
            is ``efficiency``.
        cores: where the cores' time has gone from the first update until then.
        undelivered: channel -> cause -> transitions of ``dropped`` that no learner has received or refused.
        workers: role -> ``[time, count, reason]`` of each change of its number of processes.
        moves: ``ROLE.OPTION`` -> ``[time, value, reason]`` of each change of the option.
        resumed: the run that this one goes on from, its checkpoint and counts.
        failures: the first ones, with their tracebacks.
        auto: what was measured for options that are ``"auto"``.
        evaluations: time, env steps, mean and deviation of the return of each look.
        best: the fields of the newest evaluation of the best policy.
        episodes: number of training episodes.
        disturbances: how many failures of processes, restarts and refused messages there were.
        unfinished_checkpoint: the learners whose parts of the last checkpoint are missing.
        groups: the last rows of a status; all figures of this summary but ``core_s`` are those of group 0.
    """

    exit_reason: str
    wall_s: float
    env: str
    algorithm: str
    seed: int
    figures: Shared = field(metadata=SPREAD)
    rates: Mapping[str, float] = field(metadata=SPREAD)
    efficiency: Efficiency | None
    cores: CoreShares | None
    samples: Samples
    samples_by_channel: Mapping[str, Samples]
    undelivered: Mapping[str, Mapping[str, int]]
    workers: Mapping[str, list[list[Any]]]
    moves: Mapping[str, list[list[Any]]]
    went_back: Sequence[WentBack]
    restarts: int
    resumed: Mapping[str, Any] | None
    failures: Sequence[Mapping[str, Any]]
    num_failures: int
    failure_kinds: Sequence[FailureRow]
    pinning: Mapping[str, Any]
    auto: Mapping[str, Any]
    evaluations: Sequence[Sequence[float]]
    best_return: float | None
    best: Mapping[str, Any] | None
    episodes: int
    refusals: Sequence[Refused]
    findings: Sequence[Finding]
    disturbances: int
    unfinished_checkpoint: Sequence[str]
    groups: Mapping[str, Mapping[str, Group]] = field(metadata=SPREAD)

    @classmethod
    def of(cls, record: RunRecord, exit_reason: str, now_s: float, *, final: bool) -> Summary:
        """The summary of a run so far, or ``final``, once the learners have drained their channels."""
        alive = record.lives.instances(living=True) if final else None
        totals = {role: account.totals(alive) for role, account in record.accounts.items()}
        until_s = now_s if record.ended_s is None else record.ended_s
        means = record.learning.mean_rates(until_s - record.before_s)
        looks = record.evaluations.looks
        return cls(
            exit_reason=exit_reason,
            wall_s=now_s,
            env=record.plan.run.env,
            algorithm=record.plan.run.algorithm,
            seed=record.plan.run.seed,
            figures=Shared.of(record),
            rates=means,
            efficiency=record.efficiency(means["critic_flops_per_s"], means["actor_flops_per_s"]),
            cores=record.core_shares(now_s),
            samples=totals[CRITIC_LEARNER],
            samples_by_channel={experience_of(role): sums for role, sums in totals.items()},
            undelivered={
                experience_of(role): account.undelivered(alive, record.lives.how_gone)
                for role, account in record.accounts.items()
            },
            workers=record.workers,
            moves=record.moves,
            went_back=record.went_back,
            restarts=record.restarts,
            resumed=record.resumed,
            failures=record.failures.first,
            num_failures=record.failures.count,
            failure_kinds=record.failures.rows(),
            pinning=record.plan.pinning,
            auto=record.plan.measured,
            evaluations=[
                [round(e["t_s"], 3), e["env_steps"], e["mean_return"], e["std_return"]] for e in looks
            ],
            best_return=record.evaluations.best_return,
            best=record.evaluations.best,
            episodes=record.episodes.count,
            refusals=record.refusals.rows(now_s),
            findings=record.doctor.findings(),
            disturbances=record.disturbances,
            unfinished_checkpoint=record.unfinished_checkpoint,
            groups={"groups": record.groups.rows} if record.groups.rows else {},
        )
