"""``load`` turns a topology file and overrides into a plan, or raises one error with all their mistakes."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.errors import InvalidEnvironment, InvalidRandomization, TopologyError
from spreeze_zmq.base.files import file_name
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.base.own_code import code_of
from spreeze_zmq.base.schema import Unfit, check, options_of, show, suggestion
from spreeze_zmq.base.trust import make_importable, module_of, modules_folder
from spreeze_zmq.envs import Look
from spreeze_zmq.envs.probing import WAIT_S
from spreeze_zmq.plan.devices import unused_gpus
from spreeze_zmq.plan.parts import RunPlan, StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import MOST_PROCESSES, SAMPLER
from spreeze_zmq.plan.topology.algorithm import (
    asked_fields,
    check_hindsight,
    check_schedules,
    check_sequences,
    chosen_algorithm,
    find_algorithm,
    learners_of,
    learning_plan,
    read_algorithm,
    rollouts_of_round,
    with_rollouts,
    with_suited,
)
from spreeze_zmq.plan.topology.components import (
    Declared,
    check_measured,
    check_without,
    component_plans,
    left_open,
    left_to_members,
    left_to_node,
    read_components,
    replaced,
    with_few_threads,
)
from spreeze_zmq.plan.topology.data import check_data, counted, read_data
from spreeze_zmq.plan.topology.deadlines import with_time_to_start
from spreeze_zmq.plan.topology.described import check_described, described
from spreeze_zmq.plan.topology.dial import keeps_order, resolve_balance
from spreeze_zmq.plan.topology.document import Source, read_source
from spreeze_zmq.plan.topology.placement import check_fused, cores_of_each, read_groups, read_placement
from spreeze_zmq.plan.topology.reference import BALANCE, RUN, START_TIMEOUT, TABLES, key_hint, table_hint
from spreeze_zmq.plan.topology.resolve import check_count, most_samplers, usual_step_s
from spreeze_zmq.plan.topology.tables import Mistakes, read_table
from spreeze_zmq.plan.topology.wiring import read_channels


def load(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    without: Collection[str] = (),
    cores: int | None = None,
    look: Callable[..., Look] = envs.look,
    beside: str | os.PathLike[str] = "",
) -> Plan:
    """Read, validate and resolve a topology.

    Args:
        source: a file, the name of a shipped topology (``"pendulum"``, ``"launch/pendulum.toml"``), or the
            tables themselves: ``{"run": {"env": "Pendulum-v1"}}``.
        overrides: as in ``"run.seed=2"``; the last one for a key counts; values are TOML or bare words.
        without: roles that the launcher does not start, because they are started by hand.
        cores: the number of cores for "auto" counts and threads; by default this machine's.
        look: ``envs.look``, or a function like it, which makes the environment once.
        beside: the folder that tables are taken to be of.

    Raises:
        TopologyError: with every mistake and its place.
    """
    read = read_source(source, overrides, beside)
    mistakes = read.mistakes
    tables = _tables(read)
    run = read_table(RUN, tables["run"], ("run",), mistakes, key_hint)
    written = read_table(BALANCE, tables["balance"], ("balance",), mistakes, key_hint)
    make_importable(modules_folder(str(read.path)))
    seen, began_s = None, min(time.time(), getattr(look, "began_s", math.inf))
    if run["obs_shape"] is not None:
        environment = described(run, mistakes)
    else:
        seen = _look(run, tables["components"], look, mistakes)
        environment = seen.spec if seen else None
    run["algorithm"] = chosen_algorithm(run["algorithm"], tables["algorithm"], environment, mistakes)
    algorithm = find_algorithm(run["algorithm"], mistakes)
    table = with_suited(algorithm, tables["algorithm"], environment)
    values, options = read_algorithm(algorithm, table, run["algorithm"], mistakes)
    learners = learners_of(algorithm)
    groups = read_groups(tables["groups"], mistakes)
    grouped = groups.count > 1
    placement = read_placement(tables["placement"], learners, mistakes, grouped=grouped)
    cores = cores_of_each(groups, placement, cores or available_cores(), mistakes)
    declared = read_components(
        tables["components"], learners, read.path.parent, mistakes, placement, grouped=grouped
    )
    check_without(without, mistakes)
    if SAMPLER in declared:
        most = most_samplers(declared, groups.count, by_hand=SAMPLER in without)
        check_count(declared[SAMPLER].common["count"], most, mistakes)
    sources = read_data(tables["data"], read.path.parent, mistakes)
    check_data(sources, algorithm, options, declared, run["stop"], placement, mistakes)
    shipped = {role for role, component in declared.items() if component.is_shipped}
    check_described(run, shipped, without, mistakes)
    if environment is not None and algorithm is not None:
        environment = replace(environment, action_mask=algorithm.uses_masks(environment))
    masked = environment is not None and environment.action_mask
    fields = asked_fields(algorithm, options, values.get("frame_stack", 1), masked=masked)
    check_hindsight(options, environment, seen, mistakes)
    channels = read_channels(tables["channels"], learners, fields, mistakes, grouped=grouped, named=declared)
    name = _run_name(run["name"], read)
    if mistakes.found or environment is None or algorithm is None or options is None:
        raise TopologyError(read.shown, mistakes.found)
    try:
        algorithms.check(algorithm, options, environment)
    except InvalidEnvironment as error:
        mistakes.add(("run", "env"), str(error))
        raise TopologyError(read.shown, mistakes.found) from None
    learning = learning_plan(algorithm, options)
    of_use = MOST_PROCESSES
    if learning.on_policy:
        # What a run in a fixed order does never follows from a time.
        step_s = 0.0
        if seen is not None and not keeps_order(written):
            step_s = usual_step_s(environment, seen.timing)
        of_use = rollouts_of_round(algorithm, options, environment, declared[SAMPLER].options, step_s)
    components = component_plans(declared, learners, without, cores, placement, groups.count, of_use)
    if seen is not None:
        components = with_time_to_start(components, tables["components"], seen.timing)
    components = with_rollouts(components, algorithm, options, environment)
    check_measured(learning, placement, mistakes)
    check_sequences(options, components[SAMPLER].options, mistakes)
    balance, components = resolve_balance(written, components, learning, mistakes)
    sources = counted(sources, environment, algorithm, options, fields, mistakes)
    check_fused(groups, without, in_order=balance.in_order, mistakes=mistakes)
    run_plan = _run_plan(run, balance.in_order)
    offline = components[SAMPLER].count.maximum == 0
    check_schedules(values, run_plan.stop, balance.in_order, mistakes, offline=offline)
    if mistakes.found:
        raise TopologyError(read.shown, mistakes.found)
    # The number of threads changes the order of sums, so a run in a fixed order measures none.
    to_measure = () if balance.in_order else left_open(declared, components, learning, placement)
    components = with_few_threads(declared, components, to_measure)
    return Plan(
        name=name,
        topology_file=str(read.path),
        run=run_plan,
        environment=environment,
        tried=dict(seen.facts) if seen else {},
        timing=seen.timing.to_plain() if seen else {},
        own_code={
            "environment": code_of(module_of(run["env"]), run["env_kwargs"], began_s),
            "algorithm": code_of(module_of(run["algorithm"]), before_s=began_s),
        },
        algorithm={"name": run["algorithm"], **values},
        learning=learning,
        balance=balance,
        components=components,
        channels=channels,
        placement=placement,
        data=sources,
        groups=replace(groups, left_open=left_to_members(declared, learning) if grouped else ()),
        left_to_node=left_to_node(declared, placement),
        replaced=(
            *replaced(declared, components, in_order=balance.in_order),
            *_without_gpu(declared, placement),
        ),
        to_measure=to_measure,
    )


def _without_gpu(declared: Mapping[str, Declared], elsewhere: Collection[str]) -> Iterator[str]:
    """Yield a line where devices that are "auto" are the CPU, though this machine has a GPU."""
    keys = [
        f"components.{role}.{option.name}"
        for role, found in declared.items()
        for option in found.file.options
        if option.type == "device" and role not in elsewhere and found.options[option.name] == "auto"
    ]
    if keys and (why := unused_gpus()):
        yield f'{" and ".join(keys)} = "auto": the CPU is taken: {why}'


def _tables(read: Source) -> dict[str, Any]:
    for name in read.values:
        if name not in TABLES:
            hint = table_hint(name) or key_hint(name) or suggestion(name, TABLES)
            read.mistakes.add((name,), "unknown key", hint)
    return {name: read.values.get(name, {}) for name in TABLES}


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
