"""The native code as a shared library for this processor: the one in the wheel, else compiled at first use.

A compiled library is cached beside Python's bytecode or in the user's cache, by source, flags and compiler.
Without a library and a compiler, torch does the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spreeze_zmq.base.guard import run_guarded
from spreeze_zmq.base.machine import cache_folder, cpu_flags
from spreeze_zmq.base.once import digest, made_once

log = logging.getLogger("spreeze")

SOURCES = Path(__file__).with_name("csrc")
#: The libraries of a wheel, named by :func:`name_of`.
CARRIED = Path(__file__).with_name("built")
COMPILERS = ("g++", "c++")
FLAGS = ("-O3", "-std=gnu++17", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi")
#: Instruction sets that the source supports, best first, with their flags in /proc/cpuinfo.
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
INSTRUCTIONS = {
    "AMX": (*AVX512, "avx512_bf16", "amx_tile", "amx_bf16"),
    "AVX512-BF16": (*AVX512, "avx512_bf16"),
    "AVX-512": AVX512,
    "AVX2": ("avx2", "fma"),
    "plain": (),
}
TIMEOUT_S = 300.0


class NativeLibrary(NamedTuple):
    """The native library, or why there is none.

    Attributes:
        code: the loaded library, or None.
        name: of its file, which changes with its source, its flags and the compiler.
        instructions: a key of ``INSTRUCTIONS``.
        problem: in one line, why the best instruction set of the processor is not used; empty if it is.
    """

    code: Any
    name: str = ""
    instructions: str = ""
    problem: str = ""


def enabled() -> bool:
    """Whether native code is allowed: the environment variable ``SPREEZE_NATIVE`` is not 0."""
    return os.environ.get("SPREEZE_NATIVE") != "0"


@cache
def library() -> NativeLibrary:
    """The native library for this processor, compiled now if necessary."""
    return found()


def found(say: Callable[[str], None] = log.info) -> NativeLibrary:
    """The library for the best instruction set for which there is one that this process can load, compiled
    now if necessary; ``say`` is that of :func:`compiled`.
    """
    problem = ""
    if not enabled():
        return NativeLibrary(None, problem="SPREEZE_NATIVE=0")
    for instructions in runnable():  # an older compiler, here or of the wheel, may not know the best
        try:
            path = compiled(instructions, say=say)
            code = loaded(path)
            if not code.spreeze_allowed():
                raise OSError(f"the system refuses this process the registers of {instructions}")
            return NativeLibrary(code, path.stem, instructions, problem)
        except (OSError, subprocess.SubprocessError, AttributeError) as error:
            problem = problem or problem_of(error)
    return NativeLibrary(None, problem=problem)


def runnable(flags: frozenset[str] | None = None) -> list[str]:
    """The keys of ``INSTRUCTIONS`` for a processor with these flags, by default this one, best first."""
    flags = cpu_flags() if flags is None else flags
    return [name for name, needed in INSTRUCTIONS.items() if flags.issuperset(needed)]


def expected() -> str:
    """The name of the library that processes of this machine load, which is neither compiled nor loaded for
    that: the one for the best instruction set. Empty where there is none, as without a compiler.
    """
    for instructions in runnable() if enabled() else ():
        flags = flags_for(instructions)
        if (carried := CARRIED / name_of(flags)).exists():
            return carried.stem
        with contextlib.suppress(FileNotFoundError):
            return Path(name_of(flags, compiler_found())).stem
    return ""


def prepare(say: Callable[[str], None]) -> None:
    """Compile the library that learners here will load if necessary, before they wait for it.

    Args:
        say: called with a line for the user before the compiler starts or another process's is waited for,
            and with one where there is no library that loads, which the learners' logs report too.
    """
    if enabled() and (native := found(say)).code is None:
        say(f"no native layers, so updates may take twice as long: {native.problem}")


def problem_of(error: Exception) -> str:
    """The problem in one line; for a failed compiler its first error."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
        return f"{error.cmd[0]} failed: {first:.200}"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def flags_for(instructions: str) -> list[str]:
    """The compiler's flags for an instruction set, a key of ``INSTRUCTIONS``."""
    machine = [f"-m{flag.replace('x_', 'x-').replace('_', '')}" for flag in INSTRUCTIONS[instructions]]
    if "avx512f" in INSTRUCTIONS[instructions]:
        machine.append("-mprefer-vector-width=512")
    return [*FLAGS, *machine]


def name_of(flags: Sequence[str], compiler: str = "") -> str:
    """The file name of the library that a compiler makes of the sources with these flags.

    Args:
        flags: of the compiler.
        compiler: its path; empty for a library in a wheel, whatever compiled it.
    """
    version = [compiler]
    if compiler:
        stat = os.stat(os.path.realpath(compiler))
        version += [str(stat.st_size), str(stat.st_mtime_ns)]
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    return f"native-{digest(*sources, *version, *flags)}.so"


def compiler_found() -> str:
    """The path of the C++ compiler. Raises FileNotFoundError."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError(f"no compiler ({' or '.join(COMPILERS)}) on the path")
    return compiler


def compile_to(path: Path, compiler: str, flags: Sequence[str]) -> None:
    """Compile the library.

    Raises:
        OSError: the folder cannot be written.
        CalledProcessError: the compiler failed.
    """
    command = [compiler, *flags, str(SOURCES / "native.cpp"), "-o", str(path)]
    environment = {"PATH": os.defpath, **os.environ}  # without one, a compiler finds no assembler and linker
    run_guarded(command, timeout=TIMEOUT_S, env=environment).check_returncode()


def compiled(instructions: str, extra: tuple[str, ...] = (), say: Callable[[str], None] = log.info) -> Path:
    """The library for an instruction set: a wheel's, or the cached one, compiled if missing or empty.

    Args:
        instructions: a key of ``INSTRUCTIONS``.
        extra: additional flags of the compiler.
        say: called with a line for the user before the compiler starts, or another process's is waited for.

    Raises:
        FileNotFoundError: no compiler is on the path.
        OSError: the folder cannot be written.
        CalledProcessError: the compiler failed.
    """
    flags = [*flags_for(instructions), *extra]
    if (carried := CARRIED / name_of(flags)).exists():
        try:
            ctypes.CDLL(str(carried))
            return carried
        except OSError as error:  # another libc, a disk from which nothing is run
            log.info("not used: %s", error)
    compiler, folder = compiler_found(), folder_of_libraries()

    def make(path: Path) -> None:
        say(f"compiling the native layers with {compiler} for {instructions}, once")
        compile_to(path, compiler, flags)

    path = folder / name_of(flags, compiler)
    return made_once(path, make, "compiling the native layers", say, most_s=TIMEOUT_S)


def folder_of_libraries() -> Path:
    """The cache: beside Python's bytecode if that folder can be written, else the user's cache."""
    beside = Path(__file__).with_name("__pycache__")
    return beside if os.access(beside, os.W_OK) else cache_folder()


def loaded(path: Path) -> Any:
    """Load a library and declare its functions as in ``native.cpp``.

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
    code.spreeze_expectation.argtypes = [number, number, real, real, *[pointer] * 3]
    code.spreeze_divergence.argtypes = [number, number, number, *[pointer] * 4]
    code.spreeze_convolve.argtypes = [pointer, number, *[pointer] * 4]
    code.spreeze_convolve_backward.argtypes = [pointer, number, *[pointer] * 6]
    code.spreeze_elementwise.argtypes = [pointer, number]
    code.spreeze_scale_bytes.argtypes = [number, number, real, *[pointer] * 4]
    drawing = ("draw", "draw_backward", "density")
    for name in ("adam", *drawing, "expectation", "divergence", "elementwise", "scale_bytes"):
        getattr(code, f"spreeze_{name}").restype = None
    return code
