"""The library of native layers: compiled where that can be, clean under sanitizers, missed without harm."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from setuptools import Distribution

from spreeze_zmq import nn
from spreeze_zmq.base.once import ELF
from spreeze_zmq.nn import native_choice
from spreeze_zmq.nn.native import build
from spreeze_zmq.nn.native import library as native_library
from spreeze_zmq.nn.native.build import build_into
from spreeze_zmq.nn.native.library import compiled, runnable
from spreeze_zmq.nn.native_sequential import NativeSequential

ROOT = Path(__file__).parents[3]
#: Drives the library in memory of exactly the size that it may touch.
SANITIZED = """
import ctypes, itertools, struct, sys
import numpy as np
from tests.pairwise import pairwise
code = ctypes.CDLL(sys.argv[1])
code.spreeze_kept.restype = ctypes.c_int64
integer = ctypes.c_int64
def call(function, plan, rows, shared, *arguments):
    numbers = ctypes.c_void_p(plan.ctypes.data), integer(rows), integer(shared)
    return function(*numbers, *map(pointer, arguments))
def pointer(array):
    if isinstance(array, list):
        places = (None if each is None else each.ctypes.data for each in array)
        return (ctypes.c_void_p * len(array))(*places)
    return ctypes.c_void_p(None if array is None else array.ctypes.data)
source = np.random.default_rng(0)
def random(*shape):
    return source.standard_normal(shape).astype(np.float32)
bounds = itertools.product(((17, 40, 33, 1), (1, 3, 2), (35, 5)), (0, 1), (1, 7, 258, 515), (0, 1))
layers = pairwise(range(5), (0, 1), (1, 2))
for (sizes, shared, rows, bf16), (act, norm, num) in itertools.product(bounds, layers):
    if (bf16 and not code.spreeze_has_bf16()) or (act > 1 and rows > 7):
        continue
    numbers, parameters = [num, len(sizes) - 1, bf16, sizes[0]], []
    for place, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        inner = place < len(sizes) - 2
        numbers += [outputs, act * inner, norm * inner, *struct.unpack("q", struct.pack("d", 1e-5))]
        parameters += [random(num, outputs, inputs), random(num, outputs)]
        parameters += [random(num, outputs), random(num, outputs)] if norm * inner else []
    plan = np.array(numbers, np.int64)
    x, y = random(1 if shared else num, rows, sizes[0]), random(num, rows, sizes[-1])
    kept = np.empty(call(code.spreeze_kept, plan, rows, shared), np.uint8)
    assert not call(code.spreeze_forward, plan, rows, shared, x, parameters, y, None)
    again = np.empty_like(y)
    assert not call(code.spreeze_forward, plan, rows, shared, x, parameters, again, kept)
    assert (y == again).all()
    gradients = [None if at % 3 == 1 else np.empty_like(each) for at, each in enumerate(parameters)]
    of_x = np.empty((num, rows, sizes[0]), np.float32) if act % 2 else None
    def backward(add):
        arguments = map(pointer, (parameters, kept, y, of_x, gradients))
        numbers = pointer(plan), integer(rows), integer(shared)
        assert not code.spreeze_backward(*numbers, *arguments, integer(add))
    backward(0)
    once = [None if each is None else each.copy() for each in gradients]
    assert all(np.isfinite(each).all() for each in once if each is not None)
    backward(1)
    for first, both in zip(once, gradients):
        assert first is None or np.allclose(2 * first, both, rtol=1e-4, atol=1e-4 * (1 + abs(first).max()))
real = ctypes.c_double
for rows, size in itertools.product((1, 7, 33), (1, 6, 16, 17, 40)):
    output, noise, action = random(rows, 2 * size), random(rows, size), random(rows, size)
    log_prob = random(rows)
    kept, limits = random(rows, 3 * size), (real(-5.0), real(2.0))
    numbers = integer(rows), integer(size), *limits
    code.spreeze_draw(*numbers, *map(pointer, (output, noise, action, log_prob, kept)))
    code.spreeze_draw_backward(*numbers, *map(pointer, (kept, action, log_prob, output)))
    assert np.isfinite(output).all()
    moments = [random(rows * size) ** 2 for _ in range(4)]
    slope = random(rows, 2 * size)
    code.spreeze_density(*numbers, *map(pointer, (output, action, log_prob, slope)))
    target = np.full((rows, size), 1.0 / size, np.float32)
    reward, discount, projected = random(rows), random(rows), random(rows, size)
    if size > 1:
        code.spreeze_project(*numbers, *map(pointer, (target, reward, discount, projected)))
        assert np.allclose(projected.sum(1), 1.0, atol=1e-5)
    logits, found, steep = random(2 * rows, size), random(2 * rows), random(2 * rows, size)
    places = map(pointer, (logits, target, found, steep))
    code.spreeze_divergence(integer(2), *numbers[:2], *places)
    assert np.isfinite(found).all() and np.allclose(steep.sum(1), 0.0, atol=1e-5)
    for slope in (None, steep):
        places = map(pointer, (logits, found, slope))
        code.spreeze_expectation(integer(2 * rows), integer(size), *limits, *places)
    assert (found >= -5.001).all() and (found <= 2.001).all() and np.allclose(steep.sum(1), 0.0, atol=1e-5)
    about = np.array([1e-3, 0.9, 0.999, 1e-8, 0.1, 0.5])
    steps, count = np.array([3.0], np.float32), integer(rows * size)
    half = integer(rows * size // 2)
    code.spreeze_adam(pointer(about), pointer(steps), count, half, *map(pointer, moments))
    assert np.isfinite(moments).all() and not moments[1].any()
for about in ((4, 20, 21, 16, 8, 4), (16, 9, 9, 32, 4, 2), (3, 5, 4, 33, 2, 3), (1, 1, 1, 1, 1, 1)):
    channels, height, width, out, kernel, stride = about
    made = out * ((height - kernel) // stride + 1) * ((width - kernel) // stride + 1)
    weight, bias = random(out, channels, kernel, kernel), random(out)
    x, y, about = random(3, channels * height * width), random(3, made), np.array(about, np.int64)
    numbers, of_weight, of_bias = (pointer(about), integer(3)), np.empty_like(weight), np.empty_like(bias)
    assert not code.spreeze_convolve(*numbers, *map(pointer, (x, weight, bias, y)))
    for of_x in (None, np.empty_like(x)):
        gradients = map(pointer, (x, weight, y, of_x, of_weight, of_bias))
        assert not code.spreeze_convolve_backward(*numbers, *gradients)
    assert np.isfinite(y).all() and np.isfinite(of_x).all() and np.isfinite(of_weight).all()
for what, rows, columns, step in itertools.product(range(21), (1, 3), (1, 7, 513, 1100), (0, 1, 2)):
    compares, logical = 11 <= what < 17, 17 <= what < 20
    taken = np.uint8 if logical or what == 20 else np.float32
    kinds = [np.uint8 if compares or logical else np.float32, taken, taken, taken]
    kinds[1] = np.uint8 if what == 10 else kinds[1]
    steps, words, kept = (max(step, 1), step, step, step), [what, rows, columns], []
    for kind, each in zip(kinds, steps):
        length = (columns - 1) * each + 1
        kept.append((source.random(rows * length) * 1.99).astype(kind))
        words += [kept[-1].ctypes.data, length, each]
    words = np.array(words, np.int64)
    code.spreeze_elementwise(pointer(words), integer(1))
for rows, size in itertools.product((1, 3), (1, 7, 16, 33, 200)):
    x, y = source.integers(0, 256, rows * size, np.uint8), random(rows * size)
    mean, std = random(size), random(size)
    code.spreeze_scale_bytes(integer(rows), integer(size), real(10.0), *map(pointer, (x, mean, std, y)))
    assert abs(y).max() <= 10.0
print("clean")
"""

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, native_library.COMPILERS)), reason="there is no C++ compiler"
)


@pytest.mark.long("the layers are compiled with sanitizers")
@pytest.mark.parametrize(
    "tiles",
    [
        pytest.param((), id=""),
        pytest.param(
            ("-DSPREEZE_EMULATED_TILES",),
            id="emulated tiles",
            marks=[
                pytest.mark.thorough,
                pytest.mark.skipif("AVX512-BF16" not in runnable(), reason="no bf16 here"),
            ],
        ),
    ],
)
def test_no_access_out_of_bounds_and_nothing_undefined(tiles):
    """The address and undefined behaviour sanitizers, over all layers, odd sizes and both formats."""
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0", "-g1", *tiles)
    path = compiled("AVX512-BF16" if tiles else runnable()[0], flags)
    runtimes = [
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {**os.environ, "LD_PRELOAD": " ".join(runtimes), "ASAN_OPTIONS": "detect_leaks=0"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "clean\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16 amx_tile amx_bf16", "AMX"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16", "AVX512-BF16"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl", "AVX-512"),
        ("avx2 fma avx512f", "AVX2"),
        ("avx2", "plain"),
        ("", "plain"),
    ],
)
def test_code_is_for_what_the_processor_has(flags, expected):
    """All flags of an instruction set have to be there."""
    assert runnable(frozenset(flags.split()))[0] == expected


#: Copies what it has compiled of the same sources with the same flags before.
QUICK = """#!{python}
import hashlib, pathlib, shutil, subprocess, sys
*flags, source, _, path = sys.argv[1:]
sources = [each.read_text() for each in sorted(pathlib.Path(source).parent.iterdir())]
made = pathlib.Path(__file__).parent / hashlib.sha256("".join([*flags, *sources]).encode()).hexdigest()
if not made.exists():
    if code := subprocess.run(["{compiler}", *flags, source, "-O0", "-o", str(made)]).returncode:
        sys.exit(code)
shutil.copy(made, path)
"""


@pytest.fixture(scope="module")
def quick_gcc(tmp_path_factory):
    """A compiler that optimises less, in a third of the time, and compiles the same only once."""
    path = tmp_path_factory.mktemp("compiler") / "g++"
    path.write_text(QUICK.format(python=sys.executable, compiler=shutil.which("g++")))
    path.chmod(0o755)
    return path


@pytest.fixture
def quick_compiler(quick_gcc, monkeypatch):
    """The first one on the path, where the speed of its code is not asked for."""
    monkeypatch.setenv("PATH", f"{quick_gcc.parent}:{os.environ['PATH']}")


def child(script, tmp_path, **environment):
    """The output of a Python process whose cache is empty."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), **environment}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """What :data:`CHOOSE` prints, in this process: with the library that is found now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native_library, "folder_of_libraries", native_library.cache_folder)

    def choose():
        found = native_library.library.__wrapped__()
        for module in ("native_calls", "native_choice", "native_layers"):
            monkeypatch.setattr(f"spreeze_zmq.nn.{module}.library", lambda: found)
        network = nn.mlp((4, 16, 2))
        line = nn.choose({"policy": network}, 64, (torch.float32,)).line
        network(torch.ones(3, 4)).sum().backward()
        return [line, str(network[0].weight.grad.shape)]

    return choose


CHOOSE = """
import torch
from setuptools import Distribution
from spreeze_zmq import nn
from spreeze_zmq.nn.native import library
library.folder_of_libraries = library.cache_folder
network = nn.mlp((4, 16, 2))
print(nn.choose({"policy": network}, 64, (torch.float32,)).line)
network(torch.ones(3, 4)).sum().backward()
print(network[0].weight.grad.shape)
"""


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SPREEZE_NATIVE", "0", "SPREEZE_NATIVE=0"),
        ("PATH", "/nonexistent", "no compiler (g++ or c++) on the path"),
    ],
    ids=["turned off", "no compiler"],
)
def test_without_the_library_torch_does_the_work_and_one_line_says_so(
    name, value, why, chosen, tmp_path, monkeypatch
):
    """The network learns as before."""
    monkeypatch.setenv(name, value)
    assert chosen() == [f"layers: torch, about half as fast as native code: {why}", "torch.Size([16, 4])"]
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.usefixtures("quick_compiler")
def test_a_processor_whose_instructions_are_masked_says_which_code_it_runs(chosen, tmp_path, monkeypatch):
    """As an old one, or one behind a hypervisor: it trains, and the line names the path."""
    monkeypatch.setattr(native_library, "cpu_flags", frozenset)
    line, shape = chosen()
    assert line.startswith("layers: ")
    assert "(plain)" in line
    assert shape == "torch.Size([16, 4])"
    assert len(list(tmp_path.rglob("*.so"))) == 1


@pytest.mark.skipif(runnable()[0] != "AVX512-BF16", reason="no such processor, or one with AMX")
@pytest.mark.usefixtures("quick_compiler")
def test_what_the_system_refuses_is_left_alone(tmp_path):
    """Flags that stand for tile registers, which Linux does not lend here: the next best code is measured,
    and the line says both.
    """
    flags = (
        'library.cpu_flags = lambda known=library.cpu_flags(): known | {"amx_tile", "amx_bf16"}\nnetwork ='
    )
    line, _ = child(CHOOSE.replace("network =", flags, 1), tmp_path).splitlines()
    assert "(AVX512-BF16)" in line
    assert "(the system refuses this process the registers of AMX)" in line


def test_a_compiler_that_fails_is_named(chosen, tmp_path, monkeypatch):
    """With the first line of its error, in the learners' logs and on the screen."""
    (tmp_path / "g++").write_text("#!/bin/sh\necho native.cpp:1: fatal error: no such luck >&2\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    line, _ = chosen()
    assert line.startswith("layers: torch, about half as fast as native code: ")
    assert "failed: native.cpp:1: fatal error: no such luck" in line
    monkeypatch.setattr(native_library, "CARRIED", tmp_path)
    for path, why in (
        (os.environ["PATH"], "failed: native.cpp:1: fatal error: no such luck"),
        ("/none", "no compiler"),
    ):
        monkeypatch.setenv("PATH", path)
        said = []
        native_library.prepare(said.append)
        assert said[-1].startswith("no native layers, so updates may take twice as long: ")
        assert why in said[-1]


def test_what_is_compiled_and_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    """As from a disk of which nothing is run: else each learner finds that out, and takes twice as long."""
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nwhile [ $1 != -o ]; do shift; done; printf '\\177ELF%100s' > $2\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(native_library, "CARRIED", tmp_path)
    monkeypatch.setattr(native_library, "cpu_flags", frozenset)
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path / "new")
    said = []
    native_library.prepare(said.append)
    assert native_library.library.__wrapped__().code is None
    assert [line.partition(":")[0] for line in said[1:]] == [
        "no native layers, so updates may take twice as long"
    ]
    assert str(tmp_path / "new") in said[1]


@pytest.mark.skipif(runnable()[0] != "AVX512-BF16", reason="no such processor, or one with AMX")
@pytest.mark.usefixtures("quick_compiler")
def test_what_learners_will_load_is_compiled_before_them(tmp_path, monkeypatch):
    """Also where the system refuses the registers of the best code, as those of tiles here."""
    flags = native_library.cpu_flags() | {"amx_tile", "amx_bf16"}
    monkeypatch.setattr(native_library, "cpu_flags", lambda: flags)
    monkeypatch.setattr(native_library, "CARRIED", tmp_path)
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path / "new")
    native_library.prepare(lambda line: None)
    before = set((tmp_path / "new").glob("*.so"))
    found = native_library.library.__wrapped__()
    assert found.instructions == "AVX512-BF16"
    assert set((tmp_path / "new").glob("*.so")) == before


def test_a_program_that_has_no_path_compiles_too(tmp_path, monkeypatch):
    """A compiler is found without one, but finds its assembler and linker by it."""
    (tmp_path / "native.cpp").write_text("int found;")
    monkeypatch.setattr(native_library, "SOURCES", tmp_path)
    monkeypatch.delenv("PATH")
    native_library.compile_to(tmp_path / "it.so", native_library.compiler_found(), ["-shared", "-fPIC"])
    assert (tmp_path / "it.so").exists()


def test_a_cache_that_cannot_be_written_costs_only_the_speed(chosen, tmp_path):
    """It is a file here, where root may write anything else."""
    (tmp_path / "spreeze_zmq").write_text("")
    assert "torch, about half as fast" in chosen()[0]


@pytest.mark.thorough
def test_two_processes_compile_once_and_choose_alike(tmp_path):
    """Both learners start at the same time; a second run gives the same bits as the first."""
    script = CHOOSE.replace("(torch.float32,)", "(torch.float32, torch.bfloat16)")
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert all(process.communicate(timeout=100)[0].startswith("layers: ") for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert len(list(tmp_path.rglob("*.so"))) == 1
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert len(kept) == 1
    lines = {subprocess.check_output(command, env=environment, text=True) for _ in range(2)}
    assert len(lines) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == kept


@pytest.mark.usefixtures("quick_compiler")
def test_what_was_compiled_with_the_package_needs_no_compiler(chosen, tmp_path, monkeypatch):
    """It is found by the sources and the flags: a file of other sources is passed over."""
    monkeypatch.setattr(native_library, "cpu_flags", frozenset)
    [built] = build_into(tmp_path / "built", ["plain"])
    monkeypatch.setattr(native_library, "CARRIED", built.parent)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "(plain)" in chosen()[0]
    assert list(tmp_path.rglob("*.so")) == [built]
    built.rename(built.with_name("native-0123456789abcdef0123.so"))
    assert "no compiler" in chosen()[0]


@pytest.mark.usefixtures("quick_compiler")
def test_a_package_without_the_best_code_lends_what_it_has(tmp_path, monkeypatch):
    """Its compiler was an older one: without another, the next best is used. What of it cannot be loaded is
    compiled.
    """
    monkeypatch.setattr(native_library, "cpu_flags", lambda: frozenset(native_library.INSTRUCTIONS["AVX2"]))
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path / "new")
    [built] = build_into(tmp_path / "built", ["plain"])
    spoilt, path, said = tmp_path / "spoilt" / built.name, os.environ["PATH"], []
    monkeypatch.setattr(native_library, "CARRIED", built.parent)
    monkeypatch.setenv("PATH", "/nonexistent")
    found = native_library.library.__wrapped__()
    assert (found.name, found.instructions) == (native_library.expected(), "plain")
    assert found.name == built.stem
    assert found.problem.startswith("no compiler")
    native_library.prepare(said.append)
    assert said == []
    spoilt.parent.mkdir()
    spoilt.write_bytes(ELF + bytes(100))
    monkeypatch.setattr(native_library, "CARRIED", spoilt.parent)
    monkeypatch.setattr(native_library, "cpu_flags", frozenset)
    monkeypatch.setenv("PATH", path)
    native_library.prepare(said.append)
    assert [line.partition(" with ")[0] for line in said] == ["compiling the native layers"]
    assert native_library.library.__wrapped__().instructions == "plain"


def test_the_libraries_of_a_package_are_built_where_they_are_looked_for(tmp_path, monkeypatch):
    """Below the folder that the package is built in."""
    folders = []
    monkeypatch.setattr(build, "build_into", folders.append)
    monkeypatch.setattr(build.build_py, "run", lambda _: None)
    command = build.BuildPy(Distribution())
    command.build_lib = str(tmp_path)
    command.run()
    assert folders == [tmp_path / native_library.CARRIED.relative_to(ROOT)]


def test_a_package_is_built_without_what_the_compiler_cannot_do(tmp_path, quick_gcc, monkeypatch, caplog):
    """Other instruction sets are in it; without any compiler none is, and both say so."""
    (tmp_path / "g++").write_text(
        '#!/bin/sh\ncase "$*" in *-mavx512f*) echo error: unknown >&2; exit 1;; esac\n'
        f'exec {quick_gcc} "$@"\n'
    )
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    [path] = build_into(tmp_path / "built", ["AVX-512", "plain"])
    assert path.name == native_library.name_of(native_library.flags_for("plain"))
    assert "no native layers for AVX-512: g++ failed: error: unknown" in caplog.text.replace(
        f"{tmp_path}/", ""
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    assert build_into(tmp_path / "none") == []
    assert "the package will hold no native layers: no compiler" in caplog.text
    assert not (tmp_path / "none").exists()


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_wheel_carries_the_layers_for_every_processor(tmp_path):
    """Of one platform and any Python; unpacked elsewhere it runs without a compiler."""
    source, wheels, there = (tmp_path / name for name in ("source", "wheels", "there"))
    for name in ("spreeze_zmq", "components", "launch"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
        )
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        wheels,
        source,
    ]
    subprocess.run(command, check=True, timeout=380)
    [wheel] = wheels.iterdir()
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert "linux" in wheel.name
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", there, wheel]
    subprocess.run(pip, check=True, timeout=60)
    built = [path.name for path in (there / "spreeze_zmq" / "nn" / "native" / "built").iterdir()]
    best = native_library.runnable()[0]
    assert native_library.name_of(native_library.flags_for(best)) in built
    assert len(built) <= len(native_library.INSTRUCTIONS)
    line, _ = child(CHOOSE, tmp_path, PATH="/nonexistent", PYTHONPATH=str(there)).splitlines()
    assert f"({best})" in line


@pytest.mark.usefixtures("quick_compiler")
def test_a_run_compiles_before_its_processes_start(tmp_path, monkeypatch):
    """They have seconds to get ready, which a compiler may need."""
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path / "new")
    said = []
    monkeypatch.setenv("SPREEZE_NATIVE", "0")
    native_library.prepare(said.append)
    assert said == []
    monkeypatch.delenv("SPREEZE_NATIVE")
    for _ in range(2):
        native_library.prepare(said.append)
    assert len(said) == 1
    assert said[0].startswith("compiling the native layers with ")
    [compiled] = (tmp_path / "new").glob("native-*.so")
    assert compiled.stem == native_library.expected()


@pytest.mark.usefixtures("quick_compiler")
def test_wrong_results_are_never_chosen(tmp_path, monkeypatch, caplog):
    """A library whose numbers are not torch's is no way at all."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources = shutil.copytree(native_library.SOURCES, tmp_path / "csrc")
    text = (sources / "numbers.h").read_text()
    assert "case RELU: return x < 0.0f" in text
    (sources / "numbers.h").write_text(
        text.replace("case RELU: return x < 0.0f", "case RELU: return x < 0.1f")
    )
    monkeypatch.setattr(native_library, "SOURCES", sources)
    monkeypatch.setattr(native_library, "folder_of_libraries", lambda: tmp_path)
    monkeypatch.setattr(native_library, "cpu_flags", frozenset)  # which compiles in a fraction of the time
    wrong = native_library.library.__wrapped__()
    monkeypatch.setattr(native_choice, "library", lambda: wrong)
    for module in ("native_calls", "native_layers"):
        monkeypatch.setattr(f"spreeze_zmq.nn.{module}.library", lambda: wrong)
    network = nn.mlp((4, 16, 2))
    with caplog.at_level(logging.INFO):
        line = nn.choose({"policy": network}, 64, (torch.float32,)).line
    assert line.startswith("layers: torch in fp32; native ones")
    assert isinstance(network, NativeSequential)
    assert network.formats == frozenset()
