"""Stacks of observations, as samplers and evaluators hold them and as learners rebuild them."""

import numpy as np
import pytest

from spreeze_zmq.base.frames import channels_first, has_channels_last, stack_times, stacked_shape
from spreeze_zmq.policy import FrameStack
from spreeze_zmq.policy.observations import ObservationScaling


@pytest.mark.parametrize(
    ("shape", "stacked"),
    [((4, 84, 84), (16, 84, 84)), ((64, 48, 3), (12, 64, 48)), ((84, 84), (4, 84, 84)), ((128,), (512,))],
)
def test_a_network_sees_the_channels_of_all_frames_first(shape, stacked):
    """Images with channels first, last or none, and vectors."""
    assert stacked_shape(shape, 4) == stacked


def test_a_stack_is_the_newest_frames_of_the_episode_oldest_first():
    """Before the first frame of an episode stands that one again, and nothing of the episode before."""
    stack = FrameStack(3)
    stack.begin(np.array([[1], [10]], np.uint8))
    assert stack.seen.tolist() == [[1, 1, 1], [10, 10, 10]]
    stack.add(np.array([[2], [20]], np.uint8), np.array([False, False]))
    stack.add(np.array([[3], [30]], np.uint8), np.array([False, True]))
    assert stack.seen.tolist() == [[1, 2, 3], [30, 30, 30]]
    assert stack.history().tolist() == [[[1], [30]], [[2], [30]]]


def test_images_with_channels_last_are_transposed_before_they_are_stacked():
    """The channels of the older frame come before those of the newer one; the history keeps their order."""
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 256, (2, 5, 6, 4, 3), np.uint8)
    assert has_channels_last(first.shape[1:])
    stack = FrameStack.described({"shape": [6, 4, 3], "stack": 2, "channels_last": True})
    stack.begin(first)
    stack.add(second, np.zeros(5, bool))
    expected = np.concatenate([first.transpose(0, 3, 1, 2), second.transpose(0, 3, 1, 2)], 1)
    np.testing.assert_array_equal(stack.seen.reshape(5, 6, 6, 4), expected)
    np.testing.assert_array_equal(stack.history(), first[None], strict=True)


def test_images_are_taken_as_their_environment_gives_them_and_as_a_stack_of_one_does():
    """Who acts without a stack, as in ``policy.act(obs[None], rng)``, is not given other pixels' actions."""
    images = np.random.default_rng(1).integers(0, 256, (5, 6, 4, 3), np.uint8)
    about = {"shape": [6, 4, 3], "channels_last": True, "normalize": False}
    stack, rows = FrameStack.described(about), ObservationScaling(about, {})
    stack.begin(images)
    np.testing.assert_array_equal(rows(images), rows(stack.seen), strict=True)
    np.testing.assert_array_equal(rows(images), images.transpose(0, 3, 1, 2).reshape(5, -1))


def test_one_frame_is_not_copied():
    """Who does not stack pays nothing."""
    obs, stack = np.zeros((2, 3), np.float32), FrameStack()
    stack.begin(obs)
    assert np.shares_memory(stack.seen, obs)


@pytest.mark.parametrize("shape", [(2,), (3, 4), (2, 5, 4), (5, 4, 2)])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_the_frames_of_a_rollout_make_the_stacks_that_were_acted_on(stack, shape):
    """Over three rollouts in which episodes end at random, from the history and the flags alone."""
    rng = np.random.default_rng(stack)
    steps, envs = 5, 7
    acting = FrameStack(stack, has_channels_last(shape))
    obs = rng.integers(0, 256, (envs, *shape), np.uint8)
    acting.begin(obs)
    for _ in range(3):
        history, rows, seen, flags = acting.history(), [obs], [acting.seen.copy()], []
        for _ in range(steps):
            obs, ended = rng.integers(0, 256, (envs, *shape), np.uint8), rng.random(envs) < 0.3
            acting.add(obs, ended)
            rows.append(obs)
            flags.append(ended)
            seen.append(acting.seen.copy())
        frames = np.concatenate([history, np.stack(rows)])
        frames = channels_first(frames) if has_channels_last(shape) else frames
        rebuilt = frames[stack_times(np.stack(flags), stack), np.arange(envs)[:, None]]
        expected = np.stack(seen)
        np.testing.assert_array_equal(
            rebuilt.reshape(steps + 1, envs, -1), expected.reshape(steps + 1, envs, -1)
        )
