"""The replay of images against one that keeps every stack whole, over random streams of rollouts."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.frames import has_channels_last
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.policy import FrameStack
from spreeze_zmq.replay import ObservationReplay, Replay, RoundStore
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from tests.unit.replay.made import options, save, spec

GAMMA = 0.5


class Stream:
    """One sampler that never shows the same image twice, and what a policy sees of it."""

    def __init__(self, name, num_envs, stack, shape=(2, 3), seed=0, ends=0.2):
        self.name, self.num_envs, self.shape, self.ends = name, num_envs, shape, ends
        self.rng = np.random.default_rng([seed, int(name[-1])])
        self.frames = FrameStack(stack, has_channels_last(shape))
        self.incarnation = self.sequence = self.produced = 0
        self.begin()

    def begin(self):
        """A new life."""
        self.incarnation, self.sequence, self.produced = self.incarnation + 1, 0, 0
        self.obs = self.images(self.num_envs)
        self.frames.begin(self.obs)

    def images(self, count):
        """Random pixels."""
        return self.rng.integers(0, 256, (count, *self.shape), np.uint8)

    def seen(self):
        """A copy of the stacks ``[N, size]``."""
        return self.frames.seen.reshape(self.num_envs, -1).copy()

    def collect(self, num_steps):
        """The next rollout, and each of its transitions as a policy saw it: (stack, action, reward, what
        ended, next stack) ``[N][T]``.
        """
        history = self.frames.history()
        obs, rows, finals, index = [self.obs], [], [], []
        shape = (num_steps, self.num_envs)
        terminated, truncated = self.rng.random(shape) < self.ends / 2, self.rng.random(shape) < self.ends / 2
        reward = self.rng.integers(-9, 9, shape).astype(np.float32)
        action = self.rng.integers(0, 4, shape)
        for t in range(num_steps):
            before, ended = self.seen(), terminated[t] | truncated[t]
            true_next = self.images(self.num_envs)
            ending = copy.deepcopy(self.frames)
            ending.add(true_next, np.zeros(self.num_envs, bool))
            after = ending.seen.reshape(self.num_envs, -1).copy()
            self.obs = np.where(
                ended.reshape(-1, *[1] * len(self.shape)), self.images(self.num_envs), true_next
            )
            self.frames.add(self.obs, ended)
            for n in np.flatnonzero(ended):
                finals.append(true_next[n])
                index.append((t, n))
            obs.append(self.obs)
            rows.append((before, after))
        self.produced += num_steps * self.num_envs
        rollout = Rollout(
            *(self.name, self.incarnation, self.sequence, self.produced, 1, num_steps, self.num_envs),
            obs=np.stack(obs),
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_obs=np.array(finals, np.uint8).reshape(-1, *self.shape),
            final_index=np.array(index, np.int32).reshape(-1, 2),
            history=history if self.frames.stack > 1 else None,
        )
        self.sequence += 1
        return rollout, rows


def whole(rollout, rows, n_step):
    """Every transition of a rollout, kept whole: {stack: (action, return, discount, next stack)}."""
    found = {}
    for t in range(rollout.num_steps):
        for n in range(rollout.num_envs):
            total, discount, k = 0.0, 1.0, t
            while True:
                total += discount * float(rollout.reward[k, n])
                discount *= GAMMA
                ended = rollout.terminated[k, n] or rollout.truncated[k, n]
                if ended or k + 1 - t == n_step or k + 1 == rollout.num_steps:
                    break
                k += 1
            discount = 0.0 if rollout.terminated[k, n] else discount
            key = rows[t][0][n].tobytes()
            found[key] = (int(rollout.action[t, n]), total, discount, rows[k][1][n].tobytes())
    return found


def drawn(replay, batch_size=600):
    """Every transition that a large batch has."""
    batch = replay.sample(batch_size)
    obs, next_obs = (rows.flatten(1).numpy() for rows in (batch.obs, batch.next_obs))
    columns = (batch.action.tolist(), batch.reward.tolist(), batch.discount.tolist())
    return {
        key.tobytes(): (*values, following.tobytes())
        for key, following, *values in zip(obs, next_obs, *columns, strict=True)
    }


def make_replay(capacity, stack, n_step=1, kind=Replay, shape=(2, 3), seed=3):
    """Of images and one of four actions."""
    return kind(spec(shape, "uint8", (), "discrete"), options(capacity, GAMMA, n_step, stack), seed=seed)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_transition_is_that_of_a_replay_that_keeps_all(data):
    """Any stack, n-step, shape, lengths of episodes, order of samplers, new lives, lost rollouts and wraps:
    what is drawn is exactly what a policy saw, of the newest transitions.
    """
    stack, n_step = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    shape = data.draw(st.sampled_from([(3,), (2, 3), (3, 2, 2), (2, 2, 3)]))
    capacity = data.draw(st.sampled_from([40, 64, 1000]))
    kind = data.draw(st.sampled_from([Replay, PrioritizedReplay]))
    seed, ends = data.draw(st.integers(0, 1000)), data.draw(st.sampled_from([0.0, 0.2, 0.8]))
    streams = [Stream(f"sampler-{i}", 1 + i, stack, shape, seed, ends) for i in range(2)]
    replay, kept = make_replay(capacity, stack, n_step, kind, shape), []
    for number in range(data.draw(st.integers(1, 25))):
        stream = streams[data.draw(st.integers(0, 1))]
        what = data.draw(st.sampled_from(["add", "add", "add", "lose", "restart"]))
        if what == "restart":
            stream.begin()
        rollout, rows = stream.collect(data.draw(st.integers(1, 5)))
        if what == "lose" and number:
            continue
        replay.add(rollout)
        kept.append(whole(rollout, rows, n_step))
    everything = {key: value for part in kept for key, value in part.items()}
    newest = list(everything)[-min(capacity, len(everything)) :]
    assert 0 < len(replay) <= capacity
    seen = drawn(replay)
    assert seen.items() <= {key: everything[key] for key in newest}.items()
    assert len(seen) <= len(replay)
    if kind is PrioritizedReplay:
        assert (replay.tree.leaves > 0).sum() == len(replay)


@pytest.mark.parametrize("stack", [1, 4])
def test_a_full_replay_keeps_almost_its_capacity(stack):
    """A frame for each transition, once: only what shares a frame that was overwritten is lost early."""
    replay = make_replay(2_000, stack)
    streams = [Stream(f"sampler-{i}", 4, stack, ends=0.02) for i in range(3)]
    for _ in range(30):
        for stream in streams:
            replay.add(stream.collect(16)[0])
    assert 1_900 <= len(replay) <= 2_000
    assert len(drawn(replay, 40_000)) == len(replay)
    frames = replay.ring._frames
    assert frames.capacity == 2_125
    # 90 rollouts of 64 frames, three first ones with what was before them, and some final ones.
    assert 90 * 64 + 3 * 4 * stack <= frames.num_added <= 90 * 64 + 3 * 4 * stack + 250


def test_a_sampler_that_was_slow_is_not_lost():
    """The frames before its next rollout have been overwritten meanwhile: those that came with it count."""
    replay = make_replay(100, 4)
    slow, quick = Stream("sampler-0", 3, 4), Stream("sampler-1", 3, 4)
    replay.add(slow.collect(5)[0])
    for _ in range(8):
        replay.add(quick.collect(5)[0])
    rollout, rows = slow.collect(5)
    replay.add(rollout)
    expected = whole(rollout, rows, 1)
    assert expected.items() <= drawn(replay, 2_000).items()


@pytest.mark.parametrize("stack", [1, 3])
def test_the_estimate_of_the_memory_counts_every_table(stack):
    """Within a percent of what is allocated."""
    ring = make_replay(1_000, stack, shape=(20, 20)).ring
    allocated = sum(table.nbytes for one in (ring, ring._frames) for table in one._tables.values())
    assert allocated <= ring.memory_bytes <= 1.01 * allocated


def test_images_beyond_the_memory_are_refused_with_the_sizes():
    """Before anything is allocated."""
    with pytest.raises(InputError, match=r"takes 7[0-9]{3}\.[0-9] GB.*lower algorithm\.replay_capacity"):
        make_replay(10**9, 4, shape=(84, 84))


def test_the_actor_keeps_stacks_too():
    """Those that were acted on, and no final observation."""
    replay, stream = (
        ObservationReplay(spec((2, 3), "uint8"), options(100, stack=3)),
        Stream("sampler-0", 3, 3),
    )
    expected = set()
    for _ in range(3):
        rollout, rows = stream.collect(5)
        replay.add(rollout)
        expected |= {stack.tobytes() for before, _ in rows for stack in before}
    assert {stack.numpy().tobytes() for stack in replay.sample(600)} == expected
    assert replay.ring._frames.num_added == 3 * (15 + 3)


def test_a_saved_replay_of_images_goes_on_exactly(tmp_path):
    """Full, so that some rows are not drawn any more; then both take the same rollouts."""
    for kind in (Replay, PrioritizedReplay):
        replay, other = (make_replay(50, 3, 2, kind, seed=seed) for seed in (1, 2))
        stream = Stream("sampler-0", 3, 3)
        for _ in range(8):
            replay.add(stream.collect(4)[0])
        replay.sample(5)
        save(replay, tmp_path / kind.__name__)
        other.load(tmp_path / kind.__name__)
        for _ in range(4):
            assert len(other) == len(replay) < 50
            for name in ("obs", "next_obs", "action", "reward", "discount"):
                one, two = (getattr(each.sample(64), name) for each in (replay, other))
                assert torch.equal(one, two)
            stream.begin()
            rollout, _ = stream.collect(4)
            for each in (replay, other):
                each.add(rollout)


def test_a_sampler_that_goes_on_in_another_process_shares_frames_with_its_last_rollout(tmp_path):
    """Both replays write the same bytes afterwards: that of one run, and that of the run that goes on, to
    which the sampler is another life. A checkpoint takes what they write: files, no folders.
    """
    whole, first, second = (make_replay(200, 3, seed=seed) for seed in (1, 1, 2))
    stream = Stream("sampler-0", 3, 3)
    rollouts = [stream.collect(4)[0] for _ in range(4)]
    for rollout in rollouts:
        whole.add(rollout)
    for rollout in rollouts[:2]:
        first.add(rollout)
    save(first, tmp_path / "first")
    second.load(tmp_path / "first")
    second.ring.go_on(first.ring.streams())
    for rollout in rollouts[2:]:
        second.add(replace(rollout, incarnation=9, produced=rollout.produced - 2 * 12))
    for name, replay in (("whole", whole), ("second", second)):
        save(replay, tmp_path / name)
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_a_saved_replay_with_rows_of_no_frames_is_refused(tmp_path):
    """Whoever wrote it: nothing is read beyond the table."""
    replay = make_replay(50, 1)
    replay.add(Stream("sampler-0", 2, 1).collect(4)[0])
    save(replay, tmp_path)
    rows = np.load(tmp_path / "int64.npy")
    np.save(tmp_path / "int64.npy", rows + 1)
    with pytest.raises(CheckpointError, match="frames that it does not hold"):
        make_replay(50, 1).load(tmp_path)


def test_a_rollout_larger_than_the_replay_is_refused():
    """With the option that mends it."""
    with pytest.raises(InputError, match=r"room for 22: raise algorithm\.replay_capacity"):
        make_replay(20, 3).add(Stream("sampler-0", 5, 3).collect(4)[0])


@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 2), (2, 2, 1)])
@pytest.mark.parametrize("stack", [1, 3])
def test_a_round_is_made_of_the_stacks_that_were_acted_on(stack, shape):
    """Those of two samplers side by side, final observations among them."""
    store, streams = (
        RoundStore(2, "cpu", stack=stack),
        [Stream(f"sampler-{i}", 2, stack, shape) for i in (0, 1)],
    )
    for _ in range(2):
        collected = [stream.collect(6) for stream in streams]
        for rollout, _ in collected:
            store.add(Rollout(**{**vars(rollout), "log_prob": rollout.reward}))
        made, _ = store.take()
        for t in range(6):
            before = np.concatenate([rows[t][0] for _, rows in collected])
            np.testing.assert_array_equal(made.obs[t].flatten(1).numpy(), before)
        for (t, n), final in zip(made.final_index.tolist(), made.final_obs, strict=True):
            after = np.concatenate([rows[t][1] for _, rows in collected])[n]
            np.testing.assert_array_equal(final.flatten().numpy(), after)
