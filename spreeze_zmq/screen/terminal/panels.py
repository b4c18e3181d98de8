"""What each panel of a frame says: lines of pieces of text, made of a status and what the launcher sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len

from spreeze_zmq.base.rates import rate
from spreeze_zmq.screen.terminal.chart import Returns
from spreeze_zmq.screen.terminal.numbers import (
    clock,
    compact,
    decimal,
    efficiency,
    memory,
    plain_name,
    spread,
)
from spreeze_zmq.screen.terminal.words import (
    RUNNING,
    RoleStage,
    conditions,
    cut_by_time,
    finding_line,
    findings,
    group_lines,
    groups_of,
    mistakes,
    newest_failure,
    progress,
)

#: Text and its style. A rich Table costs twelve times as much for the same columns.
Piece = tuple[str, str]
Line = list[Piece]

LABEL = 16
#: Most lines about refused messages.
REFUSALS = 3
#: A learner that lacks samples for this share of its time is highlighted.
NOTICEABLE = 0.5
#: The state of the last frame, which leaves out processes, machines, rates, progress and page.
ENDED = "ended"
STATE_STYLES = {"training": "bold green", "warming up": "bold cyan", ENDED: "bold"}


@dataclass
class Scene:
    """Everything that a frame shows.

    Attributes:
        facts: about the run, by title.
        status: the broker's newest; empty before the first.
        stages: of the launcher's processes, by name.
        lasted_s: for how long each process has been at its stage.
        returns: of the run so far.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    lasted_s: Mapping[str, float] = field(default_factory=dict)
    returns: Returns = field(default_factory=Returns)


@dataclass
class Panel:
    """Lines that belong together.

    Attributes:
        rank: panels of high rank are left out first.
        lines: the text.
        joined: no empty line separates them from the panel before.
    """

    rank: int
    lines: list[Line]
    joined: bool = False


def panels_of(scene: Scene, width: int, returns: Panel) -> list[Panel]:
    """All panels of a frame of this width, from top to bottom; that of the returns is among them."""
    return [
        Panel(1, [_head(scene, width)]),
        *_progress(scene.status, width),
        Panel(1, _findings(scene.status), joined=True),
        Panel(1, _mistakes(scene.status)),
        Panel(0, _scores(scene.status)),
        returns,
        *_counts(scene.status, width),
        Panel(5, _losses(scene.status, width)),
        Panel(4, _processes(scene, width)),
        Panel(4, _machines(scene.status), joined=True),
        Panel(4, _groups(scene.status), joined=True),
        Panel(11, _legend(scene, width), joined=True),
        *_places(scene),
    ]


def _head(scene: Scene, width: int) -> Line:
    status = scene.status
    state = status.get("state", "starting")
    began = f"  {clock(status['t_s'])}" if status else ""
    title = scene.facts.get("run", "")
    room = width - cell_len(state + began) - 2
    title = title if cell_len(title) <= room else title[: max(0, room - 1)] + "…"
    gap = " " * (width - cell_len(title + state + began))
    return [(title, "bold"), (gap, ""), (state, STATE_STYLES.get(state, "bold yellow")), (began, "")]


def _mistakes(status: Mapping[str, Any]) -> list[Line]:
    lines = [(row["line"], "bold red" if row["stuck"] else "yellow") for row in mistakes(status)[:REFUSALS]]
    return [[line] for line in (*lines, *((line, "yellow") for line in newest_failure(status)))]


def _findings(status: Mapping[str, Any]) -> list[Line]:
    """The worst finding in one line, behind the number of all."""
    rows = findings(status)
    if not rows:
        return []
    count = f"finding 1 of {len(rows)}: " if len(rows) > 1 else "finding: "
    return [[(count, "bold yellow"), (finding_line(rows[0]), "yellow")]]


def _progress(status: Mapping[str, Any], width: int) -> list[Panel]:
    if not status or status["state"] in ("stopping", ENDED):
        return []
    until = "until " + (" or ".join(conditions(status["stop"])) or "Ctrl-C")
    way = progress(status)
    if way is None:
        return [Panel(2, [[(until, "dim")]], joined=True)]
    # a run may end earlier by its return
    left = f"  {clock(way.left_s)} left" + (" at most" if status["stop"]["return"] is not None else "")
    one_line = width - len(left + until) - 2 >= LABEL
    columns = width - len(left) - (len(until) + 2 if one_line else 0)
    full = round(way.done * columns)
    bar: Line = [("━" * full, "green"), ("─" * (columns - full), "dim"), (left, "")]
    if one_line:
        return [Panel(2, [[*bar, ("  " + until, "dim")]], joined=True)]
    return [Panel(2, [bar], joined=True), Panel(7, [[(until, "dim")]], joined=True)]


def _scores(status: Mapping[str, Any]) -> list[Line]:
    if not status:
        return []
    episodes, evaluation = status["episodes"], status["evaluation"]
    training: Line = [("no episode has ended yet", "dim")]
    if episodes["count"]:  # of the runs that this one goes on from
        training = [(f"none has ended since the run went on, {episodes['count']:,} before", "dim")]
    if episodes["mean_return"] is not None:
        number, count = episodes.get("num_in_means"), episodes["count"]  # that of the parents too
        some = f" n={number}" if number else " the last"
        of_all = f" of {count:,}" if number != count else ""
        beside = f"{some}{of_all}, of {episodes['mean_length']:,.0f} steps"
        training = [(decimal(episodes["mean_return"]), ""), (beside, "dim")]
    last = evaluation["last"]
    moment: Line = [] if last is None else [(f", {clock(last['t_s'])}", "dim")]
    return [
        [(f"{'evaluation':{LABEL}}", "dim"), *_score(last, "bold", status), *moment],
        [(f"{'best':{LABEL}}", "dim"), *_score(evaluation["best"], "bold green", status)],
        [(f"{'in training':{LABEL}}", "dim"), *training],
    ]


def _score(score: Mapping[str, Any] | None, style: str, status: Mapping[str, Any]) -> Line:
    """A score, of how many episodes, and the env steps of its policy, which may have played some later; in a
    run that has taken none, as on data alone, these are left out.
    """
    if score is None:
        return [("none yet", "dim")]
    steps = score["env_steps"]
    shown = f"{steps:,}" if steps < 10_000_000 else compact(steps)
    at = f", at {shown} steps" if steps or status["env_steps"] else ""
    episodes = cut_by_time(score) or f"n={score['num_episodes']}"
    return [
        (decimal(score["mean_return"]), style),
        (spread(score), ""),
        (f" {episodes}{at}", "dim"),
    ]


def _counts(status: Mapping[str, Any], width: int) -> list[Panel]:
    """Counts and rates of steps, transitions and updates; beside them the balance, if the width allows."""
    if not status:
        return []
    ratio, lag = status["replay_ratio"], status["policy_lag"]
    beside = [("policy lag", f"{lag.get('recent_p50', lag['p50']):,g}, at most {lag['max']:,g}")]
    if ratio["measured"] is not None:
        beside.insert(0, ("replay ratio", f"{decimal(ratio['measured'])} of {ratio['target']:g}"))
    if status.get("state") != ENDED and (used := efficiency(status.get("efficiency"))):
        beside.append(("learners use", used))
    names = {
        "env_steps": "env steps",
        "trained_transitions": "trained on",
        "critic_updates": "critic updates",
    }
    if len(status["learners"]) > 1:
        names["actor_updates"] = "actor updates"
    lines = []
    for name, title in names.items():
        per_s = "" if status.get("state") == ENDED else f"{rate(status[f'{name}_per_s'])} /s"
        count = f"{status[name]:>15,}{per_s:>14}"
        lines.append([(f"{title:{LABEL}}", "dim"), (count, "")])
    if width >= 80:
        for line, (label, value) in zip(lines, beside, strict=False):
            line += [(f"   {label:13}", "dim"), (value, "")]
    return [Panel(3, lines[:2]), Panel(8, lines[2:], joined=True)]


def _losses(status: Mapping[str, Any], width: int) -> list[Line]:
    """The gauges of the last updates, losses first, as many as fit in a line."""
    if not status:
        return []
    hidden = ("replay_ratio", "replay_size", "actor_replay_size", "batch_size")
    shown = {name: value for name, value in status["gauges"].items() if name not in hidden}
    line: Line = []
    room = width
    for name in sorted(shown, key=lambda name: ("loss" not in name, name)):
        pieces = [(f"{plain_name(name)} ", "dim"), (f"{shown[name]:.3g}   ", "")]
        room -= sum(len(piece) for piece, _ in pieces)
        if room < -3:
            break
        line += pieces
    return [line] if line else []


def _processes(scene: Scene, width: int) -> list[Line]:
    """One line for each role and stage; processes that are not running come first."""
    if scene.status.get("state") == ENDED:
        return []
    groups = groups_of(scene.stages, scene.status.get("processes", {}))
    learners = scene.status.get("learners", ())
    groups.sort(key=lambda group: group.stage == RUNNING)
    for role, sums in scene.status.get("others", {}).items():  # processes without rows of their own
        groups.append(RoleStage(role, RUNNING, [role] * sums["count"], [sums]))
    return [
        _figures(group, width, group.role in learners)
        if group.stage == RUNNING and group.figures
        else _wait(group, max(scene.lasted_s.get(name, 0.0) for name in group.names))
        for group in groups
    ]


def _machines(status: Mapping[str, Any]) -> list[Line]:
    """A line for each machine that has joined."""
    if status.get("state") == ENDED:
        return []
    lines: list[Line] = []
    for row in status.get("machines", {}).values():
        samplers = f"{row['samplers']} sampler{'s' * (row['samplers'] != 1)}"
        load = f"{row['busy']:.1f} of {row['cores']} cores busy, {memory(row['memory_bytes'])}"
        steps = f"{rate(row['env_steps_per_s'])} env steps/s"
        lines.append([(f"{row['host'][: LABEL - 1]:{LABEL}}", ""), (f"{samplers}, {steps}, {load}", "")])
    return lines


def _groups(status: Mapping[str, Any]) -> list[Line]:
    """A line for each group; all other figures are those of group 0."""
    return [[(f"{title:{LABEL}}", ""), (line, "")] for title, line in group_lines(status).items()]


def _legend(scene: Scene, width: int) -> list[Line]:
    text = "blocked: its output is not taken yet; starved: its input has not come yet"
    shown = width >= LABEL + len(text) and scene.status.get("state") not in (None, ENDED)
    return [[(" " * LABEL + text, "dim")]] if shown else []


def _wait(group: RoleStage, lasted_s: float) -> Line:
    title: Piece = (f"{group.title:{LABEL}}", "")
    if group.stage == RUNNING:
        return [title, (RUNNING, "")]
    return [title, (plain_name(group.stage), "yellow"), (f"   {lasted_s:.0f} s", "dim")]


def _figures(group: RoleStage, width: int, learns: bool) -> Line:
    title: Piece = (f"{group.title:{LABEL}}", "")
    line = [title]
    for name in ("busy", "blocked", "starved"):
        share = group.mean(name)
        style = "dim" if share < 0.005 else ""
        if learns and name == "starved" and share >= NOTICEABLE:
            style = "yellow"
        line.append((f"{share:>5.0%} {name}", style))
        line.append(("  ", ""))
    if width >= 76:
        line.append((f"{group.sum('cpu_percent'):>5.0f}% cpu  {memory(group.sum('rss_bytes')):>8}", "dim"))
    return line


def _places(scene: Scene) -> list[Panel]:
    """The page and the run folder."""
    ranks = {"page": 9, "run folder": 10}
    return [
        Panel(ranks[title], [[(f"{title:{LABEL}}", "dim"), (scene.facts[title], "")]], title != "page")
        for title in ranks
        if title in scene.facts and scene.status.get("state") != ENDED
    ]
