"""A replay of images beside numbers keeps pixels as bytes, and gives what a table of float32 would."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import ObservationReplay, Replay
from spreeze_zmq.replay.packed_ring import PackedRing, Packing
from tests.unit.replay.made import options, spec

IMAGE, CHOICE = {"shape": [3, 5, 3], "pixels": True}, {"shape": [], "sizes": [4], "start": [0]}
NUMBERS = {"shape": [3]}
#: Parts of an observation, in some orders, with the bytes of a row.
PARTS = [
    ([IMAGE, NUMBERS, CHOICE], 4 * 7 + 45 + 3),
    ([NUMBERS, IMAGE, CHOICE, IMAGE], 4 * 7 + 90 + 2),
    ([IMAGE, NUMBERS, IMAGE], 4 * 3 + 90 + 2),
]


def env_of(parts):
    """An environment with these parts, and the same as if nothing were known of them."""
    sizes = [sum(part["sizes"]) if "sizes" in part else int(np.prod(part["shape"])) for part in parts]
    plain = spec(obs_shape=(sum(sizes),))
    return replace(plain, obs_parts=tuple({"path": [str(i)], **p} for i, p in enumerate(parts))), plain


def rollout_of(env):
    """Random steps, of which one ends an episode."""
    rollout = random_rollout(env, 6, 4)
    terminated = np.array(rollout.terminated)
    terminated[2, 1] = True
    others = {"final_obs": rollout.obs[:1, 0] * 0 + 7, "final_index": np.array([[2, 1]], np.int32)}
    return replace(rollout, terminated=terminated, **others)


@pytest.mark.parametrize(("parts", "width"), PARTS)
def test_what_is_drawn_is_what_was_added(parts, width):
    """To the bit, of observations, those that follow, and all else."""
    env, plain = env_of(parts)
    rollout, drawn = rollout_of(env), []
    for one in (env, plain):
        replay = Replay(one, options(40, n_step=2))
        replay.add(rollout)
        replay.add(rollout)  # beyond the capacity
        drawn.append((replay, replay.sample(64)))
    (packed, batch), (whole, expected) = drawn
    for name in ("obs", "next_obs", "action", "reward", "discount"):
        assert torch.equal(getattr(batch, name), getattr(expected, name)), name
    rows = np.linspace(0, 0.99, 9)
    assert np.array_equal(packed.ring.looked_up("obs", rows), whole.ring.looked_up("obs", rows))
    assert packed.ring.memory_bytes == 40 * (2 * width + 4 * 3)
    assert packed.ring.memory_bytes < whole.ring.memory_bytes


def test_an_actor_keeps_them_so_too(tmp_path):
    """Also from one process to the next."""
    env, plain = env_of(PARTS[0][0])
    rollout, drawn = rollout_of(env), []
    for one in (env, plain):
        replay, other = (ObservationReplay(one, options(30)) for _ in range(2))
        replay.add(rollout)
        replay.save(tmp_path / str(len(drawn)))
        other.load(tmp_path / str(len(drawn)))
        batch = replay.sample(16)
        assert torch.equal(batch, other.sample(16))
        drawn.append(batch.clone())
    assert torch.equal(*drawn)


@pytest.mark.parametrize("odd", [0.5, -1.0, 256.0, np.nan])
@pytest.mark.parametrize("where", ["obs", "final_obs"])
def test_what_is_no_pixel_is_refused(where, odd):
    """Instead of being kept as another number."""
    env, _ = env_of(PARTS[1][0])
    rollout, replay = rollout_of(env), Replay(env, options(30))
    assert replay.unfit(rollout) == ""
    array = np.array(getattr(rollout, where))
    array[..., -1, 4] = odd
    found = replay.unfit(replace(rollout, **{where: array}))
    assert found.startswith(f"{where} holds {odd:.6g} at [")
    assert found.endswith("4], expected a pixel of 0 to 255")


def test_others_are_kept_as_they_are():
    """Numbers alone, and parts of which the sizes do not add up."""
    env, plain = env_of([NUMBERS, CHOICE])
    other = replace(plain, obs_parts=({"path": [], **IMAGE},))
    for one in (env, plain, other, spec((45,), "uint8")):
        assert Packing.of(one) is None
    assert not isinstance(Replay(env, options(8)).ring, PackedRing)
