"""Whether the replay of a checkpoint fits a run that goes on from it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.own_code import changed_files
from spreeze_zmq.base.schema import options_of, show
from spreeze_zmq.base.trust import TIME_LIMIT
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.checkpoint import SavedCheckpoint, read_manifest
from spreeze_zmq.run.history import PastRun, read_run

#: What a source of data is that fills a replay, among those of one run.
DATA_FACTS = ("source", "episodes", "share", "transitions")
#: Options by which the rows of a replay were made, beside those that never change in a run that goes on.
OF_ROWS = ("gamma", "n_step", "burn_in")


def check_replay(plan: Plan, run: Path, checkpoint: SavedCheckpoint) -> None:
    """Check that the replay which comes back from a run's checkpoint, if one does, was filled as this plan
    fills it.

    Raises:
        CheckpointError: names an option, or a source of data, that the run had otherwise, or had not.
    """
    if not (plan.run.save_replay and checkpoint.has_replay):
        return
    for name, old, new in _other_options(plan, checkpoint):
        raise CheckpointError(
            f"--resume {run}: algorithm.{name} is {show(new)}, and the replay that comes back from the "
            f"checkpoint was filled with {show(old)}: leave it so, or add --set run.save_replay=false, and a "
            "new one is filled"
        )
    held = [*_filled_with(checkpoint)]  # whatever each was called
    for name, source in plan.data.items():
        facts = [getattr(source, key) for key in DATA_FACTS]
        if source.share is None and facts not in held:
            is_other = any(each[:-1] == facts[:-1] for each in held)
            how = "when it had another number of transitions" if is_other else "without it"
            raise CheckpointError(
                f"--resume {run}: data.{name} is to fill the replay before training, and the one that comes "
                f"back from the checkpoint was filled {how}: write data.{name}.share, or "
                "run.save_replay = false to fill a new one"
            )


def filled_elsewhere(plan: Plan, run: PastRun) -> str:
    """How the environment that fills the replay of a run which goes on differs from the one that filled it in
    the run before, in words; empty where it does not. Spaces are the same, and how long an episode may last
    changes no transition.
    """
    before, now = run.plan, json.loads(plan.to_json())
    there, here = ({**each["environment"].get("kwargs", {}), TIME_LIMIT: None} for each in (before, now))
    if there != here:
        return "run.env_kwargs are others"
    if (before["run"].get("randomize") or {}) != now["run"]["randomize"]:
        return "run.randomize is another"
    code, code_here = (each.get("own_code", {}).get("environment", {}) for each in (before, now))
    files = ", ".join(changed_files(code, code_here))
    return f"{files} changed since" if files else ""


def _other_options(plan: Plan, checkpoint: SavedCheckpoint) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the value and the value here of each option by which the rows of a checkpoint's replay
    would not be those of this run.
    """
    options = {option.name: option for option in options_of(algorithms.get(plan.run.algorithm).Options)}
    with contextlib.suppress(InputError):  # its run.json may be gone
        kept = read_run(checkpoint.path.parent.parent).plan["algorithm"]
        before = {name: kept.get(name, option.default) for name, option in options.items()}
        for name in filter(options.__contains__, OF_ROWS):
            if options[name].has_effect(plan.algorithm) and before[name] != plan.algorithm[name]:
                yield name, before[name], plan.algorithm[name]
        if plan.algorithm.get("prioritized") and not before["prioritized"]:  # none has a priority
            yield "prioritized", before["prioritized"], True


def _filled_with(checkpoint: SavedCheckpoint) -> Iterator[list[Any]]:
    """The ``DATA_FACTS`` of each source that filled the replay of a checkpoint: of the run that wrote it, and
    of those before from which that replay came.
    """
    seen, given = set(), str(checkpoint.path)
    with contextlib.suppress(CheckpointError, InputError):  # the runs before may be gone
        while given not in seen and read_manifest(Path(given)).has_replay:
            seen.add(given)
            plan = read_run(Path(given).parent.parent).plan
            sources = (source for source in plan["data"].values() if isinstance(source, dict))
            yield from ([there.get(key) for key in DATA_FACTS] for there in sources)
            given = str(plan["run"].get("resume_from")) if plan["run"].get("save_replay") else given
