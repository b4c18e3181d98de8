"""What a person sees of a live run: one table in a terminal, plain greppable lines everywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypedDict

from rich.console import Console
from rich.live import Live
from rich.text import Text

WIDTH = 80
PLAIN_INTERVAL_S = 5.0
#: A share of blocked or starved time from which on it catches the eye.
NOTICEABLE = 0.5


class ReplayRatio(TypedDict):
    """Transitions trained on for each transition sampled."""

    target: float
    measured: float


class PolicyLag(TypedDict):
    """Versions that the policy was ahead of the rollouts which were taken in."""

    p50: float
    p99: float
    max: float


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
Stop = TypedDict("Stop", {"return": float | None, "env_steps": int | None, "minutes": float | None})


class Life(TypedDict):
    """One process: whether it is set up, whom it has long waited for, how it left; "" where not."""

    ready: bool
    waiting_for: str
    gone: str


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
    samples: Samples
    workers: dict[str, Workers]
    episodes: Episodes
    evaluation: Evaluation
    stop: Stop
    processes: NotRequired[dict[str, Life]]


class StatusView:
    """Shows a run on a console, and the lines about it that must not scroll away.

    Args:
        console: where to; standard output.
        clock: seconds that never go back.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._status: Mapping[str, Any] | None = None
        self._written_s = -math.inf
        self._written_state = ""
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False)

    def update(self, status: Mapping[str, Any]) -> None:
        """Show a :class:`Status`; as a plain line only after a while or where the state has changed."""
        self._status = status
        if self._live is not None:
            if not self._live.is_started:
                self._live.start()
            self._live.update(table(status), refresh=True)
        elif status["state"] != self._written_state or self._clock() - self._written_s >= PLAIN_INTERVAL_S:
            self._write_line(status)

    def note(self, line: str) -> None:
        """A line of its own, such as a restart or a change of worker counts; it stays above the table."""
        if self._live is not None:
            self._console.print(Text(line))
        else:
            self._print(f"note {line}")

    def close(self) -> None:
        """Leave the last figures on the screen and the terminal as it was."""
        if self._live is not None:
            self._live.stop()
        elif self._status is not None:
            self._write_line(self._status)
        self._status = None

    def _write_line(self, status: Mapping[str, Any]) -> None:
        self._written_s, self._written_state = self._clock(), status["state"]
        self._print(plain_line(status))

    def _print(self, line: str) -> None:
        # One line is one line, however narrow the console thinks it is.
        self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)


def remaining_s(status: Mapping[str, Any]) -> float | None:
    """Seconds until the first stop condition that can be foreseen (a return cannot), or None."""
    stop, left = status["stop"], []
    if stop["minutes"] is not None:
        left.append(60 * stop["minutes"] - status["t_s"])
    if stop["env_steps"] is not None and status["env_steps_per_s"] > 0:
        left.append((stop["env_steps"] - status["env_steps"]) / status["env_steps_per_s"])
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
        "return": _decimal(status["episodes"]["mean_return"], "-"),
        "eval": _decimal(last and last["mean_return"], "-"),
        "best": _decimal(best and best["mean_return"], "-"),
        "dropped": str(samples["dropped"]),
        "workers": ",".join(f"{role}:{row['count']}" for role, row in status["workers"].items()) or "-",
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


# --- the table

#: Text and its style. A rich Table would lay out the same columns at six times the cost.
Piece = tuple[str, str]


def table(status: Mapping[str, Any]) -> Text:
    """The run in lines of at most 80 columns."""
    lines = [
        *_head(status),
        *_counts(status),
        [],
        *_workers(status["workers"]),
        [],
        *_outcome(status),
        *_waiting(status.get("processes", {})),
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
    names = ("env_steps", "trained_transitions", "critic_updates", "actor_updates")
    return [
        [
            (f"{name.replace('_', ' '):20}", "dim"),
            (f"{status[name]:>15,}{_rate(status[f'{name}_per_s']):>12}", ""),
            (f" /s   {label:15}", "dim"),
            (value, ""),
        ]
        for name, (label, value) in zip(names, beside, strict=True)
    ]


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
        (_decimal(score["mean_return"], "-"), style),
        (f" ± {_decimal(score['std_return'], '-')}", "dim"),
        (f"  at {score['env_steps']:,} env steps, {_clock(score['t_s'])}", "dim"),
    ]


def _waiting(processes: Mapping[str, Mapping[str, Any]]) -> list[list[Piece]]:
    """Who is not ready or has waited long, and for whom."""
    lines: list[list[Piece]] = [
        [(f"{name} waits for {life['waiting_for'] or 'its own start'}", "yellow")]
        for name, life in processes.items()
        if not life["gone"] and (life["waiting_for"] or not life["ready"])
    ]
    return [[], *lines] if lines else []


# --- numbers


def _stops_at(stop: Mapping[str, Any]) -> str:
    conditions = []
    if stop["return"] is not None:
        conditions.append(f"return {stop['return']:g}")
    if stop["env_steps"] is not None:
        conditions.append(f"{_compact(stop['env_steps'])} env steps")
    if stop["minutes"] is not None:
        conditions.append(f"{stop['minutes']:g} min")
    if not conditions:
        return "until Ctrl-C"
    return "until " + " or ".join(conditions)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _decimal(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.1f}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _compact(count: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.4g}{name}"
    return str(count)


def _bytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
