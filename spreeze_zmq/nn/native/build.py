"""Compiles the native code when setuptools builds the package, so that a wheel contains it.

There is one file for each instruction set, of which a machine loads the best that it can run. Without a
compiler the package contains none. An editable install compiles at its first run.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

if "spreeze_zmq" not in sys.modules:  # setuptools loads this file alone, without the package around it
    sys.path.insert(0, str(Path(__file__).parents[3]))
from spreeze_zmq.nn.native import library

log = logging.getLogger("spreeze")


def build_into(folder: Path, instructions: Iterable[str] = tuple(library.INSTRUCTIONS)) -> list[Path]:
    """Compile the library for several instruction sets, keys of ``INSTRUCTIONS``.

    Returns:
        The files in ``folder``, without those for instruction sets that the compiler does not know.
    """
    try:
        compiler = library.compiler_found()
    except FileNotFoundError as error:
        log.warning("the package will hold no native layers: %s", error)
        return []
    folder.mkdir(parents=True, exist_ok=True)

    def build(name: str) -> Path | None:
        flags = library.flags_for(name)
        path = folder / library.name_of(flags)
        try:
            library.compile_to(path, compiler, flags)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("no native layers for %s: %s", name, library.problem_of(error))
            return None
        return path

    with ThreadPoolExecutor() as pool:
        return [path for path in pool.map(build, instructions) if path is not None]


class BuildPy(build_py):
    """Adds the compiled libraries to the modules."""

    def run(self) -> None:
        """Copy the modules, then compile."""
        super().run()
        if not self.editable_mode:
            carried = library.CARRIED.relative_to(Path(__file__).parents[3])
            build_into(Path(self.build_lib, carried))


class BdistWheel(bdist_wheel):
    """Makes a wheel for one platform and any Python 3, or without a compiler for any platform."""

    def finalize_options(self) -> None:
        """Mark the wheel as platform-specific if libraries can be compiled."""
        super().finalize_options()
        try:
            library.compiler_found()
        except FileNotFoundError:
            return
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """The libraries do not depend on the version of Python."""
        _, _, platform = super().get_tag()
        return "py3", "none", platform
