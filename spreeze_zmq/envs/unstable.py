"""Simulations that MuJoCo found unstable and has reset by itself in the middle of an episode: what it says of
them, which it would only print.
"""

from __future__ import annotations

import logging
import sys

from spreeze_zmq.envs.failures import SparingLog

_LOG = SparingLog(level=logging.WARNING)
#: What MuJoCo has said since the step of one environment began.
UNSTABLE: list[str] = []


def listen() -> None:
    """Hear MuJoCo's warnings in this process if it is loaded, unless an environment hears them itself."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_heard)


def _heard(text: str) -> None:
    _LOG.take(f"MuJoCo: {text}", f"MuJoCo: {text}")
    if "unstable" in text:
        UNSTABLE.append(text)
