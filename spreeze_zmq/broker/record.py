"""The broker's record of a run: figures of every process, the account of samples, evaluations, failures.

Messages and times go in; status, summary and stop conditions come out. It holds no socket and reads no clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spreeze_zmq.base.machine import core_time, physical_cores
from spreeze_zmq.broker.account import SampleAccount
from spreeze_zmq.broker.claims import check_failures, check_pushed, most_cpu_s, most_transitions
from spreeze_zmq.broker.cores import Cores, CoreShares, devices_here
from spreeze_zmq.broker.doctor import Doctor
from spreeze_zmq.broker.failures import FAILURES_KEPT, FailureRecord, WentBack
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.broker.groups import Groups
from spreeze_zmq.broker.learning_figures import Efficiency, LearningFigures
from spreeze_zmq.broker.lives import Lives
from spreeze_zmq.broker.machines import Machines
from spreeze_zmq.broker.problems import NO_HELLO, NO_REPORT, SILENT_S, RefusalRecord, Refused, patience_s
from spreeze_zmq.broker.requests import Requests
from spreeze_zmq.broker.returns import EpisodeStatistics, Evaluations
from spreeze_zmq.broker.rows import kept, part, restore, state_of
from spreeze_zmq.broker.status import StatusMessage, Summary
from spreeze_zmq.broker.validation import LAUNCHER, names_of
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ACTOR_LEARNER, BROKER, CRITIC_LEARNER, EVALUATOR, MEMBER, SAMPLER

#: Changes of a role's number of processes that are kept.
CHANGES_KEPT = 1000


@dataclass
class RunRecord:
    """The run as its broker sees it; all times in seconds since the run began.

    Attributes:
        workers: role -> ``[time, count, reason]`` of each change of its number of processes.
        moves: ``ROLE.OPTION`` -> ``[time, value, reason]`` of each change of the option.
        requests: what callbacks have asked for.
        went_back: learners that went back to a checkpoint, the newest last; ``num_went_back`` counts all.
        stopped: roles that the launcher has stopped; ``ended_s``: when the first ones, the samplers.
        accounts: of the samples, by learner.
        lives: which life of each name is heard.
        learners: names that the learners' processes may have.
        watched: names that the launcher's processes, and those of which there is one, may have.
        groups: the sets of samplers and learners that train apart, as the fuser tells.
        doctor: what keeps the run from learning; the broker feeds it with the journal's lines.
        unfinished_checkpoint: the learners whose parts of the last checkpoint are missing at the end.
    """

    plan: Plan
    workers: dict[str, list[list[Any]]] = kept(dict)
    moves: dict[str, list[list[Any]]] = kept(dict)
    went_back: list[WentBack] = kept(list)
    num_went_back: int = kept(int)
    restarts: int = kept(int)
    core_s: float = kept(float)
    resumed: dict[str, Any] | None = kept(lambda: None)
    stopped: list[str] = kept(list)
    ended_s: float | None = kept(lambda: None)
    failures: FailureRecord = kept(FailureRecord)
    accounts: dict[str, SampleAccount] = kept(dict)
    learning: LearningFigures = part(LearningFigures)
    episodes: EpisodeStatistics = part(EpisodeStatistics)
    evaluations: Evaluations = part(Evaluations)
    requests: Requests = part(Requests)
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    refusals: RefusalRecord = field(init=False)
    lives: Lives = field(init=False)
    cores: Cores = field(default_factory=Cores)
    machines: Machines = field(default_factory=Machines)
    unfinished_checkpoint: list[str] = field(default_factory=list)
    groups: Groups = part(Groups)

    def __post_init__(self) -> None:
        self.accounts = {role: SampleAccount() for role in self.plan.learning.learners}
        self.learners = {name for role in self.accounts for name in names_of(role, self.plan)}
        self.watched = {
            name
            for role, component in self.plan.components.items()
            if component.launched or role != SAMPLER
            for name in names_of(role, self.plan)
        }
        # The launcher's cores: the broker itself may be kept off those of the learners.
        cores = physical_cores(os.sched_getaffinity(os.getppid()))
        self._num_cores = min(float(len(cores)), core_time(os.getppid()))
        self.doctor = Doctor(json.loads(self.plan.to_json()))
        self.refusals = RefusalRecord(partial(patience_s, self.plan, self.processes))
        silent_s = self.plan.components[BROKER].options["heartbeat_timeout_s"]
        self.lives = Lives(self.processes, self.watched, silent_s, launched=bool(self.plan.launcher))

    def resume(self, about: Mapping[str, Any]) -> None:
        """Go on from another run: the journal's ``resumed`` entry, with its ``t_s``."""
        self.resumed = dict(about)
        self.learning.resume(about["counts"])
        self.core_s = about["counts"].get("core_s", 0.0)  # earlier releases did not count it
        self.episodes.count = int(about["counts"].get("episodes", 0))  # nor these

    @property
    def learners_are_ready(self) -> bool:
        """Whether every learner has been set up, from a checkpoint where there is one."""
        known = [self.processes[name] for name in self.learners if name in self.processes]
        ready = {one.role for one in known if one.ready and not one.gone}
        return ready.issuperset(self.plan.learning.learners)

    @property
    def before_s(self) -> float:
        """Time of the runs that this one goes on from; times count from the beginning of the first."""
        return 0.0 if self.resumed is None else float(self.resumed["t_s"])

    # --- messages

    def take_report(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record the figures of a ``hello``, ``report`` or ``bye``.

        Raises:
            WireError: there are more processes than a record can hold, or it claims more than can be true.
        """
        age_s, pushed = now_s - self.before_s, fields.get("pushed", {})
        check_pushed(fields["role"], pushed, most := most_transitions(age_s))
        process = self.processes.get(sender)
        if process is None or process.incarnation != incarnation:
            process = self.lives.begin(sender, incarnation, fields["role"], fields["pid"], now_s)
        if "clock_s" not in fields:
            return
        is_elsewhere = self.machines.have(sender)
        cpu_s = min(fields["cpu_s"], most_cpu_s(age_s, is_elsewhere=is_elsewhere))
        spent_s = max(0.0, cpu_s - process.clock.get("cpu", 0.0))
        self.core_s += spent_s
        if not is_elsewhere and process.role != MEMBER:  # a member reports its group, on cores of its own
            self.cores.cpu_s[process.role] += spent_s
        process.take(fields, now_s)
        instance = f"{sender}/{incarnation}"
        self._enter(sender, instance, fields, most)
        self.learning.take_device(sender, fields)
        if sender in self.learners:
            self.learning.take(instance, fields, now_s)
            if self.learning.has_trained:
                self.cores.begin(now_s, self.learning.arithmetic_s(self._places))

    def _enter(self, sender: str, instance: str, fields: Mapping[str, Any], most: int) -> None:
        """Enter what a life says of samples in the accounts."""
        for learner, transitions in fields.get("pushed", {}).items():
            if learner in self.accounts:
                self.accounts[learner].report_pushed(instance, transitions)
        if sender in self.learners and "taken" in fields:
            self.accounts[fields["role"]].report_taken(instance, fields["taken"], most)

    def take_late(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record what a life that has ended says of samples, while another one has its name.

        Raises:
            WireError: it claims more than can be true.
        """
        most = most_transitions(now_s - self.before_s)
        check_pushed(fields["role"], fields.get("pushed", {}), most)
        self._enter(sender, f"{sender}/{incarnation}", fields, most)

    def take_hello(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record that a process is set up."""
        self.take_report(sender, incarnation, fields, now_s)
        self.processes[sender].ready = True

    def take_bye(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record the last figures of a process that leaves by itself."""
        self.take_report(sender, incarnation, fields, now_s)
        self.lose(sender, fields["reason"])

    def lose(self, name: str, how: str) -> None:
        """Record that a process is gone, as it or the launcher reports."""
        process = self.processes.get(name)
        if process is not None and not process.gone:
            process.gone = how

    def take_failure(self, sender: str, fields: Mapping[str, Any], now_s: float) -> WentBack | None:
        """Record a failure; returns a row if it is that of a learner that went back to a checkpoint.

        Raises:
            WireError: it claims to be none, or more than can have been.
        """
        check_failures(fields, self.failures.count, most_transitions(now_s - self.before_s))
        self.failures.take(fields, now_s, survived=sender != LAUNCHER and "checkpoint" not in fields)
        if "checkpoint" not in fields or fields["name"] not in self.learners:
            return None
        env_steps, updates = int(self.learning.counts["env_steps"]), fields.get("updates", 0)
        checkpoint, why = fields["checkpoint"][:80], fields["summary"][:400]
        row = WentBack(round(now_s, 3), fields["name"], env_steps, updates, checkpoint, why)
        self.went_back, self.num_went_back = [*self.went_back, row][-FAILURES_KEPT:], self.num_went_back + 1
        return row

    def take_refused(
        self, taker: str, incarnation: int, fields: Mapping[str, Any], now_s: float
    ) -> list[Refused]:
        """Record what a life says was refused, or that it has the name, pushes rollouts and has sent no
        ``hello``; returns the refusals to display.
        """
        news = self.refusals.take(taker, fields.get("refused", ()), now_s, incarnation)
        process = self.processes[taker]
        is_unready = process.incarnation == incarnation and not process.ready
        if is_unready and any(fields.get("pushed", {}).values()):
            news += self.refusals.miss(taker, NO_HELLO, now_s)
        return news

    def silent(self, now_s: float) -> list[Refused]:
        """The processes that have stopped reporting, each returned once."""
        news = []
        for name, process in self.processes.items():
            if process.ready and not process.gone and now_s - process.heard_s > SILENT_S:
                news += self.refusals.miss(name, NO_REPORT, now_s)
        return news

    def take_workers(self, role: str, count: int, reason: str, now_s: float) -> None:
        """Record the number of processes of a role, if it changed."""
        history = self.workers.setdefault(role, [])
        if not history or history[-1][1] != count:
            history.append([round(now_s, 3), count, reason])
            del history[1:-CHANGES_KEPT]

    def take_stopping(self, roles: Iterable[str], now_s: float) -> None:
        """Record roles that the launcher stops; with the first of them, training is over."""
        if self.ended_s is None:
            self.ended_s = now_s
            self.cores.end(now_s, self.learning.arithmetic_s(self._places))
        self.stopped = list(dict.fromkeys([*self.stopped, *roles]))

    def num_workers(self, role: str) -> int:
        """Number of processes of a role that the launcher keeps; 0 before it reports one."""
        history = self.workers.get(role)
        return int(history[-1][1]) if history else 0

    def take_move(self, role: str, option: str, value: int, reason: str, now_s: float) -> None:
        self.moves.setdefault(f"{role}.{option}", []).append([round(now_s, 3), value, reason])

    def moved(self, role: str, option: str) -> int | None:
        """The last new value of a role's option; None if it was never changed."""
        history = self.moves.get(f"{role}.{option}")
        return int(history[-1][1]) if history else None

    # --- figures

    @property
    def disturbances(self) -> int:
        """Failures of processes, restarts and refused messages: rates of a run with some are not kept."""
        return self.failures.of_processes + self.restarts + self.refusals.mistakes

    def stop_condition(self, now_s: float) -> str:
        """The stop condition that holds, in words; empty if none does."""
        stop = self.plan.run.stop
        if stop.mean_return is not None:
            enough = self.plan.components[EVALUATOR].options.get("confirm_episodes", 0)
            if reached := self.evaluations.reached(stop.mean_return, enough):
                return reached
        return stop.reached(self.learning.counts, now_s)

    def status(self, state: str, balance: Mapping[str, Any], now_s: float) -> dict[str, Any]:
        """The fields of a status message."""
        return to_plain(StatusMessage.of(self, state, balance, now_s))  # type: ignore[no-any-return]

    def summary(self, exit_reason: str, now_s: float, *, final: bool) -> dict[str, Any]:
        """The contents of summary.json; ``final`` once the learners have drained their channels."""
        return to_plain(Summary.of(self, exit_reason, now_s, final=final))  # type: ignore[no-any-return]

    def efficiency(self, critic_flops_per_s: float, actor_flops_per_s: float) -> Efficiency | None:
        """The row of the learners on this machine, from what the updates of each compute; None before they
        report it.
        """
        flops_per_s = {CRITIC_LEARNER: critic_flops_per_s, ACTOR_LEARNER: actor_flops_per_s}
        here = sum(flops_per_s[role] for role in {name.rpartition("-")[0] for name in self._places})
        return self.learning.efficiency(here, self._places, self._num_cores)

    def core_shares(self, now_s: float) -> CoreShares | None:
        """Where the cores' time went from the first update to ``ended_s``; None before or soon after it."""
        return self.cores.shares(now_s, self.learning.arithmetic_s(self._places))

    @property
    def _places(self) -> dict[str, str]:
        return devices_here(self.plan, self.learners)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able state that a restarted broker cannot learn from later reports."""
        own = {"processes": self.lives.state(), "cores": self.cores.state()}
        return {**state_of(self), **own, "refusals": self.refusals.state()}

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Inverse of :meth:`to_dict`."""
        if state["resumed"] is not None:
            self.resume(state["resumed"])
        restore(self, state)
        self.num_went_back = max(self.num_went_back, len(self.went_back))  # an earlier release counted none
        self.lives.restore(state["processes"], now_s)
        self.cores.restore(state["cores"])
        self.refusals.restore(state["refusals"])
