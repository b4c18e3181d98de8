"""The components of a run: finds their programs, checks their options, resolves every "auto"."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.plan.parts import ComponentPlan, LearningPlan
from spreeze_zmq.plan.roles import (
    ACTOR_LEARNER,
    BROKER,
    CRITIC_LEARNER,
    EVALUATOR,
    LEARNERS,
    ROLES,
    SAMPLER,
    VISUALIZER,
    ends_of,
    roles_of,
)
from spreeze_zmq.schema import Option, did_you_mean, one_of, show, suggestion
from spreeze_zmq.topology import resolve
from spreeze_zmq.topology.component_file import (
    ComponentFile,
    find_component,
    read_component_file,
    shipped_components,
)
from spreeze_zmq.topology.hints import owner
from spreeze_zmq.topology.mistakes import Key, Mistakes
from spreeze_zmq.topology.options import component_options
from spreeze_zmq.topology.tables import read_table

#: Roles of one process, and the reason as messages say it.
SINGLE = {
    BROKER: "one broker keeps the books of a run",
    CRITIC_LEARNER: "one trains the critics; a larger algorithm.batch_size trains on more at once",
    ACTOR_LEARNER: "one trains the policy; a larger algorithm.batch_size trains on more at once",
    EVALUATOR: "one evaluator names the best policy",
    VISUALIZER: "any number of browsers can look at one",
}


@dataclass(frozen=True)
class Declared:
    """One role as declared in the topology and its component.toml, "auto" unresolved."""

    use: str
    file: ComponentFile
    common: Mapping[str, Any]
    options: Mapping[str, Any]


def read_components(
    table: Any, learners: Sequence[str], beside: Path, mistakes: Mistakes
) -> dict[str, Declared]:
    """The declaration of each role; one whose program has a mistake is left out.

    Args:
        table: ``[components]`` as written.
        learners: the roles that train.
        beside: the folder that ``use = "./folder"`` is relative to.
        mistakes: where to note them.
    """
    if not isinstance(table, Mapping):
        mistakes.add(("components",), f"expected a table, got {show(table)}", "write [components.ROLE]")
        return {}
    roles = roles_of(learners)
    for role in table:
        if role in ROLES and role not in roles:
            why = "one learner trains everything and publishes the policy: leave this table out"
            mistakes.add(("components", role), "this algorithm has no process of this role", why)
        elif role not in roles:
            mistakes.add(("components", role), "unknown component", _role_hint(role))
    declared = {role: _read_component(role, table.get(role, {}), beside, mistakes) for role in roles}
    return {role: found for role, found in declared.items() if found is not None}


def _role_hint(name: str) -> str:
    if name in shipped_components():
        return f'a component takes the place of its role: write use = "{name}" there'
    return suggestion(name, ROLES)


def _read_component(role: str, table: Any, beside: Path, mistakes: Mistakes) -> Declared | None:
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
    values = read_table((*common, *file.options), table, key, mistakes, owner)
    own = {option.name: values.pop(option.name) for option in file.options}
    _check_count(role, values["count"], key, mistakes)
    _check_devices(file.options, own, key, mistakes)
    return Declared(use, file, values, own)


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
    file = read_component_file(folder, mistakes)
    if file is not None and file.role != role:
        problem = f"{show(use)} has the role {file.role} and not {role}"
        mistakes.add((*key, "use"), problem, f"use it in [components.{file.role}]")
        return None
    return file


def _check_count(role: str, count: int | list[int] | str, key: Key, mistakes: Mistakes) -> None:
    """Note a count that the role does not allow: some have one process."""
    if role in SINGLE and count not in ("auto", 1, [1, 1]):
        mistakes.add((*key, "count"), f"expected 1 process of {role}, got {show(count)}", SINGLE[role])


def _check_devices(
    options: tuple[Option, ...], values: Mapping[str, Any], key: Key, mistakes: Mistakes
) -> None:
    for option in options:
        if option.type == "device":
            device = values[option.name]
            problem = resolve.device_problem(device, resolve.num_cuda_devices(), resolve.torch_has_cuda())
            if problem:
                mistakes.add((*key, option.name), problem, 'write "cpu" or "auto"')


def check_without(without: Collection[str], mistakes: Mistakes) -> None:
    """Note the unknown roles of ``--without``."""
    for role in without:
        if role not in ROLES:
            problem = f"unknown component; expected one of {one_of(ROLES)}"
            mistakes.add_at(f"--without {role}", problem, did_you_mean(role, ROLES))


def component_plans(
    declared: Mapping[str, Declared], learner_roles: Sequence[str], without: Collection[str], cores: int
) -> dict[str, ComponentPlan]:
    """The components with every "auto" resolved for a machine of ``cores`` cores."""
    learners = len(learner_roles)
    counts = {
        role: resolve.resolve_count(role, found.common["count"], cores, learners)
        for role, found in declared.items()
    }
    plans: dict[str, ComponentPlan] = {}
    for role, found in declared.items():
        common = dict(found.common) | {
            "use": found.use,
            "count": counts[role],
            "threads": resolve.resolve_threads(
                role, found.common["threads"], cores, counts[SAMPLER].initial, learners
            ),
        }
        plans[role] = ComponentPlan(
            folder=str(found.file.folder),
            command=found.file.command,
            launched=role not in without,
            on_demand=found.file.on_demand,
            channels=ends_of(role, learner_roles),
            options=_resolved_options(role, found),
            **common,
        )
    return plans


def left_open(
    declared: Mapping[str, Declared], components: Mapping[str, ComponentPlan], learning: LearningPlan
) -> tuple[str, ...]:
    """The keys to measure: an "auto" batch size, and the learners' "auto" threads where the critic-learner is
    on the CPU with more than one. The actor-learner's network is alike, so it takes the same number.
    """
    keys = [] if learning.batch_size else ["algorithm.batch_size"]
    open_roles = [
        role
        for role in LEARNERS
        if role in declared
        and declared[role].common["threads"] == "auto"
        and components[role].threads > 1
        and components[role].options.get("device", "cpu") == "cpu"
    ]
    if CRITIC_LEARNER in open_roles:
        keys += [f"components.{role}.threads" for role in open_roles]
    return tuple(keys)


def _resolved_options(role: str, found: Declared) -> dict[str, Any]:
    """First values of the component's own options."""
    devices = {option.name for option in found.file.options if option.type == "device"}
    return {
        name: resolve.resolve_device(role, value, resolve.usable_devices()) if name in devices else value
        for name, value in found.options.items()
    }
