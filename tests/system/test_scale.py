"""The launcher carries out what the broker decides, within the topology."""

import json
import os
import time
from itertools import chain

import pytest

from spreeze_zmq.base.machine import physical_cores
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.plan import topology, tuning
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.view import View
from tests.system.conftest import PATIENCE


class Notes(View):
    """A view that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def note(self, line):
        """Keep a line."""
        self.lines.append(line)


@pytest.fixture
def launch(tmp_path):
    """A launcher whose only processes are samplers, with nobody to hear them."""
    plan = topology.load(
        "pendulum",
        ["components.sampler.count=[1, 3]"],
        without=["broker", "evaluator", "critic_learner", "actor_learner"],
    )
    made = Launch(plan, RunFolder.create("scale", str(tmp_path / "run")), Notes())
    yield made
    made.finish()


def go_on(run, condition, deadline_s=150):
    """Let a run go on until a condition holds, or too long."""
    until_s = time.monotonic() + deadline_s
    while not condition() and time.monotonic() < until_s:
        run.pump(0.1)
        run.watch()


def changes(run):
    """The numbers of samplers in the run's summary so far, each with its reason."""
    path = run.folder.summary
    workers = json.loads(path.read_text())["workers"] if path.exists() else {}
    return [(count, reason) for _, count, reason in workers.get("sampler", ())]


def obey(launch, role, count, reason):
    """Have a launcher do what the broker asks."""
    launch.obey({"role": role, "count": count, "reason": reason})


def samplers(launch):
    """The samplers that are kept alive."""
    return sorted(launch.supervisor.names())


def test_what_the_broker_wants_is_kept_within_the_topology(launch):
    """Eight of at most three are three; the reason is one line of the view."""
    launch.start()
    obey(launch, "sampler", 8, "samplers 1 -> 8: because")
    assert samplers(launch) == ["sampler-0", "sampler-1", "sampler-2"]
    assert "samplers 1 -> 8: because" in launch.view.lines
    obey(launch, "critic_learner", 2, "two")
    assert len(samplers(launch)) == 3
    assert "nothing of this role is launched here" in launch.view.lines[-1]


def test_a_name_that_is_still_leaving_is_taken_up_again(launch):
    """Fewer, then at once more: the old process ends first, then the new one starts under its name."""
    launch.start()
    obey(launch, "sampler", 2, "two")
    leaving = launch.supervisor.pids()["sampler-1"]
    obey(launch, "sampler", 1, "one")
    obey(launch, "sampler", 2, "two again")
    assert launch.supervisor.pids()["sampler-1"] == leaving
    until_s = time.monotonic() + 60
    while launch.supervisor.pids().get("sampler-1", leaving) == leaving and time.monotonic() < until_s:
        launch.watch()
        time.sleep(0.02)
    assert launch.supervisor.pids()["sampler-1"] != leaving
    assert launch.crew.counts["sampler"] == 2


def napping(tmp_path, monkeypatch, *overrides):
    """A plan of one learner whose environment sleeps 2 ms a step."""
    (tmp_path / "napping.py").write_text(
        "import time\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Napping(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        time.sleep(0.002)\n"
        "        return super().step(action)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    always = ["run.env=napping:Napping", "run.stop={minutes=3}", "components.sampler.envs=4"]
    always.append(PATIENCE.format("critic_learner"))
    return topology.load("cartpole_dqn", [*always, *overrides], without=["evaluator"])


CORES = physical_cores(os.sched_getaffinity(0))


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
def test_processes_run_where_the_layout_says(tmp_path):
    """A learner and two samplers, one of them started later, on the cores that there are."""
    overrides = ["components.sampler.count=[1, 2]", "components.critic_learner.threads=1", "balance.pin=true"]
    plan = topology.load("pendulum", overrides, without=["broker", "evaluator", "actor_learner"])
    run = Launch(plan, RunFolder.create("pinned", str(tmp_path / "run")), Notes())
    try:
        run.start()
        obey(run, "sampler", 2, "two")
        found = {name: os.sched_getaffinity(pid) for name, pid in run.supervisor.pids().items()}
    finally:
        run.finish()
    own = found["critic_learner-0"]
    assert own in map(set, CORES)  # the first one, unless another run has it
    others = set(chain(*CORES)) - own
    assert found == {"critic_learner-0": own, "sampler-0": others, "sampler-1": others}
    assert set(run.plan.pinning["cpus"]["critic_learner-0"]) == own
    assert run.plan.pinning["reason"] in run.view.lines


@pytest.mark.long("a learner must starve for as long as the broker's rule looks back")
@pytest.mark.timeout(180)
def test_a_live_run_gets_the_samplers_that_it_starves_for(served, nothing_measured, tmp_path, monkeypatch):
    """From one sampler of a slow environment, where an earlier run is said to have settled, to more within
    what the topology allows, and back to nothing.
    """
    plan = napping(tmp_path, monkeypatch, "components.sampler.count=[1, 3]", "algorithm.learning_starts=100")
    tuning.remember(plan, tuning.Tuning(1, 500.0, 16_000.0))
    run = Launch(plan, RunFolder.create("scale", str(tmp_path / "run")), Notes())
    try:
        run.start()
        go_on(run, lambda: run.crew.counts["sampler"] > 1 and len(changes(run)) > 1)
        assert run.crew.counts["sampler"] in (2, 3), run.status  # what else the machine does decides too
    finally:
        run.finish()
    (first, _), (count, reason), *_ = changes(run)
    assert first == 1
    assert reason.startswith(f"samplers 1 -> {count}: critic_learner starved ")
    assert reason in run.view.lines


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_a_slow_environment_has_its_samplers_before_it_trains(nothing_measured, tmp_path, monkeypatch):
    """One that sleeps needs many samplers, and no core for them: they come while the learners wait for their
    first samples.
    """
    plan = napping(
        tmp_path, monkeypatch, "components.sampler.count=[1, 3]", "algorithm.learning_starts=100000"
    )
    run = Launch(plan, RunFolder.create("first", str(tmp_path / "run")), Notes())
    try:
        run.start()
        go_on(run, lambda: changes(run)[-1:] and changes(run)[-1][0] == 3)
    finally:
        run.finish()
    assert json.loads(run.folder.summary.read_text())["critic_updates"] == 0
    (_, first), *moves = changes(run)
    assert first == "by a rule from the number of cores"
    assert moves[-1][0] == 3, moves
    for _, reason in moves:  # beside other programs there may be two
        assert "nothing is trained yet, and a sampler uses 0." in reason
        assert reason in run.view.lines


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_a_cheap_environment_keeps_its_sampler(nothing_measured, tmp_path):
    """One is enough, as soon as there are steady rates to tell it from."""
    plan = topology.load("pendulum", ["components.sampler.count=[1, 3]", "run.stop={minutes=1}"])
    run = Launch(plan, RunFolder.create("cheap", str(tmp_path / "run")), Notes())
    until_s, settled = time.monotonic() + 50, False
    try:
        run.start()
        while not settled and time.monotonic() < until_s:
            run.pump(0.2)
            run.watch()
            settled = bool(run.status) and run.status["balance"]["settled"]
    finally:
        run.finish()
    assert settled
    workers = json.loads(run.folder.summary.read_text())["workers"]["sampler"]
    assert [count for _, count, _ in workers] == [1]
