"""Sampler in C++: builds the program where this machine has not got it yet, and becomes it."""

import contextlib
import importlib.util
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from spreeze_zmq.base.machine import cache_folder, claim, cpu_flags
from spreeze_zmq.base.once import digest, made_once

HERE = Path(__file__).absolute().parent
#: Seconds for which a folder is kept that nobody builds in: the next build there takes less time.
KEPT_S = 7 * 86400.0


class NotBuilt(Exception):
    """Why there is no program, in one line."""


def sources() -> list[Path]:
    """What the program is made of."""
    return [HERE / "CMakeLists.txt", *sorted((HERE / "src").iterdir())]


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


def compile_in(folder: Path, definitions: list[str], log: Path) -> None:
    """Run CMake and the compiler; what they say where they fail is in ``log``. Raises NotBuilt."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for program, packaged in (("cmake", "cmake"), (os.environ.get("CXX", "c++"), "g++")):
        if shutil.which(program) is None:
            raise NotBuilt(f"missing: {program} (apt install {packaged})")
    configure = ["cmake", "-S", str(HERE), "-B", str(folder), *(f"-D{name}" for name in definitions)]
    for command in (configure, ["cmake", "--build", str(folder), "--parallel"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            log.parent.mkdir(exist_ok=True)
            log.write_text(done.stdout + done.stderr)
            missing = re.search(r"missing: .*", done.stderr)
            raise NotBuilt(missing[0] if missing else f"{' '.join(command[:2])} failed, see {log}")


def remove_old(folder: Path) -> None:
    """Remove what is beside a build's folder and nobody has built in for ``KEPT_S``: each container leaves
    one in a cache that they share.
    """
    for beside in folder.parent.glob(f"build-{HERE.name}-*"):
        with contextlib.suppress(OSError):  # another process removes it, or it is another user's
            if beside != folder and time.time() - beside.stat().st_mtime > KEPT_S:
                shutil.rmtree(beside)


def built() -> Path:
    """The program for these sources, this machine and these libraries; built first where there is none.

    Raises:
        NotBuilt: something is missing, or the compiler refused it.
        OSError: the cache cannot be written.
    """
    mujoco, cache = package("mujoco"), cache_folder()
    definitions = [f"MUJOCO={mujoco}", f"GYMNASIUM={package('gymnasium')}"]
    linked = sorted(path.name for path in Path(mujoco).glob("libmujoco.so*"))  # the version is in the name
    machine = (*definitions, *linked, *sorted(cpu_flags()), *system(), os.environ.get("CXX", ""))
    folder = cache / f"build-{HERE.name}-{digest(*machine, str(HERE), platform.node())}"

    def say(line: str) -> None:
        print(f"sampler: {line}", file=sys.stderr)

    def make(path: Path) -> None:
        held = claim(f"build-{digest(str(folder))}")
        own = folder if held else folder.with_name(f"{folder.name}-{secrets.token_hex(4)}")
        try:
            compile_in(own, definitions, folder / "build.log")
            shutil.copy2(own / "sampler_cpp", path)
        finally:
            if held:
                held.close()
            else:  # another process builds there, and the cache's disk has no locks
                shutil.rmtree(own, ignore_errors=True)
        remove_old(folder)

    program = cache / f"sampler_cpp-{digest(*machine, *(path.read_bytes() for path in sources()))}"
    return made_once(program, make, "building this sampler", say)


def main(arguments: list[str]) -> NoReturn:
    """Become the program; with ``--build`` only build it. Ends with 2 where it cannot be built or run."""
    try:
        program = built()
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
