"""The components of a run: finds their programs, checks their options and resolves every "auto"."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.base.schema import did_you_mean, one_of, show, suggestion
from spreeze_zmq.plan import devices
from spreeze_zmq.plan.parts import LearningPlan
from spreeze_zmq.plan.processes import ComponentPlan, Count
from spreeze_zmq.plan.roles import (
    CRITIC_LEARNER,
    LEARNERS,
    MEMBER,
    MOST_PROCESSES,
    ROLES,
    SAMPLER,
    channels_of,
    ends_of,
    roles_of,
    why_absent,
)
from spreeze_zmq.plan.sizing import BATCH_SIZE, THREADS
from spreeze_zmq.plan.topology import resolve
from spreeze_zmq.plan.topology.component_file import (
    ComponentFile,
    find_component,
    read_component_file,
    shipped_components,
)
from spreeze_zmq.plan.topology.reference import component_options, key_hint
from spreeze_zmq.plan.topology.tables import Key, Mistakes, read_table


@dataclass(frozen=True)
class Declared:
    """One role as the topology and its component.toml declare it, "auto" unresolved.

    Attributes:
        common: the options that every component has.
        options: its own options.
    """

    file: ComponentFile
    common: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def is_shipped(self) -> bool:
        return bool(self.common["use"] == self.file.role)


def read_components(
    table: Any,
    learners: Sequence[str],
    beside: Path,
    mistakes: Mistakes,
    elsewhere: Collection[str] = (),
    *,
    grouped: bool = False,
) -> dict[str, Declared]:
    """The declaration of each role, without those whose program has a mistake.

    Args:
        table: ``[components]`` as written.
        learners: the roles that train.
        beside: the folder that ``use = "./folder"`` is relative to.
        mistakes: takes the mistakes.
        elsewhere: the roles that run on other machines, which have other devices.
        grouped: the run has several groups.
    """
    if not isinstance(table, Mapping):
        mistakes.add(("components",), f"expected a table, got {show(table)}", "write [components.ROLE]")
        return {}
    roles = roles_of(learners, grouped=grouped, named=table)
    for role in table:
        if role in ROLES and role not in roles:
            mistakes.add(("components", role), *why_absent(role, grouped=grouped))
        elif role not in roles:
            mistakes.add(("components", role), "unknown component", _role_hint(role))
    declared = {
        role: _read_component(role, table.get(role, {}), beside, mistakes, here=role not in elsewhere)
        for role in roles
    }
    return {role: found for role, found in declared.items() if found is not None}


def _role_hint(name: str) -> str:
    if name in shipped_components():
        return f'a component takes the place of its role: write use = "{name}" there'
    return suggestion(name, ROLES)


def _read_component(
    role: str, table: Any, beside: Path, mistakes: Mistakes, *, here: bool
) -> Declared | None:
    """One role; its devices are not looked at without the number of the machine's."""
    key = ("components", role)
    common = component_options(role)
    use = table.get("use", role) if isinstance(table, Mapping) else role
    file = _read_program(role, use, beside, key, mistakes) if isinstance(use, str) and use else None
    if file is None:
        known = {option.name for option in common}
        if isinstance(table, Mapping):
            table = {name: value for name, value in table.items() if name in known}
        read_table(common, table, key, mistakes)
        return None
    values = read_table((*common, *file.options), table, key, mistakes, key_hint)
    own = {option.name: values.pop(option.name) for option in file.options}
    if role == MEMBER and values["count"] != "auto":
        mistakes.add((*key, "count"), "the number of members follows from that of groups", "set groups.count")
    if ROLES[role].single and values["count"] not in ("auto", 1, [1, 1]):
        problem = f"expected 1 process of {role}, got {show(values['count'])}"
        mistakes.add((*key, "count"), problem, ROLES[role].single)
    for name in _devices(file) if here else ():
        if not own[name].startswith("cuda"):  # then nobody asks for this machine's GPUs
            continue
        if problem := devices.device_problem(own[name], devices.num_cuda_devices(), devices.torch_has_cuda()):
            mistakes.add((*key, name), problem, 'write "cpu" or "auto"')
    return Declared(file, values, own)


def _devices(file: ComponentFile) -> list[str]:
    """The names of the options that are devices."""
    return [option.name for option in file.options if option.type == "device"]


def _read_program(role: str, use: str, beside: Path, key: Key, mistakes: Mistakes) -> ComponentFile | None:
    folder = find_component(use, beside)
    if folder is None:
        names = shipped_components()
        listed = f"shipped: {', '.join(names)}; or a path such as ./my_folder"
        near = did_you_mean(use, names)
        is_path = "/" in use or use.startswith(".")
        problem = f"no component.toml in {beside / use}" if is_path else f"no component is called {show(use)}"
        mistakes.add((*key, "use"), problem, f"{near} {listed}".strip())
        return None
    try:
        file = read_component_file(folder)
    except TopologyError as error:
        mistakes.found += error.mistakes
        return None
    if file.role != role:
        problem = f"{show(use)} has the role {file.role} and not {role}"
        mistakes.add((*key, "use"), problem, f"use it in [components.{file.role}]")
        return None
    return file


def check_without(without: Collection[str], mistakes: Mistakes) -> None:
    """Note the unknown roles of ``--without``."""
    for role in without:
        if role not in ROLES:
            problem = f"unknown component; expected one of {one_of(ROLES)}"
            mistakes.add_at(f"--without {role}", problem, did_you_mean(role, ROLES))


def component_plans(
    declared: Mapping[str, Declared],
    learner_roles: Sequence[str],
    without: Collection[str],
    cores: int,
    elsewhere: Collection[str] = (),
    num_groups: int = 1,
    of_use: int = MOST_PROCESSES,
) -> dict[str, ComponentPlan]:
    """The components with every "auto" resolved for a group that has ``cores`` cores, where the roles
    elsewhere take none of them, and at most ``of_use`` samplers are of use.
    """
    num_learners = max(1, len(set(learner_roles) - set(elsewhere)))
    channels = channels_of(learner_roles, grouped=num_groups > 1, named=declared)
    most = resolve.most_samplers(declared, num_groups, by_hand=SAMPLER in without)
    counts = {
        role: resolve.resolve_count(role, found.common["count"], cores, num_learners, most, of_use)
        for role, found in declared.items()
    }
    is_auto = any(one.options[name] == "auto" for one in declared.values() for name in _devices(one.file))
    num_devices = devices.num_auto_devices() if is_auto else 0
    plans: dict[str, ComponentPlan] = {}
    for role, found in declared.items():
        common, options = dict(found.common), dict(found.options)
        common["count"] = counts[role]
        for name in _devices(found.file):
            options[name] = devices.resolve_device(role, options[name], num_devices)
        common["threads"] = resolve.resolve_threads(
            role,
            common["threads"],
            cores,
            counts[SAMPLER].initial,
            num_learners,
            options.get("device", "cpu"),
        )
        plans[role] = ComponentPlan(
            folder=str(found.file.folder),
            command=found.file.command,
            launched=role not in without,
            on_demand=found.file.on_demand,
            channels=ends_of(role, channels),
            options=options,
            **common,
        )
    if MEMBER in plans:
        plans[MEMBER] = replace(plans[MEMBER], count=Count(*(num_groups - 1,) * 3))
    return plans


def left_to_members(declared: Mapping[str, Declared], learning: LearningPlan) -> tuple[str, ...]:
    """The keys that are "auto" and that each member decides by its own cores and devices. On-policy the
    number of samplers is the run's, as are the rounds.
    """
    return tuple(
        f"{role}.{name}"
        for role in (SAMPLER, *learning.learners)
        for name in ("count", "threads", *_devices(declared[role].file))
        if {**declared[role].common, **declared[role].options}[name] == "auto"
        and not (learning.on_policy and name == "count")
    )


def left_to_node(declared: Mapping[str, Declared], elsewhere: Collection[str]) -> tuple[str, ...]:
    """The keys of roles elsewhere that are "auto" and depend on the machine: threads and devices."""
    return tuple(
        f"{role}.{name}"
        for role in elsewhere
        for name, value in {**declared[role].common, **declared[role].options}.items()
        if value == "auto" and (name == "threads" or name in _devices(declared[role].file))
    )


def replaced(
    declared: Mapping[str, Declared], components: Mapping[str, ComponentPlan], *, in_order: bool
) -> tuple[str, ...]:
    """A line for each number that is written, and that a run in rounds or in a fixed order replaces."""
    why = "in a fixed order" if in_order else "in rounds, which need a rollout of each sampler"
    lines = []
    for role, found in declared.items():
        plan, written = components[role], {**found.common, **found.options}
        now = {**plan.options, "max_restarts": plan.max_restarts, "count": plan.count.initial}
        stated = {option.name: option.default for option in (*component_options(role), *found.file.options)}
        ranged = isinstance(written["count"], list) and plan.count.minimum == plan.count.maximum
        fixed = ["count"] * (ranged and written["count"] != [now["count"]] * 2)
        for name in (*fixed, *(key for key in ("max_restarts", "slack_updates") if key in written)):
            if written[name] not in (stated[name], now[name]):
                key = f"components.{role}.{name} = {show(written[name])}"
                lines.append(f"{key} has no effect {why}: it is {now[name]}")
    return tuple(lines)


def check_measured(learning: LearningPlan, elsewhere: Collection[str], mistakes: Mistakes) -> None:
    """Note a batch size that would be measured on another machine than it is for."""
    if not learning.batch_size and CRITIC_LEARNER in elsewhere:
        problem = f'"auto" is measured where the run is started, and {CRITIC_LEARNER} runs elsewhere'
        mistakes.add(("algorithm", "batch_size"), problem, "write a number")


def left_open(
    declared: Mapping[str, Declared],
    components: Mapping[str, ComponentPlan],
    learning: LearningPlan,
    elsewhere: Collection[str],
) -> tuple[str, ...]:
    """The keys to measure: an "auto" batch size, and "auto" threads of the learners if the critic-learner
    has several on the CPU here. The actor-learner has a similar network and takes the same number.
    """
    keys = [] if learning.batch_size else [BATCH_SIZE]
    open_roles = [
        role
        for role in LEARNERS
        if role in declared
        and role not in elsewhere
        and declared[role].common["threads"] == "auto"
        and components[role].threads > 1
        and components[role].options.get("device", "cpu") == "cpu"
    ]
    if CRITIC_LEARNER in open_roles:
        keys += [THREADS[role] for role in open_roles]
    return tuple(keys)


def with_few_threads(
    declared: Mapping[str, Declared], components: Mapping[str, ComponentPlan], to_measure: Collection[str]
) -> dict[str, ComponentPlan]:
    """The components, learners whose "auto" threads nobody measures with as many as surely pay."""
    unmeasured = {
        role: min(components[role].threads, resolve.MOST_UNMEASURED_THREADS)
        for role, key in THREADS.items()
        if role in declared and declared[role].common["threads"] == "auto" and key not in to_measure
    }
    return {
        role: replace(component, threads=unmeasured.get(role, component.threads))
        for role, component in components.items()
    }
