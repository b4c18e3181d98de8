"""The native layers as a shared library for this processor: what the wheel carries, else compiled when first
asked for.

What is compiled is kept beside Python's own compiled files or in the user's cache, by source, flags and
compiler. Without either there is none, and torch does the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spreeze_zmq.user_cache import cache_folder

log = logging.getLogger("spreeze")

SOURCES = Path(__file__).with_name("csrc")
#: What a wheel carries, by the names of :func:`name_of`.
CARRIED = Path(__file__).with_name("built")
COMPILERS = ("g++", "c++")
FLAGS = ("-O3", "-std=gnu++17", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi")
#: Instruction sets that the source knows, best first: flags of /proc/cpuinfo, and the compiler's.
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
INSTRUCTIONS = {
    "AMX": (*AVX512, "avx512_bf16", "amx_tile", "amx_bf16"),
    "AVX512-BF16": (*AVX512, "avx512_bf16"),
    "AVX-512": AVX512,
    "AVX2": ("avx2", "fma"),
    "plain": (),
}
TIMEOUT_S = 300.0


class Library(NamedTuple):
    """The native layers, or why there are none.

    Attributes:
        code: the loaded library; None where there is none.
        name: of its file, which changes with its source, its flags and the compiler.
        instructions: a name of ``INSTRUCTIONS``.
        problem: with the best instructions of the processor, in one line; empty where there is none.
    """

    code: Any
    name: str = ""
    instructions: str = ""
    problem: str = ""


@cache
def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The instruction set flags of the first processor; empty where the system does not tell."""
    try:
        text = Path(path).read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def instructions_of(flags: frozenset[str]) -> str:
    """The best name of ``INSTRUCTIONS`` that a processor with these flags can run."""
    return next(name for name, needed in INSTRUCTIONS.items() if flags.issuperset(needed))


@cache
def library() -> Library:
    """The native layers for this processor; compiled now if they never were."""
    problem = ""
    if os.environ.get("SPREEZE_NATIVE", "1") == "0":
        return Library(None, problem="SPREEZE_NATIVE=0")
    for instructions in runnable():  # an older compiler may not know the best
        try:
            path = carried(instructions) or compiled(instructions)
            code = loaded(path)
            if not code.spreeze_allowed():
                raise OSError(f"the system refuses this process the registers of {instructions}")
            return Library(code, path.stem, instructions, problem)
        except (OSError, subprocess.SubprocessError, AttributeError) as error:
            problem = problem or said_by(error)
            if isinstance(error, FileNotFoundError):
                break
    return Library(None, problem=problem)


def runnable() -> list[str]:
    """The names of ``INSTRUCTIONS`` that this processor can run, best first."""
    names = list(INSTRUCTIONS)
    return names[names.index(instructions_of(cpu_flags())) :]


def prepare(say: Callable[[str], None]) -> None:
    """Compile the library if it never was, before a run's processes wait for it.

    Args:
        say: takes a line for the user, before the compiler starts.
    """
    if os.environ.get("SPREEZE_NATIVE", "1") != "0":
        for instructions in runnable():
            with contextlib.suppress(
                OSError, subprocess.SubprocessError
            ):  # the learners' logs say what is lost
                carried(instructions) or compiled(instructions, say=say)
                return


def said_by(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
        return f"{error.cmd[0]} failed: {first:.200}"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def carried(instructions: str) -> Path | None:
    """The file for some instructions that was compiled when the package was built; None without one."""
    path = CARRIED / name_of(flags_for(instructions))
    return path if path.exists() else None


def flags_for(instructions: str) -> list[str]:
    """The compiler's flags for a key of ``INSTRUCTIONS``."""
    machine = [f"-m{flag.replace('x_', 'x-').replace('_', '')}" for flag in INSTRUCTIONS[instructions]]
    if "avx512f" in INSTRUCTIONS[instructions]:
        machine.append("-mprefer-vector-width=512")
    return [*FLAGS, *machine]


def name_of(flags: Sequence[str], compiler: str = "") -> str:
    """Of the file that a compiler makes of the sources with these flags."""
    about = [compiler]
    if compiler:
        stat = os.stat(os.path.realpath(compiler))
        about += [str(stat.st_size), str(stat.st_mtime_ns)]
    sources = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.iterdir())]
    text = "\0".join((*sources, *about, *flags))
    return f"native-{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"


def compiler_found() -> str:
    """Its path. Raises FileNotFoundError."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError(f"no compiler ({' or '.join(COMPILERS)}) on the path")
    return compiler


def compile_to(path: Path, compiler: str, flags: Sequence[str]) -> None:
    """Make the library; it is there as a whole or not at all.

    Raises:
        OSError: the folder cannot be written.
        CalledProcessError: the compiler failed.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        command = [compiler, *flags, str(SOURCES / "native.cpp"), "-o", f"{made}/native.so"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        os.replace(f"{made}/native.so", path)


def compiled(instructions: str, extra: tuple[str, ...] = (), say: Callable[[str], None] = log.info) -> Path:
    """The library's file for some instructions, compiled on this machine where it is not there.

    Args:
        instructions: a key of ``INSTRUCTIONS``.
        extra: further flags of the compiler.
        say: takes a line for the user, before the compiler starts.

    Raises:
        FileNotFoundError: no compiler is on the path.
        OSError: the folder cannot be written.
        CalledProcessError: the compiler failed.
    """
    compiler, flags = compiler_found(), [*flags_for(instructions), *extra]
    folder = folder_of_libraries()
    path = folder / name_of(flags, compiler)
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "native.lock"):
        if not path.exists():
            say(f"compiling the native layers with {compiler} for {instructions}, once")
            compile_to(path, compiler, flags)
    return path


def folder_of_libraries() -> Path:
    """Beside Python's own compiled files where that can be written, else the user's cache."""
    beside = Path(__file__).with_name("__pycache__")
    return beside if os.access(beside, os.W_OK) else cache_folder()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process after the other."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def loaded(path: Path) -> Any:
    """The library in a file, its functions declared as ``native.cpp`` has them.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: a function is missing.
    """
    code = ctypes.CDLL(str(path))
    number, real, pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    code.spreeze_kept.restype = code.spreeze_multiply_adds.restype = number
    code.spreeze_multiply_adds.argtypes = [number, number]
    code.spreeze_kept.argtypes = [pointer, number, number]
    code.spreeze_forward.argtypes = [pointer, number, number, pointer, pointer, pointer, pointer]
    code.spreeze_backward.argtypes = [pointer, number, number, *[pointer] * 5, number]
    code.spreeze_adam.argtypes = [pointer, pointer, number, number, *[pointer] * 4]
    code.spreeze_draw.argtypes = [number, number, real, real, *[pointer] * 5]
    code.spreeze_draw_backward.argtypes = [number, number, real, real, *[pointer] * 4]
    code.spreeze_density.argtypes = [number, number, real, real, *[pointer] * 4]
    code.spreeze_project.argtypes = [number, number, real, real, *[pointer] * 4]
    code.spreeze_divergence.argtypes = [number, number, number, *[pointer] * 4]
    code.spreeze_convolve.argtypes = [pointer, number, *[pointer] * 4]
    code.spreeze_convolve_backward.argtypes = [pointer, number, *[pointer] * 6]
    code.spreeze_elementwise.argtypes = [pointer, number]
    for name in ("adam", "draw", "draw_backward", "density", "divergence", "elementwise"):
        getattr(code, f"spreeze_{name}").restype = None
    return code
