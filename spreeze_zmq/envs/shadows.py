"""Finds files of the user's that hide a module of Python or an installed package, as a ``random.py`` does."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

#: Packages that processes of every run import after the environment's module.
NEEDED = ("torch", "numpy", "gymnasium", "mujoco", "zmq", "msgpack", "psutil", "safetensors", "spreeze_zmq")


def hint(folder: str, named: str) -> str:
    """A hint at the modules that were loaded from the user's files in place of others; empty if none was.

    Args:
        folder: the folder in which modules are looked for first.
        named: the module that the user has named, which is meant.
    """
    own = {
        name: str(module.__file__)
        for name, module in list(sys.modules.items())
        if "." not in name and name != named and _is_in(folder, getattr(module, "__file__", None))
    }
    files = [f"{file} hides the module '{name}': rename it" for name, file in own.items() if _elsewhere(name)]
    return f" ({'; '.join(files)})" if files else ""


def hidden(folder: str) -> str:
    """Which of the needed packages a file of the user's hides; empty for none."""
    for name in NEEDED:
        found = PathFinder.find_spec(name)
        if found is not None and _is_in(folder, found.origin) and _elsewhere(name):
            return f"{found.origin} hides the installed package '{name}', which a run needs: rename it"
    return ""


def _is_in(folder: str, file: str | None) -> bool:
    """Whether a file is a module's in one of the user's folders."""
    if not file:
        return False
    path = Path(file)
    return folder in (str(path.parent), str(path.parent.parent)) and not _is_installed(file)


def _is_installed(path: str) -> bool:
    return bool({"site-packages", "dist-packages"} & set(Path(path).parts)) or path.startswith(
        sysconfig.get_path("stdlib")
    )


def _elsewhere(name: str) -> bool:
    """Whether there is another module of this name."""
    if name in sys.stdlib_module_names:
        return True
    installed = [path for path in sys.path if _is_installed(os.path.realpath(path)) or _is_installed(path)]
    return PathFinder.find_spec(name, installed) is not None
