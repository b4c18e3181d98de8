"""Model parameters that differ for each environment: exactly the physics of such models, seeded, checked."""

from itertools import pairwise

import mujoco
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment, InvalidRandomization, TopologyError
from spreeze_zmq.envs.mujoco.task import find_model, load_model
from spreeze_zmq.plan.topology import load

OWN = "tests.unit.envs.own_environments"
MUJOCO_TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum")
MUJOCO_TASKS += ("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d")
RANGES = {
    "body_mass": [0.7, 1.3],
    "geom_friction.floor.0": {"set": [0.5, 1.5]},
    "dof_damping.bthigh": {"add": [-2.0, 2.0]},
    "opt.gravity.2": {"set": [-12.0, -8.0]},
}


def single_loop(task, row):
    """A MjData of the model with this row's parameters, made by hand, in this row's state."""
    nominal = task.model
    _, model = load_model(find_model(task.xml_file, type(task)))
    values = {name: drawn[row] for name, drawn in task.randomizer.values().items()}
    model.body_mass[1:] = values["body_mass"]
    model.body_inertia[1:] *= (values["body_mass"] / nominal.body_mass[1:])[:, None]
    model.geom("floor").friction[0] = values["geom_friction.floor.0"].item()
    model.dof_damping[model.joint("bthigh").dofadr] = values["dof_damping.bthigh"]
    model.opt.gravity[2] = values["opt.gravity.2"].item()
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = task.qpos[row], task.qvel[row]
    return model, data


def test_each_environment_steps_as_its_own_model_would():
    """Bit for bit as a loop over MjData of models changed by hand, derived constants included."""
    env = envs.make("HalfCheetah-v5", 3, seed=5, randomize=RANGES)
    env.reset()
    loops = [single_loop(env.task, row) for row in range(3)]
    assert len({model.body_subtreemass[0] for model, _ in loops}) == 3
    for _ in range(100):
        action = env.action_space.sample()
        env.step(action)
        for row, (model, data) in enumerate(loops):
            data.ctrl[:] = action[row]
            mujoco.mj_step(model, data, env.task.frame_skip)
            np.testing.assert_array_equal(env.task.qpos[row], data.qpos)
            np.testing.assert_array_equal(env.task.qvel[row], data.qvel)


def test_different_masses_move_differently():
    """From the same state under the same actions."""
    env = envs.make("HalfCheetah-v5", 2, randomize={"body_mass": [0.5, 2.0]})
    env.reset(seed=3)
    env.task.qpos[1], env.task.qvel[1] = env.task.qpos[0], env.task.qvel[0]
    obs = env.step(np.full((2, 6), 0.7, np.float32))[0]
    assert np.abs(obs[0] - obs[1]).max() > 1e-3


def test_parameters_are_drawn_anew_at_each_reset_of_an_environment_alone():
    """Within their ranges; the others keep theirs; the same seed draws the same."""
    env = envs.make("Hopper-v5", 3, randomize={"body_mass.torso": [0.5, 2.0], "jnt_range": [0.9, 1.1]})
    env.reset(seed=7)
    first = env.task.randomizer.values()
    own = env.task.model.body("torso").mass.item()
    assert ((first["body_mass.torso"] > 0.5 * own) & (first["body_mass.torso"] < 2.0 * own)).all()
    env.reset(options={"reset_mask": np.array([False, True, False])})
    second = env.task.randomizer.values()
    for name, values in first.items():
        assert values.shape[0] == 3
        np.testing.assert_array_equal(values[[0, 2]], second[name][[0, 2]])
        assert (values[1] != second[name][1]).any()
    env.reset(seed=7)
    for name, values in env.task.randomizer.values().items():
        np.testing.assert_array_equal(values, first[name])


def test_an_episode_that_ends_by_itself_draws_too():
    """The reset within the step."""
    env = envs.make("Hopper-v5", 1, max_episode_steps=2, randomize={"body_mass": [0.5, 2.0]})
    env.reset()
    drawn = [env.task.randomizer.values()["body_mass"]]
    for _ in range(4):
        env.step(np.zeros((1, 3), np.float32))
        drawn.append(env.task.randomizer.values()["body_mass"])
    changed = [bool((a != b).any()) for a, b in pairwise(drawn)]
    assert changed == [False, True, False, True]


@pytest.mark.parametrize("env_id", [*(f"{name}-v5" for name in MUJOCO_TASKS), f"{OWN}:Balance"])
def test_every_mujoco_task_takes_ranges(env_id):
    """Shipped or a user's own; two environments differ and stay finite."""
    env = envs.make(env_id, 2, randomize={"body_mass": [0.8, 1.2], "opt.gravity": [0.9, 1.1]})
    env.reset(seed=1)
    for _ in range(5):
        env.step(env.action_space.sample())
    mass, gravity = env.task.randomizer.values().values()
    assert (mass[0] != mass[1]).any()
    least, largest = np.sort([0.9 * env.task.model.opt.gravity, 1.1 * env.task.model.opt.gravity], axis=0)
    assert ((least <= gravity) & (gravity <= largest)).all()


def test_a_humanoid_is_rewarded_for_the_centre_of_its_own_mass():
    """Not of the nominal model's."""
    env = envs.make("Humanoid-v5", 2, randomize={"body_mass.torso": [2.0, 3.0]})
    env.reset(seed=1)
    task = env.task
    for row in range(2):
        model = task.batch.get_model(row)
        centre = model.body_mass @ task.xipos[row] / model.body_mass.sum()
        np.testing.assert_allclose(task.mass_centre(slice(None))[row], centre[:2], rtol=1e-12)


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ({"body_mas": [0.8, 1.2]}, "no parameter 'body_mas'.*did you mean 'body_mass'"),
        ({"geom_size": [0.8, 1.2]}, "no parameter 'geom_size'"),
        ({"body_mass.torzo": [0.8, 1.2]}, "no body 'torzo'.*did you mean 'torso'"),
        ({"dof_damping": {"bthig": [0.8, 1.2]}}, "no joint 'bthig'.*did you mean 'bthigh'"),
        ({"geom_friction.floor.3": [0.8, 1.2]}, "has 3 numbers, counted from 0; there is no 3"),
        ({"tendon_stiffness": [0.8, 1.2]}, "the model has no tendon"),
        ({"opt.gravity.x": [0.8, 1.2]}, "belongs to the whole model"),
        ({"body_mass": [1.2, 0.8]}, "low <= high"),
        ({"body_mass": 1.2}, r"a range \[low, high\]"),
        ({"body_mass": [0, float("inf")]}, r"a range \[low, high\]"),
        ({"body_mass": [-1, 1]}, "scales are at least 0"),
        ({"body_mass": [0, 1]}, "would reach 0, but has to stay above 0"),
        ({"body_mass": {"add": [-3, 1]}}, "has to stay above 0"),
        ({"geom_friction": {"set": [-1, 1]}}, "cannot be negative"),
        ({"body_mass": {"scale": [1, 1], "add": [1, 1]}}, "one of scale, add, set is expected"),
    ],
)
def test_wrong_ranges_are_refused_with_the_nearest_name(ranges, says):
    """Before a step is made."""
    with pytest.raises(InvalidRandomization, match=says) as refused:
        envs.make("HalfCheetah-v5", 1, randomize=ranges)
    assert "HalfCheetah-v5" in str(refused.value)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Acrobot-v1"])
def test_environments_without_a_mujoco_model_take_no_ranges(env_id):
    """They are not ignored in silence."""
    with pytest.raises(InvalidEnvironment, match="MuJoCo task"):
        envs.make(env_id, 1, randomize={"body_mass": [0.8, 1.2]})


def test_a_topology_holds_ranges_and_every_mistake_in_them_is_reported(tmp_path):
    """Dotted keys may be quoted or not."""
    good = tmp_path / "good.toml"
    good.write_text(
        '[run]\nenv = "Hopper-v5"\n[run.randomize]\nbody_mass = [0.8, 1.2]\n'
        'geom_friction.floor = [0.5, 1.5]\n"dof_damping.leg_joint" = { add = [0.0, 0.2] }\n'
    )
    plan = load(good)
    env = envs.make("Hopper-v5", 2, randomize=plan.run.randomize)
    env.reset()
    names = ["body_mass", "geom_friction.floor", "dof_damping.leg_joint"]
    assert list(env.task.randomizer.values()) == names
    bad = tmp_path / "bad.toml"
    bad.write_text(good.read_text().replace("leg_joint", "leg_jiont").replace("[0.5", "[5"))
    with pytest.raises(TopologyError) as refused:
        load(bad)
    lines = str(refused.value).splitlines()[1:]
    assert len(lines) == 2
    assert "bad.toml:5" in lines[0]
    assert "did you mean 'leg_joint'?" in lines[1]


def test_worker_processes_draw_too():
    """The ranges travel with the other arguments."""
    env = envs.make("Hopper-v5", 2, num_workers=1, randomize={"body_mass": [0.2, 3.0]})
    plain = envs.make("Hopper-v5", 2)
    try:
        env.reset(seed=[1, 1]), plain.reset(seed=[1, 1])
        first = env.step(np.ones((2, 3), np.float32))[0]
        assert np.abs(first - plain.step(np.ones((2, 3), np.float32))[0]).max() > 1e-3
    finally:
        env.close()
