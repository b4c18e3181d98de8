"""Builds components that must be compiled or installed: runs the ``build`` of their component.toml."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from spreeze_zmq.base.errors import InputError, Unguarded
from spreeze_zmq.base.guard import guarded
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.topology.component_file import ComponentFile, read_component_file
from spreeze_zmq.supervisor import why_not_started

#: A build that takes longer is announced.
QUICK_S = 1.0


def build_all(plan: Plan, say: Callable[[str], None]) -> None:
    """Build every component that the launcher will start. Raises InputError."""
    for component in plan.components.values():
        if component.launched:
            build(Path(component.folder), say)


def build(folder: Path, say: Callable[[str], None]) -> ComponentFile:
    """Build the component of a folder if it has a ``build``; returns its component.toml.

    Raises:
        InputError: its component.toml has mistakes, its build cannot be started, or that failed; holds the
            build's last line.
    """
    file = read_component_file(folder)
    if not file.build:
        return file
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(guarded(file.build, **pipes, encoding="utf-8", errors="replace"))
        except Unguarded:
            raise  # no fault of the build
        except OSError as error:
            raise InputError(f"{folder.name}: its build {why_not_started(file.build, error)}") from error
        try:
            output, _ = process.communicate(timeout=QUICK_S)
        except subprocess.TimeoutExpired:
            say(f"building {folder.name}: the first time takes a while")
            output, _ = process.communicate()
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        why = lines[-1] if lines else f"exit code {process.returncode}"
        raise InputError(f"{folder.name}: {why.removeprefix(f'{file.role}: ')}")
    return file
