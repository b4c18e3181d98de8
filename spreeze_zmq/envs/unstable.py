"""MuJoCo in this process: its clock, which is stopped, and what it says, and would only print, of simulations
that it found unstable and has reset by itself in the middle of an episode.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from pathlib import Path

from spreeze_zmq.base.importing import loaded
from spreeze_zmq.envs.failures import SparingLog

_LOG = SparingLog(level=logging.WARNING)
#: What MuJoCo has said since the step of one environment began.
UNSTABLE: list[str] = []


def listen() -> None:
    """Hear MuJoCo's warnings in this process if it is loaded, unless an environment hears them itself."""
    mujoco = loaded("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_heard)


def stop_clock() -> None:
    """Have MuJoCo, if it is loaded, read no clock in each stage of a step: its bindings install one for
    ``MjData.timer``, whose durations stay 0 from now on. One that an environment has set stays.

    It was 4 to 15 % of a step. The bindings cannot take it away: ``set_mjcb_time(None)`` sets it again.
    """
    mujoco = loaded("mujoco")
    if mujoco is None or not mujoco.__file__ or mujoco.get_mjcb_time() is not None:
        return
    with contextlib.suppress(OSError, ValueError):  # a MuJoCo of another making is only slower
        for library in Path(mujoco.__file__).parent.glob("libmujoco.*"):
            ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time").value = None


def _heard(text: str) -> None:
    _LOG.take(f"MuJoCo: {text}", f"MuJoCo: {text}")
    if "unstable" in text:
        UNSTABLE.append(text)
