"""How many runs of a search live at once, and what each has of the machine."""

import os
import sys
from argparse import Namespace

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.search import beside as module
from spreeze_zmq.commands.search.beside import beside
from spreeze_zmq.commands.search.search import _states_device
from spreeze_zmq.commands.search.space import parse_all
from spreeze_zmq.commands.search.trials import Trial, Trials
from spreeze_zmq.learner import setup
from spreeze_zmq.plan import devices, topology
from spreeze_zmq.plan.roles import LEARNERS
from spreeze_zmq.screen.terminal.numbers import memory

ON_CPU = [f"components.{role}.device=cpu" for role in LEARNERS]
SHOWS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


@pytest.fixture
def cores(monkeypatch):
    """Gives this machine so many cores."""

    def give(count):
        monkeypatch.setattr(module, "usable_cores", lambda _: [(core,) for core in range(count)])

    return give


def number(jobs, *plans):
    """Of runs that live at once."""
    return len(beside(jobs, plans, states_device=True).cpus)


def test_runs_that_would_take_the_same_ports_are_never_beside_each_other(cores):
    """Two at once would take the same port."""
    cores(8)
    plain, port = (
        topology.load({"run": {"env": "tests.unit.envs.test_numbering:Port", "env_kwargs": kwargs}})
        for kwargs in ({"port": 5001}, {"port": "50{index:02d}"})
    )
    endpoint, page = (
        topology.load("pendulum", [each])
        for each in ('channels.report.endpoint="tcp://127.0.0.1:5001"', "components.visualizer.port=5001")
    )
    assert [number(jobs, plain) for jobs in (None, 3)] == [2, 3]
    for plan, why in (
        (port, r"env_kwargs has '\{index\}', "),
        (endpoint, r"channels\.report\.endpoint is stated, "),
        (page, r"components\.visualizer\.port is stated, "),
    ):
        assert [number(jobs, plan) for jobs in (None, 1)] == [1, 1]
        with pytest.raises(InputError, match=rf"--jobs 2: {why}.* leave --jobs out"):
            number(2, plan)


def test_the_replays_of_all_runs_fit_in_the_memory(cores, monkeypatch):
    """Each run alone checks its own against what is free before any of them is full."""
    cores(16)
    capacities = "algorithm.replay_capacity=10_000", "algorithm.replay_capacity=200_000"
    plan, large = (topology.load("pendulum", [each, *ON_CPU]) for each in capacities)
    needed = setup.bytes_in_memory(large)
    assert needed == sum(setup.replay_bytes(large).values())
    monkeypatch.setattr(setup, "free_bytes", lambda device: 2.5 * needed / setup.MEMORY_SHARE)
    assert number(None, plan) == 4
    found = beside(None, [plan, large], states_device=True)
    assert found.cpus == beside(None, [plan], states_device=True).cpus[:2], (
        "a study goes on with runs as large"
    )
    assert len(found.cpus) == 2
    assert (
        found.why == f"the replays of a run take up to {memory(needed)}, and all have {memory(2.5 * needed)}"
    )
    assert number(2, plan, large) == 2
    with pytest.raises(InputError, match=r"^--jobs 3: the replays .* write --jobs 2, or lower algorithm\."):
        number(3, plan, large)
    monkeypatch.setattr(setup, "free_bytes", lambda device: needed / 2)
    assert number(None, large) == 1


@pytest.mark.parametrize(
    ("num_gpus", "listed", "num_runs", "own"),
    [
        (4, None, 2, ["0,1", "2,3"]),
        (4, "4, 5,GPU-a,7", 4, ["4", "5", "GPU-a", "7"]),
        (2, None, 3, ["0", "1", "0"]),
        (1, None, 3, []),
        (4, None, 1, []),
    ],
)
def test_runs_have_gpus_of_their_own(cores, monkeypatch, num_gpus, listed, num_runs, own):
    """All would take the first; where a device is stated, each sees them all."""
    cores(4 * num_runs)
    monkeypatch.setattr(devices, "num_auto_devices", lambda: num_gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    plans = [topology.load("pendulum", ON_CPU)]
    assert beside(None, plans, states_device=False).gpus == own
    assert beside(None, plans, states_device=True).gpus == ()


@pytest.mark.parametrize(
    ("written", "overrides", "over", "stated"),
    [
        ({}, [], "algorithm.tau=0.1,0.2", False),
        ({"critic_learner": {"device": "auto"}}, [], "algorithm.tau=0.1,0.2", False),
        ({"critic_learner": {"device": "cuda:1"}}, [], "algorithm.tau=0.1,0.2", True),
        ({}, ["components.actor_learner.device=cpu"], "algorithm.tau=0.1,0.2", True),
        ({}, [], "components.actor_learner.device=cpu,auto", True),
    ],
)
def test_a_device_may_be_stated_anywhere(written, overrides, over, stated):
    """In the topology, by --set or as what is varied: its number is of all GPUs."""
    source = {"run": {"env": "Pendulum-v1"}, "components": written}
    arguments = Namespace(algorithm=None, set=overrides)
    assert _states_device(source, arguments, parse_all([over])) == stated


def test_a_run_sees_the_gpus_of_its_slot(tmp_path, monkeypatch):
    """By its environment."""
    monkeypatch.setattr("spreeze_zmq.commands.search.trials.PROGRAM", (sys.executable, "-c", SHOWS))
    runs = Trials((), [frozenset(os.sched_getaffinity(0))] * 2, ["0,1", "2,3"])
    tried = [Trial(name, tmp_path / name, {}, 1) for name in ("one", "two")]
    for trial in tried:
        runs.start(trial)
    while runs.live:
        runs.ended()
    runs.close()
    assert [trial.last_line for trial in tried] == ["0,1", "2,3"]
