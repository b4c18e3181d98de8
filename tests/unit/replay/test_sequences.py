"""The replay of sequences: what each holds, how many are drawn, their priorities, and the files."""

import dataclasses

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms import ReplayOptions, SequenceOptions
from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay import SequenceReplay, further_fields, replay_of
from spreeze_zmq.replay import ring as ring_module
from tests.unit.replay.made import save, spec

STEPS, ENVS, MEMORY = 5, 2, 3
FIELDS = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index", "memory")


def options(capacity=100, **others):
    """Of a replay of sequences."""
    sizes = {"memory_size": MEMORY, "sequence_length": STEPS, "burn_in": False, "batch_size": STEPS}
    return SequenceOptions(
        **{"replay_capacity": capacity, "learning_starts": 1, "gamma": 0.5, **sizes, **others}
    )


def rollout(number=0):
    """Observations and rewards count from ``100 * number``, the second environment's from 50 more. That ends
    with step 1 for good and is cut at step 3.
    """
    count = 100.0 * number + np.arange(STEPS + 1)[:, None] + np.array([0, 50])
    terminated, truncated = np.zeros((2, STEPS, ENVS), bool)
    terminated[1, 1] = truncated[3, 1] = True
    return Rollout(
        *("sampler-0", 1, number, (number + 1) * STEPS * ENVS, 1, STEPS, ENVS),
        obs=count[:, :, None].astype(np.float32),
        action=np.zeros((STEPS, ENVS, 1), np.float32),
        reward=count[:-1].astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        final_obs=np.array([[-1.0], [-2.0]], np.float32),
        final_index=np.array([[1, 1], [3, 1]], np.int32),
        memory=np.full((ENVS, MEMORY), number, np.float32) + np.array([[0.0], [0.5]], np.float32),
    )


def replay(**settings):
    """As a learner has it."""
    return replay_of(FIELDS, spec(), options(**settings), "cpu", 0)


def test_a_sequence_is_a_rollout_of_one_environment():
    """With two rewards summed, cut where an episode ends and at the end of the sequence; the observation to
    bootstrap from is a true last one where the episode was cut.
    """
    made = replay(n_step=2)
    made.add(rollout(1))
    assert len(made) == STEPS * ENVS
    batch = made.sample(40 * STEPS)
    assert batch.obs.shape == (STEPS, 40, 1)
    assert batch.memory.shape == (1, 40, MEMORY)
    second = int((batch.obs[0, :, 0] == 150).nonzero()[0])
    found = {name: getattr(batch, name)[:, second].flatten().tolist() for name in ("obs", "reward")}
    assert found["obs"] == [150, 151, 152, 153, 154]
    assert found["reward"] == [150 + 75.5, 151, 152 + 76.5, 153, 154]
    assert batch.discount[:, second].tolist() == [0.0, 0.0, 0.25, 0.5, 0.5]
    assert batch.next_obs[:, second].flatten().tolist() == [-1, -1, -2, -2, 155]
    assert batch.last[:, second].tolist() == [1, 1, 3, 3, 4]
    assert batch.begins[:, second].tolist() == [False, False, True, False, True]
    assert batch.memory[0, second].tolist() == [1.5] * MEMORY
    first = int((batch.obs[0, :, 0] == 100).nonzero()[0])
    assert batch.last[:, first].tolist() == [1, 2, 3, 4, 4]
    assert not batch.begins[:, first].any()


def first_obs(batch):
    """Of each sequence drawn, with the one before it: the first observation of that, and its own."""
    return batch.obs[0, :, 0].tolist(), batch.obs[STEPS, :, 0].tolist()


def test_with_the_burn_in_each_sequence_comes_with_the_one_before():
    """Of the same environment, where that is in the replay; and whether an episode began between them."""
    made = replay(burn_in=True)
    for number in range(3):
        last = np.zeros((STEPS, ENVS), bool)
        last[-1, 0] = number == 1
        made.add(dataclasses.replace(rollout(number), terminated=rollout(number).terminated | last))
    batch = made.sample(60 * STEPS)
    assert batch.obs.shape == (2 * STEPS, 60, 1)
    assert batch.action.shape == (2 * STEPS, 60, 1)
    assert batch.reward.shape == (STEPS, 60)
    for before, own, follows, earlier, memory, begins in zip(
        *first_obs(batch),
        batch.follows[0].tolist(),
        batch.earlier[0, :, 0].tolist(),
        batch.memory[0, :, 0].tolist(),
        batch.begins.T.tolist(),
        strict=True,
    ):
        number, env = divmod(own, 100)
        assert follows is (number > 0)
        assert memory == number + env / 100
        assert begins[STEPS] is (number == 2 and env == 0)
        assert begins[STEPS + 2] is (env == 50)
        if follows:
            assert (before, earlier) == (own - 100, memory - 1)
            assert begins[2] is (env == 50)


GAPS = {
    "a rollout is missing": {"produced": 3 * STEPS * ENVS, "sequence": 2},
    "another life": {"incarnation": 2, "produced": STEPS * ENVS},
    "another sampler": {"sampler": "sampler-1"},
}


@pytest.mark.parametrize("other", GAPS.values(), ids=GAPS)
def test_what_does_not_follow_is_not_joined(other):
    """Such a sequence begins with its own memory."""
    made = replay(burn_in=True)
    made.add(rollout(0))
    made.add(dataclasses.replace(rollout(1), **other))
    assert not made.sample(20 * STEPS).follows.any()


def test_a_sequence_whose_predecessor_was_overwritten_begins_with_its_own_memory():
    """The oldest ones; those after them have theirs."""
    made = replay(capacity=4 * STEPS, burn_in=True)
    for number in range(5):
        made.add(rollout(number))
    batch = made.sample(60 * STEPS)
    assert batch.follows[0].tolist() == [own >= 400 for own in first_obs(batch)[1]]
    assert set(first_obs(batch)[1]) == {300.0, 350.0, 400.0, 450.0}


def test_sequences_are_joined_to_those_of_a_saved_replay(tmp_path):
    """The first rollout of a sampler that goes on in another process follows its last one."""
    made, again = replay(burn_in=True), replay(burn_in=True)
    made.add(rollout(0))
    save(made, tmp_path)
    again.load(tmp_path)
    again.ring.go_on(made.ring.streams())
    again.add(dataclasses.replace(rollout(1), incarnation=7, sequence=0, produced=STEPS * ENVS))
    batch = again.sample(40 * STEPS)
    assert batch.follows[0].tolist() == [own >= 100 for own in first_obs(batch)[1]]


def test_sequences_are_kept_whole_up_to_the_capacity():
    """Four of them have room; the oldest go first."""
    made = replay(capacity=4 * STEPS + 3)
    for number in range(4):
        made.add(rollout(number))
    assert len(made) == 4 * STEPS
    starts = set(made.sample(200 * STEPS).obs[0].flatten().tolist())
    assert starts == {200.0, 250.0, 300.0, 350.0}
    assert made.sample(STEPS - 1).obs.shape[1] == 1


def test_sequences_are_drawn_by_their_priority():
    """One priority each; the weight of a sequence is for all of its steps."""
    made = replay(prioritized=True, priority_beta=1.0)
    made.add(rollout())
    for _ in range(20):
        batch = made.sample(20 * STEPS)
        made.prioritize(torch.where(batch.obs[0, :, 0] == 0, 1.0, 3.0))
    batch = made.sample(2000 * STEPS)
    large = batch.obs[0, :, 0] == 50
    assert batch.weight.shape == (1, 2000)
    share = 3**0.6 / (1 + 3**0.6)
    assert large.float().mean().item() == pytest.approx(share, abs=0.05)
    torch.testing.assert_close(batch.weight[0], torch.where(large, 3**-0.6, 1.0))


def test_further_fields_and_masks_come_by_the_step():
    """A field of the rollout that an algorithm asks for, and which actions were legal."""
    env = dataclasses.replace(
        spec(action_kind="discrete", action_shape=()), action_sizes=(2,), action_mask=True
    )
    fields = (*FIELDS, "log_prob")
    assert further_fields(fields) == ("log_prob",)
    made = replay_of(fields, env, options(), "cpu", 0)
    masks = np.ones((STEPS + 1, ENVS, 2), bool)
    masks[2, :, 0] = False
    about = {
        "action": np.ones((STEPS, ENVS), np.int64),
        "log_prob": np.arange(STEPS, dtype=np.float32)[:, None].repeat(ENVS, 1),
        "action_mask": masks,
        "final_action_mask": np.ones((2, 2), bool),
    }
    made.add(dataclasses.replace(rollout(), **about))
    batch = made.sample(10 * STEPS)
    first = int((batch.obs[0, :, 0] == 0).nonzero()[0])
    assert batch.log_prob[:, first].tolist() == [0, 1, 2, 3, 4]
    assert batch.action_mask[:, first, 0].tolist() == [True, True, False, True, True]
    assert batch.next_action_mask[:, first, 0].tolist() == [True, False, True, True, True]


def test_sequences_go_on_from_a_file(tmp_path):
    """The next batches are those of a replay that was never saved; another length is refused."""
    made, again = replay(), replay()
    made.add(rollout())
    made.sample(STEPS)
    save(made, tmp_path)
    again.load(tmp_path)
    expected = made.sample(8 * STEPS)
    for name, value in vars(again.sample(8 * STEPS)).items():
        assert value is None or torch.equal(value, getattr(expected, name)), name
    longer = dataclasses.replace(options(), sequence_length=10, batch_size=10)
    with pytest.raises(CheckpointError, match="was saved with "):
        replay_of(FIELDS, spec(), longer, "cpu", 0).load(tmp_path)


def test_what_does_not_fit_is_said(monkeypatch):
    """A rollout of another length; a table too large, in transitions."""
    made = replay()
    assert isinstance(made, SequenceReplay)
    assert made.unfit(rollout()) == ""
    longer = dataclasses.replace(rollout(), num_steps=6)
    assert made.unfit(longer) == "num_steps is 6, expected sequence_length = 5"
    monkeypatch.setattr(ring_module, "free_bytes", lambda device: 5_000)
    with pytest.raises(InputError, match=r"a replay of 1,000 transitions of .* to at most \d\d\d?$"):
        replay(capacity=1000)


def test_without_a_memory_a_replay_draws_transitions():
    """By the fields that a learner asks for."""
    plain = ReplayOptions(replay_capacity=10, learning_starts=1)
    assert not isinstance(replay_of(FIELDS[:-1], spec(), plain, "cpu", 0), SequenceReplay)
