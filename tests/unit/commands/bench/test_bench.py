"""The bench as a command: each section really runs, bad input costs one line, nothing is left behind."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.commands import spreeze
from spreeze_zmq.commands.bench import bench, isolated, physics, start
from spreeze_zmq.commands.bench import channels as bench_channels
from spreeze_zmq.commands.bench import figures as bench_figures
from spreeze_zmq.commands.bench import sampler as bench_sampler
from spreeze_zmq.commands.bench.figures import Job, Rate, Section, in_turn, paired, repeated, typical
from spreeze_zmq.nn.native.library import prepare
from spreeze_zmq.plan import topology
from tests.pace import slowness
from tests.unit.supervisor.lives import still_running, until, words_of


def run(*words):
    """The command in this process; its exit code."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.main(parser.parse_args(words))


@pytest.fixture
def few(monkeypatch):
    """A sampler of few environments, whose actions are found and limit is measured in few states."""
    monkeypatch.setattr(bench_sampler, "NUM_ENVS", 4)
    monkeypatch.setattr(physics, "NUM_STATES", 8)


def figures_of(path):
    """The figures of a JSON file by name, once each has proved sensible."""
    figures = json.loads(path.read_text())["figures"]
    for figure in figures:
        assert figure["limit"] > 0
        assert figure["reached"] > 0
        assert figure["ratio"] > 0  # the load decides how near it is to that of the medians
        assert {"section", "name", "unit"} <= figure.keys()
    return {figure["name"]: figure for figure in figures}


# --- each section ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "limit"),
    [
        ("HalfCheetah-v5", "mujoco.batch stepping the same alone"),
        pytest.param("Pendulum-v1", "one Gymnasium environment", marks=pytest.mark.thorough),
    ],
)
def test_the_sampler_is_measured_beside_the_bare_physics(env_id, limit, few, tmp_path, capsys):
    """The engine, and a real sampler's process that pushes to the bench, by the clock and by CPU time. The
    table has at most 100 columns, and the machine in its first line as in the file.
    """
    assert run("sampler", "--env", env_id, "--seconds", "0.1", "--json", str(tmp_path / "b.json")) == 0
    figures = figures_of(tmp_path / "b.json")
    assert list(figures) == ["environment engine", "whole sampler", "whole sampler, of a core"]
    assert {figure["section"] for figure in figures.values()} == {"sampler"}
    said, machine = capsys.readouterr().out, json.loads((tmp_path / "b.json").read_text())["machine"]
    assert limit in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 100
    assert said.startswith(f"{machine['cpu']}, {machine['cores']} core")
    assert machine["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_channels_are_measured_beside_bare_pyzmq(tmp_path, monkeypatch):
    """Messages/s, with what they mean in bytes, and once more with keys."""
    monkeypatch.setattr(bench_channels, "SIZES", (1 << 20,))
    monkeypatch.setattr(bench_channels, "ROUNDS", 1)
    assert run("channels", "--seconds", "0.3", "--json", str(tmp_path / "b.json")) == 0
    plain, encrypted = figures_of(tmp_path / "b.json").values()
    assert (plain["section"], plain["name"]) == ("channels", "1 MB messages")
    assert encrypted["name"] == "1 MB with keys (tcp)"
    for figure in (plain, encrypted):
        assert figure["details"]["reached_gb_per_s"] == pytest.approx(figure["reached"] * (1 << 20) / 1e9)


@pytest.mark.thorough
@pytest.mark.long("every shipped algorithm is measured in five rounds")
def test_updates_are_measured_beside_matrix_products(tmp_path):
    """Both halves at two batch sizes; transitions/s are updates/s times the batch, and those of both after
    one another fewer than of either. Every shipped algorithm has a line.
    """
    assert (
        run("learner", "--env", "Pendulum-v1", "--seconds", "0.05", "--json", str(tmp_path / "b.json")) == 0
    )
    figures = figures_of(tmp_path / "b.json")
    for batch_size in (256, 1024):
        each = [figures[f"{half}, fp32, batch {batch_size}"] for half in ("both", "critic", "policy")]
        for figure in each:
            assert figure["unit"] == "transitions/s"
            assert figure["reached"] == pytest.approx(batch_size * figure["details"]["updates_per_s"])
            assert figure["details"]["flops_per_update"] > 500_000 * batch_size
        assert each[0]["reached"] < min(figure["reached"] for figure in each[1:])
        assert figures[f"over torch, fp32 {batch_size}"]["ratio"] > 0
    lines = [re.fullmatch(r"(\w+) \d+, (\w+)-v1", name) for name in list(figures)[: len(algorithms.names())]]
    in_choices = {line[1]: line[2] == "CartPole" for line in lines}
    assert in_choices.keys() == {*algorithms.names()}
    assert {name for name, choices in in_choices.items() if choices} == {"discrete_sac", "dqn", "pqn"}


@pytest.mark.long("a learner and what it acts in are measured")
def test_another_algorithm_is_measured_alone(few, tmp_path, capsys):
    """With discrete actions and one half; its policy is what the sampler acts with."""
    words = ("--env", "CartPole-v1", "--algorithm", "dqn", "--seconds", "0.1")
    assert run("sampler", "learner", *words, "--json", str(tmp_path / "b.json")) == 0
    figures = figures_of(tmp_path / "b.json")
    learned = [figure["name"] for figure in figures.values() if figure["section"] == "learner"]
    assert learned[0] == "critic, fp32, batch 256"
    said = " ".join(capsys.readouterr().out.split())
    assert "; acting: dqn" in said
    assert "one Gymnasium environment" in said


@pytest.mark.long("a whole run, as typed")
def test_a_run_to_its_first_update_is_timed_whole():
    """From Enter to its end, all of its processes; in starts a minute, and in seconds for a person."""
    reached = start.whole(Job("CartPole-v1", "dqn", 0.1))
    assert 0 < reached.per_cpu_s < 10
    clock, cores = start.figures({"limit": [Rate(0.5, 0.8)], "run": [Rate(0.1, 0.2)]})
    assert (clock.limit, clock.reached, clock.ratio) == (30, 6, 0.2)
    assert (clock.note, cores.note) == ("10.0 s beside 2.0 s", "5.0 s beside 1.2 s")


def test_a_run_that_fails_says_how():
    """Its last words, as of any section."""
    with pytest.raises(ComponentFailed, match=r"start: exit code 2\n(.|\n)*no such environment"):
        start.whole(Job("Nothing-v0", "dqn", 0.1))


def test_the_first_gpu_is_meant_where_none_is_named(monkeypatch):
    """torch selects no device by "cuda" alone."""
    monkeypatch.setattr(bench, "num_cuda_devices", lambda: 2)
    monkeypatch.setattr(bench, "torch_has_cuda", lambda: True)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    devices = {
        written: bench.checked_job(parser.parse_args(["--device", written])).device
        for written in ("cpu", "cuda", "cuda:1")
    }
    assert devices == {"cpu": "cpu", "cuda": "cuda:0", "cuda:1": "cuda:1"}


def test_an_environment_beside_is_found_and_no_neighbour_is_run_for_a_library(tmp_path, monkeypatch):
    """By none of the processes that the sections start in the current folder; of one that fails its last
    words are said, not a traceback of the command.
    """
    (tmp_path / "mine.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Make\n")
    for library in ("msgpack", "gymnasium", "statistics"):
        (tmp_path / f"{library}.py").write_text(f"raise SystemExit('the neighbour {library}')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plan = bench_sampler.bench_plan("mine:Make", "dqn")
    with bench_sampler.running_sampler(plan, bench_sampler.policy_message(plan)) as whole:
        assert whole.process.is_running()  # its first rollout has come
    with pytest.raises(InputError, match="neither registers 'Other' nor has a callable"):
        isolated.figures_of("learner", Job("mine:Other", "dqn", 0.1))


def test_the_cpu_time_of_a_sampler_has_that_of_its_workers():
    """Which step the environments, and take nearly all of it where these compute long."""
    run = {"env": "tests.unit.commands.bench.working:Working", "algorithm": "dqn"}
    plan = topology.load({"run": run, "components": {"sampler": {"count": 1, "envs": 4, "workers": 2}}})
    with bench_sampler.running_sampler(plan, bench_sampler.policy_message(plan)) as whole:
        sampler, *workers = whole.processes()
        assert workers
        own_s, all_s = sum(sampler.cpu_times()[:2]), whole.cpu_s()
        rate = whole.turn(1.0)
        own_s, all_s = sum(sampler.cpu_times()[:2]) - own_s, whole.cpu_s() - all_s
        assert all_s > 2 * own_s
        assert 0 < rate.per_cpu_s < rate.per_s / own_s
    rates = {way: [rate] for way in ("limit", "engine", "sampler")}
    *_, of_a_core = bench_sampler.figures(rates, "numpy", len(workers) + 1)
    assert of_a_core.note == f"of {len(workers) + 1} processes"


def test_long_figures_fit_the_table():
    """The longest names and the largest numbers that a section gives, as a large GPU reaches them."""
    figure = paired("critic, bf16, batch 131072", "transitions/s", [751_905_357.0], [88_819_511.0])
    long = replace(figure, note="3,465 + 4,926 updates/s")
    text = bench.table(Section("learner", "limit", [long, paired("start", "s", [1.0], [2.0])]))
    assert max(map(len, text.splitlines())) <= 100
    columns = [re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]]
    assert columns == [
        ["limit", "reached", "ratio"],
        ["critic, bf16, batch 131072", "751,905,357", "88,819,511", "transitions/s", "0.12", long.note],
        ["start", "1", "2", "s", "2.00"],
    ]


# --- measuring in turn ----------------------------------------------------------------------------


def test_a_ratio_is_the_median_of_neighbouring_turns():
    """The machine halves its pace in the third turn: both series show it, the ratio does not."""
    figure = paired("x", "1/s", [1000.0, 1000.0, 500.0, 1100.0, 1000.0], [800.0, 810.0, 400.0, 880.0, 790.0])
    assert (figure.limit, figure.reached, figure.ratio) == (1000.0, 800.0, 0.8)


def test_ways_take_turns_and_the_first_round_only_warms_up():
    """Every other round backwards, so that a drift of the machine favours none."""
    called = []

    def way(name):
        def turn(turn_s):
            called.append((name, turn_s))
            time.sleep(turn_s)
            return Rate(len(called), 0.0)

        return turn

    rates = in_turn({"limit": way("limit"), "ours": way("ours")}, 1.2, 3)
    assert " ".join(name for name, _ in called) == "ours limit limit ours ours limit limit ours"
    assert [turn_s for _, turn_s in called] == pytest.approx([0.2] * 8)
    assert [rate.per_s for rate in rates["limit"]] == [3, 6, 7]


def test_a_step_longer_than_its_turn_is_taken_once(monkeypatch):
    """The rate is of what was done in the time that it took."""
    now = {"perf_counter": 0.0, "process_time": 0.0}
    clock = SimpleNamespace(**{name: partial(now.__getitem__, name) for name in now})
    monkeypatch.setattr(bench_figures, "time", clock)

    def step():
        now["perf_counter"] += 0.02
        now["process_time"] += 0.005

    assert repeated(step, 10, 0.001) == pytest.approx(Rate(500, 2000))


def test_steps_that_the_machine_interrupted_do_not_count(monkeypatch):
    """Two of seven take ten times as long; the typical rate is that of the other five."""
    clock = SimpleNamespace(now_s=0.0)
    clock.perf_counter = clock.process_time = lambda: clock.now_s
    monkeypatch.setattr(bench_figures, "time", clock)
    durations_s = iter([0.002, 0.02, 0.002, 0.002, 0.002, 0.02, 0.002])

    def step():
        clock.now_s += next(durations_s)

    assert typical(step, 10, 0.049).per_s == pytest.approx(5000)
    assert next(durations_s, None) is None


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["samplr"], "there is no section 'samplr' (did you mean \"sampler\"?)"),
        (["--env", "HalfCheeta-v5"], "--env HalfCheeta-v5: no such environment is registered"),
        (["--env", "CartPole-v1", "--algorithm", "sac"], "--env CartPole-v1: SAC acts in box action spaces"),
        (["--algorithm", "sacc"], """--algorithm sacc: unknown algorithm 'sacc'; did you mean "sac"?"""),
        (["envs"], "there is no section 'envs'"),
        (["--seconds", "0"], "--seconds 0: a number of seconds above 0 is expected"),
        (["--seconds", "nan"], "--seconds nan: a number of seconds above 0 is expected"),
        (["--json", "/no/such/folder/b.json"], "/no/such/folder/b.json: there is no folder /no/such/folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_costs_one_line_and_nothing_is_measured(words, expected, capsys):
    """Exit code 2, at once."""
    began_s = time.process_time()
    assert spreeze.main(["bench", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"spreeze bench: {expected}")
    assert said.err.count("\n") == 1
    assert time.process_time() - began_s < 5 * slowness()


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "number"),
    [
        ("sampler", signal.SIGINT),
        ("learner", signal.SIGTERM),
        *(
            pytest.param(section, signal.SIGINT, marks=pytest.mark.thorough)
            for section in ("channels", "replay")
        ),
    ],
)
@pytest.mark.long("a section is interrupted once its own processes have begun")
def test_a_signal_leaves_no_process_and_no_folder(section, number, tmp_path):
    """Interrupted in the middle of a section: exit code 130, no traceback, nothing left."""
    prepare(lambda _: None)  # else a compiler may be what is interrupted, and waits for an init to reap it
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "bench", section, "--seconds", "60"]
    places = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env={**os.environ, **places}, stderr=subprocess.PIPE, text=True)
    others = {"sampler": "components/sampler", "channels": "commands.bench.channels"}
    own = others.get(section, "commands.bench.isolated")

    def begun():
        children = psutil.Process(process.pid).children(recursive=True)
        return children if any(own in " ".join(words_of(each)) for each in children) else []

    children = until(begun, "the section's own process", 60 * slowness())
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")
    assert still_running(children, 30) == []
    left = [path for path in tmp_path.rglob("*") if path.name != f"spreeze-{os.getuid()}"]
    assert left == []
