"""The broker's record of a run: figures of every process, the account of samples, evaluations, failures.

Messages and times go in; status, summary and stop conditions come out. It holds no socket and reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.metrics import Rates
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, experience_of
from spreeze_zmq.run.account import SampleAccount
from spreeze_zmq.run.processes import ProcessRecord, process_rows, worker_rows

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Balance, EvaluationRow, Figures, PolicyLag, Status

#: Episodes that the running mean of the training return covers, as in Stable-Baselines3.
EPISODES_WINDOW = 100
#: Episodes of the recent return, by which the evaluator decides to hurry.
RECENT_EPISODES = 16

#: The learners' counters that status and summary show, with their rates.
COUNTS = ("env_steps", "critic_updates", "actor_updates", "trained_transitions")


class RunRecord:
    """The run as its broker sees it; all times in seconds since the run began."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.processes: dict[str, ProcessRecord] = {}
        self.accounts = {role: SampleAccount() for role in plan.learning.learners}
        self.counts: dict[str, float] = dict.fromkeys(COUNTS, 0)
        self.at_start: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.publication: dict[str, dict[str, float]] = {}
        self.devices: dict[str, dict[str, float]] = {}
        self.policy_lags: dict[str, Mapping[str, float]] = {}
        self.returns: deque[float] = deque(maxlen=EPISODES_WINDOW)
        self.lengths: deque[int] = deque(maxlen=EPISODES_WINDOW)
        self.num_episodes = 0
        self.evaluations: list[dict[str, Any]] = []
        self.workers: dict[str, list[list[Any]]] = {}
        self.moves: dict[str, list[list[Any]]] = {}
        self.failures: list[dict[str, Any]] = []
        self.restarts = 0
        self.rates = Rates()

    # --- messages

    def take_report(self, sender: str, incarnation: int, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter the figures in a ``hello``, ``report`` or ``bye``."""
        process = self.processes.get(sender)
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
        if process is None or process.gone:
            return
        process.gone = how
        for account in self.accounts.values():
            account.close(f"{name}/{process.incarnation}")

    def take_episodes(self, returns: NDArray[np.float32], lengths: NDArray[np.int32]) -> None:
        """Enter training episodes: returns and lengths ``[num_episodes]``."""
        self.returns.extend(returns.tolist())
        self.lengths.extend(lengths.tolist())
        self.num_episodes += len(returns)

    def take_evaluation(self, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter an evaluation: a look, or fresh episodes of a policy that was chosen before (``confirmed``).

        Looks alone make the learning curve, one for each policy: confirmations are of policies that were
        chosen for a high score.
        """
        self.evaluations.append({"t_s": now_s, **fields})

    def take_failure(self, fields: Mapping[str, Any], now_s: float) -> None:
        """Enter a failure; the launcher prints the first one last."""
        self.failures.append({"t_s": now_s, **fields})

    def take_workers(self, role: str, count: int, reason: str, now_s: float) -> None:
        """Enter a change of the number of processes of a role."""
        history = self.workers.setdefault(role, [])
        if not history or history[-1][1] != count:
            history.append([round(now_s, 3), count, reason])

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
        """Enter the figures of a process; those of a restarted learner count on from its checkpoint."""
        instance, role = f"{sender}/{incarnation}", fields["role"]
        for learner, transitions in fields.get("pushed", {}).items():
            if learner in self.accounts:
                self.accounts[learner].report_pushed(instance, transitions)
        if "taken" in fields and role in self.accounts:
            self.accounts[role].report_taken(instance, fields["taken"])
        if "policy_lag" in fields:
            self.policy_lags[instance] = fields["policy_lag"]
        if "publication" in fields:
            self.publication[role] = fields["publication"]
        if fields.get("device"):
            self.devices[sender] = fields["device"]
        self.gauges.update(fields["gauges"])
        for name in COUNTS:
            if name in fields["counters"]:
                self.counts[name] = fields["counters"][name]
                self.at_start.setdefault(name, self.counts[name])
                self.rates.add(name, self.counts[name], now_s)

    # --- figures

    @property
    def policy_lag(self) -> PolicyLag:
        """Maximum and stale transitions over all incarnations of the learners; quantiles of the living
        incarnations, the worst of several.
        """
        newest = {f"{name}/{process.incarnation}" for name, process in self.processes.items()}
        lags = self.policy_lags.values()
        recent = [lag for incarnation, lag in self.policy_lags.items() if incarnation in newest]
        return {
            "p50": max((lag["p50"] for lag in recent), default=0),
            "p99": max((lag["p99"] for lag in recent), default=0),
            "max": max((lag["max"] for lag in lags), default=0),
            "stale": sum(lag.get("stale", 0) for lag in lags),
            "bound": self.plan.balance.max_policy_lag,
        }

    @property
    def looks(self) -> list[dict[str, Any]]:
        """The evaluations of the learning curve."""
        return [e for e in self.evaluations if not e.get("confirmed", False)]

    @property
    def best(self) -> dict[str, Any] | None:
        """The evaluation of the policy that was kept last."""
        return next((e for e in reversed(self.evaluations) if e["best"]), None)

    @property
    def best_return(self) -> float | None:
        """The mean return of the policy that was kept last."""
        best = self.best
        return None if best is None else float(best["mean_return"])

    def _return_reached(self, goal: float) -> str:
        """In words, that the kept policy has reached the goal in as many fresh episodes as confirm it; an
        evaluator that does not tell fresh ones apart is believed.
        """
        best = self.best
        if best is None or not best.get("confirmed", True) or best["mean_return"] < goal:
            return ""
        enough = self.plan.components[EVALUATOR].options.get("confirm_episodes", 0)
        if best["num_episodes"] < enough and "confirmed" in best:
            return ""
        return f"return {best['mean_return']:.1f} >= {goal:g}"

    def stop_condition(self, now_s: float) -> str:
        """The stop condition that holds, in words; empty while none does."""
        stop = self.plan.run.stop
        if stop.mean_return is not None and (reached := self._return_reached(stop.mean_return)):
            return reached
        for name, enough in (
            ("env_steps", stop.env_steps),
            ("trained_transitions", stop.trained_transitions),
        ):
            if enough is not None and self.counts[name] >= enough:
                return f"{name} {self.counts[name]:.0f} >= {enough}"
        if stop.minutes is not None and now_s >= 60 * stop.minutes:
            return f"minutes {now_s / 60:.2f} >= {stop.minutes:g}"
        return ""

    def figures(self) -> Figures:
        """The figures that status and summary share."""
        return {
            "learners": list(self.plan.learning.learners),
            "env_steps": int(self.counts["env_steps"]),
            "critic_updates": int(self.counts["critic_updates"]),
            "actor_updates": int(self.counts["actor_updates"]),
            "trained_transitions": int(self.counts["trained_transitions"]),
            "replay_ratio": {
                "target": self.plan.balance.replay_ratio,
                "measured": self.gauges.get("replay_ratio", 0.0),
            },
            "policy_lag": self.policy_lag,
            "publication": self.publication,
            "devices": self.devices,
        }

    def status(self, state: str, balance: Balance, now_s: float) -> Status:
        """The status that people see and the launcher acts on."""
        samples = self.accounts[CRITIC_LEARNER].totals()
        looks = self.looks
        recent = list(self.returns)[-RECENT_EPISODES:]
        stop = self.plan.run.stop
        return {
            "t_s": now_s,
            "state": state,
            **self.figures(),
            "env_steps_per_s": self.rates.rate("env_steps", now_s),
            "critic_updates_per_s": self.rates.rate("critic_updates", now_s),
            "actor_updates_per_s": self.rates.rate("actor_updates", now_s),
            "trained_transitions_per_s": self.rates.rate("trained_transitions", now_s),
            "samples": {
                "produced": samples.produced,
                "received": samples.received,
                "dropped": samples.dropped,
                "in_flight": samples.in_flight,
            },
            "workers": worker_rows(self.processes.values()),
            "episodes": {
                "count": self.num_episodes,
                "mean_return": float(np.mean(self.returns)) if self.returns else None,
                "std_return": float(np.std(self.returns)) if self.returns else None,
                "recent_return": float(np.mean(recent)) if recent else None,
                "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
            },
            "evaluation": {"last": _row(looks[-1] if looks else None), "best": _row(self.best)},
            "stop": {
                "return": stop.mean_return,
                "env_steps": stop.env_steps,
                "trained_transitions": stop.trained_transitions,
                "minutes": stop.minutes,
            },
            "processes": process_rows(self.processes, now_s),
            "gauges": self.gauges,
            "balance": balance,
        }

    def summary(self, exit_reason: str, now_s: float, *, final: bool) -> dict[str, Any]:
        """The contents of summary.json."""
        totals = {role: account.totals(final=final) for role, account in self.accounts.items()}
        # a resumed run did not begin at 0
        gains = {name: self.counts[name] - self.at_start.get(name, 0) for name in COUNTS}
        return {
            "exit_reason": exit_reason,
            "wall_s": now_s,
            "env": self.plan.run.env,
            "algorithm": self.plan.run.algorithm,
            "seed": self.plan.run.seed,
            **self.figures(),
            **{f"{name}_per_s": gain / now_s if now_s > 0 else 0.0 for name, gain in gains.items()},
            "samples": vars(totals[CRITIC_LEARNER]),
            "samples_by_channel": {experience_of(role): vars(t) for role, t in totals.items()},
            "workers": self.workers,
            "moves": self.moves,
            "pinning": self.plan.pinning,
            "auto": self.plan.measured,
            "evaluations": [
                [round(e["t_s"], 3), e["env_steps"], e["mean_return"], e["std_return"]] for e in self.looks
            ],
            "best_return": self.best_return,
            "best": self.best,
            "episodes": self.num_episodes,
            "restarts": self.restarts,
            "failures": self.failures,
        }

    # --- restarts of the broker

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; everything that later reports do not contain."""
        return {
            "accounts": {role: account.to_dict() for role, account in self.accounts.items()},
            "policy_lags": self.policy_lags,
            "num_episodes": self.num_episodes,
            "evaluations": self.evaluations,
            "workers": self.workers,
            "moves": self.moves,
            "failures": self.failures,
            "restarts": self.restarts,
            "processes": {name: [p.role, p.incarnation, p.pid, p.gone] for name, p in self.processes.items()},
        }

    def restore(self, state: Mapping[str, Any], now_s: float) -> None:
        """Inverse of :meth:`to_dict`."""
        self.accounts = {
            role: SampleAccount.from_dict(account) for role, account in state["accounts"].items()
        }
        self.policy_lags = state["policy_lags"]
        self.num_episodes, self.evaluations = state["num_episodes"], state["evaluations"]
        self.workers, self.moves = state["workers"], state["moves"]
        self.failures, self.restarts = state["failures"], state["restarts"]
        for name, (role, incarnation, pid, gone) in state["processes"].items():
            self.processes[name] = ProcessRecord(role, incarnation, pid, now_s, ready_s=now_s, gone=gone)


def _row(evaluation: Mapping[str, Any] | None) -> EvaluationRow | None:
    if evaluation is None:
        return None
    return {
        "t_s": evaluation["t_s"],
        "env_steps": evaluation["env_steps"],
        "mean_return": evaluation["mean_return"],
        "std_return": evaluation["std_return"],
        "interval": interval_of(evaluation),
        "num_episodes": evaluation["num_episodes"],
        "mean_length": evaluation["mean_length"],
        "num_truncated": evaluation.get("num_truncated", 0),
        "confirmed": evaluation.get("confirmed", False),
        "info": evaluation.get("info", {}),
    }


def interval_of(evaluation: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval of an evaluation's mean return; None where its evaluator does not say it."""
    if "interval_low" not in evaluation or "interval_high" not in evaluation:
        return None
    return evaluation["interval_low"], evaluation["interval_high"]
