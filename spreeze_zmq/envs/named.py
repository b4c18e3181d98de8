"""Imports the module of an environment's name: the user's own, and never a neighbour of it for a library."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from typing import Any

from spreeze_zmq.base.errors import (
    InvalidEnvironment,
    in_one_line,
    is_installed,
    let_interrupts_pass,
    place_of,
)

#: Where modules are looked for.
_WHERE = "in the current directory, the topology's folder or the installed packages"


def imported(env_id: str, module_name: str) -> Any:
    """The module of an environment's name. The package that it names is taken from the current directory
    first; all else that is imported, from there only where neither Python nor an installed package has it.

    Raises:
        InvalidEnvironment: there is none, or importing it failed; says where and why.
    """
    if "/" in module_name or module_name.endswith(".py"):
        plain = os.path.basename(module_name).removesuffix(".py")
        raise InvalidEnvironment(f"{env_id}: a module is named, not its file: write '{plain}:...', {_WHERE}")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        behind = 1 + max((place for place, path in enumerate(sys.path) if is_installed(path)), default=-1)
        sys.path.insert(behind, here)
    try:
        _take(module_name.partition(".")[0], here)
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise InvalidEnvironment(f"{env_id}: there is no module '{error.name}' {_WHERE}") from error
        raise InvalidEnvironment(
            f"{env_id}: module '{module_name}' needs '{error.name}', which is not installed"
            f" [{place_of(error)}]"
        ) from error
    except BaseException as error:
        let_interrupts_pass(error)
        said = (
            f"{type(error).__name__}: {error.msg}" if isinstance(error, SyntaxError) else in_one_line(error)
        )
        problem = f"importing module '{module_name}' failed: {said} [{place_of(error)}]"
        raise InvalidEnvironment(f"{env_id}: {problem}") from error


def passed_over(module_name: str) -> str:
    """What is said of a file of the user's that has the name of a module which was imported instead of it, as
    of one of Python's; empty for none.
    """
    package = module_name.partition(".")[0]
    taken = getattr(sys.modules.get(package), "__file__", None)
    own = [path for path in sys.path if not is_installed(path)]
    other = _file(PathFinder.find_spec(package, [os.getcwd(), *own]))
    if not other or (taken and os.path.realpath(taken) == os.path.realpath(other)):
        return ""
    return f"; it is {taken or 'part of Python'}, for which {other} is passed over: give that another name"


def _take(package: str, here: str) -> None:
    """Import a package from the current directory, though it is installed as well; none of Python's own."""
    if package in sys.modules or package in sys.stdlib_module_names:
        return
    spec, first = PathFinder.find_spec(package, [here]), PathFinder.find_spec(package, sys.path)
    if spec is None or not _file(spec) or _file(spec) == _file(first):
        return
    assert spec.loader is not None
    sys.modules[package] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[package])
    except BaseException:
        del sys.modules[package]
        raise


def _file(spec: ModuleSpec | None) -> str:
    """The file that a module is read from; empty for a folder without ``__init__.py``, and for none."""
    return (spec.origin or "") if spec is not None and spec.has_location else ""
