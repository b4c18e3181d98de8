"""The command line that began a run, as ``--resume RUN`` alone reads it again."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.trust import grant_of
from spreeze_zmq.commands.launch_line import parser
from spreeze_zmq.plan.roles import LEARNERS, OBSERVER, ROLES, roles_of, why_absent
from spreeze_zmq.plan.topology.document import read_source, split_key
from spreeze_zmq.plan.topology.tables import Key
from spreeze_zmq.run.history import read_run


def begun_line(run: Path, argv: Sequence[str]) -> argparse.Namespace:
    """What began a run, and ``argv`` behind it, which takes precedence. What the first says of roles that the
    run lacks is passed over, with a line: an earlier release has taken it, or ``argv`` takes the role away,
    and nobody can take back what is recorded.

    Raises:
        InputError: it is no run's folder, this user did not make it, or another program began the run.
        TopologyError: its topology cannot be read.
    """
    command = _command_of(run)
    line = parser().parse_args([*command, *argv])
    tables = read_source(line.topology or {}, line.set).values
    groups, components = tables.get("groups"), tables.get("components")
    count = groups.get("count") if isinstance(groups, dict) else None
    grouped = isinstance(count, int) and count > 1
    named = [*(components if isinstance(components, dict) else ()), *[OBSERVER] * bool(line.callback)]
    learners = [role for role in LEARNERS if role in read_run(run).plan["components"]]
    absent = ROLES.keys() - set(roles_of(learners, grouped=grouped, named=named))
    passed_over = {word: role for word in command for role in absent if _is_about(word, role)}
    for word, role in passed_over.items():
        why, _ = why_absent(role, grouped=grouped)
        said = word.replace("=", " ", 1)
        say(f"passed over: {said}, of the command that began {run}: {why}", file=sys.stderr)
    return parser().parse_args([*(word for word in command if word not in passed_over), *argv])


def _is_about(word: str, role: str) -> bool:
    """Whether a word of a recorded command leaves a role out, places it or sets an option of it."""
    option, _, text = word.partition("=")
    if option == "--without":
        return text == role
    key = split_key(text.partition("=")[0]) if option == "--set" else ()
    return len(key) > 1 and key[0] in ("placement", "components") and key[1] == role


def set_anew(settings: Sequence[str], run: Path) -> frozenset[Key]:
    """The keys that a line which goes on from a run sets beside those that the line of that run has set."""
    command = read_run(run).plan.get("command")
    before = Counter(
        str(word).removeprefix("--set=") for word in (command if isinstance(command, list) else ())
    )
    return frozenset(split_key(setting.partition("=")[0]) for setting in Counter(settings) - before)


def _command_of(run: Path) -> list[str]:
    """The command line that began a run.

    Raises:
        InputError: it is no run's folder, this user did not make it, or another program began the run.
    """
    command, what_to_do = read_run(run).plan.get("command"), "write its TOPOLOGY or --env ID beside --resume"
    if not command or not isinstance(command, list):
        raise InputError(f"--resume {run}: spreeze-launch did not begin it; {what_to_do}")
    if why_not := grant_of(run).why_not:
        said = " ".join(map(str, command))
        shown = f" (it says {said})" if said.isprintable() else ""
        raise InputError(f"--resume {run}: its command would run code, and {why_not}; {what_to_do}{shown}")
    return list(command)
