"""Sampler in C++: builds the program where this machine has not got it yet, and becomes it."""

import contextlib
import importlib.util
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from spreeze_zmq.base.files import replacing
from spreeze_zmq.base.machine import cache_folder, claim, cpu_flags
from spreeze_zmq.base.once import BUILD_S, POLL_S, alone, digest, is_compiled, made_once

HERE = Path(__file__).absolute().parent
#: Seconds for which a folder is kept that nobody builds in: the next build there takes less time.
KEPT_S = 7 * 86400.0
#: The name of a program.
NAME = re.compile(r"sampler_cpp-[0-9a-f]{24}")
#: Files and folders here that the compiler does not read.
NO_SOURCES = ("__main__.py", "component.toml", "__pycache__", "runs", "node_modules")


class NotBuilt(Exception):
    """Why there is no program, in one line."""


def sources() -> list[str | bytes]:
    """What the program is made of, as far as it is in this folder: names and contents."""
    parts: list[str | bytes] = []
    for place, folders, names in os.walk(HERE):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in NO_SOURCES)
        for path in (Path(place) / name for name in sorted(names) if not name.startswith(".")):
            if path.name not in NO_SOURCES and path.is_file() and os.access(path, os.R_OK):
                parts += [str(path.relative_to(HERE)), path.read_bytes()]
    return parts


def package(name: str) -> str:
    """The folder of an installed Python package; importing it would take longer than the rest."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotBuilt(f"missing: the Python package {name} (pip install {name})")
    return str(Path(spec.origin).parent)


def system() -> list[str]:
    """The libraries of C and C++ that a program is linked with: of a home that several machines or containers
    share, each system has a program of its own.
    """
    about: dict[str, str] = {}
    with contextlib.suppress(OSError):
        about = platform.freedesktop_os_release()
    return [*platform.libc_ver(), about.get("ID", ""), about.get("VERSION_ID", "")]


def lacking() -> str:
    """The program that a build needs and that is not on the path, in words; empty for none."""
    programs = {"cmake": "cmake", os.environ.get("CXX", "c++"): "g++"}
    absent = (
        f"missing: {each} (apt install {programs[each]})" for each in programs if not shutil.which(each)
    )
    return next(absent, "")


def compile_in(folder: Path, definitions: list[str], log: Path) -> None:
    """Run CMake and the compiler; what they say where they fail is in ``log``. Raises NotBuilt."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    if missing := lacking():
        raise NotBuilt(missing)
    configure = ["cmake", "-S", str(HERE), "-B", str(folder), *(f"-D{name}" for name in definitions)]
    for command in (configure, ["cmake", "--build", str(folder), "--parallel", "--target", "sampler_cpp"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            log.parent.mkdir(exist_ok=True)
            log.write_text(done.stdout + done.stderr)
            said = re.search(r"missing: .*", done.stderr)
            raise NotBuilt(said[0] if said else f"{' '.join(command[:2])} failed, see {log}")


def remove_old(folder: Path) -> None:
    """Remove what is beside a build's folder and nobody has built in for ``KEPT_S``: each container leaves
    one in a cache that they share.
    """
    for beside in folder.parent.glob(f"build-{HERE.name}-*"):
        with contextlib.suppress(OSError):  # another process removes it, or it is another user's
            if beside != folder and time.time() - beside.stat().st_mtime > KEPT_S:
                shutil.rmtree(beside)


def sole(folder: Path) -> socket.socket | None:
    """What lets this process alone build in a folder until it is closed; None where another one does."""
    return claim(f"build-{digest(str(folder))}")


def in_turn(folder: Path) -> socket.socket | None:
    """The same; another process is waited for as long as a build takes."""
    until_s = time.monotonic() + BUILD_S
    while (held := sole(folder)) is None and time.monotonic() < until_s:
        time.sleep(POLL_S)
    return held


def found(stamp: Path) -> Path | None:
    """The program that was built last of what a stamp stands for; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        if NAME.fullmatch(name := stamp.read_text()) and is_compiled(stamp.with_name(name)):
            return stamp.with_name(name)
    return None


def built(*, anew: bool = False) -> Path:
    """The program for these sources, this machine and these libraries; built first where there is none. It is
    named by its bytes, and a stamp has that name: one that runs somewhere keeps its place.

    Args:
        anew: where it was built in a folder that is still there, have CMake build again what follows from
            files elsewhere that have changed, such as a header or a library that the sources name. It is
            taken as it is where CMake is gone or nothing can be written.

    Raises:
        NotBuilt: something is missing, or the compiler refused it.
        OSError: the cache cannot be written.
    """
    mujoco, cache = package("mujoco"), cache_folder()
    definitions = [f"MUJOCO={mujoco}", f"GYMNASIUM={package('gymnasium')}"]
    linked = sorted(path.name for path in Path(mujoco).glob("libmujoco.so*"))  # the version is in the name
    machine = (*definitions, *linked, *sorted(cpu_flags()), *system(), os.environ.get("CXX", ""))
    folder = cache / f"build-{HERE.name}-{digest(*machine, str(HERE), platform.node())}"
    stamp = cache / f"sampler_cpp-{digest(*machine, *sources())}.stamp"
    anew = anew and (folder / "CMakeCache.txt").exists() and not lacking()
    anew = anew and os.access(folder, os.W_OK) and os.access(cache, os.W_OK)

    def say(line: str) -> None:
        print(f"sampler: {line}", file=sys.stderr)

    program = found(stamp)
    if program is None or anew:
        with alone(stamp, "building this sampler", say, most_s=BUILD_S):
            if (program := found(stamp)) is None:
                program = make(stamp, folder, definitions, sole(folder))
            elif anew:
                program = make(stamp, folder, definitions, in_turn(folder))
    return program


def make(stamp: Path, folder: Path, definitions: list[str], held: socket.socket | None) -> Path:
    """Build the program, in a folder of this process's own unless it holds the one that stays."""
    own = folder if held else folder.with_name(f"{folder.name}-{secrets.token_hex(4)}")
    try:
        compile_in(own, definitions, folder / "build.log")
        made = own / "sampler_cpp"
        program = stamp.with_name(f"sampler_cpp-{digest(made.read_bytes())}")
        made_once(program, lambda path: shutil.copy2(made, path), "copying this sampler")
    finally:
        if held:
            held.close()
        else:  # another process builds there, and the cache's disk has no locks
            shutil.rmtree(own, ignore_errors=True)
    if found(stamp) != program:
        with replacing(stamp, sync=True) as beside:
            beside.write_text(program.name)
    remove_old(folder)
    return program


def main(arguments: list[str]) -> NoReturn:
    """Become the program; with ``--build`` only build it. Ends with 2 where it cannot be built or run."""
    try:
        program = built(anew=arguments == ["--build"])
    except (NotBuilt, OSError) as error:
        print(f"sampler: cannot be built: {error}", file=sys.stderr)
        sys.exit(2)
    if arguments == ["--build"]:
        sys.exit()
    try:
        os.execv(program, [str(program), *arguments])
    except OSError as error:
        why = f"{program} cannot be run: {error.strerror}"
        print(f"sampler: {why}; set XDG_CACHE_HOME to a folder whose programs may run", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
