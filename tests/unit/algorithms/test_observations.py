"""Observations on their way into the networks, and their running statistics."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, flatten_space

from spreeze_zmq.algorithms.encoders import part_encoders
from spreeze_zmq.algorithms.observations import (
    CLIP,
    LEAST_PIXEL_STD,
    MOST_IMAGES,
    ObservationRows,
    RunningStatistics,
)
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.spec import spec_of
from spreeze_zmq.nn.parts import Embedding
from spreeze_zmq.policy.observations import ObservationScaling
from tests.unit.replay.made import spec


def test_statistics_are_those_of_all_rows():
    """Taken in pieces of uneven size, far from zero, and through a checkpoint."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(1000, 3)) * (0.1, 5.0, 0.0) + (1000.0, -2.0, 7.0)).astype(np.float32)
    statistics = RunningStatistics(spec((3,)))
    statistics.add(rows[:7])
    again = RunningStatistics(spec((3,)))
    again.load_state_dict(statistics.state_dict())
    for part in np.split(rows[7:], (1, 300)):
        again.add(part)
    np.testing.assert_allclose(again.mean, rows.mean(0, dtype=np.float64), rtol=1e-9)
    expected = rows.std(0, dtype=np.float64)
    deviation = again.arrays()["observation_std"]
    np.testing.assert_allclose(deviation, [expected[0], expected[1], 7.0], rtol=1e-6)


@pytest.mark.parametrize("shape", [(6, 8), (3, 6, 8), (6, 8, 3)])
def test_each_pixel_has_statistics_of_its_own_which_a_stack_shares(shape):
    """In the order in which networks take channels; what never changes stays within a hundredth of 0..255."""
    images = np.random.default_rng(0).integers(100, 140, (MOST_IMAGES, *shape)).astype(np.uint8)
    images[:, :2] = 7
    env = spec(shape, "uint8", (), "discrete")
    statistics = RunningStatistics(env, 4)
    statistics.add(images)
    arrays = statistics.arrays()
    in_order = np.moveaxis(images, -1, 1) if shape == (6, 8, 3) else images
    rows = in_order.reshape(len(images), -1).astype(np.float64)
    np.testing.assert_allclose(arrays["observation_mean"], np.tile(rows.mean(0), 4), rtol=1e-6)
    deviation = np.maximum(rows.std(0), 2.55)
    np.testing.assert_allclose(arrays["observation_std"], np.tile(deviation, 4), rtol=1e-6)
    assert (deviation > 10).any()
    assert (deviation == 2.55).any()


@pytest.mark.parametrize("num_envs", [1, 3, 16, 64, 512])
@pytest.mark.parametrize("num_steps", [16, 20])
def test_every_environment_enters_the_statistics_of_pixels(num_envs, num_steps):
    """Alike within a few rollouts: each shows a brightness of its own."""
    statistics = RunningStatistics(spec((4, 4), "uint8", (), "discrete"))
    bright = np.arange(num_envs) * 240 // num_envs
    rollout = np.broadcast_to(bright[:, None, None], (num_steps, num_envs, 4, 4)).astype(np.uint8)
    for _ in range(4):
        statistics.add(rollout.reshape(-1, 4, 4))
    assert abs(statistics.mean - bright.mean()).max() < 3.0
    assert statistics.count <= 4 * 256


def test_of_many_images_some_from_all_over_are_taken():
    """The last of them as well as the first."""
    images = np.repeat(np.arange(200, dtype=np.uint8), 10).reshape(2000, 1, 1) * np.ones((1, 4, 4), np.uint8)
    statistics = RunningStatistics(spec((4, 4), "uint8", (), "discrete"))
    statistics.add(images)
    assert MOST_IMAGES / 2 < statistics.count <= MOST_IMAGES
    np.testing.assert_allclose(statistics.mean, 99.5, atol=1.0)


@pytest.mark.parametrize(("dtype", "normalize"), [("uint8", True), ("uint8", False), ("float32", True)])
def test_learners_and_actors_see_the_same_rows(dtype, normalize):
    """By the arrays and the description of the policy message, cut off where they are far out."""
    shape, stack = (4, 5), 2 if dtype == "uint8" else 1
    env, rng = spec(shape, dtype, (), "discrete"), np.random.default_rng(0)
    seen = rng.integers(0, 10, (50, *shape)).astype(dtype)
    rows = ObservationRows(env, normalize, torch.device("cpu"), stack)
    statistics = RunningStatistics(env, stack)
    statistics.add(seen)
    rows.adopt(statistics.arrays())
    obs = rng.integers(0, 256, (7, stack * 4, 5)).astype(dtype)
    mine = rows(torch.from_numpy(obs)).numpy()
    theirs = ObservationScaling(rows.description(), rows.arrays())(obs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert np.abs(mine).max() == (CLIP if normalize else 1.0)


def test_pixels_are_0_to_1_and_a_checkpoint_keeps_what_its_weights_were_trained_on():
    """What is dark is 0; a run that began with pixels from -1 to 1 goes on with them."""
    images = torch.arange(0, 256, 5, dtype=torch.uint8).reshape(1, 4, 13)
    env = spec((4, 13), "uint8", (), "discrete")
    rows, later = (ObservationRows(env, False, torch.device("cpu")) for _ in range(2))
    assert (rows(images).min(), rows(images).max()) == (0.0, 1.0)
    older = {name: torch.full((52,), 127.5) for name in ("mean", "std")}
    rows.load_state_dict(older)
    later.load_state_dict(rows.state_dict())
    assert (later(images).min(), later(images).max()) == (-1.0, 1.0)
    theirs = ObservationScaling(later.description(), later.arrays())(images.numpy())
    np.testing.assert_allclose(later(images).numpy(), theirs, rtol=1e-6, atol=1e-6)


def normalised(seen, parts=3):
    """Float32 observations ``[M, 1]`` as a learner and a policy see them by their own statistics."""
    env = spec((1,))
    statistics, rows = RunningStatistics(env), ObservationRows(env, True, torch.device("cpu"))
    for part in np.array_split(seen, parts):
        statistics.add(part)
    rows.adopt(statistics.arrays())
    learners = rows(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(
        ObservationScaling(rows.description(), rows.arrays())(seen), learners, atol=1e-6
    )
    return learners


@pytest.mark.parametrize("offset", [0.0, -3.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-36, 1e-12, 1e-6, 1e-4, 1e-2, 1.0, 1e6, 1e12])
def test_normalised_observations_have_deviation_1_at_any_scale(scale, offset):
    """Whatever their unit is, also beside an offset of a thousand deviations."""
    rng = np.random.default_rng(0)
    rows = normalised(((rng.uniform(-1, 1, (2000, 1)) + offset) * scale).astype(np.float32))
    np.testing.assert_allclose(rows.std(), 1.0, rtol=1e-3)
    np.testing.assert_allclose(rows.mean(), 0.0, atol=1e-2)


@pytest.mark.parametrize("value", [0.0, 1e-40, 0.1, -7.3, 1.7e9, -1e15])
def test_a_constant_is_0_and_so_is_its_rounding(value):
    """No infinity and no noise, also where float32 alternates between two neighbours."""
    constant = np.full((999, 1), value, np.float32)
    assert (normalised(constant) == 0.0).all()
    constant[::3] = np.nextafter(constant[0], np.float32(np.inf))
    assert np.abs(normalised(constant)).max() < 1e-6


def test_a_constant_that_changes_once_is_cut_off():
    """A far value among the others is at the limit, and the others stay what they are, near 0."""
    seen = np.zeros((1000, 1), np.float32)
    seen[500] = 1e15
    rows = normalised(seen)
    assert rows[500] == CLIP
    assert np.abs(np.delete(rows, 500)).max() < 0.1
    seen[:, 0] = np.linspace(0.0, 1e-12, 1000)
    rows = ObservationRows(spec((1,)), True, torch.device("cpu"))
    statistics = RunningStatistics(spec((1,)))
    statistics.add(seen)
    rows.adopt(statistics.arrays())
    far = np.array([[1e15], [-1e15]], np.float32)  # their quotient is infinite in float32
    assert rows(torch.from_numpy(far)).tolist() == [[CLIP], [-CLIP]]
    assert ObservationScaling(rows.description(), rows.arrays())(far).tolist() == [[CLIP], [-CLIP]]


def test_a_checkpoint_of_deviations_with_a_floor_is_resumed():
    """It goes on with the deviations that it was saved with, until the next publication has the true ones."""
    env, seen = spec((1,)), np.random.default_rng(0).normal(0.0, 1e-4, (500, 1)).astype(np.float32)
    rows, statistics = ObservationRows(env, True, torch.device("cpu")), RunningStatistics(env)
    rows.load_state_dict({"mean": torch.zeros(1), "std": torch.tensor([0.01])})
    squares = torch.tensor([float(np.square(seen.astype(np.float64)).sum())], dtype=torch.float64)
    count = torch.tensor(500.0, dtype=torch.float64)
    statistics.load_state_dict(
        {"mean": torch.zeros(1, dtype=torch.float64), "squares": squares, "count": count}
    )
    assert rows(torch.tensor([[0.01]])).item() == pytest.approx(1.0)
    statistics.add(seen)
    rows.adopt(statistics.arrays())
    assert rows(torch.from_numpy(seen)).std().item() == pytest.approx(1.0, rel=0.01)


def test_a_choice_is_the_same_whichever_others_have_been_seen():
    """One that has been the only one is not taken for the first; the vector beside it is scaled."""
    env = replace(spec((5,)), obs_parts=({"shape": [2]}, {"shape": [], "sizes": [3], "start": [0]}))
    rows, statistics = ObservationRows(env, True, torch.device("cpu")), RunningStatistics(env)
    embedding, choices = Embedding([3]), torch.eye(3)
    seen = np.full((1000, 5), 7.0, np.float32)
    seen[:, 2:] = [0.0, 0.0, 1.0]
    for _ in range(2):
        statistics.add(seen)
        rows.adopt(statistics.arrays())
        scaled = rows(torch.cat([torch.full((3, 2), 7.0), choices], 1))
        assert torch.equal(embedding(scaled[:, 2:]), embedding(choices))
        assert torch.equal(scaled[:, 2:], choices)
        seen[0, 2:] = [0.0, 1.0, 0.0]
    assert not scaled[:, :2].any()


def test_pixels_in_a_dict_have_the_floor_of_an_image():
    """One that has moved by a grey level in a few of very many frames would be ten deviations away."""
    vector, image = {"shape": [2]}, {"shape": [2, 3, 1], "pixels": True}
    env = replace(spec((8,)), obs_parts=(vector, image))
    statistics = RunningStatistics(env)
    rows = np.full((10_000, 8), 30.0, np.float32)
    rows[7, :] = 31.0
    statistics.add(rows)
    std = statistics.arrays()["observation_std"]
    assert std[:2] == pytest.approx(np.full(2, 0.01), rel=1e-3)
    assert std[2:] == pytest.approx(np.full(6, LEAST_PIXEL_STD * BYTE_MAX))


def largest_seen(env, declared, normalize):
    """The largest number that the networks see of bytes that are the least or the most declared."""
    obs = np.zeros((1000, *env.obs_shape), env.obs_dtype)
    obs[::2] = declared
    rows, statistics = ObservationRows(env, normalize, torch.device("cpu")), RunningStatistics(env)
    statistics.add(obs)
    rows.adopt(statistics.arrays())
    scaled, seen = rows(torch.from_numpy(obs)), []
    theirs = ObservationScaling(rows.description(), rows.arrays())(obs)
    np.testing.assert_allclose(scaled.numpy(), theirs, rtol=1e-6)
    if not env.obs_parts:
        return scaled.max().item()
    encoders = part_encoders(env, PPO.Options(normalize_observations=normalize))
    encoders.encoders[-1][0].network.register_forward_pre_hook(lambda _, given: seen.append(given[0].max()))
    encoders(scaled)
    return seen[0].item()


@pytest.mark.parametrize("declared", [1, 10, 255])
@pytest.mark.parametrize("shape", [(16,), (7, 7, 3), "after numbers", "after pixels"])
def test_bytes_fill_0_to_1_or_the_deviations_whatever_their_space_declares(shape, declared):
    """A board of 0 and 1, codes of things in sight, and pixels, also beside other parts: those of floats, or
    bytes up to 255.
    """
    before = {"after numbers": Box(-1, 1, (1,)), "after pixels": Box(0, 255, (7, 7, 3), np.uint8)}.get(shape)
    box = Box(0, declared, (24, 24, 1) if before else shape, np.uint8)
    own = Dict({"camera": before, "seen": box}) if before else box
    env = spec_of(
        "Some-v0", {}, flatten_space(own) if own is not box else box, Discrete(2), None, (own, Discrete(2))
    )
    assert largest_seen(env, declared, normalize=False) == 1.0
    assert largest_seen(env, declared, normalize=True) == pytest.approx(1.0, rel=0.02)


def in_parts(**highs):
    """An environment whose observation is a Dict of five bytes each, up to these numbers."""
    own = Dict({name: Box(0, high, (5,), np.uint8) for name, high in highs.items()})
    return spec_of("Some-v0", {}, flatten_space(own), Discrete(2), None, (own, Discrete(2)))


def test_each_part_of_bytes_is_divided_by_what_it_declares_itself():
    """Flags beside cards would else be a fiftieth; a part of an earlier release, which does not say, is
    divided by what all declare together.
    """
    env = in_parts(board=1, hand=52, picture=255)
    obs = np.repeat([1, 52, 255], 5)[None].astype(np.uint8)
    rows = ObservationRows(env, False, torch.device("cpu"))
    assert rows(torch.from_numpy(obs)).tolist() == [[1.0] * 15]
    assert ObservationScaling(rows.description(), rows.arrays())(obs).tolist() == [[1.0] * 15]
    least = RunningStatistics(env)
    least.add(np.repeat(obs, 50, 0))
    assert least.arrays()["observation_std"].tolist() == pytest.approx([0.01] * 5 + [0.52] * 5 + [2.55] * 5)
    before = in_parts(board=1, hand=52)
    unsaid = tuple({key: part[key] for key in part if key != "max"} for part in before.obs_parts)
    rows = ObservationRows(replace(before, obs_parts=unsaid), False, torch.device("cpu"))
    assert rows(torch.from_numpy(obs[:, :10])).max().item() == 1.0


@pytest.mark.parametrize("normalize", [False, True])
def test_bytes_beyond_what_is_declared_are_the_same_to_who_acts_and_who_learns(normalize):
    """A mask of 0 and 255 in a space of 0 and 1, which the doctor names."""
    rows = ObservationRows(in_parts(mask=1), normalize, torch.device("cpu"))
    obs = np.array([[0, 1, 9, 11, 255]], np.uint8)
    theirs = ObservationScaling(rows.description(), rows.arrays())(obs)
    assert rows(torch.from_numpy(obs)).numpy().tolist() == theirs.tolist()
