"""Imports the modules of an environment before its workers are forked, where these can do without threads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

from gymnasium.envs.registration import load_env_creator

from spreeze_zmq.base.files import memory_file
from spreeze_zmq.envs.parallel.pool import STOPS
from spreeze_zmq.envs.processes import descendants, end
from spreeze_zmq.envs.settings import theirs
from spreeze_zmq.envs.source import find


def read_and_preload() -> dict[str, Any]:
    """The settings from standard input, of any length; the modules of their ``env_id`` are then imported, so
    that the workers share their memory.

    A fork has none of the threads that a module such as JAX starts, and whatever lock they held stays held.
    Where an import has started any, this program begins again without them and the programs that it has
    started, and each worker imports for itself.
    """
    settings: dict[str, Any] = json.load(sys.stdin)
    if settings.pop("preload", True):
        before = _num_threads()
        preload(settings["env_id"])
        if _num_threads() > before:
            end(descendants(os.getpid()))
            with open(memory_file("settings"), "w+") as again:
                json.dump({**settings, "preload": False}, again)
                again.seek(0)
                os.dup2(again.fileno(), sys.stdin.fileno())
                signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until there is a handler again
                os.execv(sys.executable, sys.orig_argv)
    return settings


@theirs()
def preload(env_id: str) -> None:
    """Import the environment's modules."""
    with contextlib.suppress(Exception):  # workers report it
        source = find(env_id)
        source.native({})
        entry = source.registered.entry_point if source.registered is not None else None
        if isinstance(entry, str):
            load_env_creator(entry)


def _num_threads() -> int:
    """Of this process, those of native libraries too."""
    return len(os.listdir("/proc/self/task"))
