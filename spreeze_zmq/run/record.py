"""The broker's record of a run: figures of every process, the account of samples, evaluations, failures.

Messages and times go in; status, summary and stop conditions come out. It holds no socket and reads no clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spreeze_zmq.errors import WireError
from spreeze_zmq.machine import usable_cores
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CRITIC_LEARNER, EVALUATOR, SAMPLER, experience_of
from spreeze_zmq.run.account import SampleAccount
from spreeze_zmq.run.doctor import Doctor
from spreeze_zmq.run.experience import experience_row
from spreeze_zmq.run.failures import FAILURES_KEPT, FailureRecord
from spreeze_zmq.run.figures import LearningFigures, OtherPrograms, ProcessRecord, process_rows, worker_rows
from spreeze_zmq.run.refusals import NO_HELLO, NO_REPORT, SHOWN_ROWS, RefusalRecord, Refused
from spreeze_zmq.run.returns import Evaluations, TrainingEpisodes
from spreeze_zmq.run.validation import LAUNCHER, names_of

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Balance, Efficiency, Figures, Status, WentBack

#: Upper bounds of the rest, so that no peer fills the memory.
MOST_PROCESSES, CHANGES_KEPT = 200, 1000
#: A process is named after this time without a report.
SILENT_S = 3.0
#: Attributes that the summary contains and a restarted broker restores as they are.
_HISTORY = ("workers", "moves", "went_back", "restarts", "resumed")


class RunRecord:
    """The run as its broker sees it; all times in seconds since the run began.

    Attributes:
        learners: names that the learners' processes may have.
        workers: role -> ``[time, count, reason]`` of each change of its number of processes.
        moves: ``ROLE.OPTION`` -> ``[time, value, reason]`` of each change of the option.
        went_back: learners that went back to a checkpoint, the newest last.
        doctor: what keeps the run from learning; the broker feeds it with the journal's lines.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.processes: dict[str, ProcessRecord] = {}
        self.accounts = {role: SampleAccount() for role in plan.learning.learners}
        self.learners = {name for role in plan.learning.learners for name in names_of(role, plan)}
        self.learning = LearningFigures()
        # The launcher's cores: the broker itself may be kept off those of the learners.
        self._num_cores = len(usable_cores(os.sched_getaffinity(os.getppid())))
        self.episodes = TrainingEpisodes()
        self.evaluations = Evaluations()
        self.workers: dict[str, list[list[Any]]] = {}
        self.moves: dict[str, list[list[Any]]] = {}
        self.failures = FailureRecord()
        self.went_back: list[WentBack] = []
        self.refusals = RefusalRecord()
        self.restarts = 0
        self.resumed: dict[str, Any] | None = None
        self.doctor = Doctor(json.loads(plan.to_json()))
        self.others = OtherPrograms()

    def resume(self, about: Mapping[str, Any]) -> None:
        """Go on from another run: the journal's ``resumed`` entry, with its ``t_s``."""
        self.resumed = dict(about)
        self.learning.resume(about["counts"])

    @property
    def learners_are_ready(self) -> bool:
        """Whether every learner has been set up, from a checkpoint where there is one."""
        ready = {one.role for one in self.processes.values() if one.ready_s is not None and not one.gone}
        return ready.issuperset(self.plan.learning.learners)

    @property
    def before_s(self) -> float:
        """Time of the runs that this one goes on from; times count from the beginning of the first."""
        return 0.0 if self.resumed is None else float(self.resumed["t_s"])

    # --- messages

    def take_report(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record the figures of a ``hello``, ``report`` or ``bye``.

        Raises:
            WireError: there are more processes than a record can hold.
        """
        process = self.processes.get(sender)
        if process is None and len(self.processes) >= MOST_PROCESSES:
            raise WireError("too_many", f"it is one more than the {MOST_PROCESSES} processes of this run")
        if process is None or process.incarnation != incarnation:
            process = self.processes[sender] = ProcessRecord(
                fields["role"], incarnation, fields["pid"], now_s
            )
        if "clock_s" not in fields:
            return
        self.others.own_cpu_s += max(0.0, fields["cpu_s"] - process.figures.get("cpu_s", 0.0))
        process.take(fields, now_s)
        instance = f"{sender}/{incarnation}"
        for learner, transitions in fields.get("pushed", {}).items():
            if learner in self.accounts:
                self.accounts[learner].report_pushed(instance, transitions)
        self.learning.take_device(sender, fields)
        if sender in self.learners:
            if "taken" in fields:
                self.accounts[fields["role"]].report_taken(instance, fields["taken"])
            self.learning.take(instance, fields, now_s)

    def take_hello(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Record that a process is set up."""
        self.take_report(sender, incarnation, fields, now_s)
        self.processes[sender].ready_s = now_s

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
        """Record a failure; returns a row if it is that of a learner that went back to a checkpoint."""
        self.failures.take(fields, now_s, survived=sender != LAUNCHER and "checkpoint" not in fields)
        if "checkpoint" not in fields or fields["name"] not in self.learners:
            return None
        row: WentBack = {
            "t_s": round(now_s, 3),
            "learner": fields["name"],
            "env_steps": int(self.learning.counts["env_steps"]),
            "updates": fields.get("updates", 0),
            "checkpoint": fields["checkpoint"][:80],
            "why": fields["summary"][:400],
        }
        self.went_back = [*self.went_back, row][-FAILURES_KEPT:]
        return row

    def take_refused(self, taker: str, fields: Mapping[str, Any], now_s: float) -> list[Refused]:
        """Record what a report says was refused, or that the reporter has sent no ``hello``.

        Returns:
            The refusals to display.
        """
        news = self.refusals.take(taker, fields.get("refused", ()), now_s)
        process = self.processes[taker]
        if process.ready_s is None and any(fields.get("pushed", {}).values()):
            what = "it pushes rollouts, but no hello has come from it: send one when all is set up"
            news += self.refusals.miss(f"{BROKER}-0", taker, NO_HELLO, what, now_s)
        return news

    def silent(self, now_s: float) -> list[Refused]:
        """The processes that have stopped reporting, each returned once."""
        news = []
        for name, process in self.processes.items():
            if process.ready_s is not None and not process.gone and now_s - process.heard_s > SILENT_S:
                what = f"no report has come for {SILENT_S:g} s, expected two a second, also while it waits"
                news += self.refusals.miss(f"{BROKER}-0", name, NO_REPORT, what, now_s)
        return news

    def take_workers(self, role: str, count: int, reason: str, now_s: float) -> None:
        """Record the number of processes of a role, if it changed."""
        history = self.workers.setdefault(role, [])
        if not history or history[-1][1] != count:
            history.append([round(now_s, 3), count, reason])
            del history[1:-CHANGES_KEPT]

    def num_workers(self, role: str) -> int:
        """Number of processes of a role that the launcher keeps; 0 before it reports one."""
        history = self.workers.get(role)
        return int(history[-1][1]) if history else 0

    def take_move(self, role: str, option: str, value: int, reason: str, now_s: float) -> None:
        """Record a new value of a role's option."""
        self.moves.setdefault(f"{role}.{option}", []).append([round(now_s, 3), value, reason])

    def moved(self, role: str, option: str) -> int | None:
        """The last new value of a role's option; None if it was never changed."""
        history = self.moves.get(f"{role}.{option}")
        return int(history[-1][1]) if history else None

    # --- figures

    def instances(self, *, living: bool = False) -> set[str]:
        """The newest incarnation of each process, or of each living one, as ``NAME/INCARNATION``."""
        return {
            f"{name}/{one.incarnation}" for name, one in self.processes.items() if not (living and one.gone)
        }

    def stop_condition(self, now_s: float) -> str:
        """The stop condition that holds, in words; empty if none does."""
        stop = self.plan.run.stop
        if stop.mean_return is not None:
            enough = self.plan.components[EVALUATOR].options.get("confirm_episodes", 0)
            if reached := self.evaluations.reached(stop.mean_return, enough):
                return reached
        for name in ("env_steps", "trained_transitions"):
            limit, count = getattr(stop, name), self.learning.counts[name]
            if limit is not None and count >= limit:
                return f"{name} {count:.0f} >= {limit}"
        if stop.minutes is not None and now_s >= 60 * stop.minutes:
            return f"minutes {now_s / 60:.2f} >= {stop.minutes:g}"
        return ""

    def figures(self) -> Figures:
        """The figures that status and summary share."""
        learning = self.learning
        return {
            "learners": list(self.plan.learning.learners),
            "env_steps": int(learning.counts["env_steps"]),
            "critic_updates": int(learning.counts["critic_updates"]),
            "actor_updates": int(learning.counts["actor_updates"]),
            "trained_transitions": int(learning.counts["trained_transitions"]),
            "sampled_transitions": learning.sampled_transitions(),
            "replay_ratio": learning.replay_ratio(self.plan.balance.replay_ratio),
            "policy_lag": learning.policy_lag(self.instances(), self.plan.balance.max_policy_lag),
            "publication": learning.publication,
            "devices": learning.devices,
        }

    def status(self, state: str, balance: Balance, now_s: float) -> Status:
        """The status message, which people see and the launcher acts on."""
        rate = self.learning.rates.rate
        processes = process_rows(self.processes, now_s)
        return {
            "t_s": now_s,
            "state": state,
            **self.figures(),
            "env_steps_per_s": rate("env_steps", now_s),
            "critic_updates_per_s": rate("critic_updates", now_s),
            "actor_updates_per_s": rate("actor_updates", now_s),
            "trained_transitions_per_s": rate("trained_transitions", now_s),
            "samples": self.accounts[CRITIC_LEARNER].totals(),
            "workers": worker_rows(processes),
            "episodes": self.episodes.row(),
            "evaluation": self.evaluations.rows(),
            "stop": to_plain(self.plan.run.stop),
            "processes": processes,
            "gauges": self.learning.gauges,
            "experience": self._experience(),
            "machine": self.others.row(now_s),
            "findings": self.doctor.rows(),
            "efficiency": self._efficiency(rate("critic_flops", now_s) + rate("actor_flops", now_s)),
            "balance": balance,
            "refusals": self.refusals.rows(now_s, SHOWN_ROWS),
            "went_back": self.went_back[-SHOWN_ROWS:],
            "num_failures": self.failures.count,
            "failures": self.failures.rows(SHOWN_ROWS),
        }

    def _experience(self) -> dict[str, float]:
        living = (one for one in self.processes.values() if one.role == SAMPLER and not one.gone)
        return experience_row(one.figures.get("gauges", {}) for one in living)

    def _efficiency(self, flops_per_s: float) -> Efficiency | None:
        places = {
            name: self.plan.components[name.rpartition("-")[0]].options.get("device", "cpu")
            for name in sorted(self.learners)
        }
        return self.learning.efficiency(flops_per_s, places, self._num_cores)

    def summary(self, exit_reason: str, now_s: float, *, final: bool) -> dict[str, Any]:
        """The contents of summary.json; ``final`` once the learners have drained their channels."""
        alive = self.instances(living=True) if final else None
        totals = {role: account.totals(alive) for role, account in self.accounts.items()}
        means = self.learning.mean_rates(now_s - self.before_s)
        return {
            "exit_reason": exit_reason,
            "wall_s": now_s,
            "env": self.plan.run.env,
            "algorithm": self.plan.run.algorithm,
            "seed": self.plan.run.seed,
            **self.figures(),
            **means,
            "efficiency": self._efficiency(means["critic_flops_per_s"] + means["actor_flops_per_s"]),
            "samples": totals[CRITIC_LEARNER],
            "samples_by_channel": {experience_of(role): sums for role, sums in totals.items()},
            **self._history(),
            **self.failures.summary(),
            "pinning": self.plan.pinning,
            "auto": self.plan.measured,
            "evaluations": [
                [round(e["t_s"], 3), e["env_steps"], e["mean_return"], e["std_return"]]
                for e in self.evaluations.looks
            ],
            "best_return": self.evaluations.best_return,
            "best": self.evaluations.best,
            "episodes": self.episodes.count,
            "refusals": self.refusals.rows(now_s),
            "findings": self.doctor.rows(),
        }

    def _history(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _HISTORY}

    def to_dict(self) -> dict[str, Any]:
        """JSON-able state that a restarted broker cannot learn from later reports."""
        return {
            **self._history(),
            "failures": self.failures.to_dict(),
            "accounts": {role: account.to_dict() for role, account in self.accounts.items()},
            "policy_lags": self.learning.policy_lags,
            "counts": self.learning.counts,
            "first_counts": self.learning.first_counts,
            "num_episodes": self.episodes.count,
            "evaluations": self.evaluations.all,
            "processes": {name: [p.role, p.incarnation, p.pid, p.gone] for name, p in self.processes.items()},
        }

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Inverse of :meth:`to_dict`."""
        for name in _HISTORY:
            setattr(self, name, state[name])
        if self.resumed is not None:
            self.learning.resume(self.resumed["counts"])
        self.failures = FailureRecord.from_dict(state["failures"])
        self.accounts = {
            role: SampleAccount.from_dict(account) for role, account in state["accounts"].items()
        }
        self.learning.policy_lags = state["policy_lags"]
        self.learning.counts, self.learning.first_counts = state["counts"], state["first_counts"]
        self.episodes.count, self.evaluations.all = state["num_episodes"], state["evaluations"]
        for name, (role, incarnation, pid, gone) in state["processes"].items():
            self.processes[name] = ProcessRecord(role, incarnation, pid, now_s, ready_s=now_s, gone=gone)
