"""What a batch of environments promises: autoreset in the step, true final observations, seeds, failures."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from tests.unit.envs.doors import Lines
from tests.unit.envs.own_environments import Count

OWN = "tests.unit.envs.own_environments"


class Paying(gymnasium.wrappers.TimeLimit):
    """A limit of time that pays for each step."""

    def step(self, action):
        """Ten more."""
        obs, reward, *rest = super().step(action)
        return obs, reward + 10.0, *rest


def paying():
    """Episodes of two steps."""
    return Paying(Count(length=9), 2)


class Own(Lines):
    """Its observations and infos are its state itself."""

    def allocate(self, num_envs):
        """Make room."""
        super().allocate(num_envs)
        self.seen = np.zeros((num_envs, 2), np.float32)

    def observe(self, rows):
        """The number of steps."""
        self.seen[rows] = self.steps[rows, None]
        return self.seen if isinstance(rows, slice) else self.seen[rows]


def act(env):
    """Actions that tell the environments apart."""
    return np.linspace(-0.5, 0.5, env.num_envs, dtype=np.float32)[:, None]


def test_it_is_a_gymnasium_vector_environment():
    """Spaces and metadata say what the arrays are."""
    env = envs.make("Pendulum-v1", 4)
    assert isinstance(env, VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = env.reset()
    assert obs in env.observation_space
    assert env.action_space.sample().shape == (4, 1)


@pytest.mark.parametrize("truncate", [False, True])
def test_the_true_final_observation_is_kept(truncate):
    """The step that ends an episode returns the next one's first observation; the last is in the info."""
    env = envs.make(f"{OWN}:Count", 2, length=3, truncate=truncate)
    env.reset()
    for _ in range(2):
        obs, _, terminated, truncated, info = env.step(act(env))
        assert not (terminated | truncated).any()
        assert "final_obs" not in info
    obs, reward, terminated, truncated, info = env.step(act(env))
    assert terminated.tolist() == [not truncate] * 2
    assert truncated.tolist() == [truncate] * 2
    assert obs[:, 0].tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(info["final_obs"], [[3.0, -0.5], [3.0, 0.5]])
    assert info["_final_obs"].tolist() == [True, True]
    assert info["episode"]["r"].tolist() == [3.0, 3.0]
    assert info["episode"]["l"].tolist() == [3, 3]
    assert info["final_info"]["steps"].tolist() == [3, 3]
    assert info["started"].tolist() == [True, True]
    assert reward.tolist() == [1.0, 1.0]


def test_a_final_info_is_of_the_end_where_a_task_returns_its_state_itself():
    """Which the next episode of the same step writes to; so are observations."""
    env = envs.make(f"{__name__}:Own", 2)
    kept = [env.reset()[0], *(env.step(act(env))[0] for _ in range(4))]
    *_, info = env.step(act(env))
    assert info["final_info"]["steps"].tolist() == info["episode"]["l"].tolist() == [5, 5]
    assert info["final_obs"][:, 0].tolist() == [5, 5]
    assert [obs[0, 0] for obs in kept] == [0, 1, 2, 3, 4]


def test_a_limit_of_time_that_does_more_is_kept():
    """Only Gymnasium's own is taken over by the batch."""
    env = envs.make(f"{__name__}:paying", 1)
    env.reset()
    steps = [env.step(act(env)) for _ in range(2)]
    assert [(reward[0], truncated[0]) for _, reward, _, truncated, _ in steps] == [(11, False), (11, True)]
    assert env.episode_limit == 2


class Trials(gymnasium.Wrapper):
    """Two episodes of an environment are one of its own."""

    def reset(self, **kwargs):
        """The first one."""
        self.left = 2
        return self.env.reset(**kwargs)

    def step(self, action):
        """Ends with the second one."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self.left -= 1
            if self.left:
                obs, info = self.env.reset()
        over = not self.left
        return obs, reward, terminated and over, truncated and over, info


def trials():
    """Pendulum twice, of three steps each."""
    return Trials(gymnasium.make("Pendulum-v1", max_episode_steps=3))


def test_an_environment_may_go_on_beyond_a_limit_within_it():
    """What is around the limit decides; a lower one, such as an evaluation's, is kept all the same."""
    spec = envs.probe(f"{__name__}:trials")
    for most, expected in ((spec.max_episode_steps, 6), (2, 2)):
        env = envs.remade(replace(spec, max_episode_steps=most), 2)
        env.reset()
        ended = [env.step(act(env))[3].tolist() for _ in range(6)]
        assert ended.index([True, True]) + 1 == expected


def test_only_what_ended_is_reset():
    """The others go on, and their statistics too."""
    env = envs.make("CartPole-v1", 8, seed=4)
    env.reset()
    returns = np.zeros(8)
    for _ in range(60):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        returns += reward
        if "episode" in info:
            ended = terminated | truncated
            np.testing.assert_array_equal(info["_episode"], ended)
            np.testing.assert_array_equal(info["episode"]["r"], np.where(ended, returns, 0))
            np.testing.assert_array_equal(info["final_obs"][~ended], obs[~ended])
            assert np.abs(obs[ended]).max() <= 0.05 < np.abs(info["final_obs"][ended, 2]).min()
            returns[ended] = 0


@pytest.mark.parametrize("backend", ["numpy", "gymnasium"])
def test_returned_arrays_are_the_callers(backend):
    """A later step changes none of them."""
    env = envs.make("Pendulum-v1", 3, backend=backend)
    kept = [env.reset()[0], *env.step(act(env))[:4]]
    copies = [array.copy() for array in kept]
    for _ in range(250):
        env.step(act(env))
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Hopper-v5", f"{OWN}:Count"])
def test_seeds_repeat_a_run_and_differ_between_environments(env_id):
    """Also the seed given to ``make``, which the first reset takes."""
    first, second = envs.make(env_id, 3, seed=9), envs.make(env_id, 3)
    a, b = first.reset()[0], second.reset(seed=9)[0]
    np.testing.assert_array_equal(a, b)
    assert len({row.tobytes() for row in a}) == 3
    np.testing.assert_array_equal(first.reset(seed=[11, 10, 9])[0], b[::-1])
    assert not np.array_equal(first.reset()[0], second.reset()[0])


def test_a_mask_resets_some_alone():
    """As in ``gymnasium.vector``."""
    env = envs.make(f"{OWN}:Count", 3, length=9)
    env.reset()
    env.step(act(env))
    env.reset(options={"reset_mask": np.array([False, True, False])})
    obs = env.step(act(env))[0]
    assert obs[:, 0].tolist() == [2.0, 1.0, 2.0]


def test_send_and_recv_are_step_in_two_halves():
    """Actions may come in any order."""
    whole, halves = envs.make("Pendulum-v1", 3, seed=1), envs.make("Pendulum-v1", 3, seed=1)
    whole.reset(), halves.reset()
    action = act(whole)
    halves.send(action[[2, 0, 1]], np.array([2, 0, 1]))
    received = halves.recv()
    np.testing.assert_array_equal(received[0], whole.step(action)[0])
    assert received[4]["env_id"].tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="without send"):
        halves.recv()


def test_step_info_can_be_left_out():
    """Final observations and statistics are given all the same."""
    env = envs.make(f"{OWN}:Count", 2, step_info=False, length=1)
    assert env.reset()[1] == {}
    info = env.step(act(env))[4]
    assert info["final_info"] == {}
    assert not {"steps", "started"} & set(info)
    assert info["episode"]["l"].tolist() == [1, 1]


def test_an_environment_that_fails_takes_no_other_with_it():
    """Its episode is truncated at the last good observation; the failure is reported with its traceback."""
    failures = []
    env = envs.make(f"{OWN}:Moody", 3, length=9, on_failure=failures.append)
    env.reset()
    before = env.step(act(env))[0]
    obs, reward, terminated, truncated, info = env.step(np.array([[-0.1], [0.9], [0.2]], np.float32))
    assert truncated.tolist() == info["failed"].tolist() == [False, True, False]
    assert not terminated.any()
    assert reward.tolist() == [1.0, 0.0, 1.0]
    np.testing.assert_array_equal(info["final_obs"][1], before[1])
    assert (info["episode"]["r"][1], info["episode"]["l"][1]) == (1.0, 1)
    assert obs[:, 0].tolist() == [2.0, 0.0, 2.0]
    assert env.step(act(env))[0][:, 0].tolist() == [3.0, 1.0, 3.0]
    (failure,) = failures
    assert "environment 1 of 3 raised in step: ZeroDivisionError: in a bad mood" in failure.summary
    assert "step 2 of this batch, step 2 of its episode" in failure.summary
    assert "own_environments.py" in failure.traceback


def test_more_failures_than_allowed_are_raised():
    """With the first one's words and the original error behind them; none is allowed with 0."""
    env = envs.make(f"{OWN}:Moody", 2, max_failures=2)
    env.reset()
    bad = np.array([[0.9], [0.0]], np.float32)
    env.step(bad)
    env.step(bad)
    with pytest.raises(EnvironmentFailure, match=r"environment 0 of 2 raised.*3 failures within 100 e") as at:
        env.step(bad)
    assert "step 1 of this batch" in str(at.value)
    assert isinstance(at.value.__cause__, ZeroDivisionError)


def test_failures_are_counted_by_episodes():
    """One in ten episodes is tolerated for ever, however quickly they follow each other; two are not."""
    steps = 0
    env = envs.make(f"{OWN}:Moody", 1, length=1, max_failures=10)
    env.reset()
    for steps in range(1000):
        env.step(np.array([[0.9 if steps % 10 == 0 else 0.0]], np.float32))
    assert (env.failures.count, env.failures.episodes) == (100, 1000)
    with pytest.raises(EnvironmentFailure, match="11 failures within 100 episodes"):  # noqa: PT012
        for steps in range(100):
            env.step(np.array([[0.9 if steps % 5 == 0 else 0.0]], np.float32))
    assert steps < 20


@pytest.mark.parametrize(("gives", "what"), [("obs", "the observation"), ("reward", "the reward inf")])
def test_numbers_that_are_not_finite_never_come_out(gives, what):
    """NaN and infinity are reported once and replaced in the same step, and the episode is truncated."""
    failures = []
    env = envs.make(f"{OWN}:Count", 3, length=9, fails_at=2, gives=gives, on_failure=failures.append)
    env.reset()
    env.step(act(env))
    obs, reward, _, truncated, info = env.step(act(env))
    assert truncated.all()
    assert np.isfinite(obs).all()
    assert np.isfinite(info["final_obs"]).all()
    assert reward.tolist() == [0.0, 0.0, 0.0]
    assert [f"environment {n} of 3 gave {what}" in failures[n].summary for n in range(3)] == [True] * 3


def test_an_observation_of_the_wrong_shape_is_refused():
    """At the first reset."""
    with pytest.raises(
        EnvironmentFailure,
        match=r"environment 0 of 1 returned from reset.*\(2,\), expected float64 of shape \(5,\)",
    ):
        envs.make(f"{OWN}:lying", 1).reset()


def test_actions_of_the_wrong_shape_are_refused():
    """Nothing is broadcast in silence."""
    env = envs.make("Pendulum-v1", 3)
    env.reset()
    with pytest.raises(ValueError, match=r"\(3, 1\) expected, got \(1, 1\)"):
        env.step(np.zeros((1, 1)))


def test_a_native_task_of_ones_own_runs():
    """Its limit, its arguments and its info are its class's."""
    env = envs.make(f"{OWN}:Balance", 3, noise=0.0)
    obs, _ = env.reset()
    assert (env.backend, env.max_episode_steps) == ("mujoco", 4)
    assert not obs.any()
    for step in range(1, 5):
        obs, reward, _, truncated, info = env.step(np.zeros((3, 1), np.float32))
        assert truncated.all() == (step == 4)
    np.testing.assert_array_equal(info["final_info"]["height"], reward)
    with pytest.raises(InvalidEnvironment, match="backend 'gymnasium' cannot"):
        envs.make(f"{OWN}:Balance", 3, backend="gymnasium")
