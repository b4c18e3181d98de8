"""Prioritized replay: the sums, how often each transition is drawn, the weights and the files."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay.prioritized import PrioritizedReplay, SumTree
from tests.unit.replay.made import options, save, spec


def make_rollout(rewards):
    """One environment that is rewarded so and never ends."""
    steps = len(rewards)
    flags = np.zeros((steps, 1), bool)
    return Rollout(
        *("sampler-0", 1, 0, steps, 1, steps, 1),
        obs=np.zeros((steps + 1, 1, 1), np.float32),
        action=np.zeros((steps, 1, 1), np.float32),
        reward=np.asarray(rewards, np.float32).reshape(steps, 1),
        terminated=flags,
        truncated=flags,
        final_obs=np.zeros((0, 1), np.float32),
        final_index=np.zeros((0, 2), np.int32),
    )


def make_replay(capacity=100, seed=0, alpha=0.5, beta=0.4, n_step=1):
    """Transitions that are told apart by their reward."""
    drawing = {"priority_alpha": alpha, "priority_beta": beta}
    return PrioritizedReplay(spec(), options(capacity, n_step=n_step, **drawing), seed=seed)


def prioritize_all(replay, errors):
    """Give every transition its error: ``errors[reward]``."""
    for _ in range(50):
        rewards = replay.sample(200).reward.long()
        replay.prioritize(errors[rewards])


def test_the_estimate_of_the_memory_counts_the_priorities():
    """All that is allocated for many rows, within 2 %."""
    replay = make_replay(capacity=100_000)
    tables = sum(table.nbytes for table in replay.ring._tables.values())
    allocated = tables + sum(level.nbytes for level in replay.tree.levels)
    assert allocated <= replay.ring.memory_bytes <= 1.03 * allocated


@pytest.mark.parametrize("size", [1, 31, 32, 33, 1024, 5000])
def test_every_place_falls_into_its_row(size):
    """As a cumulative sum says, with empty rows among them, and both ends."""
    source = torch.Generator().manual_seed(size)
    priority = torch.rand(size, generator=source, dtype=torch.float64)
    priority[::7] = 0.0 if size > 1 else 1.0
    tree = SumTree(size, torch.device("cpu"))
    tree.set(torch.arange(size), priority)
    assert tree.total.item() == pytest.approx(priority.sum().item())
    place = torch.rand(2000, generator=source, dtype=torch.float64) * tree.total
    expected = torch.searchsorted(priority.cumsum(0), place, right=True)
    assert (tree.find(place) == expected).float().mean() > 0.999  # rounding at a border
    assert priority[tree.find(torch.cat((torch.zeros(1), tree.total)))].min() > 0


def test_sums_stay_exact_over_many_changes():
    """Also where a row comes twice in one call."""
    tree, source = SumTree(3000, torch.device("cpu")), torch.Generator().manual_seed(0)
    for _ in range(200):
        index = torch.randint(3000, (64,), generator=source)
        tree.set(index, torch.rand(3000, generator=source)[index] * 1e6)
    assert tree.total.item() == pytest.approx(tree.leaves.sum().item(), rel=1e-12)


@pytest.mark.parametrize(("begin", "count"), [(0, 3000), (31, 1), (32, 64), (1000, 1500), (2999, 1)])
def test_rows_in_a_row_are_set_as_any_others(begin, count):
    """To the last bit, with all sums above them."""
    one, other = (SumTree(3000, torch.device("cpu")) for _ in range(2))
    for tree in (one, other):
        tree.set(torch.arange(3000), torch.rand(3000, generator=torch.Generator().manual_seed(0)))
    priority = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one.set(torch.arange(begin, begin + count), priority)
    other.fill(begin, priority)
    assert all(map(torch.equal, one.levels, other.levels))


class LargestTensor(TorchFunctionMode):
    """Inside, notes the bytes of the largest tensor that torch returns."""

    nbytes = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call it and look at what it returns."""
        returned = func(*args, **(kwargs or {}))
        if isinstance(returned, torch.Tensor):
            self.nbytes = max(self.nbytes, returned.nbytes)
        return returned


def test_priorities_of_all_rows_take_no_memory_beside_their_own(tmp_path):
    """As after a divergence, and where they come back from a checkpoint or fill the table at once."""
    size, other = 20_000, make_replay(capacity=20_000)
    replay = make_replay(capacity=size)
    with LargestTensor() as largest:
        replay.add(make_rollout(np.arange(size)))
        replay.add(make_rollout(np.arange(50)))
        replay.forget_errors()
        save(replay, tmp_path)
        other.load(tmp_path)
    assert largest.nbytes <= replay.ring.memory_bytes
    assert replay.tree.total == other.tree.total == size


def test_transitions_are_drawn_in_proportion_to_their_priorities():
    """Errors 0 to 9 with alpha 0.5: the share of each is its root's, within five standard deviations."""
    replay = make_replay()
    replay.add(make_rollout(np.arange(10)))
    errors = torch.arange(10.0) + 1
    prioritize_all(replay, errors)
    counts = np.bincount(replay.sample(50_000).reward.long(), minlength=10)
    share = (errors.sqrt() / errors.sqrt().sum()).numpy()
    assert (abs(counts - 50_000 * share) < 5 * np.sqrt(50_000 * share * (1 - share))).all()


def test_weights_undo_the_bias_of_the_drawing():
    """(N P)^-beta over the batch's largest; with beta 1 the weighted mean is that of all transitions."""
    errors = torch.arange(10.0) + 1
    share = errors.sqrt() / errors.sqrt().sum()
    for beta in (0.4, 1.0):
        replay = make_replay(beta=beta)
        replay.add(make_rollout(np.arange(10)))
        prioritize_all(replay, errors)
        batch = replay.sample(20_000)
        expected = (10 * share[batch.reward.long()]) ** -beta
        torch.testing.assert_close(batch.weight, expected / expected.max(), rtol=1e-4, atol=1e-6)
    mean = (batch.weight * batch.reward).sum() / batch.weight.sum()
    assert mean.item() == pytest.approx(4.5, abs=0.15)


def test_what_is_new_comes_first():
    """A transition that nobody has trained on has the highest priority so far."""
    replay = make_replay(alpha=1.0)
    replay.add(make_rollout([0.0] * 10))
    replay.sample(100)
    replay.prioritize(torch.full((100,), 1e-3))
    replay.add(make_rollout([1.0]))
    assert replay.sample(1000).reward.mean() > 0.9


@pytest.mark.parametrize("error", [float("nan"), float("inf"), 1e12])
def test_errors_of_a_divergence_are_forgotten(error):
    """Then all transitions are drawn alike again, with finite weights, and new ones as those before."""
    replay = make_replay()
    replay.add(make_rollout(np.arange(10)))
    replay.sample(4)
    replay.prioritize(torch.full((4,), error))
    replay.forget_errors()
    replay.add(make_rollout(np.arange(10, 20)))
    batch = replay.sample(20_000)
    counts = np.bincount(batch.reward.long().numpy(), minlength=20)
    assert (abs(counts - 1000) < 5 * np.sqrt(1000)).all()
    assert (batch.weight == 1.0).all()


@pytest.mark.parametrize("odd", [-3.0, float("nan"), float("inf"), float("-inf")])
def test_an_error_of_any_sign_and_one_that_is_not_finite_leave_the_sums_whole(odd):
    """The size of an error counts; the other one is the highest so far, here 3."""
    replay = make_replay(alpha=1.0)
    replay.add(make_rollout(np.arange(10)))
    errors = -torch.ones(10)
    errors[4] = -3.0
    prioritize_all(replay, errors)
    errors[7] = odd
    prioritize_all(replay, errors)
    leaves = replay.tree.leaves[:10]
    assert leaves.tolist() == pytest.approx([1.0] * 4 + [3.0] + [1.0] * 2 + [3.0] + [1.0] * 2, abs=1e-5)
    assert replay.tree.total.item() == pytest.approx(14.0, abs=1e-4)


def test_the_oldest_lose_their_priority_with_their_place():
    """In a ring of 8, after 20 transitions each of the last 8 is drawn, and alike."""
    replay = make_replay(capacity=8, n_step=3)
    for first in range(0, 20, 5):
        replay.add(make_rollout(np.arange(first, first + 5)))
        replay.prioritize(torch.rand(64) if replay.sample(64) else None)
    replay.add(make_rollout(np.arange(100, 120)))
    counts = np.unique(replay.sample(8000).reward.numpy(), return_counts=True)[1]
    assert len(counts) == 8
    assert (abs(counts - 1000) < 5 * np.sqrt(1000)).all()


def test_a_saved_replay_draws_the_same(tmp_path):
    """Priorities, the highest of them and the random state come back."""
    replay, other = make_replay(seed=1), make_replay(seed=2)
    replay.add(make_rollout(np.arange(10)))
    prioritize_all(replay, torch.arange(10.0) ** 2)
    save(replay, tmp_path)
    other.load(tmp_path)
    for each in (replay, other):
        each.add(make_rollout([50.0]))
    one, two = replay.sample(500), other.sample(500)
    assert torch.equal(one.reward, two.reward)
    assert torch.equal(one.weight, two.weight)


@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (1.0, 0.5), (0.5, 0.0), (0.0, 0.5)])
def test_saved_priorities_follow_another_alpha(tmp_path, before, after):
    """As if errors had always been raised to it; where it was 0 none are known, and all are drawn alike."""
    replay, other = make_replay(alpha=before), make_replay(alpha=after)
    replay.add(make_rollout(np.arange(10)))
    errors = 0.01 * (1 + torch.arange(10.0))
    prioritize_all(replay, errors)
    save(replay, tmp_path)
    other.load(tmp_path)
    known = (errors + 1e-6) ** after if before else torch.ones(10)
    torch.testing.assert_close(other.tree.leaves[:10], known.double(), rtol=1e-5, atol=0.0)
    other.add(make_rollout([50.0]))
    assert other.tree.leaves[10] == 1.0  # the highest so far, which was that of new ones


def test_priorities_that_an_earlier_release_saved_come_back_as_they_are(tmp_path):
    """It did not say what power they are to."""
    replay, other = make_replay(alpha=0.5), make_replay(alpha=1.0)
    replay.add(make_rollout(np.arange(10)))
    prioritize_all(replay, torch.arange(10.0))
    save(replay, tmp_path)
    (tmp_path / "priority_alpha.npy").unlink()
    other.load(tmp_path)
    assert torch.equal(other.tree.leaves, replay.tree.leaves)


@pytest.mark.parametrize("damage", ["missing", "short", "negative"])
def test_broken_priorities_are_refused(tmp_path, damage):
    """With the file's path."""
    replay, path = make_replay(), tmp_path / "priorities.npy"
    replay.add(make_rollout(np.arange(10)))
    save(replay, tmp_path)
    if damage == "missing":
        path.unlink()
    else:
        saved = np.load(path)
        np.save(path, saved[:-1] if damage == "short" else -saved)
    with pytest.raises(CheckpointError, match=r"priorities\.npy"):
        make_replay().load(tmp_path)
