"""Imports the module that an environment's name begins with."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InvalidEnvironment, in_one_line, let_interrupts_pass, place_of
from spreeze_zmq.base.importing import is_marked
from spreeze_zmq.base.trust import make_importable

#: Where modules are looked for.
_WHERE = "in the current directory, the topology's folder or the installed packages"


def imported(env_id: str, module_name: str) -> Any:
    """The module of an environment's name. Programs and the processes of a run look for it in the current
    directory first, as in a script's; what one there hides is named by who looks at the environment
    (``probed.hidden``). Somebody else's program, whose own imports come later, looks there last.

    Raises:
        InvalidEnvironment: there is none, or importing it failed; says where and why.
    """
    if "/" in module_name or module_name.endswith(".py"):
        plain = os.path.basename(module_name).removesuffix(".py")
        raise InvalidEnvironment(f"{env_id}: a module is named, not its file: write '{plain}:...', {_WHERE}")
    if "" not in sys.path:
        make_importable(Path.cwd(), first=is_marked())
    try:
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
