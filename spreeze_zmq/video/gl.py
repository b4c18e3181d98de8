"""OpenGL without a display, for MuJoCo: the way that works on this machine is found by trying."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

from spreeze_zmq.errors import InputError

#: The ways, and the packages of Debian and Ubuntu that bring them.
PACKAGES = {"egl": "libegl1 libgl1-mesa-dri", "osmesa": "libosmesa6"}
#: A context is made in a second; a broken driver may hang.
TIMEOUT_S = 60.0


def choose_gl() -> str:
    """The first way that works; the one that the user has set in ``MUJOCO_GL``, where that is one of them.

    Raises:
        InputError: none works; names the package to install.
    """
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    problems = []
    for name in (asked,) if asked in PACKAGES else tuple(PACKAGES):
        problem = _try(name)
        if not problem:
            return name
        problems.append(f"{name}: {problem}")
    wanted = PACKAGES[asked if asked in PACKAGES else "egl"]
    raise InputError(
        f"MuJoCo cannot draw without a display here ({'; '.join(problems)}); install what is missing: "
        f"apt install {wanted}"
    )


def open_context(width: int, height: int) -> Any:
    """A current context of OpenGL without a display.

    Raises:
        InputError: there is no way to have one.
    """
    context = importlib.import_module(f"mujoco.{choose_gl()}").GLContext(width, height)
    context.make_current()
    return context


def _try(name: str) -> str:
    """Why a context cannot be made in this way; empty where it can. In another process: what fails may crash,
    and leaves its half-loaded libraries behind.
    """
    code = f"from mujoco.{name} import GLContext; context = GLContext(64, 64); context.make_current()"
    environment = {**os.environ, "MUJOCO_GL": name, "PYOPENGL_PLATFORM": name}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"hangs for {TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return ""
    words = [line for line in done.stderr.splitlines() if line[:1].strip() and ": " in line]
    return words[-1][:120] if words else f"ended with code {done.returncode}"
