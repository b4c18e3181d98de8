"""What the numbers that are made here depend on: this library's code, the packages beside it, the machine."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from spreeze_zmq import __version__
from spreeze_zmq.base.gpus import gpu_models
from spreeze_zmq.base.machine import available_cores, cpu_model, shipped_folder
from spreeze_zmq.base.once import digest

#: This library, as installers name it.
OURS = "spreeze-zmq"
#: The packages whose releases figures and results depend on, beside this library.
PACKAGES = ("numpy", "torch", "mujoco", "gymnasium")
#: How the names of this library's code end.
CODE = (".py", ".toml", ".cpp", ".hpp", ".h")
#: Digits of the digest in a :func:`release`.
DIGITS = 12
#: What a folder of metadata raises that an installer has left behind, empty or torn; which of them depends on
#: the release of Python.
LEFT_BEHIND = (AttributeError, KeyError, OSError, TypeError, ValueError)


def properties() -> dict[str, Any]:
    """The properties of this machine that a run's speed depends on."""
    return {"cpu": cpu_model(), "cores": available_cores(), "gpus": gpu_models(), "packages": versions()}


def versions() -> dict[str, str]:
    """The :func:`release` of this library and the versions of ``PACKAGES``, "none" of one that is missing."""
    return {"spreeze_zmq": release(), **_versions()}


@cache
def release() -> str:
    """The version of this library with a digest of its code, as ``0.1.0+5d2c0e83f1aa``: the same wherever the
    code is, in a wheel as in a checkout, whose version alone stays from commit to commit.
    """
    return f"{__version__}+{digest(*_code())[:DIGITS]}"


@cache
def installed() -> Mapping[str, str]:
    """The version of every installed package, by its normalized name, ``python``'s, and the :func:`release`
    of this library, as they were when it was first asked for: a look at all of them takes a second on a busy
    machine. Of several of a name the first counts, as it does for imports.
    """
    from importlib import metadata  # with email, for machines that join alone

    found = dict[str, str]()
    for each in metadata.distributions():
        with contextlib.suppress(*LEFT_BEHIND):
            name, version = each.metadata["Name"], each.version
            if name and version:
                found.setdefault(normal(name), version)
    return {**found, "python": ".".join(map(str, sys.version_info[:2])), OURS: release()}


def normal(name: str) -> str:
    """The name of a package as all of its spellings have it."""
    return name.lower().replace("_", "-").replace(".", "-")


@cache
def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # with email, which takes as long as zmq

    found = dict.fromkeys(PACKAGES, "none")
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError, *LEFT_BEHIND):
            found[package] = version(package) or "none"
    return found


def _code() -> Iterator[bytes]:
    """The names and contents of the files of this library's package and of its components, in a fixed order.
    A wheel has the components, and the ready topologies, within the package.
    """
    components = shipped_folder("components")
    roles = sorted(path.parent for path in components.glob("*/component.toml"))
    package = Path(__file__).absolute().parents[1]
    for top, left_out in ((package, {"components", "launch"}), *((role, set[str]()) for role in roles)):
        for path in _files(top, left_out):
            with contextlib.suppress(OSError):  # removed meanwhile
                content = path.read_bytes()
                yield from (f"{top.name}/{path.relative_to(top)}".encode(), content)


def _files(top: Path, left_out: set[str]) -> list[Path]:
    """The files of code below a folder, but for some folders in it, sorted."""
    found = []
    for place, folders, names in os.walk(top):
        unread = left_out if place == str(top) else set[str]()
        folders[:] = [name for name in folders if name not in unread and name != "__pycache__"]
        found += [Path(place, name) for name in names if name.endswith(CODE) and not name.startswith(".")]
    return sorted(found)
