"""The broker's record of a run: figures of every process, the account of samples, evaluations, failures.

Messages and times go in; status, summary and stop conditions come out. It holds no socket and reads no clock.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spreeze_zmq.errors import WireError
from spreeze_zmq.metrics import physical_cores
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CRITIC_LEARNER, EVALUATOR, experience_of
from spreeze_zmq.run.account import SampleAccount
from spreeze_zmq.run.learning import LearningFigures
from spreeze_zmq.run.processes import ProcessRecord, process_rows, worker_rows
from spreeze_zmq.run.refusals import NO_HELLO, NO_REPORT, SHOWN_ROWS, RefusalRecord, Refused
from spreeze_zmq.run.returns import Evaluations, TrainingEpisodes

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Balance, Efficiency, Figures, Status, WentBack

#: Failures that are kept with their tracebacks.
FAILURES_KEPT = 100
#: What a record holds of the rest, so that no peer can fill it.
MOST_PROCESSES, CHANGES_KEPT = 200, 1000
#: A process that has not reported for this time is named.
SILENT_S = 3.0


class RunRecord:
    """The run as its broker sees it; all times in seconds since the run began."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.processes: dict[str, ProcessRecord] = {}
        self.accounts = {role: SampleAccount() for role in plan.learning.learners}
        self.learners = {
            f"{role}-{index}"
            for role in plan.learning.learners
            for index in range(plan.components[role].count.maximum)
        }
        self.learning = LearningFigures()
        # Of whoever has started the broker, which itself may be kept off the learners' cores.
        self._num_cores = len(physical_cores(os.sched_getaffinity(os.getppid())))
        self.episodes = TrainingEpisodes()
        self.evaluations = Evaluations()
        self.workers: dict[str, list[list[Any]]] = {}
        self.moves: dict[str, list[list[Any]]] = {}
        self.failures: list[dict[str, Any]] = []
        self.num_failures = 0
        self.went_back: list[WentBack] = []
        self.refusals = RefusalRecord()
        self.restarts = 0

    # --- messages

    def take_report(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter the figures in a ``hello``, ``report`` or ``bye``.

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
        if "clock_s" in fields:
            process.take(fields, now_s)
            self._take_figures(sender, incarnation, fields, now_s)

    def take_hello(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter that a process is set up."""
        self.take_report(sender, incarnation, fields, now_s)
        self.processes[sender].ready_s = now_s

    def take_bye(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter the last figures of a process that leaves by itself."""
        self.take_report(sender, incarnation, fields, now_s)
        self.lose(sender, fields["reason"])

    def lose(self, name: str, how: str) -> None:
        """Enter that a process is gone, as itself or the launcher reports."""
        process = self.processes.get(name)
        if process is not None and not process.gone:
            process.gone = how

    def take_failure(self, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a failure; the launcher prints the first one last. Of very many the first ones are kept."""
        self.num_failures += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append({"t_s": now_s, **fields})

    def take_return(self, fields: Mapping[str, Any], now_s: float) -> WentBack | None:
        """Enter that a learner has gone back to a checkpoint, where its failure says so; returns the row."""
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
        """Enter what a process says that it has refused, and that its hello is missing; returns news."""
        news = self.refusals.take(taker, fields.get("refused", ())[:64], now_s)
        process = self.processes[taker]
        if process.ready_s is None and any(fields.get("pushed", {}).values()):
            what = "it pushes rollouts, but no hello has come from it: send one when all is set up"
            news += self.refusals.miss(f"{BROKER}-0", taker, NO_HELLO, what, now_s)
        return news

    def silent(self, now_s: float) -> list[Refused]:
        """Processes that should report and do not, each named once."""
        news = []
        for name, process in self.processes.items():
            if process.ready_s is not None and not process.gone and now_s - process.heard_s > SILENT_S:
                what = f"no report has come for {SILENT_S:g} s, expected two a second, also while it waits"
                news += self.refusals.miss(f"{BROKER}-0", name, NO_REPORT, what, now_s)
        return news

    def take_workers(self, role: str, count: int, reason: str, now_s: float) -> None:
        """Enter a change of the number of processes of a role."""
        history = self.workers.setdefault(role, [])
        if not history or history[-1][1] != count:
            history.append([round(now_s, 3), count, reason])
            del history[1:-CHANGES_KEPT]

    def num_workers(self, role: str) -> int:
        """Number of processes of a role that the launcher keeps; 0 before it reports one."""
        history = self.workers.get(role)
        return int(history[-1][1]) if history else 0

    def take_move(self, role: str, option: str, value: int, reason: str, now_s: float) -> None:
        """Enter a new value of a role's option."""
        self.moves.setdefault(f"{role}.{option}", []).append([round(now_s, 3), value, reason])

    def moved(self, role: str, option: str) -> int | None:
        """The last new value of a role's option; None where it was never changed."""
        history = self.moves.get(f"{role}.{option}")
        return int(history[-1][1]) if history else None

    def _take_figures(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter the figures of a process."""
        instance, role = f"{sender}/{incarnation}", fields["role"]
        for learner, transitions in fields.get("pushed", {}).items():
            if learner in self.accounts:
                self.accounts[learner].report_pushed(instance, transitions)
        if "taken" in fields and sender in self.learners:
            self.accounts[role].report_taken(instance, fields["taken"])
        self.learning.take_device(sender, fields)
        if sender in self.learners:
            self.learning.take(instance, fields, now_s)

    # --- figures

    def instances(self, *, living: bool = False) -> set[str]:
        """The newest incarnation of each process as ``NAME/INCARNATION``; with ``living`` of those alive."""
        return {
            f"{name}/{one.incarnation}" for name, one in self.processes.items() if not (living and one.gone)
        }

    def stop_condition(self, now_s: float) -> str:
        """The stop condition that holds, in words; empty while none does."""
        stop = self.plan.run.stop
        if stop.mean_return is not None:
            enough = self.plan.components[EVALUATOR].options.get("confirm_episodes", 0)
            if reached := self.evaluations.reached(stop.mean_return, enough):
                return reached
        for name in ("env_steps", "trained_transitions"):
            most, count = getattr(stop, name), self.learning.counts[name]
            if most is not None and count >= most:
                return f"{name} {count:.0f} >= {most}"
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
            "replay_ratio": {
                "target": self.plan.balance.replay_ratio,
                "measured": learning.gauges.get("replay_ratio", 0.0),
            },
            "policy_lag": learning.policy_lag(self.instances(), self.plan.balance.max_policy_lag),
            "publication": learning.publication,
            "devices": learning.devices,
        }

    def status(self, state: str, balance: Balance, now_s: float) -> Status:
        """The status that people see and the launcher acts on."""
        samples = self.accounts[CRITIC_LEARNER].totals()
        rate = self.learning.rate
        return {
            "t_s": now_s,
            "state": state,
            **self.figures(),
            "env_steps_per_s": rate("env_steps", now_s),
            "critic_updates_per_s": rate("critic_updates", now_s),
            "actor_updates_per_s": rate("actor_updates", now_s),
            "trained_transitions_per_s": rate("trained_transitions", now_s),
            "samples": {
                "produced": samples.produced,
                "received": samples.received,
                "dropped": samples.dropped,
                "in_flight": samples.in_flight,
            },
            "workers": worker_rows(self.processes.values()),
            "episodes": self.episodes.row(),
            "evaluation": self.evaluations.rows(),
            "stop": to_plain(self.plan.run.stop),
            "processes": process_rows(self.processes, now_s),
            "gauges": self.learning.gauges,
            "efficiency": self._efficiency(rate("critic_flops", now_s) + rate("actor_flops", now_s)),
            "balance": balance,
            "refusals": self.refusals.rows(now_s, SHOWN_ROWS),
            "went_back": self.went_back[-SHOWN_ROWS:],
        }

    def _efficiency(self, flops_per_s: float) -> Efficiency | None:
        """Of learners that multiply so much."""
        places = {
            name: self.plan.components[name.rpartition("-")[0]].options.get("device", "cpu")
            for name in sorted(self.learners)
        }
        return self.learning.efficiency(flops_per_s, places, self._num_cores)

    def summary(self, exit_reason: str, now_s: float, *, final: bool) -> dict[str, Any]:
        """The contents of summary.json."""
        alive = self.instances(living=True) if final else None
        totals = {role: account.totals(alive) for role, account in self.accounts.items()}
        means = self.learning.mean_rates(now_s)
        return {
            "exit_reason": exit_reason,
            "wall_s": now_s,
            "env": self.plan.run.env,
            "algorithm": self.plan.run.algorithm,
            "seed": self.plan.run.seed,
            **self.figures(),
            **means,
            "efficiency": self._efficiency(means["critic_flops_per_s"] + means["actor_flops_per_s"]),
            "samples": vars(totals[CRITIC_LEARNER]),
            "samples_by_channel": {experience_of(role): vars(t) for role, t in totals.items()},
            "workers": self.workers,
            "moves": self.moves,
            "pinning": self.plan.pinning,
            "auto": self.plan.measured,
            "evaluations": [
                [round(e["t_s"], 3), e["env_steps"], e["mean_return"], e["std_return"]]
                for e in self.evaluations.looks
            ],
            "best_return": self.evaluations.best_return,
            "best": self.evaluations.best,
            "episodes": self.episodes.count,
            "restarts": self.restarts,
            "failures": self.failures,
            "num_failures": self.num_failures,
            "went_back": self.went_back,
            "refusals": self.refusals.rows(now_s),
        }

    # --- restarts of the broker

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; everything that later reports do not contain."""
        return {
            "accounts": {role: account.to_dict() for role, account in self.accounts.items()},
            "policy_lags": self.learning.policy_lags,
            "num_episodes": self.episodes.count,
            "evaluations": self.evaluations.all,
            "workers": self.workers,
            "moves": self.moves,
            "failures": self.failures,
            "num_failures": self.num_failures,
            "went_back": self.went_back,
            "restarts": self.restarts,
            "processes": {name: [p.role, p.incarnation, p.pid, p.gone] for name, p in self.processes.items()},
        }

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Inverse of :meth:`to_dict`."""
        self.accounts = {
            role: SampleAccount.from_dict(account) for role, account in state["accounts"].items()
        }
        self.learning.policy_lags = state["policy_lags"]
        self.episodes.count, self.evaluations.all = state["num_episodes"], state["evaluations"]
        self.workers, self.moves = state["workers"], state["moves"]
        self.failures, self.restarts = state["failures"], state["restarts"]
        self.num_failures, self.went_back = state["num_failures"], state["went_back"]
        for name, (role, incarnation, pid, gone) in state["processes"].items():
            self.processes[name] = ProcessRecord(role, incarnation, pid, now_s, ready_s=now_s, gone=gone)
