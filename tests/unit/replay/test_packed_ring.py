"""A replay of images, wide choices and numbers takes and keeps pixels as bytes and a choice as one number,
and gives what one of float32 would.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms import SequenceOptions
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.envs.packed import Packing, flat, odd_choice, packed, sent
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import ObservationReplay, Relabelling, Replay, replay_of
from spreeze_zmq.replay.packed_ring import PackedRing
from tests.unit.replay.made import options, save, spec

IMAGE, CHOICE = {"shape": [3, 5, 3], "pixels": True}, {"shape": [], "sizes": [4], "start": [0]}
NUMBERS = {"shape": [3]}
ROOM, BOARD = (
    {"shape": [], "sizes": [500], "start": [0]},
    {"shape": [2, 4], "sizes": [40] * 8, "start": [0] * 8},
)
DIALS = {"shape": [3], "sizes": [4, 30, 70], "start": [0, 1, 0]}
#: Parts of an observation, in some orders, with the bytes of a row.
PARTS = [
    ([IMAGE, NUMBERS, CHOICE], 4 * 7 + 45 + 3),
    ([NUMBERS, IMAGE, CHOICE, IMAGE], 4 * 7 + 90 + 2),
    ([IMAGE, NUMBERS, IMAGE], 4 * 3 + 90 + 2),
    ([NUMBERS, DIALS, ROOM, IMAGE, BOARD], 4 * (3 + 3 + 1 + 8) + 45 + 3),
    ([DIALS, NUMBERS, BOARD, CHOICE, ROOM], 4 * (3 + 3 + 8 + 4 + 1)),
    ([ROOM], 4),
]


def env_of(parts):
    """An environment with these parts, and the same as if nothing were known of them."""
    sizes = [sum(part["sizes"]) if "sizes" in part else int(np.prod(part["shape"])) for part in parts]
    plain = spec(obs_shape=(sum(sizes),))
    return replace(plain, obs_parts=tuple({"path": [str(i)], **p} for i, p in enumerate(parts))), plain


def rollout_of(env, memory_size=0):
    """Random steps, of which one ends an episode, flat."""
    rollout = flat(random_rollout(env, 6, 4, memory_size=memory_size), Packing.of(env))
    terminated = np.array(rollout.terminated)
    terminated[2, 1] = True
    others = {"final_obs": rollout.obs[5:6, 2], "final_index": np.array([[2, 1]], np.int32)}
    return replace(rollout, terminated=terminated, **others)


def test_a_packed_observation_is_the_one_of_the_protocol():
    """The bytes that a stranger's sampler sends, beside what they mean; there and back."""
    folder = Path(__file__).parents[3] / "components" / "golden"
    arrays = json.loads((folder / "rollout_of_a_camera.json").read_text())["arrays"]
    packing = Packing(6, (slice(1, 4),))
    for name, first in (
        ("obs", [0.5, 7.0, 8.0, 255.0, -2.0, 8.0]),
        ("final_obs", [-1.0, 4.0, 5.0, 6.0, 4.0, 0.0]),
    ):
        rows = np.array(arrays[name]["values"], np.uint8)
        whole = packing.flat(rows)
        assert whole.reshape(-1, 6)[0].tolist() == first
        assert np.array_equal(packing.pack(whole), rows)


@pytest.mark.parametrize("form", [flat, packed])
@pytest.mark.parametrize(("parts", "width"), PARTS)
def test_what_is_drawn_is_what_was_added(parts, width, form):
    """To the bit, of observations, those that follow, and all else; whether they came flat or packed."""
    env, plain = env_of(parts)
    rollout, drawn = rollout_of(env), []
    assert sent(env) == ((width,), "uint8")
    assert sent(plain) == (plain.obs_shape, "float32")
    for one in (env, plain):
        replay = Replay(one, options(40, n_step=2))
        replay.add(form(rollout, Packing.of(one)))
        replay.add(form(rollout, Packing.of(one)))  # beyond the capacity
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
        replay.add(packed(rollout, Packing.of(one)))
        save(replay, tmp_path / str(len(drawn)))
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


@pytest.mark.parametrize(
    ("options_of_it", "said"),
    [
        ([0] * 40, "0 at [6, 3, 43]"),
        ([1] * 2 + [0] * 38, "1 at [6, 3, 43]"),
        ([0] * 38 + [0.5] * 2, "0.5 at [6, 3, 81]"),
        ([np.nan] + [0] * 39, "nan at [6, 3, 43]"),
    ],
)
def test_what_is_no_choice_is_refused(options_of_it, said):
    """Instead of being kept as an option that nobody chose."""
    env, _ = env_of([NUMBERS, BOARD])
    rollout, replay = rollout_of(env), Replay(env, options(30))
    assert replay.unfit(rollout) == ""
    obs = np.array(rollout.obs)
    obs[-1, -1, 43:83] = options_of_it
    found = replay.unfit(replace(rollout, obs=obs))
    assert found == f"obs holds {said}, expected 1 for one of 40 options and 0 for all others"


@pytest.mark.parametrize("odd", [-1.0, 0.5, 30.0, 1e9, np.nan, -np.inf])
@pytest.mark.parametrize("where", ["obs", "final_obs"])
def test_a_number_of_no_option_is_refused(where, odd):
    """By the place of its choice in a flat observation; read all the same it breaks nothing."""
    env, _ = env_of([NUMBERS, DIALS, IMAGE])
    packing = Packing.of(env)
    rollout = packed(rollout_of(env), packing)
    assert odd_choice(rollout, packing) == ""
    rows = np.array(getattr(rollout, where))
    packing.numbers_of(rows)[..., -1, 3 + 1] = odd
    wrong = replace(rollout, **{where: rows})
    found = odd_choice(wrong, packing)
    assert found.startswith(f"{where} holds {odd:.6g} at [")
    assert found.endswith(f"{3 + 4}], expected the number of an option, from 0")
    assert packing.odd_entry(packing.flat(rows)) == ""
    replay = Replay(env, options(30))
    replay.add(wrong)
    assert packing.odd_entry(replay.sample(64).obs.numpy()) == ""


def test_pixels_that_came_packed_are_stored_as_they_are(monkeypatch):
    """Without a conversion of each; choices too."""
    env, _ = env_of(PARTS[3][0])
    rollout, replay = rollout_of(env), Replay(env, options(30))
    rows = packed(rollout, Packing.of(env))
    monkeypatch.setattr(Packing, "numbers_of", None)
    assert replay.unfit(rows) == ""
    replay.add(rows)
    with pytest.raises(TypeError):
        replay.add(rollout)


def sequences(env):
    """The replay of an algorithm with a memory: sixteen sequences of six steps."""
    fields = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index", "memory")
    sizes = {"memory_size": 3, "sequence_length": 6, "burn_in": False, "batch_size": 6}
    settings = SequenceOptions(replay_capacity=100, learning_starts=1, n_step=2, prioritized=True, **sizes)
    return replay_of(fields, env, settings, "cpu", 0)


@pytest.mark.parametrize(("parts", "width"), PARTS)
def test_sequences_keep_pixels_as_bytes_too(parts, width, tmp_path):
    """As if nothing were known of them, to the bit, in either form, and from one process to the next."""
    env, plain = env_of(parts)
    rollout, drawn = rollout_of(env, memory_size=3), []
    for one, form in ((plain, flat), (env, flat), (env, packed)):
        replay, other = sequences(one), sequences(one)
        replay.add(form(rollout, Packing.of(one)))
        save(replay, tmp_path / str(len(drawn)))
        other.load(tmp_path / str(len(drawn)))
        drawn.append((replay, replay.sample(60), other.sample(60)))
    for name in ("obs", "next_obs", "memory", "begins", "reward"):
        first, *others = [getattr(batch, name) for _, *batches in drawn for batch in batches]
        assert all(torch.equal(first, each) for each in others), name
    whole, packed_one = drawn[0][0].ring, drawn[1][0].ring
    gain = 16 * 6 * 2 * (4 * plain.obs_shape[0] - width)
    assert whole.memory_bytes - packed_one.memory_bytes == gain


def test_a_sequence_with_what_is_no_pixel_is_refused():
    """As a transition is."""
    env, _ = env_of(PARTS[0][0])
    rollout, replay = rollout_of(env, memory_size=3), sequences(env)
    assert replay.unfit(rollout) == ""
    array = np.array(rollout.obs)
    array[..., 4] = 0.5
    assert replay.unfit(replace(rollout, obs=array)).endswith("4], expected a pixel of 0 to 255")


def test_episodes_are_the_same_in_either_form():
    """What relabels them sees flat ones, also of a sampler that changes its form in the middle of them."""
    env, seen = env_of(PARTS[1][0])[0], []

    def relabel(batch, episode):
        seen[-1].append(episode.obs)
        return batch

    for forms in ((flat, flat), (packed, packed), (flat, packed)):
        replay = Replay(env, options(100))
        replay.relabel_by(Relabelling(relabel, None, 0))
        seen.append([])
        for number, form in enumerate(forms, 1):
            rollout = replace(rollout_of(env), produced=24 * number)
            replay.add(form(rollout, replay.packing))
        seen[-1].append(replay.ring.looked_up("obs", np.linspace(0, 0.99, 50)))
    assert [len(episode) for episode in seen[0]] == [4, 7, 50]
    for other in seen[1:]:
        assert all(map(np.array_equal, seen[0], other))


def test_a_replay_that_was_saved_flat_is_refused_by_its_columns(tmp_path):
    """As an earlier release kept wide choices: in words, not by the name of a file that is not there."""
    env, plain = env_of([ROOM])
    replay = Replay(plain, options(30))
    replay.add(flat(rollout_of(env), Packing.of(env)))
    save(replay, tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"^the replay in \S+ was saved with columns = .*float32.*\[500\].*this run has .*uint8",
    ):
        Replay(env, options(30)).load(tmp_path)


def test_others_are_kept_as_they_are():
    """Numbers alone, and parts of which the sizes do not add up."""
    env, plain = env_of([NUMBERS, CHOICE, {"shape": [90], "sizes": [31] * 90, "start": [0] * 90}])
    other = replace(plain, obs_parts=({"path": [], **IMAGE},))
    for one in (env, plain, other, spec((45,), "uint8")):
        assert Packing.of(one) is None
    assert not isinstance(Replay(env, options(8)).ring, PackedRing)
