"""Returns computed at insertion, the ring, the sampling and the files of the replay."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.frames import channels_first, has_channels_last, stacked_shape
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import ObservationReplay, Replay
from spreeze_zmq.replay.replays import n_step_returns
from spreeze_zmq.replay.ring import Column, Ring
from tests.unit.replay.made import options, save, spec


def make_rollout(reward, terminated=(), truncated=(), first_obs=0, dtype=np.float32):
    """A rollout that observes ``first_obs + t`` (+ 10 for each environment), and 90 + t at ends."""
    reward = np.asarray(reward, np.float32).reshape(len(reward), -1)
    num_steps, num_envs = reward.shape
    flags = {}
    for name, places in (("terminated", terminated), ("truncated", truncated)):
        flags[name] = np.zeros(reward.shape, bool)
        for place in places:
            flags[name][place] = True
    ended = np.argwhere(flags["terminated"] | flags["truncated"]).astype(np.int32)
    obs = first_obs + np.arange(num_steps + 1)[:, None] + 10 * np.arange(num_envs)
    return Rollout(
        sampler="sampler-0",
        incarnation=1,
        sequence=0,
        produced=reward.size,
        policy_version=1,
        num_steps=num_steps,
        num_envs=num_envs,
        obs=obs[..., None].astype(dtype),
        action=-obs[:-1, :, None].astype(np.float32),
        reward=reward,
        final_obs=(90 + ended[:, :1]).astype(dtype),
        final_index=ended,
        **flags,
    )


def make_replay(capacity=100, n_step=1, gamma=0.5, seed=0, **shapes):
    """One observation and one action, both a single number."""
    return Replay(spec(**shapes), options(capacity, gamma, n_step), seed=seed)


def stored(replay):
    """Every transition as {obs: (action, reward, discount, next_obs)}."""
    batch = replay.sample(2000)
    columns = (batch.obs[:, 0], batch.action[:, 0], batch.reward, batch.discount, batch.next_obs[:, 0])
    return {row[0]: tuple(row[1:]) for row in zip(*(c.tolist() for c in columns), strict=True)}


def test_one_step_is_the_plain_transition():
    """Reward, gamma and the next observation, unchanged."""
    replay = make_replay()
    replay.add(make_rollout([1.0, 2.0]))
    assert stored(replay) == {0.0: (0.0, 1.0, 0.5, 1.0), 1.0: (-1.0, 2.0, 0.5, 2.0)}


def test_termination_does_not_bootstrap():
    """The discount is 0 at a termination and the return stops there."""
    replay = make_replay(n_step=3)
    replay.add(make_rollout([1.0, 2.0, 4.0, 8.0], terminated=[(1, 0)]))
    # From 0: 1 + 2/2, ended. From 2: 4 + 8/2, two steps to the rollout's end.
    assert stored(replay) == {
        0.0: (0.0, 2.0, 0.0, 91.0),
        1.0: (-1.0, 2.0, 0.0, 91.0),
        2.0: (-2.0, 8.0, 0.25, 4.0),
        3.0: (-3.0, 8.0, 0.5, 4.0),
    }


def test_truncation_still_bootstraps():
    """A cut episode keeps gamma to the true number of steps, and the value of its own last observation."""
    replay = make_replay(n_step=3)
    replay.add(make_rollout([1.0, 2.0, 4.0, 8.0], truncated=[(1, 0)]))
    assert stored(replay) == {
        0.0: (0.0, 2.0, 0.25, 91.0),
        1.0: (-1.0, 2.0, 0.5, 91.0),
        2.0: (-2.0, 8.0, 0.25, 4.0),
        3.0: (-3.0, 8.0, 0.5, 4.0),
    }


def test_termination_wins_over_truncation():
    """An episode that ends and is cut in the same step has ended."""
    replay = make_replay()
    replay.add(make_rollout([1.0], terminated=[(0, 0)], truncated=[(0, 0)]))
    assert stored(replay) == {0.0: (0.0, 1.0, 0.0, 90.0)}


def test_returns_of_one_environment_do_not_touch_another():
    """Two environments, of which one ends."""
    replay = make_replay(n_step=2)
    replay.add(make_rollout([[1.0, 10.0], [2.0, 20.0]], terminated=[(0, 1)]))
    assert stored(replay) == {
        0.0: (0.0, 2.0, 0.25, 2.0),
        1.0: (-1.0, 2.0, 0.5, 2.0),
        10.0: (-10.0, 10.0, 0.0, 90.0),
        11.0: (-11.0, 20.0, 0.5, 12.0),
    }


def test_returns_equal_a_loop_over_every_transition():
    """Random rewards and ends, against the definition step by step."""
    rng = np.random.default_rng(0)
    reward = rng.standard_normal((20, 7)).astype(np.float32)
    terminated, truncated = rng.random((20, 7)) < 0.1, rng.random((20, 7)) < 0.1
    for n_step in (1, 2, 5, 50):
        returns, discount, last = n_step_returns(reward, terminated, truncated, 0.9, n_step)
        for t, n in np.ndindex(20, 7):
            total, k = 0.0, 0
            while True:
                total += 0.9**k * reward[t + k, n]
                k += 1
                if k == n_step or t + k == 20 or terminated[t + k - 1, n] or truncated[t + k - 1, n]:
                    break
            assert returns[t, n] == pytest.approx(total, rel=1e-5, abs=1e-5)
            assert last[t, n] == t + k - 1
            assert discount[t, n] == pytest.approx(0.0 if terminated[t + k - 1, n] else 0.9**k)


def test_the_oldest_are_overwritten_across_the_end():
    """Rollouts of 3 in a ring of 7: after four of them the last 7 transitions remain, each whole."""
    replay = make_replay(capacity=7)
    for first in (0, 10, 20, 30):
        replay.add(make_rollout([first, first + 1, first + 2], first_obs=first))
    assert len(replay) == 7
    assert stored(replay) == {
        float(o): (float(-o), float(o), 0.5, float(o + 1)) for o in (12, 20, 21, 22, 30, 31, 32) if o >= 12
    } | {12.0: (-12.0, 12.0, 0.5, 13.0)}


def test_a_rollout_longer_than_the_ring_leaves_its_end():
    """Of 10 transitions, a ring of 4 keeps the last 4, and goes on from there."""
    replay = make_replay(capacity=4)
    replay.add(make_rollout(np.arange(10)))
    assert sorted(stored(replay)) == [6, 7, 8, 9]
    replay.add(make_rollout([5.0], first_obs=50))
    assert sorted(stored(replay)) == [7, 8, 9, 50]


def test_sampling_is_uniform():
    """Each of 10 transitions comes in 20,000 draws within five standard deviations of 2,000."""
    replay = make_replay()
    replay.add(make_rollout(np.arange(10)))
    counts = np.bincount(replay.sample(20_000).reward.numpy().astype(int), minlength=10)
    assert (abs(counts - 2000) < 5 * np.sqrt(20_000 * 0.1 * 0.9)).all()


def test_sampling_follows_the_seed():
    """One seed gives one sequence of batches, another one another."""
    rewards = []
    for seed in (1, 1, 2):
        replay = make_replay(seed=seed)
        replay.add(make_rollout(np.arange(50)))
        rewards.append([replay.sample(8).reward.tolist() for _ in range(2)])
    assert rewards[0] == rewards[1]
    assert rewards[0] != rewards[2]


def test_pixels_stay_bytes():
    """uint8 observations are stored and given out as uint8, of their own shape, and cost a byte each."""
    replay = Replay(spec((2, 3), "uint8", (4,)), options(10, 0.99))
    obs = np.arange(12, dtype=np.uint8).reshape(2, 1, 2, 3)
    replay.add(
        Rollout(
            "sampler-0",
            1,
            0,
            1,
            1,
            1,
            1,
            obs=obs,
            action=np.ones((1, 1, 4), np.float32),
            reward=np.ones((1, 1), np.float32),
            terminated=np.zeros((1, 1), bool),
            truncated=np.zeros((1, 1), bool),
            final_obs=np.empty((0, 2, 3), np.uint8),
            final_index=np.empty((0, 2), np.int32),
        )
    )
    batch = replay.sample(3)
    assert (batch.obs.dtype, batch.obs.shape) == (torch.uint8, (3, 1, 2, 3))
    assert batch.obs[0].tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert batch.next_obs[2].tolist() == [[[6, 7, 8], [9, 10, 11]]]
    # 11 images for 10 transitions, each of which names two of them.
    assert replay.ring.memory_bytes == 10 * (7 + 2 * 8 + 4 * 4 + 2 * 4)


def test_float_transitions_lie_in_one_row():
    """One gather for the whole batch: every field is a view of the same rows."""
    replay = make_replay()
    replay.add(make_rollout([1.0]))
    batch = replay.sample(2)
    storages = {field.untyped_storage().data_ptr() for field in vars(batch).values() if field is not None}
    assert len(storages) == 1


@pytest.mark.parametrize(
    ("kind", "dtype"), [("box", "float32"), ("discrete", "int64"), ("multi_discrete", "int64")]
)
def test_a_batch_has_actions_as_they_were_taken(kind, dtype):
    """Whole numbers where they are choices, of which float32 holds not every one."""
    shape = () if kind == "discrete" else (2,)
    replay, made = make_replay(action_shape=shape, action_kind=kind), make_rollout([1.0])
    taken = np.full((1, 1, *shape), 2**24 - 1 if kind == "box" else 2**24 + 1, dtype)
    replay.add(replace(made, action=taken))
    action = replay.sample(4).action
    assert (action == int(taken.flat[0])).all()
    assert str(action.dtype) == f"torch.{dtype}"


def test_a_replay_beyond_the_memory_is_refused_with_the_sizes():
    """Before anything is allocated, with the largest capacity that would do."""
    with pytest.raises(
        InputError, match=r"1,000,000,000,000 transitions of 16 bytes takes 16000\.0 GB.* at most "
    ):
        ObservationReplay(spec((4,)), options(10**12))


def test_the_actor_keeps_observations_that_were_acted_on():
    """The last observation of a rollout is the first of the next, and is stored once."""
    replay = ObservationReplay(spec(), options(100))
    replay.add(make_rollout([1.0, 2.0]))
    replay.add(make_rollout([1.0, 2.0], first_obs=2))
    assert sorted(set(replay.sample(500)[:, 0].tolist())) == [0, 1, 2, 3]
    assert len(replay) == 4


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("shape", [(24, 24, 3), (3, 24, 24), (20, 24)])
def test_an_actor_keeps_images_from_the_arrays_that_it_asks_for(shape, stack):
    """Nothing else comes: without a stack not even the ends of episodes."""
    env, asked = spec(shape, "uint8"), SAC.fields_of("policy", stack)
    whole = random_rollout(env, frame_stack=stack)
    sent = {name: getattr(whole, name) if name in asked else None for name in ARRAY_FIELDS}
    replay = ObservationReplay(env, options(1000, stack=stack))
    replay.add(replace(whole, **sent))
    seen = replay.ring.take(torch.arange(whole.num_transitions))["obs"]
    assert seen.shape == (whole.num_transitions, *stacked_shape(shape, stack))
    newest = seen.view(whole.num_transitions, stack, -1)[:, -1]
    turned = channels_first(whole.obs) if has_channels_last(shape) else whole.obs
    np.testing.assert_array_equal(newest, turned[:-1].reshape(whole.num_transitions, -1))


def test_a_saved_replay_goes_on_exactly(tmp_path):
    """Contents, place of writing and sampling are those of the replay that was saved."""
    replay, other = make_replay(capacity=7, seed=1), make_replay(capacity=7, seed=2)
    for first in (0, 10, 20):
        replay.add(make_rollout([1.0, 2.0, 3.0], first_obs=first))
    replay.sample(5)
    save(replay, tmp_path / "replay")
    other.load(tmp_path / "replay")
    for _ in range(2):
        assert replay.sample(64).obs.tolist() == other.sample(64).obs.tolist()
        for each in (replay, other):
            each.add(make_rollout([4.0, 5.0], first_obs=40))
    assert np.load(tmp_path / "replay" / "float32.npy", mmap_mode="r").shape == (7, 5)


def test_only_what_was_written_is_saved(tmp_path):
    """A large ring that is almost empty makes a small file."""
    ring = Ring(1000, [Column("obs", "float32", (3,))], "cpu", 0)
    ring.write({"obs": np.ones((2, 3), np.float32)})
    save(ring, tmp_path)
    assert np.load(tmp_path / "float32.npy").shape == (2, 3)


@pytest.mark.parametrize("damage", ["other_n_step", "torn", "missing"])
def test_a_replay_that_does_not_fit_is_refused(tmp_path, damage):
    """Returns of another n_step cannot be mended, and half a file is none."""
    make = {"n_step": 2} if damage == "other_n_step" else {}
    replay = make_replay()
    replay.add(make_rollout([1.0, 2.0]))
    save(replay, tmp_path)
    if damage == "torn":
        (tmp_path / "float32.npy").write_bytes((tmp_path / "float32.npy").read_bytes()[:-4])
    if damage == "missing":
        (tmp_path / "generator.npy").unlink()
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        make_replay(**make).load(tmp_path)
