"""``[data.NAME]``: transitions that the run does not sample itself, found and read before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from spreeze_zmq import data
from spreeze_zmq.algorithms import Algorithm, ReplayOptions
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.rollout import STEP_FIELDS
from spreeze_zmq.base.schema import show
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.plan.roles import LEARNERS, MEMBER, SAMPLER
from spreeze_zmq.plan.shares import WHOLE, come_to_nothing, shares_of
from spreeze_zmq.plan.topology.components import Declared
from spreeze_zmq.plan.topology.reference import DATA, key_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table

#: The step arrays that a dataset has.
_HAS = {"obs", "action", "reward", "terminated", "truncated"}
_HINT = 'write [data.NAME] and source = "minari:..." below it'


def read_data(table: Any, beside: Path, mistakes: Mistakes) -> dict[str, DataPlan]:
    """``[data]`` as written, each source with its folder; notes those that there are not."""
    if not isinstance(table, Mapping):
        mistakes.add(("data",), f"expected a table, got {show(table)}", _HINT)
        return {}
    found = {}
    for name, written in table.items():
        key, before = ("data", name), len(mistakes.found)
        if not isinstance(written, Mapping):
            hint = f"write [data.NAME] above it, as in [data.demonstrations] and {name} = {show(written)}"
            mistakes.add(key, f"expected a table, got {show(written)}", hint)
            continue
        source = DataPlan(**read_table(DATA, written, key, mistakes, key_hint))
        if len(mistakes.found) > before:
            continue
        try:
            found[name] = replace(source, path=str(data.find(source.source, beside)))
        except InputError as error:
            mistakes.add((*key, "source"), str(error))
    return found


def check_data(
    sources: Mapping[str, DataPlan],
    algorithm: type[Algorithm] | None,
    options: Any,
    declared: Mapping[str, Declared],
    stop: Mapping[str, Any],
    elsewhere: Collection[str],
    mistakes: Mistakes,
) -> None:
    """Note what does not go together, before any source is read.

    Args:
        sources: as read.
        algorithm: of the run; None if there is a mistake in it.
        options: its options, likewise.
        declared: the components by role, but for those with a mistake.
        stop: ``[run.stop]`` as read.
        elsewhere: the roles that run on other machines.
        mistakes: takes the mistakes.
    """
    offline = SAMPLER in declared and declared[SAMPLER].common["count"] == 0
    if offline and not sources and not mistakes.found:
        problem = "without samplers there is nothing to train on"
        mistakes.add(("components", SAMPLER, "count"), problem, _HINT)
    if offline:
        _check_stop(stop, mistakes)
    if algorithm is None or options is None or not (sources or offline):
        return
    if not isinstance(options, ReplayOptions):
        problem = f"{algorithm.__name__} trains on rollouts of its own policy and keeps no replay"
        place = ("data",) if sources else ("components", SAMPLER, "count")
        mistakes.add(place, problem, "take an algorithm with a replay: td3_bc, sac, td3, dqn or discrete_sac")
        return
    _check_shares(sources, options, mistakes, offline=offline)
    placed = [role for role in (*LEARNERS, MEMBER) if role in elsewhere]
    if placed and sources:
        problem = "the data are on the machine where the run is started, and its learners read them there"
        mistakes.add(("placement", placed[0]), problem, "leave it out")


def _check_stop(stop: Mapping[str, Any], mistakes: Mistakes) -> None:
    if stop.get("env_steps") is not None:
        problem = "a run without samplers takes no env step"
        mistakes.add(("run", "stop", "env_steps"), problem, "write trained_transitions or minutes")


def _check_shares(
    sources: Mapping[str, DataPlan], options: ReplayOptions, mistakes: Mistakes, *, offline: bool
) -> None:
    """Note shares of a batch that leave too much or nothing of it to the run's own replay."""
    shares = shares_of(sources)
    if not shares:
        return
    last, total = list(shares)[-1], sum(shares.values())
    fills, place = len(shares) < len(sources), ("data", list(shares)[-1], "share")
    listed = " + ".join(f"{share:g}" for share in shares.values())
    if total > 1.0 + 1e-9:
        mistakes.add(place, f"the shares of a batch are {listed}, more than 1", "lower them")
    elif total > WHOLE and (fills or not offline):
        own = "the samplers" if not offline else "the sources that fill the replay"
        mistakes.add(place, f"nothing of a batch is left for the transitions of {own}", "lower it")
    elif total < WHOLE and offline and not fills:
        problem = f"the shares of a batch are {listed}, and without samplers nothing gives the rest of it"
        mistakes.add(place, problem, f"raise them to 1 together, or leave the share of {last} out")
    elif options.batch_size != "auto":
        for name, problem, hint in come_to_nothing(sources, options.batch_size):
            mistakes.add(("data", name, "share"), problem, hint)
    if options.prioritized:
        problem = "priorities are kept of one replay, and a source with a share has its own"
        hint = "leave share out, so that data fill the run's replay and are drawn by priority"
        mistakes.add(("algorithm", "prioritized"), problem, hint)


def counted(
    sources: Mapping[str, DataPlan],
    env: EnvironmentSpec,
    algorithm: type[Algorithm],
    options: Any,
    fields: Mapping[str, Iterable[str]],
    mistakes: Mistakes,
) -> dict[str, DataPlan]:
    """The sources with the number of their transitions, once every episode has been read; notes those that
    do not fit the environment or the replay.

    Args:
        sources: without a mistake so far.
        env: of the run.
        algorithm: of the run.
        options: the algorithm's.
        fields: the rollout arrays that each learner asks for.
        mistakes: takes the mistakes.
    """
    lacking = sorted({*STEP_FIELDS, "memory"} & {*chain(*fields.values())} - _HAS)
    if not sources:
        return {}
    if lacking:
        what = f"the {lacking[0]} of each step, which datasets do not have"
        hint = "leave memory_size out" if "memory" in lacking else ""
        mistakes.add(("data",), f"the algorithm asks for {what}", hint)
        return {}
    found = {}
    for name, source in sources.items():
        try:
            opened = data.Dataset.open(Path(source.path))
            outside = data.Outside()
            rollouts = data.rollouts_of(opened, env, name, source.episodes, outside=outside)
            lengths = [rollout.num_steps for rollout in rollouts]
            if not sum(lengths):
                raise InputError("it has no transition")
        except InputError as error:
            mistakes.add(("data", name, "source"), str(error))
            continue
        differs = ", and ".join(filter(None, (opened.differs(env), outside.said)))
        num = len(lengths)
        found[name] = replace(source, transitions=sum(lengths), num_episodes=num, differs=differs)
        if (most := source.episodes or 0) > opened.num_episodes:
            mistakes.add(("data", name, "episodes"), f"it has {opened.num_episodes} episodes, not {most}")
    filling = sum(source.transitions for source in found.values() if source.share is None)
    times = algorithm.rows_each(options)
    each = f", {times - 1} more of each with other goals" if times > 1 else ""
    if (filling := times * filling) > options.replay_capacity:
        problem = f"{options.replay_capacity} is less than the {filling:,} transitions that fill it{each}"
        mistakes.add(("algorithm", "replay_capacity"), problem, f"write at least {filling}")
    return found
