"""The last lines of a run: its result, and the commands that use it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spreeze_zmq.base.charset import say, spell_out
from spreeze_zmq.base.machine import program
from spreeze_zmq.base.trust import with_trust
from spreeze_zmq.screen.terminal.numbers import core_shares, decimal, lasted, spread
from spreeze_zmq.screen.terminal.panels import LABEL
from spreeze_zmq.screen.terminal.view import discard
from spreeze_zmq.screen.terminal.words import (
    NEVER_CAME,
    cut_by_time,
    ended_by,
    episodes_of_a_best,
    finding_line,
    findings,
    group_lines,
    mistakes,
    same_episodes,
)

#: Most findings in the last lines; ``spreeze doctor`` prints all.
MOST_FINDINGS = 3
#: Most causes of dropped transitions there; summary.json has all.
MOST_CAUSES = 3
#: Findings of this rank did not keep the run from learning.
NO_HARM = 2


def outcome(summary: Mapping[str, Any], reason: str) -> list[str]:
    """Why the run ended, what kept it from learning, what was refused most often or lost, where the time of
    cores and GPUs went, its best evaluation.

    Args:
        summary: the contents of summary.json; empty if there is none.
        reason: the stop reason; empty if the run failed.
    """
    count = done(summary)
    best = summary.get("best")
    why = ended_by(reason, best and best["mean_return"])
    lines = [f"ended after {lasted(summary.get('wall_s', 0))} and {count}: {why or 'failed'}"]
    if groups := group_lines(summary):
        lines += ["these and all other figures are those of group 0"]
        lines += [f"{title}: {line}" for title, line in groups.items()]
    harmful = [row for row in findings(summary) if row.get("rank", 0) < NO_HARM]
    lines += [f"finding: {finding_line(row)}" for row in harmful[:MOST_FINDINGS]]
    rows = mistakes(summary)
    if refused := [row for row in rows if row["word"] not in NEVER_CAME]:
        lines.append(f"refused {sum(row['count'] for row in refused):,} in all; {refused[0]['line']}")
    lines += [row["line"] for row in rows if row["word"] in NEVER_CAME][:1]
    lines += [f"dropped {count:,} transitions: {cause}" for cause, count in _lost(summary)]
    if shares := core_shares(summary.get("cores")):
        lines.append(f"cores since the first update: {shares}")
    for name, row in summary.get("devices", {}).items():
        if "busy_in_all" in row:
            lines.append(f"the GPU of {name} since its first update: {row['busy_in_all']:.0%} in updates")
    if best is None:
        return [*lines, "nothing evaluated"]
    at = f", at {best['env_steps']:,} env steps" if summary.get("env_steps") else ""
    episodes = episodes_of_a_best(best["num_episodes"], final=bool(best.get("final")))
    lines.append(f"best return {decimal(best['mean_return'])}{spread(best)} in {episodes}{at}")
    if failed := best.get("num_failed", 0):
        lines.append(
            f"{failed:,} more of its episodes ended with a failure of their environment and do not count"
        )
    if cut := cut_by_time(best):
        lines.append(f"of these episodes, {cut} before their end: it compares with no other score")
    elif best.get("final") and "interval_low" in best:  # others chose the policy
        low, high = decimal(best["interval_low"]), decimal(best["interval_high"])
        lines.append(f"its mean lies between {low} and {high} (95 % by Student's t)")
    return [*lines, *filter(None, [same_episodes(best)])]


def _lost(summary: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The causes for which a learner did not get transitions, and how many, most first. All learners are sent
    the same ones: each cause counts for the learner that lost most by it.
    """
    causes: dict[str, int] = {}
    for lost in summary.get("undelivered", {}).values():
        causes |= {cause: max(count, causes.get(cause, 0)) for cause, count in lost.items()}
    return sorted(causes.items(), key=lambda each: -each[1])[:MOST_CAUSES]


def done(summary: Mapping[str, Any]) -> str:
    """How far a run has come, in words: by its env steps, without samplers by what it has trained on."""
    steps, trained = summary.get("env_steps") or 0, summary.get("trained_transitions") or 0
    return f"{trained:,.0f} trained transitions" if trained and not steps else f"{steps:,} env steps"


def next_commands(
    run: str,
    *,
    policy: bool,
    resume: str,
    scored: bool = True,
    prints: str = "",
    trust: Sequence[str] = (),
    import_from: str = "",
) -> list[str]:
    """The commands that use a run, each after its purpose.

    Args:
        run: the run's folder.
        policy: whether its best policy was saved.
        resume: the command that resumes it; empty if there is no checkpoint.
        scored: whether the policy was evaluated, so that it can be played again.
        prints: the log that has what the environment printed; empty where it printed nothing.
        trust: modules that the commands must be told to trust.
        import_from: the folder in which these modules are looked for; empty for the current directory.
    """
    folder, spreeze, load = shlex.quote(run), program("spreeze"), json.dumps(run, ensure_ascii=False)
    python = "from spreeze_zmq import Policy; "
    if trust:
        load += f", trust={list(trust)}"
    if trust and import_from:
        python = f"import sys; sys.path.append({json.dumps(import_from, ensure_ascii=False)}); {python}"
    lines = {"run folder": run}
    if prints:
        lines["its prints"] = prints
    if policy and scored:
        lines["watch it"] = with_trust(f"{spreeze} play {folder}", trust, import_from)
        lines["evaluate it"] = with_trust(f"{spreeze} eval {folder}", trust, import_from)
    if policy:
        lines["in Python"] = f"{python}policy = Policy.load({load})"
    if resume:
        lines["train on"] = resume
    lines["its page"] = with_trust(f"{spreeze} view {folder}", trust, import_from)
    lines["curves"] = f"{program('tensorboard')} --logdir {shlex.quote(run)}"
    return [f"{what + ':':{LABEL}}{how}" for what, how in lines.items()]


def say_last(lines: Iterable[str]) -> None:
    """Print to standard error; nothing happens if the terminal is gone."""
    spell_out(sys.stderr)
    try:
        say("\n".join(lines), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)
