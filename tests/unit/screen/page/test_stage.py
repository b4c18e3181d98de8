"""What can be shown of an environment."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.evaluation.stage import open_stage, picture_of
from spreeze_zmq.evaluation.video.window import keeps_pace


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_classic_control_gives_pictures_that_follow_its_state(env_id):
    """At the speed that the environment states."""
    stage = open_stage(envs.probe(env_id))
    stage.env.reset(seed=1)
    first = stage.draw()
    for _ in range(10):
        stage.env.step(stage.env.action_space.sample())
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    assert (stage.draw() != first).any()
    assert 1 / 60 <= stage.step_s <= 1 / 15
    stage.env.close()


def test_a_mujoco_model_is_given_to_the_browser_with_its_positions():
    """No renderer is made here."""
    stage = open_stage(envs.probe("HalfCheetah-v5"))
    stage.env.reset(seed=1)
    before = stage.qpos()
    stage.env.step(np.ones((1, 6), np.float32))
    assert stage.model.nq == 9
    assert before.shape == (9,)
    assert (stage.qpos() != before).any()
    assert stage.step_s == pytest.approx(0.05)
    assert stage.draw is None
    stage.env.close()


def test_a_mujoco_environment_that_has_failed_is_shown_as_the_one_in_its_place():
    """Which takes the steps from then on, in a window at the speed that was asked for."""
    stage = open_stage(envs.probe("tests.unit.envs.mujoco.test_unstable:Slide"))
    stage.env.failures.max_failures = 1
    stage.env.reset(seed=1)
    heights, keep_pace, paces = [], keeps_pace(stage, 2.0), set()
    for _ in range(8):
        keep_pace()
        paces.add(stage.env.envs[0].unwrapped.metadata["render_fps"])
        stage.env.step(np.zeros((1, 1), np.float32))
        heights.append(stage.qpos()[0])
    stage.env.close()
    assert heights[2] == heights[5] == -5.0, "a new one begins there"
    assert heights[3] != heights[4] != heights[5]
    assert paces == {round(2.0 / stage.step_s)}


def test_without_a_renderer_it_says_why():
    """Curves alone are shown then."""
    stage = open_stage(envs.probe("tests.unit.envs.own_environments:count"))
    assert stage.draw is None
    assert stage.why_not.startswith("tests.unit.envs.own_environments:count has no picture to show: ")
    stage.env.close()


def test_what_lacks_a_render_mode_is_not_told_of_numbers():
    """It is another environment than the run's first by its picture alone, not by its port."""
    stage = open_stage(envs.probe("tests.unit.envs.own_environments:Count"), number=2)
    assert "no picture to show: it takes no argument 'render_mode'; it takes fails_at" in stage.why_not
    assert "worker_id" not in stage.why_not
    stage.env.close()


def test_observed_images_are_shown_as_pictures():
    """Channels first or last; grey ones and stacks by their newest."""
    image = np.arange(8 * 10 * 3, dtype=np.uint8).reshape(8, 10, 3)
    assert (picture_of(image) == image).all()
    assert (picture_of(np.moveaxis(image, -1, 0)) == image).all()
    assert (picture_of(image[..., 1]) == image[..., 1][..., None]).all()
    stack = np.stack([image[..., 0], image[..., 1], image[..., 2], image[..., 0] + 1])
    assert (picture_of(stack) == (image[..., 0] + 1)[..., None]).all()
