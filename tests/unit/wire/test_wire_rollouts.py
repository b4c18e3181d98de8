"""A rollout travels as a message and back; one that contradicts itself is refused."""

from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.wire import Message, decode, encode, rollout_from, rollout_message

STEPS, ENVS = 4, 3


def make_rollout(**changes):
    """Four steps of three environments; (1, 2) terminates and (3, 0) is truncated."""
    terminated, truncated = np.zeros((STEPS, ENVS), np.bool_), np.zeros((STEPS, ENVS), np.bool_)
    terminated[1, 2] = truncated[3, 0] = True
    rollout = Rollout(
        sampler="sampler-1",
        incarnation=77,
        sequence=5,
        produced=72,
        policy_version=9,
        num_steps=STEPS,
        num_envs=ENVS,
        obs=np.arange((STEPS + 1) * ENVS * 2, dtype=np.float32).reshape(STEPS + 1, ENVS, 2),
        action=np.ones((STEPS, ENVS, 1), np.float32),
        reward=np.ones((STEPS, ENVS), np.float32),
        terminated=terminated,
        truncated=truncated,
        final_obs=np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        final_index=np.array([[1, 2], [3, 0]], np.int32),
    )
    return replace(rollout, **changes)


def travel(message):
    """What the receiver makes of it."""
    return decode([bytes(frame) for frame in encode(message)])


def refusal(message):
    """The reason for which the receiver would refuse it; the sender refuses it for the same one."""
    with pytest.raises(WireError) as refused:
        encode(message)
    return refused.value.reason


def test_a_rollout_comes_back_as_it_went():
    """Every attribute and every array."""
    rollout = make_rollout()
    back = rollout_from(travel(rollout_message(rollout)))
    assert (back.sampler, back.incarnation, back.sequence) == ("sampler-1", 77, 5)
    assert (back.produced, back.policy_version, back.num_steps, back.num_envs) == (72, 9, STEPS, ENVS)
    for name, array in rollout.arrays().items():
        np.testing.assert_array_equal(getattr(back, name), array, strict=True)
    assert back.log_prob is None


def test_only_the_fields_that_were_asked_for_travel():
    """A learner that asked for observations gets nothing else, in travelling order."""
    message = rollout_message(make_rollout(), ("final_obs", "obs", "final_index"))
    assert list(message.arrays) == ["obs", "final_obs", "final_index"]
    assert rollout_from(travel(message)).reward is None


def test_a_rollout_in_which_nothing_ended_has_empty_final_observations():
    """K = 0 is a shape like any other."""
    calm = np.zeros((STEPS, ENVS), np.bool_)
    rollout = make_rollout(
        terminated=calm,
        truncated=calm,
        final_obs=np.zeros((0, 2), np.float32),
        final_index=np.zeros((0, 2), np.int32),
    )
    back = rollout_from(travel(rollout_message(rollout)))
    assert back.final_obs.shape == (0, 2)
    assert back.final_index.shape == (0, 2)


def test_images_and_discrete_actions_keep_their_dtypes():
    """uint8 observations stay uint8, int64 actions int64."""
    rollout = make_rollout(
        obs=np.full((STEPS + 1, ENVS, 2, 2), 255, np.uint8),
        action=np.ones((STEPS, ENVS), np.int64),
        final_obs=np.zeros((2, 2, 2), np.uint8),
    )
    back = rollout_from(travel(rollout_message(rollout)))
    assert back.obs.dtype == np.uint8
    assert back.action.dtype == np.int64


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        (np.ones((ENVS, 5), np.float32), None),
        (np.ones((ENVS + 1, 5), np.float32), "wrong_shape"),
        (np.ones((ENVS, 5), np.float64), "wrong_dtype"),
        (np.ones(ENVS, np.float32), "wrong_rank"),
    ],
)
def test_what_a_policy_remembers_is_of_each_environment(memory, reason):
    """A row of float32 numbers."""
    message = rollout_message(make_rollout(memory=memory))
    if reason is None:
        np.testing.assert_array_equal(rollout_from(travel(message)).memory, memory, strict=True)
    else:
        assert refusal(message) == reason


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (np.zeros((3, ENVS, 2), np.float32), None),
        (np.zeros((3, ENVS + 1, 2), np.float32), "wrong_shape"),
        (np.zeros((3, ENVS, 3), np.float32), "wrong_shape"),
        (np.zeros((3, ENVS, 2), np.uint8), "wrong_dtype"),
        (np.zeros(3, np.float32), "wrong_rank"),
    ],
)
def test_the_observations_before_the_first_are_of_the_same_environments(history, reason):
    """As many as there are, each of the same shape and dtype."""
    message = rollout_message(make_rollout(history=history))
    if reason is None:
        np.testing.assert_array_equal(rollout_from(travel(message)).history, history, strict=True)
    else:
        assert refusal(message) == reason


def test_another_kind_is_no_rollout():
    """A stop on the experience channel is refused by name."""
    with pytest.raises(WireError, match="wrong_kind"):
        rollout_from(Message("stop", {"roles": [], "reason": ""}))


@pytest.mark.parametrize("name", [*ARRAY_FIELDS][:5])
def test_an_array_that_contradicts_the_counts_is_refused(name):
    """T and N in the fields are those of every array."""
    message = rollout_message(make_rollout())
    cut = {**message.arrays, name: message.arrays[name][:-1]}
    assert refusal(message._replace(arrays=cut)) == "wrong_shape"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"final_index": np.array([[3, 0], [1, 2]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[1, 2], [1, 2]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[1, 2], [3, 1]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[1, 2]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[1, 2], [4, 0]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[-1, 2], [3, 0]], np.int32)}, "bad_final_index"),
        ({"final_index": np.array([[1, 2, 0], [3, 0, 0]], np.int32)}, "wrong_shape"),
        ({"final_index": None}, "bad_final_index"),
        ({"final_obs": np.zeros((1, 2), np.float32)}, "bad_final_index"),
        ({"final_obs": np.zeros((2, 3), np.float32)}, "wrong_shape"),
        ({"final_obs": np.zeros((2, 2), np.uint8)}, "wrong_dtype"),
        ({"reward": np.zeros((STEPS, ENVS), np.float64)}, "wrong_dtype"),
        ({"reward": np.zeros((STEPS, ENVS, 1), np.float32)}, "wrong_rank"),
        ({"num_steps": 0}, "wrong_shape"),
    ],
)
def test_a_rollout_that_contradicts_itself_is_refused(changes, reason):
    """Final observations belong to exactly the steps that ended, in order."""
    assert refusal(rollout_message(make_rollout(**changes))) == reason


@pytest.mark.parametrize(
    ("index", "good"),
    [
        ([[1, 2], [3, 0]], True),
        ([[3, 0], [1, 2]], False),
        ([[1, 2], [1, 2]], False),
        ([[1, 3], [3, 0]], False),
        ([[1, 2], [4, 0]], False),
        ([[-1, 2], [3, 0]], False),
    ],
)
def test_without_the_flags_the_indices_must_still_be_in_range_and_sorted(index, good):
    """A learner that asked for observations only can trust final_index too."""
    rollout = make_rollout(final_index=np.array(index, np.int32))
    message = rollout_message(rollout, ("obs", "final_obs", "final_index"))
    if good:
        assert rollout_from(travel(message)).final_index.tolist() == index
    else:
        assert refusal(message) == "bad_final_index"
