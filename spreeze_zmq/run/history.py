"""Past and live runs, read from their folders: for ``spreeze runs``, ``compare`` and ``--resume``."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.files import read_whole
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.base.schema import options_of, show
from spreeze_zmq.base.trust import MOST_BYTES
from spreeze_zmq.envs.same import differences, is_same_id
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import CLAIMED, GROUPS, RunFolder
from spreeze_zmq.wire.channels import SocketFolder, is_locked

#: The exit reasons of failed runs, of which a launcher could not mark all; see ``supervisor.GaveUp``, the
#: broker's ``write``, ``SocketWatch`` and ``Ends.on_stuck``.
FAILED = re.compile(
    r"\w+-\d+ (?:is not started again|cannot be started): .*|the launcher was killed|"
    r"somebody removed the run's sockets .*|\w+-\d+: .*; none gets through",
    re.DOTALL,
)
#: The tables of run.json that are read of past runs, and the figures of summary.json.
TABLES = (
    "run",
    "algorithm",
    "balance",
    "components",
    "measured",
    "channels",
    "environment",
    "data",
    "groups",
    "own_code",
)
FIGURES = ("best_return", "wall_s", "env_steps")
#: The last second of the year 9999.
MOST_S = 253_402_300_799.0


@dataclass(frozen=True)
class PastRun:
    """One run's folder.

    Attributes:
        folder: its path.
        plan: the contents of run.json.
        summary: the contents of summary.json; empty before the first.
        state: ``ended`` if a stop condition or the user ended it.
        began_s: when it began, in seconds since 1970.
    """

    folder: Path
    plan: Mapping[str, Any]
    summary: Mapping[str, Any]
    state: Literal["running", "ended", "crashed"]
    began_s: float

    @property
    def exit_reason(self) -> str:
        """Why it ended, in words; empty while it runs or if it was killed."""
        return str(self.summary.get("exit_reason") or "")

    @property
    def env(self) -> str:
        """The id of its environment, with the version also where its topology names none; an earlier release
        did not keep which that was, and such a run stands apart.
        """
        return str(self.plan["environment"].get("id", self.plan["run"].get("env")))


def find_runs(place: Path, but: Collection[Path] = ()) -> list[PastRun]:
    """The runs in a folder by time of start; the folder may be a run itself or hold runs of several seeds.
    The groups of a run are parts of it.

    Args:
        place: the folder.
        but: folders of runs that are left out, and not read.

    Raises:
        InputError: there is no such folder.
    """
    if not place.is_dir():
        raise InputError(f"{place}: no such folder; runs are kept in ./runs unless --run-dir says otherwise")
    patterns = ("run.json", "*/run.json", "*/*/run.json")
    files = {
        place / name for each in patterns for name in glob.iglob(each, root_dir=place, include_hidden=True)
    }
    known = frozenset(but)
    whole = (path for path in files if path.parent not in known and not _is_part(path.parent, files))
    return sorted(filter(None, map(_read, whole)), key=lambda run: (run.began_s, run.folder))


def _is_part(folder: Path, files: Collection[Path]) -> bool:
    """Whether a folder is that of a further group of a run of which ``files`` has the run.json."""
    return folder.parent.name == GROUPS and RunFolder(folder.parent.parent).run_file in files


def read_run(folder: Path) -> PastRun:
    """Read one run's folder.

    Raises:
        InputError: it has no readable run.json.
    """
    run = _read(RunFolder(folder).run_file)
    if run is None:
        raise InputError(f"{folder}: no run's folder: its run.json is missing or cannot be read")
    return run


def check_fit(plan: Plan, run: Path) -> None:
    """Check that a plan can resume from a checkpoint of an earlier run.

    Raises:
        InputError: ``run`` is not a run's folder.
        CheckpointError: its environment, spaces, algorithm or networks differ.
    """
    before, now = read_run(run).plan, json.loads(plan.to_json())
    problems = [
        f"{what} is {show(new)} here and was {show(old)} there"
        for what, old, new in _must_agree(before, now)
        if old != new
    ]
    if problems:
        raise CheckpointError(f"--resume {run} does not fit: {'; '.join(problems)}")


def scaled_as_before(plan: Plan, run: PastRun) -> Plan:
    """A plan that fits an earlier run, with the numbers by which that has scaled bytes: what a space declares
    is no matter of shape, and the weights were trained on these.
    """
    there = run.plan.get("environment", {})
    scales = {"obs_max": there.get("obs_max"), "obs_parts": tuple(there.get("obs_parts") or ())}
    return replace(plan, environment=replace(plan.environment, **scales))


def run_id(folder: Path) -> str:
    """What identifies a run wherever its folder is: a digest of its run.json."""
    return hashlib.sha256(read_whole(RunFolder(folder).run_file, MOST_BYTES)).hexdigest()[:16]


def ancestors_of(run: PastRun) -> tuple[str, ...]:
    """The ids of the runs that a run goes on from, the oldest first."""
    found = run.plan.get("ancestors")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def parent_of(run: PastRun, runs: Collection[PastRun]) -> Path | None:
    """The folder of the run that a run goes on from: where it is now if it is one of ``runs``, else where it
    was when the run began; None for a run that goes on from none.
    """
    given = run.plan["run"].get("resume_from")
    if not given:
        return None
    parent = ancestors_of(run)[-1:]
    now = (other.folder for other in runs if other is not run and (run_id(other.folder),) == parent)
    return next(now, Path(str(given)).parent.parent)


def _must_agree(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, earlier value and present value of everything that must be the same."""
    old_run, new_run = before["run"], now["run"]
    old_env, new_env = before.get("environment", {}), now["environment"]
    envs = old_env.get("id", old_run.get("env")), new_env["id"]
    if is_same_id(*envs):
        envs = envs[:1] * 2
    pairs = [("run.env", *envs), ("run.algorithm", old_run.get("algorithm"), new_run["algorithm"])]
    if envs[0] != envs[1]:
        return pairs
    pairs += [(f"the environment's {name}", *values) for name, *values in differences(old_env, new_env)]
    if old_run.get("algorithm") != new_run["algorithm"]:
        return pairs
    old_options, new_options = before.get("algorithm", {}), now["algorithm"]
    options = {option.name: option for option in options_of(algorithms.get(new_run["algorithm"]).Options)}
    # An option that the earlier release did not have was as its default is.
    old_options = {name: old_options.get(name, option.default) for name, option in options.items()}
    for name, option in options.items():
        means = any(option.has_effect(values) for values in (old_options, new_options))
        # What auto chose may be stated: releases differ in it, and a learner compares the networks.
        is_chosen = "auto" in option.choices and old_options[name] == "auto"
        if option.fixed and means and not is_chosen:
            pairs.append((f"algorithm.{name}", old_options[name], new_options[name]))
    return pairs


def _read(run_file: Path) -> PastRun | None:
    plan = _read_object(run_file)
    if plan is None or not isinstance(plan.get("run"), dict):
        return None
    plan, folder = _plan_of(plan), run_file.parent
    summary = _summary_of(_read_object(RunFolder(folder).summary) or {})
    with contextlib.suppress(OSError):  # deleted meanwhile
        began_s = plan["began_s"] or run_file.stat().st_mtime
        return PastRun(folder, plan, summary, _state(plan, summary, run_file), began_s)
    return None


def _plan_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a run.json holds, with tables and texts wherever these are read: it may be anybody's."""
    plan = {**found, **{name: _table(found.get(name)) for name in TABLES}}
    plan["name"], plan["socket_dir"] = str(found.get("name")), str(found.get("socket_dir") or "")
    began_s = found.get("began_s")
    plan["began_s"] = began_s if isinstance(began_s, int | float) and 0 < began_s < MOST_S else 0.0
    plan["run"] |= {name: str(plan["run"].get(name)) for name in ("env", "algorithm")}
    plan["run"]["stop"] = _table(plan["run"].get("stop"))
    plan["components"] = {
        role: {**_table(about), "options": _table(_table(about).get("options"))}
        for role, about in plan["components"].items()
    }
    return plan


def _summary_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary.json holds, without figures that are no numbers."""
    kept = {name: found.get(name) for name in FIGURES}
    numbers = {
        name: value if isinstance(value, int | float) and abs(value) <= LARGEST else None
        for name, value in kept.items()
    }
    return {**found, **numbers}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _state(
    plan: Mapping[str, Any], summary: Mapping[str, Any], run_file: Path
) -> Literal["running", "ended", "crashed"]:
    """A live run's launcher has claimed the folder of its sockets, and a path beside run.json, which is seen
    from other machines and containers, too.
    """
    claim = run_file.with_name(f"{CLAIMED}.lock")
    if SocketFolder.is_held(Path(plan["socket_dir"] or "/nowhere")) or is_locked(claim):
        return "running"
    reason = str(summary.get("exit_reason") or "")
    return "crashed" if summary.get("failed") is True or is_failure(reason) else "ended"


def is_failure(reason: str) -> bool:
    """Whether a run that ended for this reason has failed; with none it was killed."""
    return not reason or FAILED.fullmatch(reason) is not None


def _read_object(path: Path) -> dict[str, Any] | None:
    """The object in a file; None where there is none, or what is there is no file of ours."""
    try:
        content = json.loads(read_whole(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
