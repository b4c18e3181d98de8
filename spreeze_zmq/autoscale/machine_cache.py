"""Measurements of this machine, kept in the user's cache for the next run of the same kind.

One small JSON file for each subject, which is everything that the figures depend on, the machine included. A
file that cannot be read, and a cache that cannot be written, cost one warning: runs do without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from spreeze_zmq.metrics import available_cores, write_json
from spreeze_zmq.user_cache import cache_folder

log = logging.getLogger("spreeze")

FoundT = TypeVar("FoundT")

#: The packages whose speed the figures depend on.
PACKAGES = ("spreeze_zmq", "numpy", "torch", "mujoco", "gymnasium")
#: Where NVIDIA's driver lists its devices.
DRIVER = Path("/proc/driver/nvidia/gpus")


def recall(subject: Mapping[str, Any], read: Callable[[Any], FoundT]) -> FoundT | None:
    """The figures kept for a subject; None where there are none, or none that can be read.

    Args:
        subject: anything that JSON can hold.
        read: converts the JSON value of ``remember``; raises ValueError, KeyError or TypeError where it makes
            no sense.
    """
    path = file_of(subject)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["of"] != json.loads(json.dumps(subject)):  # JSON has no tuples
            raise ValueError("it is about another machine or run")
        return read(values["found"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s is passed over: %s; delete it, or let `spreeze tune` write it again", path, error)
        return None


def remember(subject: Mapping[str, Any], found: Any) -> Path | None:
    """Keep figures; returns their file, or None where it cannot be written."""
    path = file_of(subject)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"of": subject, "found": found})
    except OSError as error:
        log.warning("what was measured is not kept: %s: %s", path, error.strerror)
        return None
    return path


def file_of(subject: Mapping[str, Any]) -> Path:
    """The cache's file for a subject."""
    text = json.dumps(subject, sort_keys=True)
    return cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def machine() -> dict[str, Any]:
    """The properties of this machine that a run's speed depends on."""
    return {"cpu": _cpu_model(), "cores": available_cores(), "gpus": _gpu_models(), "packages": _versions()}


@cache
def _cpu_model() -> str:
    names = _values("model name", Path("/proc/cpuinfo"))
    return names[0] if names else platform.processor() or platform.machine()


@cache
def _gpu_models() -> list[str]:
    files = sorted(DRIVER.glob("*/information"))
    return [name for path in files for name in _values("Model", path)]


def _values(key: str, path: Path) -> list[str]:
    """The values of the lines ``key: value``; none where the file cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(key)]


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "none"
    return versions
