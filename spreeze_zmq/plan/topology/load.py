"""``load`` turns a topology file and overrides into a plan, or raises one error with all their mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import Algorithm, ReplayOptions, RolloutOptions, TrainingOptions
from spreeze_zmq.base.errors import InputError, InvalidEnvironment, InvalidRandomization, TopologyError
from spreeze_zmq.base.files import file_name
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.base.schema import (
    Unfit,
    check,
    did_you_mean,
    one_of,
    options_of,
    schedules_in,
    show,
    suggestion,
)
from spreeze_zmq.base.trust import make_importable
from spreeze_zmq.envs import EnvironmentSpec, Look
from spreeze_zmq.envs.goals import LACK, goal_places
from spreeze_zmq.envs.probing import WAIT_S
from spreeze_zmq.plan.moves import movable
from spreeze_zmq.plan.parts import LearningPlan, RunPlan, StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, LEARNERS, PART_OF, SAMPLER
from spreeze_zmq.plan.topology.components import (
    check_without,
    component_plans,
    left_open,
    left_to_members,
    left_to_node,
    read_components,
    with_time_to_start,
)
from spreeze_zmq.plan.topology.data import check_data, counted, read_data
from spreeze_zmq.plan.topology.described import check_described, described
from spreeze_zmq.plan.topology.dial import resolve_balance
from spreeze_zmq.plan.topology.document import Source, read_source
from spreeze_zmq.plan.topology.groups import check_fused, cores_of_each, read_groups
from spreeze_zmq.plan.topology.placement import read_placement
from spreeze_zmq.plan.topology.reference import BALANCE, RUN, START_TIMEOUT, TABLES, key_hint, table_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table
from spreeze_zmq.plan.topology.wiring import read_channels


def load(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    without: Collection[str] = (),
    cores: int | None = None,
    look: Callable[..., Look] = envs.look,
) -> Plan:
    """Read, validate and resolve a topology.

    Args:
        source: a file, the name of a shipped topology (``"pendulum"``, ``"launch/pendulum.toml"``), or the
            tables themselves: ``{"run": {"env": "Pendulum-v1"}}``.
        overrides: as in ``"run.seed=2"``; the last one for a key counts; values are TOML or bare words.
        without: roles that the launcher does not start, because they are started by hand.
        cores: the number of cores for "auto" counts and threads; by default this machine's.
        look: ``envs.look``, or a function like it, which makes the environment once.

    Raises:
        TopologyError: with every mistake and its place.
    """
    read = read_source(source, overrides)
    mistakes = read.mistakes
    tables = _tables(read)
    run = read_table(RUN, tables["run"], ("run",), mistakes, key_hint)
    written = read_table(BALANCE, tables["balance"], ("balance",), mistakes, key_hint)
    make_importable(read.path.parent)
    seen = None
    if run["obs_shape"] is not None:
        environment = described(run, mistakes)
    else:
        seen = _look(run, tables["components"], look, mistakes)
        environment = seen.spec if seen else None
    run["algorithm"] = _chosen(run["algorithm"], tables["algorithm"], environment, mistakes)
    algorithm = _find_algorithm(run["algorithm"], mistakes)
    values, options = _read_algorithm(algorithm, tables["algorithm"], run["algorithm"], mistakes)
    learners = _learners(algorithm)
    groups = read_groups(tables["groups"], mistakes)
    grouped = groups.count > 1
    placement = read_placement(tables["placement"], learners, mistakes, grouped=grouped)
    cores = cores_of_each(groups, placement, cores or available_cores(), mistakes)
    declared = read_components(
        tables["components"], learners, read.path.parent, mistakes, placement, grouped=grouped
    )
    check_without(without, mistakes)
    sources = read_data(tables["data"], read.path.parent, mistakes)
    check_data(sources, algorithm, options, declared, run["stop"], placement, mistakes)
    shipped = {role for role, component in declared.items() if component.is_shipped}
    check_described(run, shipped, without, mistakes)
    if environment is not None and algorithm is not None:
        environment = replace(environment, action_mask=algorithm.uses_masks(environment))
    stack, memory = values.get("frame_stack", 1), algorithms.memory_size(algorithm, options)
    masked = environment is not None and environment.action_mask
    fields = _fields(algorithm, options, learners, stack, memory, masked=masked)
    _check_hindsight(options, environment, seen, mistakes)
    channels = read_channels(tables["channels"], learners, fields, mistakes, grouped=grouped, named=declared)
    name = _run_name(run["name"], read)
    if mistakes.found or environment is None or algorithm is None or options is None:
        raise TopologyError(read.shown, mistakes.found)
    try:
        algorithms.check(algorithm, options, environment)
    except InvalidEnvironment as error:
        mistakes.add(("run", "env"), str(error))
        raise TopologyError(read.shown, mistakes.found) from None
    learning = _learning(algorithm, options)
    components = component_plans(declared, learners, without, cores, placement, groups.count)
    if seen is not None:
        components = with_time_to_start(components, tables["components"], seen.timing)
    _check_sequences(options, components[SAMPLER].options, mistakes)
    balance, components = resolve_balance(written, components, learning, mistakes)
    sources = counted(sources, environment, options, fields, mistakes)
    check_fused(groups, without, in_order=balance.in_order, mistakes=mistakes)
    run_plan = _run_plan(run, balance.in_order)
    _check_schedules(values, run_plan.stop, balance.in_order, mistakes)
    if mistakes.found:
        raise TopologyError(read.shown, mistakes.found)
    return Plan(
        name=name,
        topology_file=str(read.path),
        run=run_plan,
        environment=environment,
        tried=dict(seen.facts) if seen else {},
        timing=seen.timing.to_plain() if seen else {},
        algorithm={"name": run["algorithm"], **values},
        learning=learning,
        balance=balance,
        components=components,
        channels=channels,
        placement=placement,
        data=sources,
        groups=replace(groups, left_open=left_to_members(declared, learners) if grouped else ()),
        left_to_node=left_to_node(declared, placement),
        # The number of threads changes the order of sums, so a run in a fixed order measures none.
        to_measure=() if balance.in_order else left_open(declared, components, learning),
    )


def _tables(read: Source) -> dict[str, Any]:
    for name in read.values:
        if name not in TABLES:
            hint = table_hint(name) or key_hint(name) or suggestion(name, TABLES)
            read.mistakes.add((name,), "unknown key", hint)
    return {name: read.values.get(name, {}) for name in TABLES}


def _chosen(name: str, table: Any, environment: EnvironmentSpec | None, mistakes: Mistakes) -> str:
    """The algorithm's name; "auto" becomes the one that suits the environment's spaces, "" if none does.

    If the environment has a mistake, "auto" is an algorithm that has all keys of ``table``, so that the
    mistakes of its values are found too.
    """
    if name != "auto":
        return name
    if environment is None:
        return next((kind for kind in ("sac", *algorithms.names()) if _has_all(kind, table)), "")
    try:
        return algorithms.suited(environment)
    except InvalidEnvironment as error:
        mistakes.add(("run", "env"), str(error))
        return ""


def _has_all(algorithm: str, table: Any) -> bool:
    """Whether an algorithm has every key of an ``[algorithm]`` table."""
    known = {option.name for option in options_of(algorithms.get(algorithm).Options)}
    return isinstance(table, Mapping) and known.issuperset(table)


def _find_algorithm(name: str, mistakes: Mistakes) -> type[Algorithm] | None:
    if not name:
        return None
    known = algorithms.names()
    if name in known or ":" in name:
        try:
            return algorithms.get(name)
        except InputError as error:
            mistakes.add(("run", "algorithm"), str(error))
            return None
    problem = f'expected one of {one_of(known)} or "my_module:MyAlgorithm", got {show(name)}'
    mistakes.add(("run", "algorithm"), problem, did_you_mean(name, known))
    return None


def _learners(algorithm: type[Algorithm] | None) -> tuple[str, ...]:
    """The roles that train; all for an unknown algorithm."""
    if algorithm is None or algorithm.has_policy_loss():
        return LEARNERS
    return (CRITIC_LEARNER,)


def _learning(algorithm: type[Algorithm], options: TrainingOptions) -> LearningPlan:
    """The facts about the algorithm that processes need."""
    batch_size = getattr(options, "batch_size", 0)
    return LearningPlan(
        learners=_learners(algorithm),
        on_policy=algorithm.on_policy(),
        batch_size=batch_size if isinstance(batch_size, int) else 0,
        learning_starts=options.learning_starts if isinstance(options, ReplayOptions) else 1,
        policy_delay=options.policy_delay if isinstance(options, ReplayOptions) else 1,
        epochs=options.epochs if isinstance(options, RolloutOptions) else 0,
        movable=movable(options_of(type(options))),
    )


#: What somebody may call the name of the algorithm in its own table.
_NAMES_OF_ONE = frozenset({"name", "type", "class", "algorithm", "algo"})


def _read_algorithm(
    algorithm: type[Algorithm] | None, table: Any, name: str, mistakes: Mistakes
) -> tuple[dict[str, Any], TrainingOptions | None]:
    """``[algorithm]`` as a table and as the algorithm's options; None if it has mistakes."""
    if algorithm is None:
        return {}, None
    before = len(mistakes.found)
    shipped = name if name in algorithms.names() else ""

    def hint(key: str) -> str:
        return "write algorithm in [run]" if key in _NAMES_OF_ONE else key_hint(key, shipped)

    values = read_table(options_of(algorithm.Options), table, ("algorithm",), mistakes, hint)
    if len(mistakes.found) == before:
        try:
            options = algorithms.options_from(algorithm.Options, values)
        except InputError as error:
            mistakes.add(("algorithm",), str(error))
        else:
            _check_batch(options, mistakes)
            return values, options
    return values, None


def _fields(
    algorithm: type[Algorithm] | None,
    options: Any,
    learners: Iterable[str],
    stack: int,
    memory: int,
    *,
    masked: bool,
) -> dict[str, tuple[str, ...]]:
    """The rollout arrays that each learner asks for; none of an unknown algorithm."""
    if algorithm is None:
        return {}
    about = {"relabels": algorithm.relabels(options), "masked": masked}
    return {role: algorithm.fields_of(PART_OF[role], stack, memory, **about) for role in learners}


def _check_hindsight(
    options: TrainingOptions | None,
    environment: EnvironmentSpec | None,
    seen: Look | None,
    mistakes: Mistakes,
) -> None:
    """Note an environment without goals to relabel, or that does not say what they would have paid."""
    if not isinstance(options, ReplayOptions) or options.hindsight == "off" or environment is None:
        return
    try:
        goal_places(environment.obs_parts)
        problem = str((seen.facts if seen else {}).get(LACK, ""))
    except InvalidEnvironment as error:
        problem = str(error)
    if not problem and environment.obs_dtype == "uint8":
        problem = "goals of uint8 are not relabelled: give them as floats"
    if problem:
        mistakes.add(("algorithm", "hindsight"), problem)


def _check_batch(options: TrainingOptions, mistakes: Mistakes) -> None:
    """Note a batch that no replay of that capacity fills: it would have the same transitions many times."""
    if isinstance(options, ReplayOptions) and isinstance(options.batch_size, int):
        size, capacity = options.batch_size, options.replay_capacity
        if size > capacity:
            hint = "lower it, or raise replay_capacity"
            mistakes.add(("algorithm", "batch_size"), f"{size} exceeds replay_capacity = {capacity}", hint)


def _check_sequences(options: Any, sampler: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Note rollouts of a sampler that are no sequences of an off-policy algorithm with a memory."""
    length, steps = getattr(options, "sequence_length", None), sampler.get("rollout_steps")
    if length is not None and options.memory_size and steps not in (None, length):
        problem = f"{length} is not components.sampler.rollout_steps = {steps}: a sequence is one rollout"
        hint = "write the same number for both"
        mistakes.add(("algorithm", "sequence_length"), problem, hint)


def _check_schedules(values: Mapping[str, Any], stop: StopPlan, in_order: bool, mistakes: Mistakes) -> None:
    """Note a schedule that has no end, or one of minutes in a run whose result must not depend on timing."""
    counts = "env_steps or trained_transitions"
    for name, value in values.items():
        for over in (schedule.get("over", "run") for schedule in schedules_in(value)):
            problem, hint = "", ""
            if over == "run" and not stop.counted(in_order):
                problem, hint = 'goes "over" the run, which has no such limit', f"give run.stop {counts}"
                if in_order and stop.minutes is not None:
                    problem = 'goes "over" the run, and one in a fixed order follows no clock'
                elif not in_order:
                    hint = f"give run.stop {counts.replace(' or ', ', ')} or minutes"
            elif over != "run" and in_order and "minutes" in over:
                problem = 'goes "over" minutes, and a run in a fixed order follows no clock'
                hint = f"let it go over {counts}"
            if problem:
                mistakes.add(("algorithm", name), problem, hint)


def _run_name(name: str | None, read: Source) -> str:
    """The name of the run; notes one that cannot begin the name of its folder."""
    if name is not None and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) is None:
        hint = "use letters, digits, dots, - and _"
        read.mistakes.add(("run", "name"), f"{show(name)} cannot name a folder", hint)
    return name or file_name(read.path.stem)


def _look(
    run: Mapping[str, Any], components: Any, look: Callable[..., Look], mistakes: Mistakes
) -> Look | None:
    """Make the environment once, to find its mistakes before any process starts."""
    if run["env"] is None:
        return None
    try:
        wait_s = _start_timeout_s(components)
        return look(run["env"], run["env_kwargs"], run["randomize"], wait_s=max(WAIT_S, wait_s))
    except InvalidRandomization as error:
        for name, problem, hint in error.mistakes:
            parts = (name,) if name in run["randomize"] else name.split(".")
            mistakes.add(("run", "randomize", *parts), problem, hint)
    except InvalidEnvironment as error:
        mistakes.add(("run", "env"), str(error))
    return None


def _start_timeout_s(components: Any) -> float:
    """The sampler's ``start_timeout_s`` if it is written and right, else 0: its table has not been read."""
    table = components.get(SAMPLER) if isinstance(components, Mapping) else None
    written = table.get(START_TIMEOUT.name) if isinstance(table, Mapping) else None
    try:
        return 0.0 if written is None else float(check(START_TIMEOUT, written))
    except Unfit:
        return 0.0


def _run_plan(run: Mapping[str, Any], in_order: bool) -> RunPlan:
    stop = dict(run["stop"])
    values = {option.name: run[option.name] for option in options_of(RunPlan)}
    values["save_replay"] = in_order if values["save_replay"] == "auto" else values["save_replay"]
    return RunPlan(**{**values, "stop": StopPlan(stop.pop("return", None), **stop)})
