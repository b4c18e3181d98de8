"""Contact forces come out of the step exactly, by the engine plugin and by the copy of each simulation."""

from dataclasses import dataclass, field

import mujoco
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.envs.mujoco import post_constraint
from spreeze_zmq.envs.mujoco.task import load_model
from spreeze_zmq.envs.tasks.legged import Ant

NUM_ENVS = 4


@dataclass(eq=False)
class InnerForces(Ant):
    """Reads all that ``mj_rnePostConstraint`` gives."""

    cfrc_int: np.ndarray = field(init=False, repr=False)
    cacc: np.ndarray = field(init=False, repr=False)

    def fields(self):
        """Those of the base, and the inner forces."""
        return (*super().fields(), "cfrc_int", "cacc")


def stepped(task, steps=120):
    """Random steps of ``task``, and after each the same ones of a loop over MjData: ``(step, datas)``."""
    task.allocate(NUM_ENVS)
    task.begin(np.arange(NUM_ENVS), [np.random.default_rng(i) for i in range(NUM_ENVS)], None)
    datas = [mujoco.MjData(task.model) for _ in range(NUM_ENVS)]
    for row, data in enumerate(datas):
        data.qpos[:], data.qvel[:] = task.qpos[row], task.qvel[row]
        mujoco.mj_forward(task.model, data)
    rng = np.random.default_rng(5)
    for step in range(steps):
        action = rng.uniform(-1, 1, (NUM_ENVS, task.model.nu))
        task.advance(action)
        for row, data in enumerate(datas):
            data.ctrl[:] = action[row]
            mujoco.mj_step(task.model, data, task.frame_skip)
            mujoco.mj_rnePostConstraint(task.model, data)
        yield step, datas


@pytest.fixture(params=["plugin", "copy"])
def way(request, monkeypatch):
    """Both ways to the forces; the second is that of a MuJoCo whose plugins are not known."""
    if request.param == "copy":
        monkeypatch.setattr(post_constraint, "register", lambda: False)
    return request.param


@pytest.mark.parametrize("integrator", ["RK4", "Euler"])
def test_contact_forces_are_those_of_a_loop_bit_for_bit(way, integrator, monkeypatch):
    """Also under an integrator other than the model's own."""

    def with_integrator(path):
        spec, _ = load_model(path)
        spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
        return spec, spec.compile()

    monkeypatch.setattr("spreeze_zmq.envs.mujoco.task.load_model", with_integrator)
    task, largest = Ant(), 0.0
    for _, datas in stepped(task):
        assert (task._after_step is None) == (way == "plugin")
        np.testing.assert_array_equal(task.cfrc_ext, [data.cfrc_ext for data in datas])
        largest = max(largest, np.abs(task.cfrc_ext).max())
    assert largest > 1.0, "nothing was touched"


def test_forces_are_zero_after_a_reset(way):
    """Those of the last episode are forgotten, of the environments that begin again alone."""
    env = envs.make("Ant-v5", NUM_ENVS, terminate_when_unhealthy=False)
    env.reset(seed=1)
    for _ in range(200):
        env.step(env.action_space.sample())
        before = env.task.cfrc_ext.copy()
        if before.any(axis=(1, 2)).all():
            break
    assert before.any(axis=(1, 2)).all(), "they never touched the ground at once"
    env.reset(options={"reset_mask": np.array([True, False, False, False])})
    assert not env.task.cfrc_ext[0].any()
    np.testing.assert_array_equal(env.task.cfrc_ext[1:], before[1:])


def test_inner_forces_are_those_of_a_loop_bit_for_bit():
    """They need the state after the step, where no plugin is called."""
    task = InnerForces()
    for _, datas in stepped(task, 20):
        for name in post_constraint.FIELDS:
            np.testing.assert_array_equal(getattr(task, name), [getattr(data, name) for data in datas])


def test_inner_forces_are_those_of_each_simulations_own_model():
    """Gravity above all, which pulls at a robot at rest."""
    task, rows = InnerForces(), np.arange(NUM_ENVS)
    task.randomize({"opt.gravity.2": [0.5, 1.5], "body_mass": [0.8, 1.2], "geom_friction": [0.5, 1.5]})
    task.allocate(NUM_ENVS)
    task.begin(rows, [np.random.default_rng(i) for i in range(NUM_ENVS)], None)
    assert len({*task.randomizer.values()["opt.gravity.2"].tolist()}) == NUM_ENVS
    for _ in range(20):
        task.advance(np.zeros((NUM_ENVS, task.model.nu)))
        for row in rows:
            data = task.batch.get_data(row)
            mujoco.mj_rnePostConstraint(task.batch.get_model(row), data)
            for name in post_constraint.FIELDS:
                np.testing.assert_array_equal(getattr(task, name)[row], getattr(data, name))
    assert task.model.opt.gravity[2] == -9.81


def test_the_model_that_a_task_shows_has_no_plugin():
    """Whoever steps it alone pays for the physics alone."""
    task = Ant()
    task.allocate(1)
    assert post_constraint.register()
    assert (task.model.nplugin, task.batch.model.nplugin) == (0, 1)
