"""The modules that a user names: a run's processes find them, and none of them begins another run."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError, is_installed

#: Runs a module of this package as a program: no file of the current folder is taken for one of a library.
PROGRAM = (sys.executable, "-P", "-m")
#: Set in a program that imports them, and therefore in the processes that it starts.
VARIABLE = "SPREEZE_IMPORTS"


class _Thread(threading.local):
    """What the present thread does."""

    imports = False


_thread = _Thread()


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Mark this process, a program of the package, and those that it starts meanwhile."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Mark the present thread alone, of somebody else's program, whose other threads may begin runs."""
    before, _thread.imports = _thread.imports, True
    try:
        yield
    finally:
        _thread.imports = before


def is_marked() -> bool:
    """Whether this thread, this process or one that it comes from is marked."""
    return _thread.imports or VARIABLE in os.environ


def check_interpreter() -> None:
    """Raise InputError where ``sys.executable`` is no interpreter but a frozen program, which would begin
    once more in place of each process, and so on without end.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        raise InputError(
            f"other processes are started by sys.executable, which is {sys.executable!r} in this program, "
            "and no interpreter: let a frozen or embedding program start a python that calls this in a script"
        )


def hides_yours(module: str) -> str:
    """What to add to an error about a module that lacks what a user names; empty where it is the user's."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    return f"; {module} is one of Python's own, which hides a file of that name: give yours another one"


def import_folder(package: str, search: Sequence[str]) -> str:
    """The folder that a package or module is imported from; empty if it is in none of those searched."""
    return _folder(PathFinder.find_spec(package, search))


def loaded(module: str) -> Any:
    """A module that something in this process has imported, whole: one that another thread is still importing
    is waited for, as components in one process do at once. None where there is none.
    """
    if sys.modules.get(module) is None:
        return None
    with contextlib.suppress(Exception):  # it could not be imported: who wanted it says so
        return importlib.import_module(module)
    return None


def folder_now(package: str, search: Sequence[str]) -> str:
    """The folder that a package is imported from now, or has been. The current folder comes first in programs
    of this package; in a script it has its place among those searched, or comes last (``envs.named``). Empty
    where it is found in none, or no package is named.
    """
    if package in sys.modules:
        return _folder(getattr(sys.modules[package], "__spec__", None))
    return import_folder(package, searched_now(search))


def searched_now(search: Sequence[str]) -> list[str]:
    """The folders in which an environment's module is looked for, in their order."""
    here = os.getcwd()
    if is_marked():
        return [here, *search]
    return [*search] if {"", here}.intersection(search) else [*search, here]


def _folder(spec: ModuleSpec | None) -> str:
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
    return str(Path(places[0]).absolute().parent) if places else ""


def hand_down(modules: Iterable[str], beside: Path) -> None:
    """Let the processes that this one starts import modules from where it does itself.

    Args:
        modules: of the user's own.
        beside: the folder of the topology, where processes look anyway, behind all others.
    """
    found = (import_folder(module.partition(".")[0], sys.path) for module in modules)
    behind = os.path.realpath(beside)
    theirs = [each for each in found if each and not is_installed(each) and os.path.realpath(each) != behind]
    given = os.environ.get("PYTHONPATH")
    if theirs:
        both = [*(given.split(os.pathsep) if given else ()), *theirs]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(both))
