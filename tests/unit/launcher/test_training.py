"""``spreeze_zmq.train``: its arguments are the tables of a topology."""

import enum
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest

import spreeze_zmq
from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.base.machine import program
from spreeze_zmq.callbacks import Callback, Logger
from spreeze_zmq.commands.check import FirstLook, endless
from spreeze_zmq.commands.launch_line import load, parser
from spreeze_zmq.envs import probing
from spreeze_zmq.envs.named import imported
from spreeze_zmq.launcher.training import entry, launching
from spreeze_zmq.launcher.training.arguments import env_name
from spreeze_zmq.launcher.training.launching import End, launch
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.topology.document import read_source
from spreeze_zmq.run.folder import RunFolder, write_plan
from tests.unit.data.made import dataset

ALONE = {"data": {"own": {"source": "minari:own-v0"}}, "components": {"sampler": {"count": 0}}}


def closed():
    """A stream that was closed."""
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The settings that the launcher gets for arguments of ``train``."""

    def settings(*env, **tables):
        given = []

        def launch(words, *_, show):
            given.extend(words)
            return End(2, "stopped here", 0)

        monkeypatch.setattr(entry, "launch", launch)
        with pytest.raises(InputError, match="stopped here"):
            spreeze_zmq.train(*env, run_dir=tmp_path / "run", progress=False, **tables)
        return [word for before, word in pairwise(given) if before == "--set"]

    return settings


@pytest.mark.parametrize(
    ("tables", "said"),
    [({"algorithm": "td3_bc", **ALONE}, "own"), ({"groups": {"count": 2}}, 2)],
    ids=["data alone", "groups"],
)
def test_a_script_can_train_on_data_and_in_groups(tables, said, tmp_path, monkeypatch, asked):
    """As a topology can: each table comes to the launcher by its own name."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    plan = topology.load({"run": {"env": "Pendulum-v1"}}, asked("Pendulum-v1", **tables))
    assert said in (*plan.data, plan.groups.count)


@pytest.mark.parametrize(
    "before", [1e-3, {"from": 1e-3, "to": 1e-5, "shape": "cosine"}], ids=["number", "schedule"]
)
def test_a_schedule_stands_in_place_of_what_the_topology_has(before, asked):
    """Nothing of the topology's is mixed with it, as nothing is of an environment's argument; keys of other
    tables are each by itself.
    """
    schedule = {"from": 3e-4, "to": 1e-4, "over": {"env_steps": 5000}}
    words = asked(
        topology="pendulum",
        options={"learning_rate": schedule},
        env_kwargs={"goal": {"x": 1}},
        stop={"env_steps": 9000},
    )
    had = {"env": "Pendulum-v1", "stop": {"minutes": 5}, "env_kwargs": {"goal": {"y": 2}, "g": 9.0}}
    values = read_source({"run": had, "algorithm": {"learning_rate": before}}, words).values
    assert values["algorithm"]["learning_rate"] == schedule
    assert values["run"]["env_kwargs"] == {"goal": {"x": 1}, "g": 9.0}
    assert values["run"]["stop"] == {"minutes": 5, "env_steps": 9000}


def test_a_table_without_keys_overrides_none(asked):
    """Of a topology's tables; a source that has none is a mistake, and an option's value is its own."""
    before = read_source("hopper").values
    empty = {"options": {}, "stop": {}, "env_kwargs": {}, "components": {"sampler": {}}}
    assert before["components"]["sampler"]
    assert read_source("hopper", asked(topology="hopper", **empty)).values == before
    goal = read_source("hopper", asked(topology="hopper", env_kwargs={"goal": {}})).values
    assert goal["run"]["env_kwargs"] == {"goal": {}}
    assert "data.shown={}" in asked("Pendulum-v1", data={"shown": {}})


@pytest.mark.parametrize("code", [-2, 130])
def test_who_interrupts_a_script_before_its_run_has_begun_is_obeyed(code, tmp_path, monkeypatch):
    """While the launcher loads, and while it compiles or measures: nothing failed, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(code, "", 1))
    with pytest.raises(KeyboardInterrupt):
        spreeze_zmq.train("Pendulum-v1", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_that_fails_before_its_run_begins_leaves_no_folder(tmp_path, monkeypatch):
    """As where measuring fails: none is left that no run made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(1, "measuring failed", 0))
    with pytest.raises(ComponentFailed, match="measuring failed"):
        spreeze_zmq.train("Pendulum-v1", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("callbacks", "who"),
    [([], "Ctrl-C"), ([Callback()], "a callback or Ctrl-C"), ([Logger()], "Ctrl-C")],
    ids=["none", "one", "a logger"],
)
def test_a_run_without_a_limit_may_be_ended_by_a_callback_of_its_script(
    callbacks, who, tmp_path, monkeypatch
):
    """Its launcher, which calls none of them, says what ends it; a logger only draws."""
    said = []

    def stands_in(words, *_, show):
        arguments = parser().parse_args(words)
        said.append(endless(load(arguments, FirstLook()), observed=arguments.observed))
        return End(2, "stopped here", 0)

    monkeypatch.setattr(entry, "launch", stands_in)
    with pytest.raises(InputError, match="stopped here"):
        spreeze_zmq.train("Pendulum-v1", run_dir=tmp_path / "run", progress=False, callbacks=callbacks)
    assert said == [f"nothing ends this run but {who}; --set run.stop.minutes=10 would"]


def test_a_callback_may_go_elsewhere_while_its_run_goes_on(tmp_path, monkeypatch):
    """The folder of the run is found where it was made."""
    monkeypatch.chdir(tmp_path)

    def launch(words, *_, show):
        _, sockets = write_plan(topology.load("pendulum"), RunFolder.create("run", words[-1]))
        sockets.remove()
        os.chdir("/")
        return End(0, "", 0)

    monkeypatch.setattr(entry, "launch", launch)
    run = spreeze_zmq.train("Pendulum-v1", run_dir="mine", progress=False)
    assert run.folder == tmp_path / "mine"


TRAINS = """
import gates, spreeze_zmq
gates.reached.set()
assert gates.opened.wait(60)
spreeze_zmq.train("Pendulum-v1")
"""


def test_while_a_run_imports_a_module_another_thread_may_begin_one(tmp_path, monkeypatch):
    """The module itself, which the call would import again, begins none."""
    gates = SimpleNamespace(reached=threading.Event(), opened=threading.Event())
    monkeypatch.setitem(sys.modules, "gates", gates)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trains.py").write_text(TRAINS)
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(2, "stopped here", 0))

    def begun(*callbacks):
        with pytest.raises(InputError) as refused:
            spreeze_zmq.train("Pendulum-v1", run_dir=tmp_path / "run", callbacks=callbacks, progress=False)
        return str(refused.value)

    with ThreadPoolExecutor() as threads:
        imports = threads.submit(begun, "trains:Mine")
        assert gates.reached.wait(60)
        other = begun()
        gates.opened.set()
    assert other == "stopped here"
    assert "called while a run imports this file" in imports.result()
    assert begun() == "stopped here"


POLE = "import gymnasium\n\ndef pole():\n    return gymnasium.make({!r})\n"


def test_the_next_run_of_a_script_finds_its_own_modules(tmp_path, monkeypatch):
    """Not those of the same name beside an earlier topology, in which the script may have evaluated; a
    function that it has from there is found there.
    """
    for name, env_id in (("first", "of another run"), ("second", "CartPole-v1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of_two.py").write_text(POLE.format(env_id))
        (tmp_path / name / "t.toml").write_text('[run]\nenv = "of_two:pole"\n')
    monkeypatch.setattr(sys, "path", list(sys.path))

    def stands_in(words, *_, show):
        plan = replace(topology.load("pendulum"), topology_file=words[0])
        _, sockets = write_plan(plan, RunFolder.create("run", words[-1]))
        sockets.remove()
        return End(0, "", 0)

    monkeypatch.setattr(entry, "launch", stands_in)
    spreeze_zmq.train(topology=tmp_path / "first" / "t.toml", run_dir=tmp_path / "run", progress=False)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path / "first")
        pole = imported("of_two:pole", "of_two").pole
    end = launch([str(tmp_path / "second" / "t.toml"), "--graph"], entry.import_paths(), show=False)
    assert (end.code, end.message) == (0, "")
    assert str(tmp_path / "first") in entry.import_paths(pole)
    del sys.modules["of_two"]


def test_the_modules_of_an_archive_are_found(tmp_path, monkeypatch):
    """As Python finds them on its path."""
    with zipfile.ZipFile(tmp_path / "envs.zip", "w") as archive:
        archive.writestr("of_archive.py", POLE.format("CartPole-v1"))
    monkeypatch.syspath_prepend(str(tmp_path / "envs.zip"))
    end = launch(["--env", "of_archive:pole", "--graph"], entry.import_paths(), show=False)
    assert (end.code, end.message) == (0, "")


def test_a_class_of_a_script_that_multiprocessing_has_started_is_one_of_a_script(monkeypatch):
    """There the script is called ``__mp_main__``, which the run's processes cannot import either."""
    kind = type("Mine", (), {"__module__": "__mp_main__"})
    monkeypatch.setitem(sys.modules, "__mp_main__", SimpleNamespace(Mine=kind))
    with pytest.raises(InputError, match="Mine is defined in this script or notebook"):
        env_name(kind)


NAMED = """
import functools
import gymnasium

class Pole(gymnasium.Env):
    @classmethod
    def made(cls):
        return cls()

First = Pole

class Pole(First):
    pass

def inside():
    class Pole(First):
        pass
    return Pole

def decorated(function):
    return functools.wraps(function)(lambda: function())

@decorated
@decorated
def made():
    return First()
"""


def test_what_a_module_has_is_named_also_once_it_was_reloaded(tmp_path, monkeypatch):
    """As by a notebook's %autoreload, after which the class that the notebook has is another object. One that
    has another name too is found by that; what no name of the module reaches, as what a decorator wraps, is
    refused, and said to be what it is.
    """
    (tmp_path / "named_env.py").write_text(NAMED)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("named_env")
    before, first = module.Pole, module.First
    assert (env_name(before), env_name(first)) == ("named_env:Pole", "named_env:First")
    made = module.made
    importlib.reload(module)
    assert module.Pole is not before
    assert (env_name(before), env_name(made)) == ("named_env:Pole", "named_env:made")
    for given, said in (
        (made.__wrapped__, "made has no name in named_env"),
        (module.made.__wrapped__.__wrapped__, "made has no name in named_env"),
        (module.Pole.made, "Pole.made is a method or an inner class of named_env"),
        (module.inside(), "Pole is defined in another function of named_env"),
    ):
        with pytest.raises(InputError, match=said):
            env_name(given)
    del sys.modules["named_env"]


class Mode(enum.IntEnum):
    """A number with a text of its own."""

    FAST = 1


class Ratio(float):
    """Likewise."""

    def __repr__(self):
        return "half"


def test_a_number_of_a_class_of_ones_own_is_that_number(asked):
    """Its own text would come to the environment in its place."""
    words = asked("Pendulum-v1", env_kwargs={"mode": Mode.FAST, "each": [Mode.FAST, Ratio(0.5)]})
    values = read_source({"run": {"env": "Pendulum-v1"}}, words).values
    assert values["run"]["env_kwargs"] == {"mode": 1, "each": [1, 0.5]}


def test_arguments_of_any_length_reach_the_launcher(asked):
    """Such as the prices of a year: the system takes 128 KiB in a word of a command."""
    prices = [price / 7 for price in range(20_000)]
    words = asked("Pendulum-v1", env_kwargs={"prices": prices})
    values = read_source({"run": {"env": "Pendulum-v1"}}, words).values
    assert values["run"]["env_kwargs"] == {"prices": prices}
    end = launch(["--env=Pendulum-v1", *(f"--set={word}" for word in words), "--graph"], [], show=False)
    assert "it takes no argument 'prices'" in end.message


class Tee:
    """A stream that somebody wrote: it writes, and no more."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append(text)

    def flush(self):
        """Nothing waits."""


@pytest.mark.parametrize("kind", [Tee, lambda: None, closed], ids=["of ones own", "none", "closed"])
def test_a_run_begins_whatever_the_output_is(kind, monkeypatch):
    """What it says is shown where that can be."""
    stream = kind()
    monkeypatch.setattr(sys, "stdout", stream)
    if stream is None:
        monkeypatch.setattr(sys, "__stdout__", None)
    end = launch(["--list"], [], show=True)
    assert (end.code, end.message) == (0, "")
    assert not isinstance(stream, Tee) or "pendulum" in "".join(stream.lines)


def gone():
    """The end of a pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    return io.FileIO(writer, "w")


@pytest.mark.parametrize(
    ("opened", "shown"),
    [
        (io.BytesIO, "first +- 1\nlast +- 2\ndone +- 3\n"),
        (partial(io.FileIO, "/dev/full", "w"), ""),
        (gone, ""),
    ],
    ids=["ascii", "full", "left"],
)
def test_a_run_goes_on_where_what_it_says_cannot_be_written(opened, shown, monkeypatch, caplog):
    """A line in its place says so, and that the run is as it was."""
    script = "echo 'first ± 1'; echo 'last ± 2'; echo 'done ± 3' >&2"
    monkeypatch.setattr(launching, "LAUNCHER", ("/bin/sh", "-c", script))
    raw = opened()
    encoding = "ascii" if shown else "utf-8"
    with io.TextIOWrapper(raw, encoding=encoding, write_through=True) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert launch([], [], show=True) == End(0, "done ± 3", 0)
        assert ["are shown no more" in record.message for record in caplog.records] == [True] * (not shown)
        assert not shown or raw.getvalue().decode() == shown


def test_a_launcher_that_could_not_be_started_leaves_no_folder(tmp_path, monkeypatch):
    """Whatever was raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launching, "LAUNCHER", (str(tmp_path / "no such program"),))
    with pytest.raises(FileNotFoundError):
        spreeze_zmq.train("Pendulum-v1", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_that_was_killed_is_said_with_what_goes_on(tmp_path, monkeypatch):
    """It could not say so itself. Before the run began there are neither logs nor anything to go on from."""
    monkeypatch.chdir(tmp_path)
    for begins, named in (
        ("", {}),
        ("", {"run_dir": "run"}),
        ("mkdir run; touch run/run.json;", {"run_dir": "run"}),
    ):
        monkeypatch.setattr(launching, "LAUNCHER", ("/bin/sh", "-c", f"{begins} kill -9 $$"))
        with pytest.raises(ComponentFailed) as failed:
            spreeze_zmq.train("Pendulum-v1", progress=False, **named)
        said = str(failed.value)
        assert begins or said == "SIGKILL ended the launcher before the run began"
    assert said.startswith(f"SIGKILL ended the launcher, and the run with it: see {tmp_path}/run/logs; ")
    assert said.endswith(f"goes on {program('spreeze-launch')} --resume {tmp_path}/run")


def test_an_interrupt_as_the_launcher_begins_is_the_launchers(monkeypatch):
    """A cell that is stopped within milliseconds of its start leaves no run behind it, also where another
    thread of its kernel takes the signal.
    """
    begun, popen = [], subprocess.Popen

    def begin(*arguments, **options):
        begun.append(popen(*arguments, **options))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # the thread takes it
        return begun[0]

    monkeypatch.setattr(launching, "LAUNCHER", ("sleep", "60"))
    monkeypatch.setattr(launching.subprocess, "Popen", begin)
    over = threading.Event()
    threading.Thread(target=over.wait).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        end = launch([], [], show=False)
    except KeyboardInterrupt:
        end = None
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    with begun[0] as launcher:
        code = launcher.poll()
        launcher.kill()
    assert (end, code) == (End(-signal.SIGINT, "", 1), -signal.SIGINT)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_second_interrupt_is_one_whatever_the_run_has_come_to(code, tmp_path, monkeypatch):
    """As before the first env step, where the launcher says that there was none; one alone is a failure."""
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(code, "no env step was taken", 2))
    with pytest.raises(KeyboardInterrupt):
        spreeze_zmq.train("Pendulum-v1", run_dir=tmp_path / "run", progress=False)
    monkeypatch.setattr(entry, "launch", lambda *_, show: End(1, "no env step was taken", 1))
    with pytest.raises(ComponentFailed, match="no env step was taken"):
        spreeze_zmq.train("Pendulum-v1", run_dir=tmp_path / "run", progress=False)


def test_a_file_of_the_current_folder_is_none_of_the_librarys(tmp_path, monkeypatch):
    """To the launcher, and to a new interpreter that looks at an environment."""
    (tmp_path / "json.py").write_text("raise RuntimeError('not the one of the library')\n")
    monkeypatch.chdir(tmp_path)
    end = launch(["--list"], [], show=False)
    assert (end.code, end.message) == (0, "")
    monkeypatch.setattr(probing, "may_fork", lambda: False)
    assert probing.look("CartPole-v1").spec.id == "CartPole-v1"
