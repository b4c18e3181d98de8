"""The user's own files that a node needs: those of the topology's folder and of the modules that it names.

Each folder travels whole and apart from the others, since two may hold files of one name. They are numbered
in the order in which the head searches them, so that a process elsewhere imports the same module.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from spreeze_zmq.base.errors import InputError, is_installed
from spreeze_zmq.base.importing import import_folder
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.trust import RUN_FILE, modules_folder
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.plan.plan import Plan

#: Largest bundle in bytes, before it is compressed.
MOST_BYTES = 50_000_000
#: Folders that hold no source, and files of those of other names: virtual environments and runs.
PASSED_OVER = ("__pycache__", "runs", "node_modules")
MARKS = ("pyvenv.cfg", RUN_FILE)
#: End of the name, in a bundle, of the folder that the topology's modules are beside.
TOPOLOGY = "topology"


def bundle(plan: Plan, search: list[str]) -> bytes:
    """A zip archive of the user's own files; empty where all that the run imports is installed.

    Args:
        plan: of the run.
        search: folders in which its modules are found, as ``sys.path``.

    Raises:
        InputError: the files are more than a bundle takes.
    """
    archive, total = io.BytesIO(), 0
    read_here = {os.path.realpath(source.path) for source in plan.data.values()}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for name, folder in _folders(plan, search).items():
            for path in _files(folder, read_here):
                total += path.stat().st_size
                if total > MOST_BYTES:
                    raise InputError(
                        f"--listen sends {folder} to other machines, since the run imports from it, and it "
                        f"has more than {MOST_BYTES // 10**6} MB: move the topology and the modules that it "
                        "names to a folder of their own, or install the modules on every machine"
                    )
                packed.write(path, f"{name}/{path.relative_to(folder).as_posix()}")
    return archive.getvalue() if total else b""


def unpack(archive: bytes, folder: Path) -> None:
    """Write a bundle's files below a new folder, where :func:`places` finds them."""
    folder.mkdir(mode=0o700)
    if archive:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(folder)


def places(folder: Path) -> tuple[list[Path], Path]:
    """Where the files of an unpacked bundle are: the folders to put on the path of modules, in their order,
    and the topology's, which every process searches last; it is one of them only where others are behind it.
    """
    roots = sorted(folder.iterdir())
    beside = next((root for root in roots if root.name.endswith(TOPOLOGY)), folder / TOPOLOGY)
    return (roots[:-1] if roots[-1:] == [beside] else roots), beside


def _folders(plan: Plan, search: list[str]) -> dict[str, Path]:
    """The folder of the topology, and those of the modules that it names, unless they are installed; by their
    names in the bundle, in the order in which they are searched.
    """
    topology, modules = modules_folder(plan.topology_file).absolute(), own_modules(plan)
    path = list(dict.fromkeys(Path(place).absolute() for place in [*search, str(topology)]))
    found = (import_folder(module.partition(".")[0], list(map(str, path))) for module in modules)
    used = {Path(place) for place in found if place and not is_installed(place)}
    uses_files = modules or any("/" in component.use for component in plan.components.values())
    if uses_files and Path(plan.topology_file).parent != shipped_folder("launch"):
        used.add(topology)
    roots = [place for place in path if place in used]
    return {f"{at}{TOPOLOGY if root == topology else ''}": root for at, root in enumerate(roots)}


def _files(folder: Path, read_here: Collection[str]) -> Iterator[Path]:
    """The files below a folder without hidden ones, what may not be read, caches, runs, virtual environments,
    and the folders ``read_here`` alone, by their real paths.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in PASSED_OVER
            and not any(os.path.exists(os.path.join(place, name, mark)) for mark in MARKS)
            and os.path.realpath(Path(place) / name) not in read_here
        )
        seen = (Path(place) / name for name in sorted(files) if not name.startswith("."))
        # no socket, pipe or broken link, and what cannot be read here no process of the run reads here either
        yield from (path for path in seen if os.path.isfile(path) and os.access(path, os.R_OK))
