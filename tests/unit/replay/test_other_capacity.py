"""A saved replay in one of another capacity: the newest transitions that both have room for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq.replay import Replay
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from tests.unit.replay.made import save
from tests.unit.replay.test_frame_ring import Stream, drawn, make_replay, whole
from tests.unit.replay.test_sequences import ENVS, STEPS, first_obs, rollout
from tests.unit.replay.test_sequences import replay as sequences

STACK, CAPACITY = 3, 50


@pytest.mark.parametrize("kind", [Replay, PrioritizedReplay])
@pytest.mark.parametrize("capacity", [30, 45, 90])
@pytest.mark.parametrize("num_rollouts", [2, 8], ids=["filled in part", "full"])
def test_a_replay_goes_on_with_its_newest_transitions(tmp_path, kind, capacity, num_rollouts):
    """As one of this capacity that had taken the same rollouts, or the one that was saved where that had
    fewer; with their priorities, and the next rollouts joined to the last ones.
    """
    saved, other, fresh = (make_replay(size, STACK, 2, kind) for size in (CAPACITY, capacity, capacity))
    stream = Stream("sampler-0", 3, STACK)
    for _ in range(num_rollouts):
        collected, _ = stream.collect(4)
        for each in (saved, fresh):
            each.add(collected)
    saved.sample(600)
    saved.prioritize(1.0 + torch.rand(600))
    save(saved, tmp_path)
    other.load(tmp_path)
    same = fresh if capacity < CAPACITY else saved
    assert len(other) == len(same)
    rows = drawn(same, 3000)
    assert drawn(other, 3000) == rows
    if kind is PrioritizedReplay:
        numbers = np.arange(other.ring.first, other.ring.num_added)
        before = numbers + saved.ring.num_added - other.ring.num_added
        leaves = other.tree.leaves[numbers % capacity]
        assert torch.equal(leaves, saved.tree.leaves[before % CAPACITY])
    other.ring.go_on(saved.ring.streams())
    produced = stream.produced
    for _ in range(2):
        collected, seen = stream.collect(4)
        rows |= whole(collected, seen, 2)
        fresh.add(collected)
        other.add(replace(collected, incarnation=9, produced=collected.produced - produced))
    assert drawn(other, 3000) == (drawn(fresh, 3000) if capacity < CAPACITY else rows)


@pytest.mark.parametrize(("size", "kept"), [(2, [400, 450]), (10, [300, 350, 400, 450])])
def test_sequences_keep_the_ones_before_them(tmp_path, size, kept):
    """Where these are still there, and those that come next have theirs."""
    saved, other = (sequences(capacity=each * STEPS, burn_in=True) for each in (4, size))
    for number in range(5):
        saved.add(rollout(number))
    save(saved, tmp_path)
    other.load(tmp_path)
    other.ring.go_on(saved.ring.streams())
    batch = other.sample(60 * STEPS)
    assert {*first_obs(batch)[1]} == {*kept}
    assert batch.follows[0].tolist() == [size == 10 and own >= 400 for own in first_obs(batch)[1]]
    if size == 10:
        other.add(replace(rollout(5), incarnation=7, sequence=0, produced=STEPS * ENVS))
        batch = other.sample(60 * STEPS)
        before = {own: earlier for earlier, own in zip(*first_obs(batch), strict=True)}
        assert (before[500], before[550]) == (400, 450)
        assert batch.follows[0].tolist() == [own >= 400 for own in first_obs(batch)[1]]
