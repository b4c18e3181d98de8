"""The user's own files that a node needs: those of the topology's folder and of the modules that it names."""

from __future__ import annotations

import io
import os
import site
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.trust import place_of
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.plan.plan import Plan

#: Largest bundle in bytes, before it is compressed.
MOST_BYTES = 50_000_000
#: Folders that hold no source.
PASSED_OVER = ("__pycache__", "runs", "node_modules")


def bundle(plan: Plan, search: list[str]) -> bytes:
    """A zip archive of the user's own files; empty where all that the run imports is installed.

    Args:
        plan: of the run.
        search: folders in which its modules are found, as ``sys.path``.

    Raises:
        InputError: the files are more than a bundle takes.
    """
    folders = list(dict.fromkeys(_folders(plan, search)))
    if not folders:
        return b""
    archive, total = io.BytesIO(), 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for folder in folders:
            for path in _files(folder):
                name = path.relative_to(folder).as_posix()
                if name in packed.namelist():
                    continue
                total += path.stat().st_size
                if total > MOST_BYTES:
                    raise InputError(
                        f"--listen sends {folder} to other machines, since the run imports from it, and it "
                        f"has more than {MOST_BYTES // 10**6} MB: move the topology and the modules that it "
                        "names to a folder of their own, or install the modules on every machine"
                    )
                packed.write(path, name)
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Write a bundle's files below a new folder."""
    folder.mkdir(mode=0o700)
    if archive:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(folder)


def _folders(plan: Plan, search: list[str]) -> Iterator[Path]:
    """The folder of the topology, and those of the modules that it names, unless they are installed."""
    topology = Path(plan.topology_file).parent
    modules = own_modules(plan)
    uses_files = modules or any("/" in component.use for component in plan.components.values())
    if uses_files and topology != shipped_folder("launch"):
        yield topology
    for module in modules:
        found = place_of(module.partition(".")[0], [str(topology), *search])
        if found and not _is_installed(Path(found)):
            yield Path(found)


def _is_installed(folder: Path) -> bool:
    installed = [sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages()]
    return any(folder.is_relative_to(place) for place in installed)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder without hidden ones, caches, runs and virtual environments."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in PASSED_OVER
            and not (Path(place) / name / "pyvenv.cfg").exists()
        )
        seen = (Path(place) / name for name in sorted(files) if not name.startswith("."))
        yield from (path for path in seen if path.is_file())  # no socket, pipe or broken link
