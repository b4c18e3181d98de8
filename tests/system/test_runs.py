"""Whole runs that end as they should: the main job, resume, processes started by hand."""

import json
import re
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from tests.ports import free_ports
from tests.system.conftest import adds_up, reached, said_in

ROOT = Path(__file__).parents[2]


@pytest.mark.long("one run goes on from where another ended")
@pytest.mark.timeout(400)
def test_resume_goes_on_from_the_last_checkpoint(launch, tmp_path):
    """Networks, optimisers and counters: the second run begins where the first one ended, and does not train
    on its first few transitions alone. Its clock and its curve go on, and it begins with the best policy.
    The first is slow until it has been looked at.
    """
    one = ("--set", "run.stop.return=1000", "--set", "components.sampler.count=1")  # little is under way
    one += ("--set", "algorithm.learning_starts=100", "--set", "run.env=tests.system.holding:pole")
    one += ("--set", f"run.env_kwargs.until={tmp_path}/run0/policy.safetensors")
    one += ("--set", "components.evaluator.episodes=2", "--set", "components.evaluator.confirm_episodes=2")
    first = launch(*one, "--set", "run.stop.env_steps=3000", topology="cartpole_dqn")
    assert first.end() == 0, first.said()
    before = first.summary()
    further = ("--resume", str(first.folder), "--set", "run.stop.env_steps=6000")
    second = launch(*one, *further, topology="cartpole_dqn")
    assert second.end() == 0, second.said()
    after = second.summary()
    assert 6000 <= after["env_steps"] < 6000 + 4000
    assert after["critic_updates"] > before["critic_updates"]
    assert after["samples"]["received"] < after["env_steps"] - 2500
    assert adds_up(after["samples"])
    assert "going on from" in second.said()
    [refill] = re.findall(r"updates go on after (\d+) transitions", second.said())
    assert 300 <= int(refill) < 600
    resumed, curve, looks = after["resumed"], before["evaluations"], after["evaluations"]
    assert resumed["run"] == str(first.folder)
    assert resumed["t_s"] < min(after["wall_s"], before["wall_s"])
    curve = [look[1:] for look in curve if look[1] <= resumed["counts"]["env_steps"]]  # not the last policy's
    assert curve
    assert [look[1:] for look in looks[: len(curve)]] == curve
    assert [look[0] for look in looks] == sorted(look[0] for look in looks)
    assert looks[-1][0] > resumed["t_s"]
    accumulator = EventAccumulator(str(second.folder))
    accumulator.Reload()
    steps = [event.step for event in accumulator.Scalars("eval/mean_reward")]
    assert steps[: len(curve)] == [look[0] for look in curve]
    assert steps[-1] > 3000


@pytest.mark.thorough
def test_the_replay_goes_along_where_the_topology_asks(launch):
    """With ``save_replay`` the resumed run trains at once on what was collected before."""
    ask = ("--set", "run.save_replay=true", "--set", "run.stop.return=0")
    first = launch(*ask, "--set", "run.stop.env_steps=6000")
    assert first.end() == 0, first.said()
    second = launch(*ask, "--set", "run.stop.env_steps=9000", "--resume", str(first.folder))
    assert second.end() == 0, second.said()
    assert second.said().count("the replay is back") == 2
    assert adds_up(second.summary()["samples"])


def test_resume_of_what_has_no_checkpoint_is_refused(tmp_path):
    """A run that was killed before its first one: one clear line, exit code 2."""
    folder = RunFolder.create("killed", str(tmp_path / "killed"))
    write_plan(topology.load("pendulum"), folder)[1].remove()
    code, _, errors = said_in(tmp_path, "pendulum", "--resume", folder.path)
    assert code == 2
    [line] = errors.splitlines()
    assert "no complete checkpoint" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.thorough
def test_two_runs_at_once_do_not_disturb_each_other(launch):
    """Each has its own sockets."""
    runs = [launch("--set", "run.stop.env_steps=3000", "--set", "run.stop.return=0") for _ in range(2)]
    assert [run.end(90) for run in runs] == [0, 0]
    for run in runs:
        assert adds_up(run.summary()["samples"])
        assert run.summary()["restarts"] == 0


OWN = '''
import gymnasium, numpy as np

class Reach(gymnasium.Env):
    """Move a point to the middle of a line; one unit of reward a step when it is there."""

    def __init__(self, width=1.0):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,), np.float32)
        self.width = width

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-self.width, self.width)
        return np.array([self.x]), {}

    def step(self, action):
        self.x += float(action[0])
        return np.array([self.x]), 1.0 - abs(self.x), False, False, {}

gymnasium.register("Reach-v0", Reach, max_episode_steps=20)
'''


@pytest.mark.long("a run trains to its return")
@pytest.mark.timeout(700)
def test_an_environment_of_ones_own_trains(tmp_path, launch, monkeypatch):
    """A module in the current directory, named in a topology, with a keyword argument."""
    (tmp_path / "arms.py").write_text(OWN)
    (tmp_path / "reach.toml").write_text(
        '[run]\nenv = "arms:Reach-v0"\nenv_kwargs = { width = 2.0 }\nstop = { return = 14, minutes = 10 }\n'
        "[algorithm]\nhidden_sizes = [32, 32]\n"
    )
    monkeypatch.chdir(tmp_path)
    run = launch(topology="reach.toml")
    assert run.end(630) == 0, run.said()
    assert reached(run.summary(), 14)
    assert run.plan()["environment"]["kwargs"] == {"width": 2.0}


def line_of(life, words):
    """The line of a component's log with these words, once it is there."""
    while not (found := [line for line in life.words() if words in line]):
        assert not life.ended, life.ending()
        time.sleep(0.05)
    return found[0]


@pytest.mark.long("a sampler says after five seconds what it waits for, and two programs start by themselves")
def test_a_component_given_a_topology_stands_alone_and_others_join(component, tmp_path, monkeypatch):
    """It settles a run of its own and says how to join; a sampler joins and names what it still waits for."""
    monkeypatch.chdir(tmp_path)
    alone = component("critic_learner", "pendulum")
    run_file = line_of(alone, "-m spreeze_zmq.components.ROLE ").split()[-1]
    sockets = Path(json.loads(Path(run_file).read_text())["socket_dir"])
    joined = component("sampler", run_file)
    assert "a policy from actor_learner" in line_of(joined, "has waited")
    for life in (joined, alone):
        life.process.terminate()
        assert life.process.wait(30) == 0
    assert not sockets.exists()


@pytest.mark.thorough
def test_a_run_works_over_tcp_too(launch):
    """The same components, only other endpoints: samples, weights and control on loopback ports."""
    names = ("experience.critic_learner", "experience.actor_learner", "policy", "critic", "report", "control")
    overrides = []
    for name, port in zip(names, free_ports(len(names)), strict=True):
        overrides += ["--set", f'channels."{name}".endpoint=tcp://127.0.0.1:{port}']
    run = launch("--set", "run.stop.env_steps=4000", "--set", "run.stop.return=0", *overrides)
    assert run.end() == 0, run.said()
    assert run.summary()["critic_updates"] > 100
    assert adds_up(run.summary()["samples"])
    assert run.leftovers() == []
