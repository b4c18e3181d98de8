"""The environments of evaluation: time limits, and workers for slow steps."""

import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.envs.trial import timed
from spreeze_zmq.evaluation import arena
from spreeze_zmq.evaluation.arena import ENDLESS_STEPS, Arena
from spreeze_zmq.plan import topology

HERE = "tests.unit.evaluation.test_arena"


class Endless(gymnasium.Env):
    """Never ends; each step sleeps or, with ``busy``, computes for ``step_s`` seconds."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, step_s: float = 0.0, busy: bool = False):
        self.step_s, self.busy = step_s, busy

    def reset(self, *, seed=None, options=None):
        """In the middle."""
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        """Sleep or compute."""
        until_s = time.thread_time() + self.step_s
        if not self.busy:
            time.sleep(self.step_s)
        while self.busy and time.thread_time() < until_s:
            pass
        return np.zeros(2, np.float32), 1.0, False, False, {}


def brief():
    """Has a lower time limit inside than the one with which it is registered."""
    return gymnasium.wrappers.TimeLimit(Endless(), 20)


class Cutting(Endless):
    """Cuts its episodes itself; its reward is the length that it was made for."""

    def __init__(self, max_episode_steps=7):
        super().__init__()
        self.most = max_episode_steps

    def reset(self, **options):
        """Count anew."""
        self.count = 0
        return super().reset(**options)

    def step(self, action):
        """Cut at its own limit."""
        self.count += 1
        return np.zeros(2, np.float32), float(self.most), False, self.count >= self.most, {}


gymnasium.register("Brief-v0", entry_point=brief, max_episode_steps=100)


@pytest.fixture
def make():
    """Makes arenas and ends their processes."""
    made = []

    def one(env_id, width=2, kwargs=None, untried=None, **options):
        spec = envs.probe(env_id, kwargs or {})
        made.append(Arena(replace(spec, kwargs={**spec.kwargs, **(untried or {})}), width, **options))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_an_environment_without_a_time_limit_is_given_one(make):
    """1,000 steps or the requested number; the limit is saved with the environment."""
    endless = make(f"{HERE}:Endless")
    assert endless.step_cap == endless.batch(2).max_episode_steps == ENDLESS_STEPS
    assert (endless.spec.max_episode_steps, endless.spec.kwargs) == (ENDLESS_STEPS, {})
    assert make(f"{HERE}:Endless", max_episode_steps=50).step_cap == 50


def test_the_environments_own_limit_stands_unless_a_lower_one_is_asked_for(make):
    """Pendulum's is 200."""
    assert make("Pendulum-v1").step_cap is None
    assert make("Pendulum-v1", max_episode_steps=500).step_cap is None
    lower = make("Pendulum-v1", max_episode_steps=50)
    assert (lower.step_cap, lower.batch(2).max_episode_steps) == (50, 50)


@pytest.mark.parametrize(
    ("asked", "given", "expected"), [(50, {}, 20), (10, {}, 10), (50, {"max_episode_steps": 80}, 50)]
)
def test_a_lower_limit_makes_no_episode_longer(make, asked, given, expected):
    """Not even where it is above a limit inside, which only a limit of the run's own lifts."""
    batch = make(f"{HERE}:Brief-v0", 1, given, max_episode_steps=asked).batch(1)
    batch.reset(seed=1)
    action = batch.action_space.sample()
    assert next(step for step in range(1, 101) if batch.step(action)[3][0]) == expected


#: Arguments, the limit that is asked for, the length of an episode and its rewards.
LIMITS = [
    ({}, None, 7, 7),
    ({"max_episode_steps": 9}, None, 9, 9),
    ({}, 3, 3, 7),
    ({"max_episode_steps": 9}, 3, 3, 9),
]


@pytest.mark.parametrize(
    ("kwargs", "asked", "length", "reward", "num_workers"), [*((*c, 0) for c in LIMITS), (*LIMITS[-1], 1)]
)
def test_the_evaluations_limit_is_no_argument_of_the_environment(
    make, kwargs, asked, length, reward, num_workers
):
    """Which may mean something else by it: what is played is the environment that was trained in."""
    one = make(f"{HERE}:Cutting", 1, kwargs, max_episode_steps=asked, num_workers=num_workers)
    batch = one.batch(1)
    batch.reset(seed=1)
    steps = [batch.step(batch.action_space.sample()) for _ in range(length)]
    assert [(step[1][0], step[3][0]) for step in steps] == [(reward, False)] * (length - 1) + [(reward, True)]
    assert one.spec.kwargs == kwargs


def test_a_native_task_has_as_many_environments_as_episodes(make):
    """Many are stepped on all cores; other environments are played in rounds."""
    assert make("Pendulum-v1", 5).batch(30).num_envs == 30
    hopper = make("Hopper-v5", 2)
    cores = arena.available_cores()
    assert [hopper.batch(size).task.num_threads for size in (2, 30)] == [1, min(cores, 30)]
    quick = make(f"{HERE}:Endless", 5)
    assert (quick.batch(30).num_envs, quick.num_workers) == (5, 0)


def test_a_slow_step_is_taken_in_workers(make):
    """One worker for each environment if a step waits, one for each core if it computes."""
    sleeping = make(f"{HERE}:Endless", 4, {"step_s": 0.05})
    assert (sleeping.num_workers, sleeping.batch(4).num_workers) == (4, 4)
    computing = make(f"{HERE}:Endless", 4, {"step_s": 0.05, "busy": True})
    assert computing.num_workers == min(4, arena.available_cores())
    assert make(f"{HERE}:Endless", 4, num_workers=2).num_workers == 2


@pytest.mark.parametrize(
    ("step_s", "busy", "width", "expected"),
    [(0.008, False, 4, 4), (0.008, True, 4, 0), (0.002, False, 4, 0), (0.008, False, 1, 0)],
)
def test_steps_that_wait_for_others_wait_together(step_s, busy, width, expected):
    """With a sampler's limits, by which a step of 8 ms that computes is not slow."""
    with closing(envs.make(f"{HERE}:Endless", 1, step_s=step_s, busy=busy)) as one:
        assert arena.workers_for(timed(one), width, 1.0, 1.0) == expected


@pytest.mark.parametrize(
    ("make_s", "make_computes", "width", "expected"),
    [(33.0, 0.1, 4, 4), (33.0, 30.0, 1, 1), (4.0, 0.1, 4, 0), (4.0, 0.1, 16, 16)],
)
def test_what_is_slow_to_make_is_made_at_once_in_workers(make_s, make_computes, width, expected):
    """A process that makes a scene for 33 s is silent for as long, and 16 in turn take nine minutes."""
    timing = envs.Timing("gymnasium", make_s, make_computes)
    assert arena.workers_for(timing, width) == expected


@pytest.mark.parametrize(
    "timing",
    [{"step_s": 1.0, "step_computes": 1.0}, {"reset_s": 9.0}, {"make_s": 33.0, "make_computes": 30.0}],
)
@pytest.mark.parametrize("first", [0, 16], ids=["here", "on a machine that has joined"])
def test_the_samplers_of_a_machine_share_its_cores(monkeypatch, timing, first):
    """Each has 16 environments that compute; 14 or 16 samplers with a worker on each core would be 256."""
    monkeypatch.setattr(arena, "available_cores", lambda: 16)
    plan = topology.load("pendulum", ["components.sampler.envs=16"], cores=16)
    timing = envs.Timing("gymnasium", **timing)
    numbers = range(first, first + (16 if first else plan.components["sampler"].count.initial))
    workers = [arena.workers_of_sampler(plan, timing, index) for index in numbers]
    assert 0 < sum(workers) <= 16
    assert arena.workers_for(timing, 64) == 16, "the evaluator is one"


@pytest.mark.parametrize(("workers", "expected"), [("auto", 0), (2, 2)])
def test_what_a_run_in_order_does_follows_from_no_time(workers, expected):
    """Neither that its samplers have workers, by which what draws from shared generators would differ."""
    written = ["balance.mode=lockstep", "components.sampler.envs=4", f"components.sampler.workers={workers}"]
    plan = topology.load("pendulum", written)
    timings = [envs.Timing("gymnasium", step_s=step_s) for step_s in (0.0, 1.0)]
    assert [arena.workers_of_sampler(plan, timing) for timing in timings] == [expected] * 2


@pytest.fixture
def crowded():
    """This process has one core, and shares it with four others that compute."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(("busy", "expected"), [(True, 0), (False, 4)])
def test_a_wait_for_a_core_is_not_one_for_another_program(crowded, busy, expected):
    """Where a computing step has a fifth of the time."""
    with closing(envs.make(f"{HERE}:Endless", 1, step_s=0.02, busy=busy)) as one:
        assert arena.workers_for(timed(one), 4, 1.0, 1.0) == expected


def test_workers_let_others_be_heard_during_a_long_step(make):
    """``on_tick`` is called while a step of a second is under way."""
    ticks = []
    how = {"num_workers": 1, "on_tick": lambda: ticks.append(1)}
    slow = make(f"{HERE}:Endless", 1, untried={"step_s": 1.0}, **how)
    batch = slow.batch(1)
    batch.reset(seed=1)
    ticks.clear()
    batch.step(batch.action_space.sample())
    assert len(ticks) >= 2


def test_what_cannot_be_sent_to_workers_is_played_here(make):
    """An environment whose argument is not plain data."""
    spec = replace(envs.probe(f"{HERE}:Endless", {}), kwargs={"step_s": np.float32(0.02)})
    here = Arena(spec, 2)
    assert (here.num_workers, here.batch(2).num_envs) == (0, 2)
