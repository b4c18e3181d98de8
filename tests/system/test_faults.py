"""The launcher is killed, environments fail or are slow, processes keep leaving: the run goes on or ends as
declared. What follows when a process is hit in the middle: ``test_chaos.py``.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spreeze_zmq.base.pauses import STOOD_STILL_S
from spreeze_zmq.run.history import read_run
from tests.system import chaos
from tests.system.conftest import adds_up, thorough_but

#: Long enough to be ended by the test, and no return that would end it before.
ENDLESS = (
    *("--set", "run.stop.return=1000", "--set", "run.stop.minutes=30"),
    *("--set", "run.checkpoint_minutes=0.05"),
)
#: Has one learner, the other roles as any run.
ONE_LEARNER = "cartpole_dqn"
#: Roles that a run which cannot begin need not start.
NO_LEARNERS = ("--without", "critic_learner", "--without", "actor_learner")


@pytest.mark.usefixtures("as_typed")
def test_a_killed_launcher_leaves_nothing_behind(launch):
    """No process, no socket; the broker still writes the summary."""
    run = launch(*ENDLESS, topology=ONE_LEARNER)
    run.until_training()
    run.until(lambda: len(run.processes()) == 4, "all processes")
    assert read_run(run.folder).state == "running"  # by the lock that the launcher holds
    run.launcher.kill()
    run.launcher.wait()
    assert run.leftovers() == []
    assert read_run(run.folder).state == "crashed", read_run(run.folder).exit_reason
    assert "launcher" in run.summary()["exit_reason"]


def test_a_component_that_always_crashes_ends_the_run_with_its_own_traceback(launch, tmp_path):
    """The first failure is printed last, with the log's path; exit code 1."""
    folder = tmp_path / "sampler_that_fails"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "components" / "sampler" / "component.toml"
    (folder / "component.toml").write_text(shipped.read_text())
    (folder / "__main__.py").write_text("def step():\n    raise RuntimeError('the arm is jammed')\nstep()\n")
    run = launch(*NO_LEARNERS, "--set", f"components.sampler.use={folder}")
    assert run.end() == 1
    tail = run.output.read_text().splitlines()[-12:]
    assert any("RuntimeError: the arm is jammed" in line for line in tail), tail
    assert any(str(run.folder / "logs" / "sampler-0.log") in line for line in tail), tail
    assert run.leftovers() == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sampler-0", "broker-0"])
def test_a_process_that_hangs_is_found_and_replaced(launch, name):
    """SIGSTOP: it lives and says nothing. Of the broker nobody else hears that."""
    run = launch(*ENDLESS, "--set", "components.broker.heartbeat_timeout_s=4", topology=ONE_LEARNER)
    run.until_training()
    hung = run.processes()[name]
    hung.send_signal(signal.SIGSTOP)
    run.until(lambda: run.summary().get("restarts") == 1, "a restart")
    run.until(lambda: run.pid(name) not in (None, hung.pid), f"another {name}")
    run.interrupt()
    assert run.end() == 0
    assert adds_up(run.summary()["samples"])


@pytest.mark.thorough
def test_a_run_that_stands_still_goes_on(launch):
    """As in a laptop that sleeps: nobody is killed for his silence, and the time does not count."""
    run = launch(*ENDLESS, "--set", "components.broker.heartbeat_timeout_s=4", topology=ONE_LEARNER)
    run.until_training()
    before_s, began_s = run.summary()["wall_s"], time.monotonic()
    chaos.freeze(run, 2 * STOOD_STILL_S)
    updates = run.updates()
    run.until(lambda: run.updates() > updates + 50, "further updates")
    ran_s = time.monotonic() - began_s - 2 * STOOD_STILL_S
    run.interrupt()
    assert run.end() == 0
    assert "the run stood still for 10 s" in run.output.read_text()
    summary = run.summary()
    assert (summary["restarts"], summary["num_failures"]) == (0, 0)
    assert summary["wall_s"] - before_s < ran_s + STOOD_STILL_S
    assert adds_up(summary["samples"])


@pytest.mark.thorough
def test_a_cleaner_that_removes_the_sockets_ends_the_run(launch):
    """With a last checkpoint, exit code 1 and what was removed: it could replace no process."""
    run = launch(*ENDLESS, topology=ONE_LEARNER)
    run.until_training()
    chaos.clean(run)
    assert run.end() == 1
    assert "somebody removed the run's sockets (" in run.output.read_text().splitlines()[-1]
    assert read_run(run.folder).state == "crashed"
    assert run.summary()["unfinished_checkpoint"] == []


@pytest.mark.parametrize("role", thorough_but("broker", of=("broker", "critic_learner")))
def test_a_process_that_keeps_leaving_ends_the_run(launch, tmp_path, role):
    """With exit code 0, and without a word: the run fails and says so last."""
    folder = tmp_path / "leaves"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "components" / role / "component.toml"
    (folder / "component.toml").write_text(shipped.read_text())
    (folder / "__main__.py").write_text("")
    others = NO_LEARNERS if role == "broker" else ()
    run = launch(*others, "--set", f"components.{role}.use={folder}")
    assert run.end() == 1
    said = run.output.read_text()
    assert f"{role}-0 is not started again: 4 crashes within " in said  # more where this machine is busy
    assert "left with code 0 although nothing here asked it to" in "\n".join(said.splitlines()[-3:])
    assert run.leftovers() == []


SLOW = """
import itertools, time
import gymnasium, numpy as np

steps = itertools.count()

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # which one learner is enough for

    def __init__(self, make_s=0.0, reset_s=0.0, step_s=0.0, length=20, fails_in=0, size=2, discrete=True):
        time.sleep(make_s)
        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,), np.float32)
        if not discrete:
            self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.times, self.length, self.fails_in = (reset_s, step_s), length, fails_in

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        time.sleep(self.times[0])
        self.t = 0
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        time.sleep(self.times[1])
        self.t += 1
        if self.fails_in and next(steps) > 100 and self.np_random.random() < 1 / self.fails_in:
            raise RuntimeError("the gripper is stuck")
        return np.zeros(self.observation_space.shape, np.float32), 1.0, False, self.t >= self.length, {}
"""


def slow(tmp_path, monkeypatch, algorithm="dqn", **kwargs):
    """The environment ``Slow`` of a module in the current directory; returns the flags of a run with it."""
    (tmp_path / "slow.py").write_text(SLOW)
    table = ", ".join(f"{name} = {value}" for name, value in kwargs.items())
    (tmp_path / "slow.toml").write_text(
        f"[run]\nenv = 'slow:Slow'\nalgorithm = '{algorithm}'\nenv_kwargs = {{ {table} }}\n"
        "[components.sampler]\ncount = 1\nenvs = 16\n"
        "[algorithm]\nlearning_starts = 64\nhidden_sizes = [32, 32]\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.long("sixteen environments take half a second each to make and to reset")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("workers", ["auto", pytest.param(0, marks=pytest.mark.thorough)])
def test_slow_environments_are_waited_for(launch, tmp_path, monkeypatch, workers):
    """Sixteen that take half a second to make and to reset, and steps of evaluation as long: more in all than
    the deadlines of start and heartbeat.
    """
    slow(tmp_path, monkeypatch, make_s=0.5, reset_s=0.5, length=4)
    run = launch(
        *("--set", "run.stop.env_steps=192", "--set", f"components.sampler.workers={workers}"),
        *("--set", "components.sampler.rollout_steps=4", "--set", "components.evaluator.confirm_episodes=10"),
        *(
            "--set",
            "components.broker.heartbeat_timeout_s=4",
            "--set",
            "components.sampler.start_timeout_s=6",
        ),
        topology="slow.toml",
    )
    assert run.end(150) == 0, run.said()
    assert run.summary()["restarts"] == 0, run.said()
    # An environment that cannot be interrupted may hold its process longer than the grace at the end.
    others = [
        one for one in run.summary()["failures"] if "after SIGTERM, when it should end" not in one["summary"]
    ]
    assert others == []


@pytest.mark.parametrize(("fails_in", "code"), [(80, 0), (3, 1)])
def test_an_environment_may_fail_now_and_then_and_not_always(launch, tmp_path, monkeypatch, fails_in, code):
    """Once in 80 steps of episodes of 2 it costs an episode in forty, often a minute; once in 3 it ends the
    run, whose last words are why, with the environment's traceback in the log alone.
    """
    slow(tmp_path, monkeypatch, length=2, fails_in=fails_in)
    run = launch("--set", "run.stop.env_steps=4000", topology="slow.toml")
    assert run.end(90) == code, run.said()
    said = run.output.read_text()
    name = run.summary()["failures"][0]["name"]  # who has stepped it so far first
    log = (run.folder / "logs" / f"{name}.log").read_text()
    if code:
        assert "the gripper is stuck" in said.splitlines()[-1]
        assert "slow.py:" in said.splitlines()[-1]
        assert "at most 10 are tolerated (max_failures)" in said.splitlines()[-1]
        assert "Traceback" not in said
        assert "in step" in log
    else:
        assert sum(row.get("count", 1) for row in run.summary()["failures"]) > 20
        notes = [line for line in said.splitlines() if line.startswith("note sampler-0: slow:Slow")]
        assert len(notes) == 1
        assert "raised in step: RuntimeError: the gripper is stuck" in notes[0]
        count = run.summary()["num_failures"]
        [last] = [line for line in said.splitlines() if line.startswith(f"{count} failures, the first: ")]
        assert "the gripper is stuck" in last
        assert f"logs/{name}.log" in last
        assert "Traceback" in log


def test_a_run_none_of_whose_episodes_succeeds_has_failed(launch, tmp_path, monkeypatch):
    """Samplers and evaluator come again and again until the stop: exit code 1, and the last line says why."""
    slow(tmp_path, monkeypatch, length=1000, fails_in=20)
    restarts = [f"components.{role}.max_restarts=1000" for role in ("sampler", "evaluator")]
    settings = [word for each in (*restarts, "run.stop.env_steps=512") for word in ("--set", each)]
    run = launch(*settings, topology="slow.toml")
    assert run.end(90) == 1, run.said()
    assert run.summary()["exit_reason"].startswith("env_steps"), run.said()
    last = run.output.read_text().splitlines()[-1]
    assert "no episode ended without a failure and no policy was evaluated" in last
    assert "the gripper is stuck" in last


def test_replays_that_fit_only_one_at_a_time_are_refused(launch, tmp_path, monkeypatch):
    """Each would take less than the free memory, both together more; nothing has been filled by then."""
    slow(tmp_path, monkeypatch, algorithm="sac", size=50_000, discrete="false")
    capacity = int(0.75 * psutil.virtual_memory().available / (2 * 4 * 50_000))
    run = launch("--set", f"algorithm.replay_capacity={capacity}", topology="slow.toml")
    assert run.end() == 2, run.said()
    last = run.output.read_text().splitlines()[-1]
    assert "the replays of actor_learner and critic_learner take" in last
    assert "lower algorithm.replay_capacity to at most" in last


#: A launcher that comes no further than to a module.
LOADS = """
import sys, time
from spreeze_zmq.commands.begin import spreeze_launch

class Finder:
    def find_spec(self, name, *_):
        if name == "MODULE":
            print(flush=True)
            time.sleep(1000)

sys.meta_path.insert(0, Finder())
sys.exit(spreeze_launch())
"""
MODULES = ("spreeze_zmq.launcher.warm", "spreeze_zmq.commands.launch", "spreeze_zmq.launcher.launcher")


@pytest.mark.parametrize("module", thorough_but(MODULES[1], of=MODULES))
def test_ctrl_c_while_the_program_loads_is_no_fault(tmp_path, module):
    """It ends by the signal, as a shell expects, and says nothing."""
    program = subprocess.Popen(
        [sys.executable, "-c", LOADS.replace("MODULE", module), "pendulum"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "\n"
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=60)
    assert (program.returncode, said) == (-signal.SIGINT, "")


def test_a_stop_of_the_whole_service_is_no_failure(launch):
    """As systemd does it: SIGTERM to the launcher and to every process at once."""
    run = launch(*ENDLESS, topology=ONE_LEARNER)
    run.until_training()
    pids = [run.launcher.pid, *(process.pid for process in run.processes().values())]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the launcher has the first signal
            os.kill(pid, signal.SIGTERM)
    assert run.end() == 0, run.said()
    assert "failure" not in run.output.read_text().replace("failures=0", "")
    assert run.summary()["env_steps"] > 0
    assert read_run(run.folder).state == "ended", run.summary()["exit_reason"]
    assert run.leftovers() == []
