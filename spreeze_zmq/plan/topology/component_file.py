"""Reads component.toml: the role, command and options of a component, before any process starts."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.schema import TYPES, Option, Unfit, check, option, options_of
from spreeze_zmq.envs.engines import ENGINES
from spreeze_zmq.plan.processes import ComponentPlan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.plan.topology.document import lines_of, parse_toml, read_text
from spreeze_zmq.plan.topology.tables import Mistakes, Places, read_table

_OPTION = (
    Option("type", "str", required=True, choices=tuple(name for name in TYPES if name != "count")),
    Option("default", "any", help="without a default the option must be given"),
    Option("help", "str", required=True, help="one line for people"),
    Option("minimum", "float"),
    Option("above", "float"),
    Option("maximum", "float"),
    Option("choices", "strs", ()),
    Option("words", "strs", ()),
)


@dataclass(frozen=True)
class ComponentFile:
    """One component.toml.

    Attributes:
        folder: its folder, absolute.
        command: program and arguments, placeholders filled in.
        build: the command that makes the program, likewise; empty if there is nothing to make.
        options: its own options.
    """

    folder: Path
    role: str = option(help="its job in the run", choices=tuple(ROLES))
    command: tuple[str, ...] = option(help='as in ["python", "{folder}"]', minimum=1)
    build: tuple[str, ...] = option((), "run before the first process starts; quick if nothing is to be made")
    description: str = option("", "one line about it")
    on_demand: bool = option(False, "start it with the first connection to its port, options.port")
    options: tuple[Option, ...] = option(dict, "a table for each option of its own", type="table")


_FILE = options_of(ComponentFile)
_COMMON = {common.name for common in options_of(ComponentPlan)}


def shipped_components() -> list[str]:
    return sorted(path.parent.name for path in shipped_folder("components").glob("*/component.toml"))


def find_component(use: str, beside: Path) -> Path | None:
    """The folder of the component ``use``: a shipped one, or a path relative to the folder ``beside``."""
    if "/" in use or use.startswith((".", "~")):
        folder = Path(os.path.abspath(beside / os.path.expanduser(use)))
        return folder if (folder / "component.toml").is_file() else None
    return shipped_folder("components") / use if use in shipped_components() else None


def read_component_file(folder: Path) -> ComponentFile:
    """The component of a folder.

    Raises:
        TopologyError: every mistake of the file, placed by its path.
    """
    path = folder / "component.toml"
    text = read_text(path, str(path))
    values = parse_toml(text, str(path))
    mistakes = Mistakes(Places(str(path), lines_of(text)))
    table = read_table(_FILE, values, (), mistakes, _elsewhere)
    options = [_read_option(name, declared, mistakes) for name, declared in table.pop("options").items()]
    build = _read_command("build", table.pop("build"), folder, mistakes)
    command = _read_command("command", table.pop("command") or [], folder, mistakes, is_built=bool(build))
    if mistakes.found:
        raise TopologyError(str(path), mistakes.found)
    found = tuple(option for option in options if option)
    return ComponentFile(folder, **table, command=command, build=build, options=found)


def _elsewhere(name: str) -> str:
    return "channels follow from the role: leave this table out" if name == "channels" else ""


def _read_command(
    key: str, words: list[str], folder: Path, mistakes: Mistakes, *, is_built: bool = False
) -> tuple[str, ...]:
    """The command with this interpreter for ``python`` and the component's folder for ``{folder}``; files
    in that folder must exist unless the program ``is_built``.
    """
    command = [word.replace("{folder}", str(folder)) for word in words]
    own = [word for word in command if word.startswith(str(folder)) and not is_built]
    for word in [word for word in own if word is not command[0]]:
        is_python = word == str(folder) and command[0] == "python"
        program = Path(word) / "__main__.py" if is_python else Path(word)
        if not program.exists():
            mistakes.add((key,), f"there is no {program}")
    if command and command[0] == "python":
        return (sys.executable, *command[1:])
    if command and shutil.which(command[0]) is None and not (is_built and command[0].startswith(str(folder))):
        problem = f"{command[0]} is no program that can be started from here"
        mistakes.add((key,), problem, "install or build it first, or give its path as {folder}/NAME")
    return tuple(command)


def _read_option(name: str, declared: Any, mistakes: Mistakes) -> Option | None:
    key = ("options", name)
    before = len(mistakes.found)
    values = read_table(_OPTION, declared, key, mistakes)
    if len(mistakes.found) > before:
        return None
    choices = (ENGINES if choice == "{engines}" else [choice] for choice in values["choices"])
    values["choices"], values["words"] = tuple(chain.from_iterable(choices)), tuple(values["words"])
    found = Option(name, required="default" not in declared, **values)
    if not found.required:
        try:
            found = replace(found, default=check(found, found.default))
        except Unfit as unfit:
            mistakes.add((*key, "default"), unfit.problem, unfit.hint)
    if name in _COMMON:
        mistakes.add(key, "every component has an option of this name already", "choose another name")
    return found
