"""Progress, stages of processes, mistakes and a whole status as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.screen.terminal.numbers import compact, counted, decimal, memory, plain_name

#: The stage of a process that is set up and does not wait for another.
RUNNING = "running"


def _readable(rows: Iterable[Mapping[str, Any]], types: Mapping[str, type]) -> list[Mapping[str, Any]]:
    """The rows that have each of these fields, with its type: a broker may be another program."""
    return [row for row in rows if all(type(row.get(name)) is kind for name, kind in types.items())]


_ROW = {**dict.fromkeys(("taker", "sender", "kind", "word", "line"), str), "count": int, "stuck": bool}


#: Words of rows that stand for messages which never came, where all others stand for refused ones.
NEVER_CAME = ("no_hello", "no_report")


def mistakes(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of the status's ``refusals`` that are a sender's mistake, without samples that grew stale."""
    return [row for row in _readable(status.get("refusals", ()), _ROW) if row["word"] != "stale"]


_FOUND = dict.fromkeys(("name", "seen", "why", "try"), str)


def findings(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The readable rows of the ``findings`` of a status or summary, the worst first."""
    return _readable(status.get("findings") or (), _FOUND)


def finding_line(row: Mapping[str, Any]) -> str:
    """What was seen, why it matters and what to try."""
    return f"{row['seen']}: {row['why']}; try: {row['try']}"


_FAILURE = {**dict.fromkeys(("kind", "name", "summary"), str), "count": int, "survived": bool}


def failure_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The readable ones of the rows of a status's ``failures``."""
    return _readable(rows, _FAILURE)


def newest_failure(status: Mapping[str, Any]) -> list[str]:
    """One line with the number of failures and the newest; no line without any."""
    rows, count = failure_rows(status.get("failures", ()))[-1:], status.get("num_failures", 0)
    return [f"{counted(count)}, the newest: {row['name']}: {row['summary']}" for row in rows]


_COUNTS = dict.fromkeys(("env_steps", "trained_transitions", "rounds", "received_bytes"), int)
_GROUP: Mapping[str, type] = {**_COUNTS, "distance": float, "lost": bool}


def group_lines(status: Mapping[str, Any]) -> dict[str, str]:
    """``group 1`` -> what a status or summary says of it; nothing where all figures are of one group."""
    rows = {name: row for name, row in status.get("groups", {}).items() if _readable([row], _GROUP)}
    return {
        f"group {name}": f"{compact(row['env_steps'])} env steps, "
        f"{compact(row['trained_transitions'])} transitions trained, {row['rounds']:,} rounds, "
        f"{memory(row['received_bytes'])} sent, {row['distance']:.1%} from the fused model"
        + ", lost"
        * row["lost"]
        for name, row in rows.items()
    }


def ended_by(reason: str, best_return: float | None) -> str:
    """A stop reason for a line that also states the best return: ``return -200 reached``.

    The return in the reason is that of the moment; further episodes of the best policy have changed it since.
    It is left in where the best policy does not reach the goal by all of its episodes.
    """
    reached = re.fullmatch(r"(\w+) \S+ >= (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", reason)
    if reached is None:
        return reason
    name, goal = reached[1], float(reached[2])
    if name == "return":
        return reason if best_return is None or best_return < goal else f"return {reached[2]} reached"
    return (
        f"{goal:,g} {plain_name(name)} reached" if goal < 1e6 else f"{goal:,.0f} {plain_name(name)} reached"
    )


def same_episodes(evaluation: Mapping[str, Any]) -> str:
    """That all episodes of an ``evaluation`` message were the same one; empty where they were not."""
    count, spread = evaluation["num_episodes"], evaluation["std_return"]
    if count < 2 or "interval_low" in evaluation or spread > 1e-5 * max(1.0, abs(evaluation["mean_return"])):
        return ""
    if evaluation.get("timed_out"):
        return ""
    return (
        f"all {count} episodes were the same, from their first observation to their return: they say no more "
        "than one; where the environment has chance, its reset() must draw from the seed that it is given"
    )


def episodes_of_a_best(number: int, *, final: bool) -> str:
    """What a best policy's score is of, and how many: all of its episodes are fresh only where the end of the
    run, which chose nothing, has played them.
    """
    episodes = "episode" + "s" * (number != 1)
    return f"{number} fresh {episodes}" if final else f"{number} {episodes}, which also chose it"


def cut_by_time(evaluation: Any) -> str:
    """``3 of 5 cut by time``: how many episodes of an ``evaluation`` message, or of what a file has as one,
    did not last to their end, so that its mean compares with no other; empty where time cut none.
    """
    if not isinstance(evaluation, Mapping) or not evaluation.get("timed_out"):
        return ""
    return f"{evaluation.get('num_truncated') or 'some'} of {evaluation.get('num_episodes')} cut by time"


def conditions(stop: Mapping[str, Any]) -> list[str]:
    """The stop conditions that are set, in words."""
    words = []
    if stop["return"] is not None:
        words.append(f"return {stop['return']:.15g}")
    if stop["env_steps"] is not None:
        words.append(f"{compact(stop['env_steps'])} env steps")
    if stop["trained_transitions"] is not None:
        words.append(f"{compact(stop['trained_transitions'])} trained")
    if stop["minutes"] is not None:
        words.append(f"{stop['minutes']:g} min")
    return words


@dataclass(frozen=True)
class Progress:
    """Progress towards one stop condition.

    Attributes:
        done: share, 0 to 1.
        left_s: remaining seconds at the present rate.
    """

    done: float
    left_s: float


def progress(status: Mapping[str, Any]) -> Progress | None:
    """Progress towards the condition that comes first at the present rates; None if none is predictable. A
    return is left out: a learning curve cannot be predicted.
    """
    stop, candidates = status["stop"], []
    if stop["minutes"] is not None:
        candidates.append(_towards(60 * stop["minutes"], status["t_s"], 1.0))
    for count in ("env_steps", "trained_transitions"):
        if stop[count] is not None and status[f"{count}_per_s"] > 0:
            candidates.append(_towards(stop[count], status[count], status[f"{count}_per_s"]))
    return min(candidates, key=lambda one: one.left_s, default=None)


def _towards(limit: float, now: float, per_s: float) -> Progress:
    return Progress(done=min(1.0, now / limit), left_s=max(0.0, (limit - now) / per_s))


@dataclass
class RoleStage:
    """Processes of one role at the same stage.

    Attributes:
        role: of all of them.
        stage: of all of them.
        names: of the processes.
        figures: status rows of those that have reported.
    """

    role: str
    stage: str
    names: list[str]
    figures: list[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """The role, with the number of processes if there are several."""
        role = self.role.replace("_", " ")
        return role if len(self.names) == 1 else f"{len(self.names)} {role}s"

    def mean(self, name: str) -> float:
        return self.sum(name) / max(1, len(self.figures))

    def sum(self, name: str) -> float:
        return sum(float(row[name]) for row in self.figures)


def stage_of(heard: Mapping[str, Any]) -> str:
    """The stage of a process from its row of the status."""
    if waiting_for := heard.get("waiting_for"):
        # the socket's address is for the log
        return "waits for " + re.sub(r" \([^()]*://[^()]*\)$", "", str(waiting_for))
    return RUNNING if heard.get("ready") else "setting up"


def groups_of(stages: Mapping[str, str], heard: Mapping[str, Mapping[str, Any]]) -> list[RoleStage]:
    """Group processes by role and stage, in the order of ``stages``; processes that only the status knows,
    which another program has started, come last.

    Args:
        stages: of the launcher's processes, by name.
        heard: the rows of the status, by name.
    """
    all_stages = {**stages, **{name: stage_of(row) for name, row in heard.items() if name not in stages}}
    groups: dict[tuple[str, str], RoleStage] = {}
    for name, stage in all_stages.items():
        role = name.rpartition("-")[0]
        group = groups.setdefault((role, stage), RoleStage(role, stage, [], []))
        group.names.append(name)
        if name in heard:
            group.figures.append(heard[name])
    return list(groups.values())


def plain_line(status: Mapping[str, Any], stages: Mapping[str, str]) -> str:
    """``t=12.0s state=training env_steps=...``: always the same keys in the same order, ``-`` for no value.
    Counts and rates that summary.json has are named as there; of a table a figure is shown.

    Args:
        status: the newest.
        stages: of the processes, by name; those that are not running are named at the end.
    """
    last, best = status["evaluation"]["last"], status["evaluation"]["best"]
    way = progress(status)
    ratio, lag = status["replay_ratio"]["measured"], status["policy_lag"]
    waiting = [name for name, stage in stages.items() if stage != RUNNING]
    fields = {
        "t": f"{status['t_s']:.1f}s",
        "left": "-" if way is None else f"{way.left_s:.0f}s",
        "state": status["state"].replace(" ", "_"),
        "env_steps": str(status["env_steps"]),
        "env_steps_per_s": _rate(status["env_steps_per_s"], 0),
        "critic_updates": str(status["critic_updates"]),
        "critic_updates_per_s": _rate(status["critic_updates_per_s"], 1),
        "actor_updates": str(status["actor_updates"]),
        "actor_updates_per_s": _rate(status["actor_updates_per_s"], 1),
        "replay_ratio": _decimal(ratio),
        "policy_lag": f"{lag.get('recent_p50', lag['p50']):g}",
        "episodes": str(status["episodes"]["count"]),
        "training_return": _decimal(status["episodes"]["mean_return"]),
        "evaluation": _decimal(last and last["mean_return"]),
        "best_return": _decimal(best and best["mean_return"]),
        "samples_dropped": str(status["samples"]["dropped"]),
        "messages_refused": str(status.get("num_refused", 0)),
        "failures": str(status.get("num_failures", 0)),
        "samplers": str(status["workers"].get(SAMPLER, {}).get("count", 0)),
        "waiting": ",".join(waiting) or "-",
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _rate(per_s: float, digits: int) -> str:
    return f"{per_s:.3g}" if 0 < per_s < 1 else f"{per_s:.{digits}f}"


def _decimal(value: float | None) -> str:
    return decimal(value).replace(",", "")
