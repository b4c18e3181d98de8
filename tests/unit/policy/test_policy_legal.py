"""Discrete actions drawn among legal ones: never another, with the densities of what is drawn."""

import json

import numpy as np
import pytest

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.policy import Policy

OBS = np.array([[0.5], [-1.0], [2.0]], np.float32)
LEGAL = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 0]], np.bool_)
CHOICES = {
    "categorical": {"sizes": [4]},
    "epsilon_greedy": {"num_actions": 4, "epsilon": 0.5, "spread": 0.0, "atoms": 1, "v_min": 0, "v_max": 0},
}


def policy_of(kind, version=1, bias=(3.0, 2.0, 1.0, 0.0), parts=(), **more):
    """One that gives these numbers for every observation, of one number or of these parts."""
    about = {"kind": kind, **CHOICES.get(kind, {}), "action_mask": True, **more}
    size = sum(part["shape"][0] for part in parts) or 1
    layers = [{"kind": "linear", "in": size, "out": len(bias)}]
    observation = {"shape": [size], "normalize": False, "clip": 10.0}
    description = {"layers": layers, "distribution": about, "observation": observation}
    parameters = np.array([*[0.0] * size * len(bias), *bias], np.float32)
    metadata = {"environment": json.dumps({"obs_parts": parts})}
    return Policy({"version": version, "description": description}, {"parameters": parameters}, metadata)


def test_the_mask_of_an_observation_is_used_wherever_it_stands():
    """In a Dict, or in one within it, as a goal environment has; of two that are as near none is taken."""
    for path in (["action_mask"], ["observation", "action_mask"], ["observation", "game", "action_mask"]):
        policy = policy_of("categorical", parts=[{"path": path, "shape": [4]}])
        for row, best in zip(LEGAL, (0, 3, 1), strict=True):
            obs = row.astype(np.int8)
            for name in reversed(path):
                obs = {name: obs}
            assert policy(obs) == best
    sides = [{"path": [side, "action_mask"], "shape": [4]} for side in ("left", "right")]
    with pytest.raises(InputError, match="give it the action_mask"):
        policy_of("categorical", parts=sides)({side: {"action_mask": LEGAL[0]} for side in ("left", "right")})


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", CHOICES)
def test_among_what_is_no_number_there_is_no_choice(kind, masked):
    """As from a network that overflows, here by an infinite observation: the first one is no answer."""
    policy = policy_of(kind, **({} if masked else {"action_mask": False}))
    obs, legal = np.full((3, 1), np.inf, np.float32), LEGAL if masked else None
    with np.errstate(all="ignore"):
        with pytest.raises(WireError, match="its action is a choice among NaN"):
            policy.mode(obs, action_mask=legal)
        with pytest.raises(WireError, match="its action is a choice among NaN"):
            policy.act(obs, np.random.default_rng(0), action_mask=legal)


@pytest.mark.parametrize("kind", CHOICES)
def test_the_best_legal_action_is_taken(kind):
    """The first of the falling numbers that is allowed."""
    policy = policy_of(kind)
    assert policy.mode(OBS, action_mask=LEGAL).tolist() == [0, 3, 1]
    assert policy(OBS, action_mask=LEGAL.astype(np.int8)).tolist() == [0, 3, 1]
    assert policy(OBS[0], action_mask=[0, 0, 1, 1]) == 2


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", CHOICES)
def test_draws_are_legal_and_have_their_densities(kind, version):
    """10,000 of each row; version 0 draws all legal ones alike."""
    policy, num = policy_of(kind, version), 10_000
    for row, legal in enumerate(LEGAL):
        masks = np.repeat(legal[None], num, 0)
        about = {"place": np.zeros(num, np.float32), "log_prob": True, "action_mask": masks}
        action, log_prob = policy.act(
            np.repeat(OBS[row : row + 1], num, 0), np.random.default_rng(1), **about
        )
        allowed = np.flatnonzero(legal)
        if version == 0:
            expected = np.full(len(allowed), 1 / len(allowed))
        elif kind == "categorical":
            weight = np.exp(3.0 - allowed)
            expected = weight / weight.sum()
        else:
            expected = 0.5 / len(allowed) + 0.5 * (allowed == allowed[0])
        counts = np.bincount(action, minlength=4)
        assert counts[~legal].sum() == 0
        np.testing.assert_allclose(counts[legal] / num, expected, atol=0.02)
        np.testing.assert_allclose(log_prob, np.log(expected)[np.searchsorted(allowed, action)], atol=1e-5)


def test_several_choices_at_once_each_have_their_part_of_the_mask():
    """The flags of one after those of the other."""
    policy = policy_of("categorical", sizes=[2, 2], bias=(1.0, 0.0, 0.0, 1.0))
    masks = np.array([[0, 1, 1, 0], [1, 1, 1, 1]], np.bool_)
    assert policy.mode(OBS[:2], action_mask=masks).tolist() == [[1, 0], [0, 1]]


def test_masks_are_taken_as_environments_give_them():
    """Of several choices a row for each, of one environment and of a batch: the door takes them so too."""
    policy = policy_of("categorical", sizes=[2, 2], bias=(1.0, 0.0, 0.0, 1.0))
    masks = np.array([[[0, 1], [1, 0]], [[1, 1], [1, 1]]], np.int8)
    assert policy(OBS[0], action_mask=masks[0]).tolist() == [1, 0]
    assert policy(OBS[:1], action_mask=masks[:1]).tolist() == [[1, 0]]
    assert policy(OBS[:2], action_mask=masks).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (None, "chooses among legal actions: give it the action_mask"),
        (np.zeros((3, 4)), "row 0 allows no action"),
        (np.ones((3, 5)), r"shape \(3, 5\), expected \(N, 4\)"),
        (np.ones((2, 4)), "2 rows for 3 observations"),
        (np.where(LEGAL, 0.0, -np.inf), "expected an array of 0 and 1"),
        ([[1, 0], [1]], "expected an array of 0 and 1"),
    ],
)
@pytest.mark.parametrize("kind", CHOICES)
def test_a_mask_that_is_missing_or_wrong_is_named(kind, mask, words):
    """Rather than that an illegal action is taken."""
    with pytest.raises(InputError, match=words):
        policy_of(kind)(OBS, action_mask=mask)


def test_a_policy_over_a_box_takes_no_mask():
    """Its description may not ask for one, nor a caller give one."""
    with pytest.raises(WireError, match="action_mask is True of a 'normal'"):
        policy_of("normal", log_std_min=-1.0, log_std_max=0.0)
    policy = policy_of("normal", log_std_min=-1.0, log_std_max=0.0, action_mask=False)
    with pytest.raises(InputError, match="an action_mask is for discrete actions"):
        policy(OBS, action_mask=LEGAL)
