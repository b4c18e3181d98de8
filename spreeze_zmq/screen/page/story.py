"""The entries that a browser gets of a run: the plan, the journal so far, then the broker's feed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.files import plain
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.base.schema import in_words
from spreeze_zmq.plan.moves import offered
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.journal_lines import JournalLines

#: Largest number of points of a curve; a longer run is thinned evenly in time.
MAX_POINTS = 1200
#: Largest number of entries of each other topic; more are thinned likewise.
MAX_ENTRIES = 1000
#: Topics of the journal that the page shows, besides ``status``.
TOPICS = (
    *("hello", "exited", "failure", "refused", "evaluation", "workers", "scale", "set"),
    *("finding", "request", "end"),
)
#: All topics that it shows.
SHOWN = ("status", *TOPICS)
#: What the page shows of run.json.
SHOWN_TABLES = ("run", "run_dir", "learning", "components", "channels")

Entry = dict[str, Any]


def run_entry(plan: Plan, *, live: bool, state: str = "running") -> Entry:
    """The facts of a run that do not change while it runs: ``SHOWN_TABLES`` as run.json has them, and the
    settings that may move as the topology states them.

    Args:
        plan: of the run.
        live: whether what it says from now on follows.
        state: its own now, as :class:`~spreeze_zmq.run.history.PastRun` has it.
    """
    tables = json.loads(plan.to_json())
    about = {name: tables[name] for name in SHOWN_TABLES}
    name = Path(plan.run_dir).name or plan.name
    return {
        "topic": "run",
        "t_s": 0.0,
        "about": {
            **about,
            "live": live,
            "state": state,
            "name": name,
            "limits": limits(plan),
            "moves": plain(_moves(plan)) if live else {},
        },
    }


def _moves(plan: Plan) -> dict[str, dict[str, Any]]:
    """What a page may ask for: it passes on no number beyond ``LARGEST``. A table is ``stated`` in words."""
    moves = {}
    for name, about in offered(plan).items():
        stated = in_words(about["stated"]) if isinstance(about["stated"], Mapping) else about["stated"]
        moves[name] = {"minimum": -LARGEST, "maximum": LARGEST, **about, "stated": stated}
    return moves


def limits(plan: Plan) -> dict[str, dict[str, Any]]:
    """Rate -> the machine's limits for it, as ``[batch size, limit]``, and their source, as far as the plan
    holds any. The batch size may move.
    """
    curve = plan.measured.get("batch_size", {}).get("curve", ())
    if not curve:
        return {}
    source = f"the critics' updates alone, {plan.measured.get('source', 'measured')}"
    return {"trained_transitions_per_s": {"curve": [list(pair) for pair in curve], "source": source}}


def entry_of(topic: str, t_s: float, about: Mapping[str, Any]) -> Entry:
    """One entry as a browser gets it; a status brings its point of the curves with it."""
    curves = {"point": point(about)} if topic == "status" else {}
    return {"topic": topic, "t_s": t_s, "about": dict(about), **curves}


def point(status: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a status that are drawn as curves over time."""
    lag = status["policy_lag"]
    return {
        "t_s": status["t_s"],
        "env_steps": status["env_steps"],
        "trained_transitions": status["trained_transitions"],
        "training_return": status["episodes"]["mean_return"],
        "training_return_std": status["episodes"].get("std_return"),
        "replay_ratio": status["replay_ratio"]["measured"],
        "replay_ratio_target": status["replay_ratio"].get("target"),
        "lag_p50": lag.get("recent_p50", lag["p50"]),  # runs of earlier releases have those of all so far
        "lag_p99": lag.get("recent_p99", lag["p99"]),
        "env_steps_per_s": status["env_steps_per_s"],
        "trained_transitions_per_s": status["trained_transitions_per_s"],
        "gauges": dict(status.get("gauges", {})),
        "counts": {role: row["count"] for role, row in status["workers"].items()},
    }


def journal(folder: RunFolder) -> list[Entry]:
    """The journal of a run, thinned to what a page can draw, oldest first."""
    with JournalLines(folder.metrics, SHOWN) as lines:
        entries = [
            {"topic": fields.pop("kind"), "t_s": fields.pop("t_s"), "about": fields}
            for topic in TOPICS
            for fields in lines.read(topic, MAX_ENTRIES)
        ]
        entries += _points(lines.read("status", MAX_POINTS))
    return sorted(entries, key=lambda entry: float(entry["t_s"]))


def _points(statuses: Iterable[dict[str, Any]]) -> Iterator[Entry]:
    """Points of the curves, and the last status with all its fields; those that are none are passed over."""
    last = None
    for status in statuses:
        with contextlib.suppress(AttributeError, LookupError, TypeError):
            drawn, last = point(status), status
            yield {"topic": "point", "t_s": status["t_s"], "about": drawn}
    if last is not None:
        last.pop("kind")
        yield entry_of("status", last["t_s"], last)
