"""The round of an on-policy algorithm: how many samplers share it."""

import math
import time
from dataclasses import replace

import pytest
from gymnasium.envs.classic_control import PendulumEnv

from spreeze_zmq.envs import Timing
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.topology import algorithm, load, resolve
from spreeze_zmq.plan.topology.resolve import usual_step_s


class SlowBox(PendulumEnv):
    """Each step waits for 2 ms."""

    waits_s = 0.002

    def step(self, action):
        time.sleep(self.waits_s)
        return super().step(action)


@pytest.mark.parametrize(
    ("source", "transitions"),
    [
        ("cartpole", 256),
        ("cartpole_pqn", 256),
        ("halfcheetah_ppo", 512),
        ("hopper_ppo", 512),
        ({"run": {"env": "Pendulum-v1", "algorithm": "ppo"}}, 2048),
        ({"run": {"env": "Pendulum-v1", "algorithm": "ppo"}, "components": {"sampler": {"envs": 3}}}, 2048),
        ({"run": {"env": "CartPole-v1", "algorithm": "ppo"}}, 256),
    ],
)
def test_a_round_is_as_long_on_many_cores(source, transitions, monkeypatch):
    """Epochs, batch and learning rate are chosen for it, where no step is slow."""
    monkeypatch.setattr(algorithm, "SLOW_STEP_S", math.inf)
    for cores in (2, 4, 16, 64):
        plan = load(source, cores=cores)
        assert plan.learning.on_policy
        made = plan.components["sampler"].count.initial * plan.balance.rollout_transitions
        assert 0.95 * transitions < made <= transitions


def test_samplers_of_a_slow_environment_share_the_sampling_of_a_round():
    """A step of 4 ms is what a round waits for; not where a run must repeat itself anywhere."""
    slow = {"run": {"env": "tests.system.arm:Arm", "algorithm": "ppo"}}
    assert load(slow, cores=16).components["sampler"].count == Count(14, 14, 14)
    assert load({**slow, "balance": {"mode": "lockstep"}}, cores=16).components["sampler"].count.initial == 1
    sampler = load({"run": {"env": f"{__name__}:SlowBox", "algorithm": "ppo"}}, cores=64).components[
        "sampler"
    ]
    assert (sampler.count.initial, sampler.options["rollout_steps"], sampler.options["envs"]) == (8, 16, 16)


def test_two_starts_have_as_many_samplers_where_a_step_is_measured_a_little_otherwise(monkeypatch):
    """One just above, then one just below what is slow, and one that is another by now."""
    monkeypatch.setattr(algorithm, "SLOW_STEP_S", 0.008)
    found = []
    for waits_s in (0.009, 0.006, 0.0003, 0.009):
        monkeypatch.setattr(SlowBox, "waits_s", waits_s)
        plan = load({"run": {"env": f"{__name__}:SlowBox", "algorithm": "ppo"}}, cores=64)
        found.append(plan.components["sampler"].count.initial)
    assert found == [8, 8, 1, 8]


def test_a_time_that_decides_otherwise_than_todays_is_said_once(tmp_path, monkeypatch, caplog):
    """A command loads a topology once for each of its runs. A cache that cannot be written is read."""
    env = replace(load("pendulum").environment, id="box_of_mine:Box")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first_s = 1.1 * algorithm.SLOW_STEP_S
    for factor in (1.1, 1.2, 0.8, 0.8):
        assert usual_step_s(env, Timing("gymnasium", step_s=factor * algorithm.SLOW_STEP_S)) == first_s
    [line] = caplog.messages
    assert line.startswith("a step of box_of_mine:Box took 0.2 ms, and 0.28 ms when it was measured first")
    monkeypatch.setattr(resolve, "alone", cannot_be_locked)
    assert usual_step_s(env, Timing("gymnasium", step_s=0.7 * algorithm.SLOW_STEP_S)) == first_s


def cannot_be_locked(file, *_, **__):
    raise PermissionError(file)


@pytest.mark.parametrize("elsewhere", ["far from slow", "another project", "no cache"])
def test_what_a_step_took_before_decides_nothing_elsewhere(elsewhere, tmp_path, monkeypatch, caplog):
    """Another project may have a module of the same name; a cache that is none costs no line here."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "box_of_mine.py").touch()
    env = replace(load("pendulum").environment, id="box_of_mine:Box")
    first_s, now_s = (factor * algorithm.SLOW_STEP_S for factor in (0.6, 0.7))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "one")
    assert usual_step_s(env, Timing("gymnasium", step_s=first_s)) == first_s
    assert usual_step_s(env, Timing("gymnasium", step_s=now_s)) == first_s
    if elsewhere == "far from slow":
        now_s = 0.4 * algorithm.SLOW_STEP_S
    elif elsewhere == "another project":
        monkeypatch.chdir(tmp_path / "two")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one" / "box_of_mine.py"))
    assert usual_step_s(env, Timing("gymnasium", step_s=now_s)) == now_s
    assert not caplog.records
