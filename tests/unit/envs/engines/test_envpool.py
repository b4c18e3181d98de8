"""EnvPool's tasks behind the same interface: no dead step comes out, and what is missing is said."""

from importlib.util import find_spec

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="EnvPool is not installed")


@pytest.mark.skipif(find_spec("envpool") is not None, reason="EnvPool is installed")
@pytest.mark.parametrize("backend", ["auto", "envpool"])
def test_a_task_of_envpools_says_how_to_install_it(backend):
    """Where it is not there."""
    with pytest.raises(InvalidEnvironment, match=r"pip install 'spreeze_zmq\[envpool\]'"):
        envs.make("Pong-v5", 2, backend=backend)


def angle_steps(first, then):
    """How far CartPole's cart moved, which its velocity says beforehand."""
    return then[:, 0] - first[:, 0] - 0.02 * first[:, 1]


@needs_envpool
def test_no_dead_step_comes_out():
    """Every step moves by the dynamics from the last observation to the next, or to the final one."""
    env = envs.make("CartPole-v1", 8, backend="envpool", seed=2)
    last, _ = env.reset()
    ends = 0
    for _ in range(120):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        reached = info.get("final_obs", obs)
        np.testing.assert_allclose(angle_steps(last, reached), 0.0, atol=1e-6)
        assert reward.tolist() == [1.0] * 8
        ended = terminated | truncated
        if ended.any():
            ends += ended.sum()
            assert np.abs(obs[ended]).max() <= 0.05
            assert (np.abs(info["final_obs"][ended, 2]) > 0.2).all()
            assert info["episode"]["l"][ended].tolist() == info["episode"]["r"][ended].tolist()
        last = obs
    assert ends > 10


@needs_envpool
def test_no_dead_step_comes_out_of_first_finished_batches():
    """The same with send and recv, each environment by itself."""
    env = envs.make("CartPole-v1", 8, backend="envpool", batch_size=2)
    last, _ = env.reset()
    env.send(env.action_space.sample())
    lengths, ends = np.zeros(8, np.int64), 0
    for _ in range(600):
        obs, _, terminated, truncated, info = env.recv()
        ids = info["env_id"]
        assert len(set(ids.tolist())) == 2
        np.testing.assert_allclose(angle_steps(last[ids], info.get("final_obs", obs)), 0.0, atol=1e-6)
        lengths[ids] += 1
        ended = terminated | truncated
        if ended.any():
            ends += ended.sum()
            assert info["episode"]["l"][ended].tolist() == lengths[ids[ended]].tolist()
            lengths[ids[ended]] = 0
        last[ids] = obs
        env.send(env.action_space.sample()[:2], ids)
    assert ends > 10


@needs_envpool
def test_seeds_repeat_a_run():
    """The seed given to ``make``, and one given to a reset."""
    first, second = (envs.make("Pendulum-v1", 3, backend="envpool", seed=seed) for seed in (7, 1))
    a, b = first.reset()[0], second.reset(seed=7)[0]
    np.testing.assert_array_equal(a, b)
    assert len({row.tobytes() for row in a}) == 3
    action = first.action_space.sample()
    np.testing.assert_array_equal(first.step(action)[0], second.step(action)[0])


@needs_envpool
def test_atari_stays_uint8():
    """Frames are not blown up to floats; the id is EnvPool's."""
    env = envs.make("Pong-v5", 2)
    assert (env.backend, env.backend_reason) == ("envpool", "Gymnasium does not have it, EnvPool does")
    assert env.reset()[0].dtype == env.step(np.zeros(2, np.int64))[0].dtype == np.uint8


@needs_envpool
def test_auto_takes_it_where_there_is_no_native_task():
    """And gives the reason; environments with arguments of their own stay with Gymnasium."""
    env = envs.make("Acrobot-v1", 2, max_episode_steps=7)
    assert env.backend == "envpool"
    assert "no native task does Acrobot-v1" in env.backend_reason
    env.reset()
    truncated = [env.step(np.zeros(2, np.int64))[3].all() for _ in range(7)]
    assert truncated == [False] * 6 + [True]
    assert envs.make("Acrobot-v1", 2, render_mode="rgb_array").backend == "gymnasium"


@needs_envpool
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Pog-v5", 2), "Pong-v5"),
        (("CartPole-v1", 4, {"batch_size": 3}), "a divisor of it, not 3"),
        (("CartPole-v1", 4, {"nonsense": 3}), "EnvPool could not make it"),
        (("CartPole-v1", 4, {"batch_size": 2, "step_cap": 9}), "give max_episode_steps=9"),
    ],
)
def test_what_envpool_cannot_do_is_refused(arguments, says):
    """One line."""
    env_id, num_envs, *kwargs = arguments
    with pytest.raises(InvalidEnvironment, match=says):
        envs.make(env_id, num_envs, backend="envpool", **(kwargs[0] if kwargs else {}))


@needs_envpool
@pytest.mark.parametrize("capped", [{"step_cap": 500}, {"max_episode_steps": 9, "step_cap": 9}])
def test_first_finished_batches_keep_envpools_own_limit(capped):
    """A cap that is no lower is not refused; the limit of an argument holds for each episode."""
    env = envs.make("CartPole-v1", 4, backend="envpool", batch_size=2, **capped)
    env.reset()
    env.send(np.zeros(4, np.int64))
    longest = 0
    for _ in range(40):
        *_, info = env.recv()
        longest = max(longest, info.get("episode", {"l": np.zeros(1)})["l"].max())
        env.send(np.zeros(2, np.int64), info["env_id"])
    assert 0 < longest <= capped["step_cap"]
