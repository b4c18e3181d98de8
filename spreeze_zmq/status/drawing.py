"""A status as text: one table of 80 columns for a person, one line of ``key=value`` for a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

WIDTH = 80
#: Shares of blocked or starved time from this on are highlighted.
NOTICEABLE = 0.5


def remaining_s(status: Mapping[str, Any]) -> float | None:
    """Seconds until the first foreseeable stop condition (a return is not); None where there is none."""
    stop, left = status["stop"], []
    if stop["minutes"] is not None:
        left.append(60 * stop["minutes"] - status["t_s"])
    for count in ("env_steps", "trained_transitions"):
        if stop[count] is not None and status[f"{count}_per_s"] > 0:
            left.append((stop[count] - status[count]) / status[f"{count}_per_s"])
    return max(0.0, min(left)) if left else None


# --- plain lines


def plain_line(status: Mapping[str, Any]) -> str:
    """``t=12.0s state=training env_steps=...``: the same keys in the same order, ``-`` for no value."""
    lag, ratio, samples = status["policy_lag"], status["replay_ratio"], status["samples"]
    last, best = status["evaluation"]["last"], status["evaluation"]["best"]
    left_s = remaining_s(status)
    fields = {
        "t": f"{status['t_s']:.1f}s",
        "left": "-" if left_s is None else f"{left_s:.0f}s",
        "state": status["state"].replace(" ", "_"),
        "env_steps": str(status["env_steps"]),
        "fps": f"{status['env_steps_per_s']:.0f}",
        "trained_per_s": f"{status['trained_transitions_per_s']:.0f}",
        "critic_updates": str(status["critic_updates"]),
        "critic_per_s": f"{status['critic_updates_per_s']:.1f}",
        "actor_updates": str(status["actor_updates"]),
        "actor_per_s": f"{status['actor_updates_per_s']:.1f}",
        "ratio": f"{ratio['measured']:.2f}/{ratio['target']:g}",
        "lag": f"{lag['p50']:g}/{lag['p99']:g}/{lag['max']:g}",
        "episodes": str(status["episodes"]["count"]),
        "return": _decimal(status["episodes"]["mean_return"]),
        "eval": _decimal(last and last["mean_return"]),
        "best": _decimal(best and best["mean_return"]),
        "dropped": str(samples["dropped"]),
        "workers": ",".join(f"{role}:{row['count']}" for role, row in status["workers"].items()) or "-",
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


# --- the table

#: Text and its style. A rich Table costs six times as much for the same columns.
Piece = tuple[str, str]


def table(status: Mapping[str, Any]) -> Text:
    """The status in lines of at most 80 columns."""
    lines = [
        *_head(status),
        *_counts(status),
        [],
        *_workers(status["workers"]),
        [],
        *_outcome(status),
        *_waiting(status["processes"]),
    ]
    text = Text(no_wrap=True, overflow="ellipsis", end="")
    for number, line in enumerate(lines):
        for piece, style in line:
            text.append(piece, style)
        if number < len(lines) - 1:
            text.append("\n")
    return text


def _head(status: Mapping[str, Any]) -> list[list[Piece]]:
    left_s = remaining_s(status)
    began = f"  {_clock(status['t_s'])}"
    left = "" if left_s is None else f"  {_clock(left_s)} left"
    until = f"  {_stops_at(status['stop'])}"
    room = WIDTH - len(status["state"] + began)
    state: list[Piece] = [(status["state"], "bold"), (began, "")]
    rule: list[Piece] = [("─" * WIDTH, "dim")]
    if len(left + until) <= room:
        return [[*state, (f"{left:>{room - len(until)}}", ""), (until, "dim")], rule]
    return [[*state, (f"{left:>{room}}", "")], [(f"{until:>{WIDTH}}", "dim")], rule]


def _counts(status: Mapping[str, Any]) -> list[list[Piece]]:
    ratio, lag = status["replay_ratio"], status["policy_lag"]
    beside = (
        ("replay ratio", f"{ratio['measured']:.2f} of {ratio['target']:g}"),
        ("policy lag p50", f"{lag['p50']:,g}"),
        ("policy lag p99", f"{lag['p99']:,g}"),
        ("policy lag max", f"{lag['max']:,g}"),
    )
    names = ["env_steps", "trained_transitions", "critic_updates", "actor_updates"]
    if len(status["learners"]) == 1:
        names[-1] = ""
    lines: list[list[Piece]] = []
    for name, (label, value) in zip(names, beside, strict=True):
        count = f"{status[name]:>15,}{_rate(status[f'{name}_per_s']):>12} /s" if name else " " * 30
        head: list[Piece] = [(f"{name.replace('_', ' '):20}", "dim"), (count, "")]
        lines.append([*head, (f"   {label:15}", "dim"), (value, "")])
    return lines


def _workers(workers: Mapping[str, Mapping[str, float]]) -> list[list[Piece]]:
    titles = f"{'count':>6}{'busy':>9}{'blocked':>10}{'starved':>10}{'cpu':>9}{'memory':>10}"
    return [
        [(f"{'processes':20}{titles}", "dim")],
        *(
            [
                (f"{role.replace('_', ' '):20.20}{row['count']:>6}{row['busy']:>9.0%}", ""),
                (f"{row['blocked']:>10.0%}", "yellow" if row["blocked"] >= NOTICEABLE else ""),
                (f"{row['starved']:>10.0%}", "yellow" if row["starved"] >= NOTICEABLE else ""),
                (f"{row['cpu_percent']:>8.0f}%{_bytes(row['rss_bytes']):>10}", ""),
            ]
            for role, row in workers.items()
        ),
    ]


def _outcome(status: Mapping[str, Any]) -> list[list[Piece]]:
    episodes, samples = status["episodes"], status["samples"]
    training: list[Piece] = [("no episode has ended yet", "dim")]
    if episodes["mean_return"] is not None:
        means = f"  in {episodes['mean_length']:,.0f} steps; {episodes['count']:,} episodes so far"
        training = [(f"{episodes['mean_return']:.1f}", ""), (means, "dim")]
    received = f" = {samples['received']:,} received + "
    dropped = f"{samples['dropped']:,} dropped"
    in_flight = f" + {samples['in_flight']:,} in flight"
    produced = f"{samples['produced']:,}"
    if 20 + len(produced + received + dropped + in_flight) > WIDTH:
        in_flight = "\n" + " " * 20 + in_flight
    return [
        [(f"{'training return':20}", "dim"), *training],
        [(f"{'evaluation':20}", "dim"), *_score(status["evaluation"]["last"], "")],
        [(f"{'best evaluation':20}", "dim"), *_score(status["evaluation"]["best"], "bold")],
        [
            (f"{'samples produced':20}", "dim"),
            (produced, ""),
            (received, "dim"),
            (dropped, "yellow" if samples["dropped"] else "dim"),
            (in_flight, "dim"),
        ],
    ]


def _score(score: Mapping[str, Any] | None, style: str) -> list[Piece]:
    if score is None:
        return [("none yet", "dim")]
    return [
        (_decimal(score["mean_return"]), style),
        (f" ± {_decimal(score['std_return'])}", "dim"),
        (f"  at {score['env_steps']:,} env steps, {_clock(score['t_s'])}", "dim"),
    ]


def _waiting(processes: Mapping[str, Mapping[str, Any]]) -> list[list[Piece]]:
    """One line for each process that is not ready or has waited long: what it waits for."""
    lines: list[list[Piece]] = [
        [(f"{name} waits for {process['waiting_for'] or 'its own start'}", "yellow")]
        for name, process in processes.items()
        if process["waiting_for"] or not process["ready"]
    ]
    return [[], *lines] if lines else []


# --- numbers


def _stops_at(stop: Mapping[str, Any]) -> str:
    conditions = []
    if stop["return"] is not None:
        conditions.append(f"return {stop['return']:g}")
    if stop["env_steps"] is not None:
        conditions.append(f"{_compact(stop['env_steps'])} env steps")
    if stop["trained_transitions"] is not None:
        conditions.append(f"{_compact(stop['trained_transitions'])} trained")
    if stop["minutes"] is not None:
        conditions.append(f"{stop['minutes']:g} min")
    if not conditions:
        return "until Ctrl-C"
    return "until " + " or ".join(conditions)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _compact(count: int) -> str:
    for unit, name in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.4g}{name}"
    return str(count)


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
