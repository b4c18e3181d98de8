"""The robots in C++ are Gymnasium's: from the same states the same actions lead to the same numbers."""

import json
import subprocess

import gymnasium
import mujoco
import numpy as np
import pytest

#: Id -> noise of the first state, whether velocities are drawn from a normal distribution.
ROBOTS = {
    "HalfCheetah-v5": (0.1, True),
    "Hopper-v5": (5e-3, False),
    "Walker2d-v5": (5e-3, False),
    "Ant-v5": (0.1, True),
}
STEPS = 900


def played(probe, env_id, env, actions, seed=1, count=3):
    """What the robots in C++, so many in turn, say of resets and steps."""
    noise, is_normal = ROBOTS[env_id]
    model = env.unwrapped.model
    words = [env_id, model.nq, model.nv, noise, int(is_normal), seed, count]
    command = [probe, "play", *map(str, words)]
    done = subprocess.run(
        command, input=actions.astype(np.float32).tobytes(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def put(env, noise):
    """Begin an episode of Gymnasium's own from the first state plus ``noise``."""
    one = env.unwrapped
    env.reset()
    mujoco.mj_resetData(one.model, one.data)  # the solver's warm start too
    nq = one.model.nq
    one.set_state(one.init_qpos + noise[:nq], one.init_qvel + noise[nq:])
    return one._get_obs()


@pytest.mark.parametrize("env_id", ROBOTS)
def test_same_states_and_actions_same_numbers(probe, env_id):
    """Hundreds of steps of three robots in turn, over their falls."""
    envs = [gymnasium.make(env_id, max_episode_steps=10_000) for _ in range(3)]
    space, rng = envs[0].action_space, np.random.default_rng(0)
    actions = rng.uniform(space.low, space.high, (STEPS, *space.shape)).astype(np.float32)
    said, ends = iter(played(probe, env_id, envs[0], actions)), 0
    for n in range(3):
        begun = next(said)
        np.testing.assert_array_equal(
            put(envs[n], begun["noise"]).astype(np.float32), np.float32(begun["obs"])
        )
    for step, action in enumerate(actions):
        ours = next(said)
        obs, reward, terminated, _, _ = envs[step % 3].step(action)
        np.testing.assert_allclose(
            ours["obs"], obs.astype(np.float32), rtol=1e-6, atol=1e-7, err_msg=str(step)
        )
        assert ours["reward"] == pytest.approx(float(reward), rel=1e-5, abs=1e-6), step
        assert (ours["env"], ours["terminated"]) == (step % 3, terminated), step
        if terminated:
            begun, ends = next(said), ends + 1
            first = put(envs[step % 3], begun["noise"])
            np.testing.assert_array_equal(first.astype(np.float32), np.float32(begun["obs"]))
    assert next(said, None) is None
    assert ends > 3 or env_id in ("HalfCheetah-v5", "Ant-v5")


@pytest.mark.parametrize("env_id", ROBOTS)
def test_first_states_have_the_distribution_of_gymnasium(probe, env_id):
    """Each coordinate that is observed, over resets of both: Kolmogorov and Smirnov see no difference."""
    from scipy import stats  # takes longer to import than most files

    env = gymnasium.make(env_id)
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    begun = [said for seed in range(3) for said in played(probe, env_id, env, np.zeros(0), seed, count=100)]
    ours = [said["obs"] for said in begun]
    for k in range(theirs.shape[1]):
        if np.ptp(theirs[:, k]) > 0:  # a reset leaves no contact force
            assert stats.ks_2samp(theirs[:, k], np.array(ours)[:, k]).pvalue > 1e-5, k
        else:
            assert np.ptp(np.array(ours)[:, k]) == 0, k


def test_an_environment_that_is_not_there_is_named(probe):
    """With those that are."""
    done = subprocess.run(
        [probe, "play", "Humanoid-v5", "1", "1", "0", "0", "1", "3"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert (
        "there is no Humanoid-v5 here; there is HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5" in done.stderr
    )
