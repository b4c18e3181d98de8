"""What samplers see, of rewards and of episodes, is named where nobody can learn from it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq.broker.doctor import Doctor
from spreeze_zmq.broker.doctor.vitals import Vitals
from spreeze_zmq.broker.sightings import Sightings, experience_row
from spreeze_zmq.envs.bounds import Bounds
from spreeze_zmq.envs.packed import Packing
from tests.unit.broker.lived import Lived


def constant(shape, value):
    """An array of one value."""
    return np.full(shape, value, np.float32)


SHAPE = (16, 16)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("large_rewards", lambda run: {"reward": 1e5 * run.rollout.reward}),
        ("small_rewards", lambda run: {"reward": 1e-5 * run.rollout.reward}),
        ("small_observations", lambda run: {"obs": 1e-4 * run.rollout.obs}),
        ("large_observations", lambda run: {"obs": 1e6 + run.rollout.obs}),
        ("constant_observations", lambda run: {"obs": constant(run.rollout.obs.shape, 0.5)}),
        ("saturated_actions", lambda run: {"action": constant((*SHAPE, 1), 2.0)}),
    ],
)
def test_what_a_sampler_sees_is_named_within_seconds(name, seen):
    """From one rollout a report, beside an ordinary rest."""
    run = Lived()
    run.see(**seen(run))
    assert run.live(12) == [name]
    assert 3.0 <= run.heard[0]["t_s"] <= 12.0


def test_bytes_are_judged_as_networks_see_them():
    """A board of 0 and 1 is small, a picture is not."""
    run = Lived()
    picture = np.random.default_rng(0).integers(0, 256, run.rollout.obs.shape, np.uint8)
    run.see(obs=picture)
    assert run.live(12) == []
    run = Lived()
    run.see(obs=picture // 128)
    assert run.live(12) == ["small_observations"]
    run = Lived()
    run.experience = Sightings(replace(run.record.plan.environment, obs_max=1))
    run.see(obs=picture // 128)
    assert run.live(12) == []


def test_packed_observations_have_the_figures_of_flat_ones():
    """A camera beside joints is reported as ever."""
    run = Lived("run.env=tests.system.camera:Camera", "algorithm.network=mlp")
    packing = Packing.of(run.record.plan.environment)
    run.experience.take(run.rollout)
    found = run.experience.figures()
    run.experience.take(replace(run.rollout, obs=packing.flat(run.rollout.obs)))
    assert run.rollout.obs.dtype == np.uint8
    assert run.experience.figures() == found
    assert found["obs_mean"] > 100.0


def test_actions_beside_one_bound_are_named_later():
    """Noise moves them off it; policies that learn begin there for some seconds, too."""
    run = Lived()
    run.see(action=constant((*SHAPE, 1), -1.9))
    assert run.live(12) == []
    assert run.live(18) == ["saturated_actions"]
    run = Lived()
    run.see(action=np.linspace(-2.0, 2.0, 256, dtype=np.float32).reshape(*SHAPE, 1))
    assert run.live(30) == []


def test_an_option_against_it_silences_a_finding():
    """What the algorithm normalises may have any size."""
    run = Lived("algorithm.normalize_observations=true")
    run.see(obs=1e6 * run.rollout.obs)
    assert run.live(12) == []


def test_rewards_that_never_differ_are_named():
    """With the same return in each episode, or with rewards of 0 before any has ended; survival is no such
    case: with 1 a step, the return is the length.
    """
    run = Lived()
    run.see(reward=constant(SHAPE, -1.0))
    run.draw = lambda size: np.full(size, -200.0)
    assert run.live(20) == ["constant_reward"]
    run = Lived()
    run.see(reward=constant(SHAPE, 0.0))
    assert run.live(20, episodes=0) == ["constant_reward"]
    run = Lived()
    run.see(reward=constant(SHAPE, 1.0))
    assert run.live(2) == []
    run.draw = lambda size: np.full(size, 500.0)  # a policy that always survives
    assert run.live(20) == []


@pytest.mark.parametrize("name", ["constant_reward", "small_rewards", "values_diverge"])
def test_a_reward_that_no_report_meets_is_one_all_the_same(name):
    """A fast environment fills hundreds of rollouts between two reports; the goal is in one of them."""
    for rare, found in (({}, [name]), ({"reward": constant(SHAPE, 50.0)}, [])):
        run = Lived()
        run.see(reward=(1e-5 * run.rollout.reward if name == "small_rewards" else constant(SHAPE, 0.0)))
        run.gauges |= {"q_mean": 900.0} if name == "values_diverge" else {}
        run.experience.take(replace(run.rollout, **rare))
        episodes = 4 if name == "values_diverge" else 0
        assert [one for one in run.live(20, episodes=episodes) if one == name] == found


def test_observations_that_differ_between_rollouts_alone_are_not_the_same():
    """As where a frame stays for longer than a rollout."""
    run = Lived()
    run.see(obs=constant(run.rollout.obs.shape, 0.5))
    assert run.live(3) == []
    run.see(obs=constant(run.rollout.obs.shape, 0.75))
    assert run.live(20) == []


@pytest.mark.parametrize("reward", [-1.0, -1e-5, 0.0])
@pytest.mark.parametrize(
    "others",
    [
        {"algorithm": {"hindsight": "future", "gamma": 0.99}},
        {"algorithm": {"hindsight": "off", "gamma": 0.99}, "learning": {"rows_each": 3}},
        {"data": {"shown": {"source": "minari:a/b-v0"}}},
    ],
)
def test_rewards_of_samplers_are_not_all_that_there_is_to_learn_from(others, reward):
    """Goals in hindsight, and data, are paid where no sampler has been: their values are others."""
    run = Lived()
    run.record.doctor.vitals.plan = {**run.record.doctor.vitals.plan, **others}
    run.see(reward=constant(SHAPE, reward))
    run.draw = lambda size: np.full(size, 200 * reward)
    run.gauges |= {"q_mean": 500.0}
    assert run.live(20) == []


@pytest.mark.parametrize("others", [{}, {"data": {"shown": {"source": "minari:a/b-v0"}}}])
def test_values_that_no_rewards_add_up_to_are_named(others):
    """Beside data, whose rewards nobody has told, only where they are far beyond."""
    run = Lived()
    run.record.doctor.vitals.plan = {**run.record.doctor.vitals.plan, **others}
    run.gauges |= {"q_mean": 1e9}
    assert run.live(20) == ["values_diverge"]


def test_episodes_that_are_all_the_same_are_named():
    """Rewards differ within an episode, returns do not between them."""
    run = Lived()
    run.draw = lambda size: np.full(size, -200.0)
    assert run.live(20) == ["identical_episodes"]


def test_observations_that_leave_their_space_later_are_named():
    """With the number, its bound, and when: once, though they come back. Those of bytes cannot."""
    run = Lived()
    run.experience = Sightings(run.record.plan.environment, Box(-1.0, 1.0, (3,), np.float32))
    within = np.clip(run.rollout.obs, -1.0, 1.0)
    run.see(obs=within)
    assert run.live(6) == []
    strayed = within.copy()
    strayed[-1, -1, 2] = -1.5
    run.see(obs=strayed)
    assert run.live(6) == ["outside_box"]
    run.see(obs=within)
    assert run.live(20) == ["outside_box"]
    [said] = [row["seen"] for row in run.heard]
    steps = 7 * run.rollout.num_transitions
    assert said == (
        "number 2 of an observation was -1.5, observation_space allows at least -1, "
        f"after {steps:,} env steps of its sampler"
    )
    assert not Bounds(Box(0, 255, (4, 4), np.uint8)).exist


@pytest.mark.parametrize(
    ("overrides", "found"), [((), []), (("run.env_kwargs={max_episode_steps=-1}",), ["never_ending"])]
)
def test_episodes_that_never_end_are_named(overrides, found):
    """From 2,500 steps of each environment on; below a time limit nothing is late."""
    run = Lived(*overrides)
    assert run.live(45 if found else 6, episodes=0) == found


def test_fewer_samplers_make_nothing_late():
    """What four of them have sampled is not what each environment of the last one has taken."""
    run = Lived("components.sampler.envs=16")
    run.report("sampler")
    others = [f"sampler-{number}" for number in (1, 2, 3)]
    for name in others:
        fields = {"role": "sampler", "name": name, "pid": 1, "cpu_s": 0.0}
        run.record.take_hello(name, 1, fields, 0.0)
    assert run.live(20, steps=64 * 60, episodes=0) == []
    for name in others:
        run.record.lose(name, "was stopped")
    assert run.live(5, steps=16 * 60, episodes=0) == []
    assert run.live(5, steps=16 * 60, episodes=0) == ["never_ending"]


def test_episodes_that_end_after_all_are_no_longer_said_to_be_endless():
    """What the plan shows is judged again by what is seen."""
    run = Lived("run.env_kwargs={max_episode_steps=-1}")
    plan = {**json.loads(run.record.plan.to_json()), "tried": {"unended_steps": 1500}}
    run.record.doctor, envs = Doctor(plan), plan["components"]["sampler"]["options"]["envs"]
    for steps, seen in ((10, "in 1,500 random steps, and"), (200, "in 4,190 steps of each environment")):
        assert run.live(20, steps=steps * envs, episodes=0) == ["never_ending"]
        (row,) = run.record.doctor.rows()
        assert seen in row["seen"]
    assert run.live(20, steps=10) == []


@pytest.mark.parametrize(("most", "found"), [(1, ["never_ending"]), (0, [])])
def test_no_end_of_episodes_is_missed_where_none_are_sampled(most, found):
    """On data alone only evaluation plays, which cuts its own."""
    run = Lived("run.env_kwargs={max_episode_steps=-1}")
    plan = {**json.loads(run.record.plan.to_json()), "tried": {"unended_steps": 1500}}
    plan["components"]["sampler"]["count"]["maximum"] = most
    run.record.doctor = Doctor(plan)
    assert [row["name"] for row in run.record.doctor.rows()] == found
    assert run.live(12, steps=0, episodes=0) == found


def test_a_limit_that_is_reported_as_terminated_is_named():
    """All episodes of one length, terminated; not where they are truncated, or of different lengths."""
    for lengths, terminated, found in (
        ([200] * 40, True, ["limit_as_termination"]),
        ([200] * 40, False, []),
        ([*range(10, 50)], True, []),
        ([*range(10, 50), *[500] * 40], True, ["limit_as_termination"]),
        ([7, 8, 9, 9] * 20, True, []),
        ([*range(10, 50)] * 200 + [500] * 40, True, []),  # by chance
    ):
        run = Lived()
        run.experience.ended(np.array(lengths), np.full(len(lengths), terminated))
        assert run.live(12) == found


def test_the_figures_of_several_samplers_become_one_row():
    """The least and greatest of all, sums of counts; a sampler in another language may send none."""
    one = {"reward_min": -1.0, "reward_max": 2.0, "terminated": 3.0, "terminated_longest": 50.0}
    one |= {"terminated_at_longest": 3.0, "terminated_shortest": 50.0, "truncated": 0.0}
    other = {**one, "reward_min": -5.0, "terminated_longest": 40.0, "reward_max": float("nan")}
    row = experience_row([one, {}, other])
    assert (row["reward_min"], row["reward_max"], row["terminated"]) == (-5.0, 2.0, 6.0)
    assert (row["terminated_longest"], row["terminated_at_longest"]) == (50.0, 3.0)
    assert experience_row([{}]) == {}


def test_looks_that_time_has_cut_say_nothing_of_the_return():
    """Where each step costs, they would be the best, as long as the cut let them. A success is one."""
    vitals = Vitals({})
    whole, cut = {"mean_return": -60.0, "mean_length": 100}, {"mean_return": -6.5, "mean_length": 10}
    cut |= {"timed_out": True, "info": {"is_success": 0.0}}
    for t_s in range(12):
        vitals.take("evaluation", float(t_s), whole if t_s < 6 else cut)
    assert (vitals.best, vitals.num_looks, vitals.has_risen) == ((-60.0, 100.0), 6, False)
    assert (vitals.last_look, vitals.successes.total()) == ({}, 0)
    vitals.take("evaluation", 12.0, {**cut, "info": {"is_success": 0.2}})
    assert (vitals.successes[True], vitals.num_looks) == (1, 6)


@pytest.mark.parametrize(
    ("length", "look", "options", "remedy"),
    [
        (1500, {}, [], ["components.evaluator.episode_steps = 3_000"]),
        (1500, {"timed_out": True}, [], []),
        (1500, {"num_truncated": 0}, [], []),
        (1500, {}, ["components.evaluator.episode_steps=1000"], []),
        (900, {}, [], []),
    ],
)
def test_evaluations_of_a_part_of_each_episode_are_named(length, look, options, remedy):
    """Where the environment counts its steps itself, so that its time limit is not known; not where that was
    chosen, or time is short.
    """
    run = Lived("run.env_kwargs={max_episode_steps=-1}", *options)
    run.live(2, length=length)
    run.look(-900.0, max_length=1000, **{"num_truncated": 5, **look})
    run.live(5, length=length)
    rows = [row for row in run.record.doctor.rows() if row["name"] == "cut_evaluations"]
    assert [row["try"] for row in rows] == remedy
