"""Spaces that are no Box become one vector; discrete actions count from 0: in process and in workers."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment

OWN = "tests.unit.envs.own_environments"


@pytest.fixture(params=[0, 2], ids=["in process", "workers"])
def make(request):
    """Makes batches of two environments and closes them."""
    made = []

    def make_two(name, **kwargs):
        made.append(envs.make(f"{OWN}:{name}", 2, num_workers=request.param, **kwargs))
        return made[-1]

    yield make_two
    for env in made:
        env.close()


def test_a_dict_is_flattened_in_gymnasiums_order(make):
    """Keys in the order of the space, a Discrete as one-hot, images as they are; final observations too."""
    env = make("Parts", length=3)
    obs, _ = env.reset()
    image_flag = [0, 0, 0, 0, 1]
    assert env.single_observation_space.shape == obs.shape[1:] == (10,)
    assert obs.tolist() == [[*image_flag, 0, 1, 0, 0, 0]] * 2
    for _ in range(3):
        obs, *_, info = env.step(np.zeros((2, 1)))
    assert info["final_obs"].tolist() == [[3, 3, 3, 3, 1, 3, 0, 0, 0, 1]] * 2
    assert obs.tolist() == [[*image_flag, 0, 1, 0, 0, 0]] * 2


def test_probe_sees_the_flat_shape():
    """Networks are made for it."""
    spec = envs.probe(f"{OWN}:Parts")
    assert (spec.obs_shape, spec.obs_dtype) == ((10,), "float32")
    lake = envs.probe("FrozenLake-v1")
    assert (lake.obs_shape, lake.action_sizes) == ((16,), (4,))


def test_shifted_actions_count_from_zero(make):
    """The environment gets its own numbers."""
    env = make("shifted")
    env.reset()
    assert env.step(np.array([0, 2]))[1].tolist() == [1.0, 3.0]
    spec = envs.probe(f"{OWN}:shifted")
    assert (spec.action_sizes, spec.action_start) == ((3,), (1,))


def test_several_shifted_actions_count_from_zero(make):
    """Each from its own start."""
    env = make("shifted", several=True)
    env.reset()
    assert env.step(np.array([[0, 0], [1, 2]]))[1].tolist() == [4.0, 7.0]
    spec = envs.probe(f"{OWN}:shifted", {"several": True})
    assert (spec.action_sizes, spec.action_start) == ((2, 3), (5, -1))


def test_flags_are_choices_of_two(make):
    """The environment gets its own kind, in the form that its space contains."""
    env = make("buttons")
    env.reset()
    assert env.step(np.array([[0, 1, 1], [1, 0, 0]]))[1].tolist() == [2.0, 1.0]
    spec = envs.probe(f"{OWN}:buttons")
    assert (spec.action_kind, spec.action_shape, spec.action_sizes) == ("multi_discrete", (3,), (2, 2, 2))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("rows", r"shape \(1, 4\).*TransformAction\(env, lambda action: action.reshape\(\(1, 4\)\)"),
        ("one_is_fixed", "not all below its highest .*left out with .*TransformAction"),
    ],
)
def test_actions_that_no_policy_gives_have_a_remedy(name, remedy):
    """By a wrapper of Gymnasium's."""
    with pytest.raises(InvalidEnvironment, match=remedy):
        envs.probe(f"{OWN}:{name}")


def test_images_stay_bytes():
    """A Box is not flattened."""
    spec = envs.probe(f"{OWN}:camera")
    assert (spec.obs_shape, spec.obs_dtype) == ((4, 4, 3), "uint8")


def test_what_has_no_fixed_size_is_refused():
    """With the way out."""
    with pytest.raises(InvalidEnvironment, match="a Sequence, which does not flatten to a vector"):
        envs.make(f"{OWN}:sequence", 1)
