"""Action masks pass from an environment through every batch, and what is wrong with one is named."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.masks import allows
from tests.masked import CONTEXTS, LENGTH, MOVES, RANKS

GAME = "tests.masked:Game"
SIZES = {"info": (MOVES,), "part": (MOVES,), "within": (MOVES,), "pair": (MOVES, MOVES)}


def best_moves(obs, mask, sizes):
    """``[N]`` or ``[N, 2]``: the best legal moves, by the last numbers of observations and by masks."""
    contexts = obs[:, -CONTEXTS:].argmax(1)
    parts = np.split(mask, np.cumsum(sizes)[:-1], 1)
    rows = [[next(m for m in RANKS[c] if row[m]) for c, row in zip(contexts, p, strict=True)] for p in parts]
    return np.array(rows[0]) if len(rows) == 1 else np.array(rows).T


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("form", SIZES)
def test_each_observation_comes_with_the_mask_of_its_step(form, num_workers):
    """Whoever takes the best legal move by them earns 1 in each step; a final observation has its own."""
    sizes = SIZES[form]
    spec = envs.probe(GAME, {"form": form, "limit": True})
    assert spec.action_mask
    assert spec.num_choices == sum(sizes)
    about = {"num_workers": num_workers, "step_info": False, "action_mask": True, **spec.kwargs}
    batch = envs.make(GAME, 4, seed=3, **about)
    obs, info = batch.reset()
    assert obs.shape == (4, *spec.obs_shape)
    for step in range(1, 2 * LENGTH + 1):
        mask = info["action_mask"]
        assert mask.dtype == np.bool_
        assert allows(mask, sizes).all()
        obs, reward, _, truncated, info = batch.step(best_moves(obs, mask, sizes))
        assert reward.tolist() == [1.0] * 4
        assert truncated.all() == ("final_action_mask" in info) == (step % LENGTH == 0)
    finals = info["final_action_mask"]
    if form in ("part", "within"):  # the mask stands in the observation too
        assert np.array_equal(info["final_obs"][:, :MOVES], finals)
        assert np.array_equal(obs[:, :MOVES], info["action_mask"])
        assert not np.array_equal(finals, info["action_mask"])
    batch.close()


def test_without_masks_nothing_is_read():
    """Neither asked for, nor of an environment that gives none."""
    assert not envs.probe(GAME, {"form": "none"}).action_mask
    assert "action_mask" not in envs.probe(GAME, {"form": "none"}).to_dict()
    batch = envs.make(GAME, 2, step_info=False)
    assert batch.masks is None
    assert batch.reset()[1] == {}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_random_actions_are_legal(num_workers):
    """With which an environment is tried before a run; before the first reset nothing is known to be."""
    batch = envs.make(GAME, 8, action_mask=True, num_workers=num_workers)
    assert batch.action_mask is None
    assert batch.random_actions().shape == (8,)
    batch.reset()
    for _ in range(30):
        assert (batch.step(batch.random_actions())[1] >= 0).all()
    assert sum(game.unwrapped.num_illegal for game in batch.envs) == 0
    batch.close()


FAULTS = {
    "zeros": r"info\['action_mask'\] = \[0 0 0 0\], which allows no action, and no episode ended",
    "long": r"info\['action_mask'\] = \[.*\] of int64, expected 4 numbers",
    "text": r"info\['action_mask'\] = \['.*'\] of <U\d, expected 4 numbers",
    "two": r"info\['action_mask'\] = \[.*2.*\] of int8, expected 4 numbers, 1 for each action that is legal",
    "missing": r"no info\['action_mask'\], which its reset\(\) gave: each step needs one",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_mask_is_named_before_a_run_and_in_it(fault):
    """With environment, step and file; the episode is cut at the last good observation and mask."""
    with pytest.raises(
        InvalidEnvironment, match=f"^{GAME}: .*{FAULTS[fault]}.*masked.py:.*step 1 of"
    ) as told:
        envs.try_out(GAME, {"fault": fault, "at": 1})
    assert "\n" not in str(told.value)
    said = []
    about = {"action_mask": True, "on_failure": said.append, "fault": fault, "at": 3}
    batch = envs.make(GAME, 2, step_info=False, **about)
    _, info = batch.reset(seed=1)
    for _ in range(3):
        before = info["action_mask"]
        _, reward, _, truncated, info = batch.step(before.argmax(1))
    assert truncated.all()
    assert info["failed"].all()
    assert reward.tolist() == [0.0, 0.0]
    assert np.array_equal(info["final_action_mask"], before)
    assert allows(info["action_mask"], (MOVES,)).all()
    assert [str(each).count("step 3 of its episode") for each in said] == [1, 1]


def test_a_truncated_episode_needs_a_mask_after_its_last_step():
    """Which could go on from there; the line does not say that no episode ended."""
    said = []
    about = {"action_mask": True, "on_failure": said.append, "limit": True, "fault": "zeros", "at": 10}
    batch = envs.make(GAME, 1, step_info=False, **about)
    _, info = batch.reset(seed=1)
    for _ in range(10):
        info = batch.step(info["action_mask"].argmax(1))[4]
    assert "allows no action, though the episode is only truncated: its last" in str(said[0])


def test_a_mask_of_a_dict_of_another_length_is_refused():
    """Before anything starts."""
    with pytest.raises(InvalidEnvironment, match=r"observation\['action_mask'\] = .*, expected 4 numbers"):
        envs.try_out(GAME, {"form": "part", "fault": "two", "at": 0})


def test_a_batch_that_is_kept_goes_on_with_its_masks():
    """As the samplers of a run in order do."""
    first, second = (envs.make(GAME, 3, seed=seed, action_mask=True) for seed in (1, 2))
    assert first.action_mask is None
    _, info = first.reset()
    second.reset()
    for _ in range(4):
        info = first.step(first.random_actions())[4]
    second.set_state(first.get_state())
    assert np.array_equal(first.action_mask, info["action_mask"])
    assert np.array_equal(second.action_mask, first.action_mask)
    action = first.action_mask.argmax(1)
    assert np.array_equal(first.step(action)[4]["action_mask"], second.step(action)[4]["action_mask"])
