"""Rounds of rollouts: what stands side by side, how often it is drawn, what is too old."""

import numpy as np
import torch

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay import Minibatches, RoundStore


def rollout(sampler, value, version=1, num_steps=3, num_envs=2, ended=()):
    """A rollout whose observations, actions and rewards all are ``value``; ``ended`` (t, n) are truncated."""
    shape = (num_steps, num_envs)
    truncated = np.zeros(shape, bool)
    for place in ended:
        truncated[place] = True
    return Rollout(
        *(f"sampler-{sampler}", 1, 0, num_steps * num_envs, version, num_steps, num_envs),
        obs=np.full((num_steps + 1, num_envs, 4), value, np.float32),
        action=np.full(shape, value, np.int64),
        reward=np.full(shape, value, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=truncated,
        final_obs=np.full((len(ended), 4), -value, np.float32),
        final_index=np.array(sorted(ended), np.int32).reshape(-1, 2),
        log_prob=np.full(shape, -value, np.float32),
    )


def test_a_round_is_one_rollout_of_each_sampler_side_by_side():
    """Environments of the second come after those of the first, and so do their final observations."""
    store = RoundStore(2, "cpu")
    store.add(rollout(0, 1.0, ended=[(2, 1)]))
    assert not store.complete
    store.add(rollout(1, 2.0, ended=[(0, 0), (1, 1)]))
    assert store.complete
    assert len(store) == 12
    made, rollouts = store.take()
    assert made.obs.shape == (4, 4, 4)
    assert made.reward[0].tolist() == [1, 1, 2, 2]
    assert made.final_index.tolist() == [[2, 1], [0, 2], [1, 3]]
    assert made.final_obs[:, 0].tolist() == [-1, -2, -2]
    assert bool(made.truncated[tuple(made.final_index.T)].all())
    assert [one.sampler for one in rollouts] == ["sampler-0", "sampler-1"]
    assert len(store) == 0


def test_what_comes_beyond_a_round_waits_for_the_next():
    """In the order in which it came."""
    store = RoundStore(1, "cpu")
    store.add(rollout(0, 1.0))
    store.add(rollout(0, 2.0, version=2))
    assert store.newest_version == 1
    assert float(store.take()[0].reward[0, 0]) == 1
    assert store.newest_version == 2


def test_rollouts_of_older_policies_are_dropped_and_given_back():
    """So that they can be counted."""
    store = RoundStore(2, "cpu")
    for version in (1, 3, 2):
        store.add(rollout(0, 1.0, version=version))
    assert [one.policy_version for one in store.drop_older(2)] == [1]
    assert store.complete


def test_rollouts_of_another_length_cannot_stand_beside_others():
    """A component that changes its number of steps is named, and nothing crashes."""
    store = RoundStore(2, "cpu")
    store.add(rollout(0, 1.0))
    assert store.unfit(rollout(1, 1.0)) == ""
    assert store.unfit(rollout(1, 1.0, num_steps=5)) == "num_steps is 5, expected 3 as of those of its round"


def test_each_epoch_takes_every_transition_once_in_another_order():
    """Ten transitions in batches of four: 4, 4 and 2."""
    batches = Minibatches({"log_prob": torch.arange(10)}, 3, 4)
    drawn = [batch["log_prob"] for batch in batches.drawn(torch.Generator().manual_seed(1))]
    assert list(map(len, drawn)) == [4, 4, 2] * 3
    assert len(drawn) == len(batches)
    epochs = [torch.cat(drawn[i : i + 3]).tolist() for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_steps_of_an_environment_stay_together_where_a_policy_remembers():
    """Five environments of four steps in batches of at most eleven transitions: two, two and one of them."""
    steps = torch.arange(20).view(4, 5)
    batches = Minibatches({"log_prob": steps, "memory": torch.arange(5.0).view(1, 5, 1)}, 2, 11)
    drawn = list(batches.drawn(torch.Generator().manual_seed(1)))
    assert len(drawn) == len(batches) == 6
    for batch in drawn:
        envs = batch["memory"][0, :, 0].long()
        assert torch.equal(batch["log_prob"], steps[:, envs])
    met = torch.cat([batch["memory"].flatten() for batch in drawn]).tolist()
    assert sorted(met) == sorted([*range(5)] * 2)
