"""Forked processes are as those started by their commands: real servers, real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.files import LEAST_INHERITED
from spreeze_zmq.supervisor import Exited, ForkServer, ForkSpawner, ProcessSpec, Supervisor

DEADLINE_S = 20.0

#: A component that writes what it finds into ``said`` in the folder of its first argument, a line each time.
PROGRAM = """
import json, os, random, signal, subprocess, sys, time
import numpy as np
import once
if __name__ == "__main__":
    folder, order = sys.argv[1:]
    inherited = os.environ.get("TEST_DESCRIPTOR")
    names = "TEST_DESCRIPTOR", "OMP_NUM_THREADS", "PYTHONUNBUFFERED", "TEST_LATER"
    process = None if order != "parent" else subprocess.Popen(["sleep", "60"])
    said = {
        "own": {
            "pid": os.getpid(), "draws": [random.random(), np.random.rand()], "loaded": once.MADE,
            "child": process and process.pid,
        },
        "leads": os.getpgrp() == os.getsid(0) == os.getpid(), "parent": os.getppid(), "argv": sys.argv,
        "program": sys.modules["__main__"].__file__, "path": sys.path, "nice": os.nice(0),
        "cpus": sorted(os.sched_getaffinity(0)), "folder": os.getcwd(),
        "environment": {name: os.environ.get(name) for name in names},
        "inherited": inherited and os.pread(int(inherited), 9, 0).decode(),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
        "command": open("/proc/self/cmdline").read().replace("\\0", " ").strip(),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    }
    print("on standard output")
    with open(f"{folder}/said", "a") as file:
        print(json.dumps(said), file=file)
    if order == "fail":
        raise KeyError("obs")
    if order.isdecimal():
        sys.exit(int(order))
    time.sleep(60)
"""


@pytest.fixture
def program(tmp_path):
    """The component's folder; the server loads it at once, a module of its own once."""
    folder = tmp_path / "component"
    folder.mkdir()
    (folder / "__main__.py").write_text(PROGRAM)
    (folder / "once.py").write_text("import time\nMADE = time.monotonic_ns()")
    return folder


@pytest.fixture
def server(program, spec):
    """A server that has the program."""
    server = ForkServer([program], replace(spec("0"), command=()))
    yield server
    server.kill()


@pytest.fixture
def spec(program, tmp_path):
    """A function that makes the specification of a process with an order."""

    def make(order, name="sampler-0", **changes):
        command = (sys.executable, str(program), str(tmp_path), order)
        return ProcessSpec(name, command, tmp_path / "logs" / f"{name}.log", **changes)

    return make


@pytest.fixture
def supervisor(server):
    """A supervisor whose processes the server forks."""
    with closing(Supervisor(ForkSpawner([server]))) as supervisor:
        yield supervisor


def exits(supervisor, number=1):
    """The next exits."""
    found, until_s = [], time.monotonic() + DEADLINE_S
    while len(found) < number:
        assert time.monotonic() < until_s, found
        found += [event for event in supervisor.poll() if isinstance(event, Exited)]
        time.sleep(0.01)
    return found


def said(tmp_path, supervisor, number=1):
    """What the first processes have said, each with a part that is its own."""
    path, until_s = tmp_path / "said", time.monotonic() + DEADLINE_S
    while not path.exists() or path.read_text().count("\n") < number:
        assert time.monotonic() < until_s, supervisor.names()
        supervisor.poll()
        time.sleep(0.01)
    supervisor.poll()  # hears of the last one, which may have been quicker
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(each.pop("own"), each) for each in found]


def gone(pid):
    """Whether there is no such process, not even a zombie."""
    return not os.path.exists(f"/proc/{pid}")


def test_a_forked_process_finds_what_a_started_one_finds(supervisor, spec, tmp_path, monkeypatch):
    """Parent, group, descriptors, environment, folders of modules, CPUs, command line; but no module is
    loaded again.
    """
    monkeypatch.setenv("TEST_LATER", "set after the server had begun")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/later:", prepend=os.pathsep)  # the current folder, too
    kept = os.memfd_create("kept")
    os.write(kept, b"inherited")
    environment = {"TEST_DESCRIPTOR": str(kept)}
    conditions = {
        "environment": environment,
        "descriptors": (kept,),
        "nice": 3,
        "cpus": frozenset({min(os.sched_getaffinity(0))}),
    }
    supervisor.start(spec("parent", **conditions))
    supervisor.start(spec("parent", "sampler-1", **conditions))
    said(tmp_path, supervisor, 2)
    with closing(Supervisor()) as by_command:
        by_command.start(spec("parent", "sampler-2", **conditions))
        (one, first), (other, second), (third, started) = said(tmp_path, by_command, 3)
    os.close(kept)
    assert first == second == started
    assert first["leads"]
    assert first["parent"] == os.getpid()
    assert one["loaded"] == other["loaded"] != third["loaded"]
    assert one["draws"][0] != other["draws"][0]
    assert one["draws"][1] != other["draws"][1]
    assert set(supervisor.pids().values()) == {one["pid"], other["pid"]}


@pytest.mark.parametrize("fields", [50, 42], ids=["of gVisor", "of an emulated processor"])
def test_a_kernel_that_does_not_say_where_its_command_line_is_costs_no_process(
    fields, program, request, spec, tmp_path
):
    """It has zeros for that, or nothing; ``ps`` shows the server's line then."""
    stat = f"7 (python) S{' 0' * (fields - 1)}".encode()
    given = f"io.BytesIO({stat!r}) if path == '/proc/self/stat' else kept(path, *how, **kinds)"
    lines = "import builtins, io", "MADE, kept = 'once', open"
    (program / "once.py").write_text(
        "\n".join((*lines, f"builtins.open = lambda path, *how, **kinds: {given}"))
    )
    supervisor = request.getfixturevalue("supervisor")
    supervisor.start(spec("0", max_restarts=0))
    (exited,) = exits(supervisor)
    assert exited.code == 0
    [(_, found)] = said(tmp_path, supervisor)
    assert "forkserver" in found["command"]


def test_its_end_is_told_as_that_of_a_started_one(supervisor, spec, tmp_path):
    """Exit codes, a traceback, signals; what it prints is noticed."""
    supervisor.start(spec("3", max_restarts=0))
    (exited,) = exits(supervisor)
    assert (exited.code, exited.expected) == (3, False)
    assert "on standard output" in (tmp_path / "logs" / "sampler-0.log").read_text()
    supervisor.start(spec("fail", "sampler-1", max_restarts=0))
    (exited,) = exits(supervisor)
    assert exited.code == 1
    assert exited.words.splitlines()[-1] == "KeyError: 'obs'"
    supervisor.start(spec("sleep", "sampler-2"))
    said(tmp_path, supervisor, 3)
    supervisor.stop(["sampler-2"])
    (exited,) = exits(supervisor)
    assert (exited.signal, exited.expected) == (signal.SIGTERM, True)


def test_its_children_end_with_it_and_it_starts_again(supervisor, spec, tmp_path):
    """Killed from elsewhere; the orphans are reaped, and the next life is forked too."""
    supervisor.start(spec("parent"))
    ((own, _),) = said(tmp_path, supervisor)
    os.kill(own["pid"], signal.SIGKILL)
    (exited,) = exits(supervisor)
    assert (exited.signal, exited.restarting) == (signal.SIGKILL, True)
    assert gone(own["pid"])
    (_, (again, _)) = said(tmp_path, supervisor, 2)
    assert again["loaded"] == own["loaded"]
    supervisor.stop(["sampler-0"])
    exits(supervisor)
    supervisor.close()
    assert gone(again["pid"])
    assert gone(own["child"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_the_server_loads_ends_what_would_be_forked(program, spec, tmp_path, number):
    """At once, and nothing runs later."""
    (program / "once.py").write_text("import time\ntime.sleep(60)")
    with closing(Supervisor(ForkSpawner([ForkServer([program], spec("0"))]))) as supervisor:
        supervisor.start(spec("sleep", max_restarts=0))
        supervisor.poll()
        if number == signal.SIGTERM:
            supervisor.stop(["sampler-0"])
        else:
            supervisor.kill("sampler-0")
        (exited,) = exits(supervisor)
        assert exited.signal == number
    assert not (tmp_path / "said").exists()


def test_what_was_stopped_before_its_fork_ends_as_it_is_forked(supervisor, server, spec):
    """Though it was told as ended, and no other process waits for the server."""
    before, until_s = set(psutil.Process().children()), time.monotonic() + DEADLINE_S
    supervisor.start(spec("sleep"))
    supervisor.stop(["sampler-0"])
    assert exits(supervisor)[0].signal == signal.SIGTERM
    while server._waiting:
        assert time.monotonic() < until_s
        supervisor.poll()
        time.sleep(0.01)
    assert set(psutil.Process().children()) <= before


def test_without_its_server_a_process_starts_by_its_command(supervisor, server, spec, tmp_path):
    """Also one that waited for the server."""
    supervisor.start(spec("sleep"))
    server.kill()
    supervisor.start(spec("sleep", "sampler-1"))
    found = said(tmp_path, supervisor, 2)
    assert {own["pid"] for own, _ in found} == set(supervisor.pids().values())
    assert len({own["loaded"] for own, _ in found}) == 2


def test_after_an_upgrade_a_process_starts_by_its_command(program, supervisor, spec, tmp_path):
    """Else its program, and the native code that it compiles, would be newer than its modules."""
    supervisor.start(spec("sleep"))
    said(tmp_path, supervisor)
    (program / "once.py").write_text("MADE = 'of the next release'")
    for number in (1, 2):
        supervisor.start(spec("sleep", f"sampler-{number}"))
    (_, *found) = said(tmp_path, supervisor, 3)
    assert [own["loaded"] for own, _ in found] == ["of the next release"] * 2


def test_so_it_does_after_an_upgrade_while_the_server_loads(program, request, spec, tmp_path):
    """Also by files that keep the time at which they were packed."""
    once, (loads, ready) = program / "once.py", (tmp_path / name for name in ("loads", "ready"))
    waits = f"while not Path({str(ready)!r}).exists():\n    time.sleep(0.01)\n"
    begins = f"from pathlib import Path\nimport time\nMADE = 'before'\nPath({str(loads)!r}).touch()\n"
    once.write_text(begins + waits)
    supervisor, until_s = request.getfixturevalue("supervisor"), time.monotonic() + DEADLINE_S
    while not loads.exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)
    once.write_text("MADE = 'of the next release'")
    os.utime(once, (1_000_000_000, 1_000_000_000))
    ready.touch()
    supervisor.start(spec("sleep"))
    [(own, _)] = said(tmp_path, supervisor)
    assert own["loaded"] == "of the next release"


def test_what_is_set_before_modules_load_is_that_of_the_server(server, spec, tmp_path):
    """The number of threads of libraries, and the program."""
    assert server.forks(spec("0"))
    assert not server.forks(spec("0", threads=2))
    assert not server.forks(spec("0", threads=0))
    assert not server.forks(replace(spec("0"), command=(sys.executable, "-u", str(tmp_path / "component"))))


LAUNCHER = """
import sys, time
from pathlib import Path
from spreeze_zmq.supervisor import ForkServer, ForkSpawner, ProcessSpec, Supervisor
program, folder = map(Path, sys.argv[1:3])
spec = ProcessSpec("sampler-0", (sys.executable, str(program), str(folder), "parent"), folder / "log")
supervisor = Supervisor(ForkSpawner([ForkServer([program], spec)]))
supervisor.start(spec)
while True:
    if sys.argv[3] == "hears":
        supervisor.poll()
    time.sleep(0.01)
"""


@pytest.mark.parametrize("hears", ["hears", "has not heard yet"])
def test_nothing_outlives_a_launcher_that_is_killed(program, tmp_path, hears):
    """Neither the server nor what it has forked, nor the children of that, also before it is told of them."""
    command = [sys.executable, "-c", LAUNCHER, str(program), str(tmp_path), hears]
    launcher = subprocess.Popen(command)
    until_s = time.monotonic() + DEADLINE_S
    try:
        while not (tmp_path / "said").exists() or not (tmp_path / "said").read_text().endswith("\n"):
            assert time.monotonic() < until_s
            time.sleep(0.01)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    finally:
        launcher.kill()
        launcher.wait()
    own = json.loads((tmp_path / "said").read_text())["own"]
    pids = {own["pid"], own["child"], *map(int, children)}
    assert len(pids) == 4  # the server and the guard too
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process runs: one that init has not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def taken(program):
    """A number of kept memory at which the program, once loaded, has something open."""
    made = kept_memory.create("replay")
    assert made >= LEAST_INHERITED
    code = f"import os\nMADE = os.dup2(os.open(os.devnull, os.O_RDONLY), {made})\n"
    (program / "once.py").write_text(code)
    yield made
    os.close(made)


def test_an_inherited_descriptor_takes_the_place_of_none_that_is_open(taken, supervisor, spec):
    """As of a context that ZeroMQ makes at the fork, which would hear of what it never sent."""
    about = spec("parent", descriptors=(taken,))
    supervisor.start(about)
    until_s = time.monotonic() + DEADLINE_S
    while f"descriptor {taken} is to be inherited" not in (text := read(about.log_path)):
        supervisor.poll()
        assert time.monotonic() < until_s, text
        time.sleep(0.02)


def read(path):
    """What a log holds so far."""
    return path.read_text() if path.exists() else ""
