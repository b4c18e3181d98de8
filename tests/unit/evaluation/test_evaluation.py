"""Playing whole episodes and scoring them."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from components.evaluator.__main__ import Evaluator
from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.pauses import RunTime
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import Score, play, spread, t_interval, with_spread
from spreeze_zmq.policy import Policy
from tests.unit.envs.own_environments import Count


class Ends(PendulumEnv):
    """A pendulum whose episodes end by themselves in the third step."""

    def reset(self, **options):
        """As the pendulum's."""
        self.steps = 0
        return super().reset(**options)

    def step(self, action):
        """As the pendulum's."""
        self.steps += 1
        obs, reward, _, *rest = super().step(action)
        return obs, reward, self.steps == 3, *rest


class Arrays(Count):
    """Its numbers and flags are arrays of one, as environments give them that compute in batches."""

    def step(self, action):
        """As the class says, beside an array of two."""
        *others, info = super().step(action)
        arrays = {"steps": np.array([info["steps"]]), "is_success": np.array([[True]]), "pair": np.ones(2)}
        return *others, arrays


@pytest.fixture
def policy():
    """An untrained policy for Pendulum."""
    algorithm = algorithms.get("sac")
    half = algorithms.make(
        "policy", algorithm, algorithm.Options(hidden_sizes=(16,)), envs.probe("Pendulum-v1", {}), "cpu", 1
    )
    fields = {"version": 1, "description": half.description(), "extras": {}}
    return Policy.from_message(fields, half.policy_arrays())


def test_each_environment_plays_one_whole_episode(policy):
    """Pendulum's episodes have 200 steps; a return is the undiscounted sum of one episode's rewards only."""
    import gymnasium

    score = play(envs.make("Pendulum-v1", 3), policy, seed=5)
    assert score.lengths.tolist() == [200, 200, 200]
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=6)
    expected, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(policy.mode(obs[None])[0])
        expected, done = expected + reward, terminated or truncated
    assert score.returns[1] == pytest.approx(expected, rel=1e-4)


def test_the_same_seed_plays_the_same_episodes(policy):
    """So ``spreeze eval`` can repeat a score."""
    scores = [play(envs.make("Pendulum-v1", 2), policy, seed).returns for seed in (1, 1, 2)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_an_evaluation_is_given_up_when_the_run_stops(policy):
    """``on_step`` raises after a step; the next evaluation begins with a reset."""
    steps = []

    def stop_at_the_third_step():
        steps.append(1)
        if len(steps) == 3:
            raise InterruptedError

    batch = envs.make("Pendulum-v1", 2)
    with pytest.raises(InterruptedError):
        play(batch, policy, 1, on_step=stop_at_the_third_step)
    expected = play(envs.make("Pendulum-v1", 2), policy, 1).returns
    assert np.array_equal(play(batch, policy, 1).returns, expected)


OWN = "tests.unit.envs.own_environments"


def test_episodes_are_the_same_in_rounds_as_at_once(policy):
    """Episode ``i`` begins with ``seed + i`` however many environments there are: a file's score is repeated
    in a batch of any size.
    """
    at_once = play(envs.make("Pendulum-v1", 6), policy, 7)
    in_rounds = play(envs.make("Pendulum-v1", 2), policy, 7, 6)
    np.testing.assert_allclose(in_rounds.returns, at_once.returns, rtol=1e-4)
    assert len(play(envs.make("Pendulum-v1", 4), policy, 7, 6).returns) == 8  # whole rounds


def test_rounding_is_no_spread():
    """Sums of the same rewards in another order; what differs by more is one."""
    rewards = np.tile([1.1, 0.3, 1e3], 300)
    orders = (rewards, rewards[::-1], np.sort(rewards), np.sort(rewards)[::-1])
    returns = np.array([sum(order.tolist()) for order in orders])
    assert returns.std() > 0.0
    alike, ends = np.zeros(4, np.int64), np.zeros(4, np.bool_)
    score = Score(returns, alike + 900, np.arange(4), ends)
    assert score.fields()["std_return"] == 0.0
    assert with_spread(returns) == "300420.00 +- 0.00"
    assert spread(returns + np.array([0, 1, 0, 1])) == pytest.approx(0.5)


def test_one_episode_that_is_played_again_and_again_has_no_interval(policy):
    """In rounds and with further ones too. What begins alike and goes on by chance is several episodes."""
    limit = {"max_episode_steps": 20}
    again = play(envs.make(f"{OWN}:Again", 2, **limit), policy, 7, 6)
    assert (again.is_one, again.interval, again.fields().get("interval_low")) == (True, None, None)
    assert again.followed_by(play(envs.make(f"{OWN}:Again", 3, **limit), policy, 90)).is_one
    for other in (envs.make(f"{OWN}:Again", 2, chance=True, **limit), envs.make("Pendulum-v1", 2, **limit)):
        score = play(other, policy, 7, 6)
        assert not score.is_one
        assert score.fields()["interval_low"] < score.mean_return
        assert not again.followed_by(score).is_one


def test_an_episode_that_the_limit_of_steps_ends_counts_as_cut(policy):
    """If the evaluation has set the limit; an episode truncated by the environment's own limit is whole, and
    so is one that ends by itself in its last step.
    """
    cut = play(envs.make("Pendulum-v1", 2, max_episode_steps=30), policy, 1, step_cap=30)
    assert (cut.lengths.tolist(), cut.cut.tolist(), cut.timed_out) == ([30, 30], [True, True], False)
    assert cut.fields()["num_truncated"] == 2
    assert not play(envs.make("Pendulum-v1", 2), policy, 1).cut.any()
    ends = envs.make(f"{__name__}:Ends", 2, step_cap=3)
    assert play(ends, policy, 1, step_cap=3).cut.tolist() == [False, False]


def test_time_cuts_the_first_round_and_leaves_out_a_later_one(policy):
    """The first round counts as far as it came, so that there is a score; a later one would bias it."""
    first = play(envs.make("Pendulum-v1", 2), policy, 1, 6, until_s=0.0)
    assert (first.lengths.tolist(), first.cut.tolist(), first.timed_out) == ([1, 1], [True, True], True)
    began, steps = [], []

    def until_the_second_round():
        steps.append(1)
        if len(steps) == 205:
            began.append(time.monotonic())

    class Clock:
        """A time that has passed once the second round has begun."""

        def __le__(self, now_s):
            return bool(began)

    score = play(envs.make("Pendulum-v1", 2), policy, 1, 6, until_s=Clock(), on_step=until_the_second_round)
    assert (len(score.returns), score.timed_out, score.cut.any()) == (2, False, False)


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_of_the_run_cuts_no_evaluation(policy, monkeypatch, paused):
    """An hour in which all stood still does not count; an hour in which the run went on does."""
    now_s, steps = [100.0], [0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def breathe():
        steps[0] += 1
        now_s[0] += 3600.0 if steps[0] == 50 else 0.1
        if steps[0] % 10 == 5 or steps[0] == 51:
            evaluator.on_status({"t_s": now_s[0] - (3600.0 if paused and steps[0] >= 50 else 0.0)})

    evaluator = Evaluator.__new__(Evaluator)
    evaluator.component = SimpleNamespace(breathe=breathe, running=True, options={"max_s": 60.0})
    evaluator.arena = SimpleNamespace(batch=lambda num: envs.make("Pendulum-v1", num), step_cap=None)
    evaluator.videos, evaluator.num_episodes = SimpleNamespace(reached=lambda env_steps: None), 2
    evaluator.run_time, evaluator.ending = RunTime(time.monotonic), False
    evaluator.on_status({"t_s": 100.0})
    one = Contestant(policy, seed=1)
    assert evaluator.play(one, 2) == paused
    assert (one.score.lengths.tolist(), one.score.timed_out) == (
        [200, 200] if paused else [51, 51],
        not paused,
    )


@pytest.mark.parametrize(("fails_at", "compares"), [(21, True), (19, True), (4, False)])
def test_episodes_that_failed_are_played_again_and_counted(fails_at, compares):
    """Where most do, the whole ones are the easy ones, here the short ones: their mean compares with none."""
    acting = Policy.from_message(*for_environment(f"{OWN}:Draw"))
    batch = envs.make(f"{OWN}:Draw", 4, fails_at=fails_at, max_failures=10**6)
    score = play(batch, acting, 3, 8)
    assert (score.lengths < fails_at).all()
    assert (len(score.returns), score.compares) == (8, compares)
    assert score.num_failed == batch.failures.count == score.fields().get("num_failed", 0)


def test_the_info_of_the_last_step_is_averaged_over_episodes(policy):
    """Numbers and flags, for Gymnasium environments in this process and in workers, and for native tasks."""
    count = {"length": 3}
    acting = Policy.from_message(*for_environment(f"{OWN}:Count", **count))
    for workers in (0, 2):
        batch = envs.make(f"{OWN}:Count", 2, step_info="final", num_workers=workers, **count)
        assert play(batch, acting, 1, 4).info == {"steps": 3.0}
        batch.close()
        arrays = envs.make(f"{__name__}:Arrays", 2, step_info="final", num_workers=workers, **count)
        assert play(arrays, acting, 1, 4).info == {"steps": 3.0, "is_success": 1.0}
        arrays.close()
    acting = Policy.from_message(*for_environment("HalfCheetah-v5"))
    native = envs.make("HalfCheetah-v5", 2, step_info="final", max_episode_steps=5)
    info = play(native, acting, 1).info
    assert {"x_position", "reward_forward"} <= info.keys()


@pytest.mark.parametrize("task", ["Hopper-v5", "Humanoid-v5", f"{OWN}:Draw"])
def test_an_environment_whose_episode_is_over_is_not_stepped(task):
    """The other environments play on, and each episode is the same as when it is played alone. At the end all
    environments are at the start of their next episode.
    """
    acting = Policy.from_message(*for_environment(task))
    batch = envs.make(task, 6, step_info="final")
    score = play(batch, acting, 3)
    alone = [play(envs.make(task, 1, step_info="final"), acting, 3 + row) for row in range(6)]
    assert len(set(score.lengths.tolist())) > 1
    assert score.lengths.tolist() == [int(one.lengths[0]) for one in alone]
    np.testing.assert_allclose(score.returns, [one.returns[0] for one in alone], rtol=1e-4)
    assert score.info.keys() == alone[0].info.keys()
    if batch.backend == "mujoco":
        assert np.abs(batch.task.qvel).max() <= batch.task.reset_noise_scale
    else:
        assert [env.steps for env in batch.envs] == [0] * 6
    assert play(batch, acting, 3).lengths.tolist() == score.lengths.tolist()  # a reset ends it


def for_environment(env_id, **kwargs):
    """The fields and arrays of an untrained policy."""
    algorithm = algorithms.get("sac")
    spec = envs.probe(env_id, kwargs)
    half = algorithms.make("policy", algorithm, algorithm.Options(hidden_sizes=(16,)), spec, "cpu", 1)
    return {"version": 1, "description": half.description(), "extras": {}}, half.policy_arrays()


def test_nineteen_intervals_of_twenty_hold_the_true_mean():
    """By Student's t, of 3, 10 and 60 draws of a normal distribution."""
    rng = np.random.default_rng(0)
    for num in (3, 10, 60):
        intervals = [t_interval(rng.normal(5.0, 2.0, num)) for _ in range(4000)]
        held = np.mean([low <= 5.0 <= high for low, high in intervals])
        assert held == pytest.approx(0.95, abs=0.012)
    assert t_interval(np.array([1.0])) is None
