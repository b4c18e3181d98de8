"""component.toml: what a component's folder says of its program before any process starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.errors import TopologyError
from spreeze_zmq.plan.option import TYPES, Option, Unfit, show
from spreeze_zmq.plan.roles import CHANNELS, ROLES
from spreeze_zmq.topology.lines import lines_of
from spreeze_zmq.topology.mistakes import Mistakes, Places, suggestion
from spreeze_zmq.topology.options import component_options
from spreeze_zmq.topology.source import flat_tables, parse_toml, read_text, shipped_folder
from spreeze_zmq.topology.tables import read_table
from spreeze_zmq.topology.values import check

#: The end that talks to each end.
OTHER_END = {"pull": "push", "push": "pull", "pub": "sub", "sub": "pub"}

_FILE = (
    Option("role", "str", required=True, choices=ROLES, help="the job that it does"),
    Option("command", "strs", required=True, minimum=1, help='as in ["python", "{folder}"]'),
    Option("description", "str", "", help="one line of what it does"),
    Option("channels", "table", {}, help="the end of each channel that it uses"),
    Option("options", "table", {}, help="a table for each option of its own"),
)

_OPTION = (
    Option("type", "str", required=True, choices=tuple(TYPES)),
    Option("default", "any", help="without one the option must be given"),
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
        role: the job that it does.
        command: program and arguments, placeholders filled in.
        description: one line of what it does.
        channels: the end of each channel that it uses.
        options: its own options.
    """

    folder: Path
    role: str
    command: tuple[str, ...]
    description: str
    channels: Mapping[str, str]
    options: tuple[Option, ...]


def shipped_components() -> list[str]:
    """The names of the components that come with the package."""
    return sorted(path.parent.name for path in shipped_folder("components").glob("*/component.toml"))


def find_component(use: str, beside: Path) -> Path | None:
    """The folder that ``use`` names: a shipped component, or a path relative to the folder ``beside``."""
    if "/" in use or use.startswith((".", "~")):
        folder = Path(os.path.abspath(beside / os.path.expanduser(use)))
        return folder if (folder / "component.toml").is_file() else None
    return shipped_folder("components") / use if use in shipped_components() else None


def read_component_file(folder: Path, mistakes: Mistakes) -> ComponentFile | None:
    """The component of this folder; ``None`` where it has mistakes, each noted with the file's path."""
    path = folder / "component.toml"
    try:
        text = read_text(path, str(path))
        values = parse_toml(text, str(path))
    except TopologyError as error:
        mistakes.found += error.mistakes
        return None
    own = Mistakes(Places(str(path), lines_of(text)))
    table = read_table(_FILE, values, (), own)
    role = table["role"]
    channels = _read_channels(role, table["channels"], own)
    options = [_read_option(name, declared, own) for name, declared in table["options"].items()]
    command = _read_command(table["command"] or [], folder, own)
    _check_names(options, own)
    mistakes.found += own.found
    if own.found:
        return None
    return ComponentFile(folder, role, command, table["description"], channels, tuple(filter(None, options)))


def _read_command(words: list[str], folder: Path, mistakes: Mistakes) -> tuple[str, ...]:
    """``python`` is the interpreter that runs this; ``{folder}`` the component's own folder."""
    command = [word.replace("{folder}", str(folder)) for word in words]
    for word in [word for word in command[1:] if word.startswith(str(folder))]:
        program = Path(word) / "__main__.py" if word == str(folder) else Path(word)
        if not program.exists():
            mistakes.add(("command",), f"there is no {program}")
    if command and command[0] == "python":
        return (sys.executable, *command[1:])
    if command and shutil.which(command[0]) is None:
        problem = f"{command[0]} is no program that can be started from here"
        mistakes.add(("command",), problem, "build it first, or give its path as {folder}/NAME")
    return tuple(command)


def _read_channels(role: str | None, written: Mapping[str, Any], mistakes: Mistakes) -> dict[str, str]:
    """The ends, each the one that the table of channels gives this role."""
    found = flat_tables(written, CHANNELS)
    ends: dict[str, str] = {}
    for name, (key, end) in found.items():
        if name not in CHANNELS:
            mistakes.add(("channels", *key), "unknown channel", suggestion(name, CHANNELS))
            continue
        expected = end_of(role, name) if role else end
        if expected is None:
            spec = CHANNELS[name]
            users = ", ".join((spec.binds, *spec.connects))
            mistakes.add(
                ("channels", *key), f"the role {role} has no end of this channel", f"those of it: {users}"
            )
        elif end != expected:
            binder = CHANNELS[name].binds
            why = f"{binder} binds it already" if binder != role and end == CHANNELS[name].binder_end else ""
            mistakes.add(
                ("channels", *key), f'expected "{expected}" in the role {role}, got {show(end)}', why
            )
        else:
            ends[name] = expected
    for name, spec in CHANNELS.items():
        if role and name not in found and (spec.binds == role or "*" in spec.connects):
            mistakes.add(("channels", name), f'missing; the role {role} needs it as "{end_of(role, name)}"')
    return ends


def end_of(role: str, channel: str) -> str | None:
    """Which end of a channel a role holds; ``None`` where it has none."""
    spec = CHANNELS[channel]
    if spec.binds == role:
        return spec.binder_end
    return OTHER_END[spec.binder_end] if role in spec.connects or "*" in spec.connects else None


def _read_option(name: str, declared: Any, mistakes: Mistakes) -> Option | None:
    key = ("options", name)
    before = len(mistakes.found)
    values = read_table(_OPTION, declared, key, mistakes)
    if len(mistakes.found) > before:
        return None
    values["choices"], values["words"] = tuple(values["choices"]), tuple(values["words"])
    option = Option(name, required="default" not in declared, **values)
    if not option.required:
        try:
            check(option, option.default)
        except Unfit as unfit:
            mistakes.add((*key, "default"), unfit.problem, unfit.hint)
    return option


def _check_names(options: Iterable[Option | None], mistakes: Mistakes) -> None:
    common = {option.name for option in component_options("")}
    for option in options:
        if option is not None and option.name in common:
            problem = "every component has an option of this name already"
            mistakes.add(("options", option.name), problem, "choose another name")
