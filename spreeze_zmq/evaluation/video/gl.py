"""OpenGL without a display, for MuJoCo: finds a backend that works on this machine by trying."""

from __future__ import annotations

import os
import subprocess
import sys

from spreeze_zmq.base.errors import InputError

#: Backends -> the packages of Debian and Ubuntu that contain them.
PACKAGES = {"egl": "libegl1 libgl1-mesa-dri", "osmesa": "libosmesa6"}
#: Longest time to make a context, which usually takes a second; a broken driver may hang.
TIMEOUT_S = 60.0


def choose_gl() -> str:
    """The backend in ``MUJOCO_GL`` if that is one of ``PACKAGES``, else the first that works.

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


def _try(name: str) -> str:
    """Why a backend cannot make a context; empty if it can. Tried in another process, as a failure may crash
    or leave half-loaded libraries behind.
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
