"""Compiles the native layers while the package is built, so that a wheel carries them; for setuptools.

One file for each instruction set; the right one is taken where the package runs. Without a compiler the
package is built without them. An editable install compiles for its own machine when it first runs.
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

if "spreeze_zmq" not in sys.modules:  # setuptools loads this file alone: the package lies about it
    sys.path.insert(0, str(Path(__file__).parents[2]))
from spreeze_zmq.native import library

log = logging.getLogger("spreeze")


def build_into(folder: Path, instructions: Iterable[str] = tuple(library.INSTRUCTIONS)) -> list[Path]:
    """Compile the library for several instruction sets, keys of ``INSTRUCTIONS``.

    Returns:
        The files in ``folder``; of those sets that the compiler does not know, none.
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
            log.warning("no native layers for %s: %s", name, library.said_by(error))
            return None
        return path

    with ThreadPoolExecutor() as pool:
        return [path for path in pool.map(build, instructions) if path is not None]


class BuildPy(build_py):
    """Beside the modules, the libraries."""

    def run(self) -> None:
        """Copy, then compile."""
        super().run()
        if not self.editable_mode:
            build_into(Path(self.build_lib, "spreeze_zmq", "native", library.CARRIED.name))


class BdistWheel(bdist_wheel):
    """A wheel for one platform and any Python, where there is a compiler."""

    def finalize_options(self) -> None:
        """Not pure where libraries will be in it."""
        super().finalize_options()
        try:
            library.compiler_found()
        except FileNotFoundError:
            return
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """No library knows of Python."""
        _, _, platform = super().get_tag()
        return "py3", "none", platform
