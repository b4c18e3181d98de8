"""The last lines of a run: its result, and the commands that use it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from spreeze_zmq.charset import settle
from spreeze_zmq.status.drawing import LABEL
from spreeze_zmq.status.view import discard
from spreeze_zmq.status.words import decimal, ended_by, finding_line, findings, mistakes, program

#: Most findings in the last lines; ``spreeze doctor`` prints all.
MOST_FINDINGS = 3
#: Findings of this rank did not keep the run from learning.
NO_HARM = 2


def outcome(summary: Mapping[str, Any], reason: str) -> list[str]:
    """Why the run ended, what kept it from learning, what was refused most often, its best evaluation.

    Args:
        summary: the contents of summary.json; empty if there is none.
        reason: the stop reason; empty if the run failed.
    """
    steps = summary.get("env_steps", 0)
    best = summary.get("best")
    why = ended_by(reason, best and best["mean_return"])
    lines = [f"ended after {summary.get('wall_s', 0):.1f} s and {steps:,} env steps: {why or 'failed'}"]
    harmful = [row for row in findings(summary) if row.get("rank", 0) < NO_HARM]
    lines += [f"finding: {finding_line(row)}" for row in harmful[:MOST_FINDINGS]]
    if rows := mistakes(summary):
        lines.append(f"refused {sum(row['count'] for row in rows):,} in all; {rows[0]['line']}")
    if best is None:
        return [*lines, "nothing evaluated"]
    mean, std = decimal(best["mean_return"]), decimal(best["std_return"])
    at = f"at {best['env_steps']:,} env steps"
    lines.append(f"best return {mean} ± {std} in {best['num_episodes']} episodes, {at}")
    if "interval_low" in best:
        low, high = decimal(best["interval_low"]), decimal(best["interval_high"])
        lines.append(f"its mean lies between {low} and {high} (95 % by Student's t)")
    return lines


def next_commands(run: str, *, policy: str, resume: str, scored: bool = True, prints: str = "") -> list[str]:
    """The commands that use a run, each after its purpose.

    Args:
        run: the run's folder.
        policy: the file of its best policy; empty if none was saved.
        resume: the command that resumes it; empty if there is no checkpoint.
        scored: whether the policy was evaluated, so that it can be played again.
        prints: the log that has what the environment printed; empty where it printed nothing.
    """
    folder, spreeze = shlex.quote(run), program("spreeze")
    lines = {"run folder": run}
    if prints:
        lines["its prints"] = prints
    if policy and scored:
        lines["watch it"] = f"{spreeze} play {folder}"
        lines["evaluate it"] = f"{spreeze} eval {folder}"
    if policy:
        file = json.dumps(policy, ensure_ascii=False)
        lines["in Python"] = f"from spreeze_zmq import Policy; policy = Policy.load({file})"
    if resume:
        lines["train on"] = resume
    lines["its page"] = f"{spreeze} view {folder}"
    lines["curves"] = f"{program('tensorboard')} --logdir {folder}"
    return [f"{what + ':':{LABEL}}{how}" for what, how in lines.items()]


def say_last(lines: Iterable[str]) -> None:
    """Print to standard error; nothing happens if the terminal is gone."""
    settle(sys.stderr)
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)
