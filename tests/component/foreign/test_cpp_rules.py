"""What the sampler in C++ refuses, and where its environments stand among all."""

import json
import os
import platform
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from components.sampler_cpp import __main__ as program
from spreeze_zmq.base.once import ELF
from spreeze_zmq.peers import garbage, policies
from spreeze_zmq.plan import topology
from spreeze_zmq.policy import places
from spreeze_zmq.run.folder import RunFolder, write_plan

SPEC = topology.load("pendulum", []).environment


def said_of(probe, frames):
    """What the program says of the frames of a policy message."""
    packed = struct.pack("<I", len(frames)) + b"".join(struct.pack("<I", len(f)) + f for f in frames)
    done = subprocess.run([probe, "act"], input=packed, capture_output=True, text=False, check=False)
    assert done.returncode == (2 if done.stderr else 0)
    return done.stderr.decode()


@pytest.mark.parametrize("mistake", sorted(garbage.policies(policies.random_policy(SPEC, "tanh_normal", 1))))
def test_a_policy_that_breaks_a_rule_is_passed_over(probe, mistake):
    """It is a refused message, and no policy that cannot be used, which would end the run."""
    whole = policies.random_policy(SPEC, "tanh_normal", 1)._replace(sender="actor_learner-0", incarnation=5)
    assert not said_of(probe, garbage.frames_of(whole))
    word = mistake.partition(" ")[0]
    assert said_of(probe, garbage.policies(whole)[mistake]).startswith(f"{word}: ")


@pytest.mark.parametrize(("index", "envs"), [(0, 4), (2, 4), (61, 1), (99_999, 16)])
def test_environments_stand_where_those_of_the_shipped_sampler_do(probe, index, envs):
    """To the bit."""
    words = [probe, "places", str(index), str(envs)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert np.array_equal(np.array(said, np.float32), places(envs, index))


def test_what_it_is_linked_with_names_the_program(tmp_path, monkeypatch):
    """One that was linked to another version of MuJoCo, or on another system that shares this home, could not
    start.
    """
    monkeypatch.setattr(program, "package", lambda name: str(tmp_path / name))
    monkeypatch.setattr(program, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(program, "found", lambda stamp: stamp)
    (tmp_path / "mujoco").mkdir()
    library = tmp_path / "mujoco" / "libmujoco.so.3.0.0"
    library.touch()
    before = program.built()
    assert program.built() == before
    library.rename(library.with_name("libmujoco.so.4.0.0"))
    assert (after := program.built()) != before
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian", "VERSION_ID": "7"})
    assert program.built() != after


#: A program that says two numbers, one of a header in its folder, one of a header elsewhere.
NUMBERS = {
    "crane/CMakeLists.txt": """cmake_minimum_required(VERSION 3.16)
project(crane CXX)
add_executable(sampler_cpp src/main.cpp)
""",
    "crane/src/main.cpp": """#include <cstdio>
#include "../../elsewhere/there.hpp"
#include "robot/here.hpp"
int main() { std::printf("%d %d", HERE, THERE); }
""",
    "crane/src/robot/here.hpp": "#define HERE 1\n",
    "elsewhere/there.hpp": "#define THERE 1\n",
}


@pytest.mark.usefixtures("built_cpp")
def test_what_a_program_includes_is_built_again_where_it_has_changed(tmp_path, monkeypatch):
    """Also from folders below its sources, and from elsewhere: there CMake looks before each run, not at each
    start of a sampler. What was built before keeps its place, since it may run.
    """

    def change(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def numbers(path):
        return subprocess.run([path], capture_output=True, text=True, check=True).stdout

    for name, text in NUMBERS.items():
        change(name, text)
    monkeypatch.setattr(program, "HERE", tmp_path / "crane")
    monkeypatch.setattr(program, "package", lambda name: str(tmp_path / name))
    monkeypatch.setattr(program, "cache_folder", lambda: tmp_path / "cache")
    first = program.built(anew=True)
    change("elsewhere/there.hpp", "#define THERE 2\n")
    assert program.built() == first
    second = program.built(anew=True)
    assert program.built() == program.built(anew=True) == second
    change("crane/src/robot/here.hpp", "#define HERE 3\n")
    third = program.built()
    assert [numbers(path) for path in (first, second, third)] == ["1 1", "1 2", "3 2"]


@pytest.mark.usefixtures("no_locks")
def test_builds_at_once_have_folders_of_their_own_where_no_lock_parts_them(tmp_path, monkeypatch):
    """One would link what the other has half compiled."""
    both = threading.Barrier(2, timeout=30)

    def compile_in(folder, *_):
        folder.mkdir()
        both.wait()
        (folder / "sampler_cpp").write_bytes(ELF)
        both.wait()

    monkeypatch.setattr(program, "package", lambda name: str(tmp_path / name))
    monkeypatch.setattr(program, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(program, "compile_in", compile_in)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(program.built) for _ in range(2))
        assert first.result(60) == second.result(60)
    assert first.result().read_bytes() == ELF
    assert len(list(tmp_path.glob("build-*"))) == 1, "the other folder is left behind"


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("beside", ["another cache", "this one"])
def test_a_build_leaves_its_folder_whatever_is_built_meanwhile(tmp_path, monkeypatch, beside):
    """Of a cache of its own nobody else has the folder; the folder of a build that fails beside it, and one
    in which nobody has built for long, are removed.
    """
    caches, begun = {"this one": tmp_path / "one", "another cache": tmp_path / "two"}, []
    cache = [caches["this one"]]

    def compile_in(folder, *_):
        folder.mkdir(parents=True)
        begun.append(folder)
        if len(begun) == 1:
            cache[0] = caches[beside]
            if beside == "this one":
                with pytest.raises(program.NotBuilt):
                    program.built()
            else:
                program.built()
        elif beside == "this one":
            raise program.NotBuilt("no compiler")
        (folder / "sampler_cpp").write_bytes(ELF)

    monkeypatch.setattr(program, "package", lambda name: str(tmp_path / name))
    monkeypatch.setattr(program, "cache_folder", lambda: cache[0])
    monkeypatch.setattr(program, "compile_in", compile_in)
    ages_s = {"old": 2 * program.KEPT_S, "new": program.KEPT_S / 2}
    left = {name: caches["this one"] / f"build-{program.HERE.name}-{name}" for name in ages_s}
    for name, path in left.items():
        path.mkdir(parents=True)
        os.utime(path, (0, time.time() - ages_s[name]))
    program.built()
    kept = begun if beside == "another cache" else begun[:1]
    assert {*tmp_path.glob("*/build-*")} == {*kept, left["new"]}


def test_a_program_that_may_not_run_is_one_line(tmp_path, monkeypatch, capsys):
    """In a cache on a disk that runs none, and with the exit code of bad input."""
    (tmp_path / "program").write_bytes(ELF)
    monkeypatch.setattr(program, "built", lambda **how: tmp_path / "program")
    with pytest.raises(SystemExit) as left:
        program.main(["run.json", "0"])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"sampler: {tmp_path}/program cannot be run: Permission denied; set XDG_CACHE_HOME"
    )
    assert said.count("\n") == 1


def test_an_encrypted_channel_is_refused(built_cpp, tmp_path):
    """One line says which and what to do, with the exit code of bad input."""
    plan = topology.load("halfcheetah", [])
    _, sockets = write_plan(plan, RunFolder.create("run", str(tmp_path / "run")))
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text())
    about["channels"]["policy"]["curve"] = True
    file.write_text(json.dumps(about))
    try:
        command = [built_cpp / "sampler_cpp", str(file), "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    finally:
        sockets.remove()
    assert done.returncode == 2
    assert done.stderr.startswith("sampler: channels.policy is encrypted (ipc://")
    assert done.stderr.count("\n") == 1
