"""How a MuJoCo model is shown that says little about itself."""

from contextlib import closing
from types import SimpleNamespace

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces

from spreeze_zmq import envs
from spreeze_zmq.evaluation.stage import DEFAULT_STEPS_PER_S, open_stage
from spreeze_zmq.evaluation.video.camera import following

FREE, TRACKING = int(mujoco.mjtCamera.mjCAMERA_FREE), int(mujoco.mjtCamera.mjCAMERA_TRACKING)


@pytest.mark.parametrize(
    ("joint", "follows"),
    [
        ("<freejoint/>", True),
        ("<joint type='slide'/>", True),
        ("<joint type='slide' limited='true' range='-1 1'/>", False),
        ("<joint type='hinge'/>", False),
    ],
)
def test_what_moves_away_is_followed(joint, follows):
    """Where the model has no camera of its own."""
    body = f"<body>{joint}<geom size='.1'/></body>"
    view = following(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body}</worldbody></mujoco>"))
    assert (view.type, view.trackbodyid) == ((TRACKING, 1) if follows else (FREE, -1))


class Simulated(gymnasium.Env):
    """Says how many steps it takes in a second by its metadata alone."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    metadata = {"render_fps": 10}  # noqa: RUF012

    def __init__(self, states=None):
        if states is not None:
            self.metadata, self.dt = {"render_fps": states}, states
        self.model = mujoco.MjModel.from_xml_string("<mujoco/>")
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, False, False, {}


def test_a_model_is_shown_at_the_speed_that_its_environment_states():
    """Where it has no ``dt``, as those of Gymnasium do."""
    stage = open_stage(envs.probe(f"{__name__}:Simulated"))
    with closing(stage.env):
        assert stage.model is not None
        assert stage.step_s == 0.1


@pytest.mark.parametrize("states", ["0.05 s", -1.0, float("nan"), 10**400, (3,)])
def test_what_is_no_speed_is_none(states):
    """Neither a page nor a film divides by it."""
    stage = open_stage(envs.probe(f"{__name__}:Simulated", {"states": states}))
    with closing(stage.env):
        assert stage.step_s == 1 / DEFAULT_STEPS_PER_S


class Learned(Simulated):
    """Its model is a network, and its data are no simulation's."""

    def __init__(self):
        self.model = np.zeros(3)
        self.data = SimpleNamespace(qpos=[1.0, 2.0])


def test_a_model_that_is_not_mujocos_is_not_shown_as_one():
    """It has pictures, or none."""
    stage = open_stage(envs.probe(f"{__name__}:Learned"))
    with closing(stage.env):
        assert stage.model is None
        assert "has no picture to show" in stage.why_not
