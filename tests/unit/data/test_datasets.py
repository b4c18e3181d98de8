"""Datasets are found, read as rollouts and written; what does not fit is said in a line."""

import dataclasses
import json
import sys

import gymnasium
import minari
import numpy as np
import pytest

from spreeze_zmq import data, envs
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.replay import replay_of
from tests.masked import MOVES, Game
from tests.unit.data.made import Eyes, Parts, dataset


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Minari keeps its datasets in a folder of the test's own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def rollouts(path, env="Pendulum-v1", **more):
    """All rollouts of a dataset for a registered environment."""
    return list(data.rollouts_of(data.Dataset.open(path), envs.probe(env), "own", **more))


def test_an_episode_is_a_rollout_that_ends_with_it():
    """What was played comes back: observations one longer than actions, the last one as the final one; an
    end that only the limit made is a truncation.
    """
    kept = []
    path = dataset("random-v0", change=kept.extend)
    first, second = rollouts(path, stack=3)
    assert (first.num_steps, first.num_envs, first.sampler) == (5, 1, "data-own")
    assert first.stream != second.stream
    for rollout, episode in zip((first, second), kept, strict=True):
        assert np.array_equal(rollout.obs[:, 0], np.float32(episode.stacked("observations")))
        assert np.array_equal(rollout.action[:, 0], episode.stacked("actions"))
        assert np.array_equal(rollout.reward[:, 0], np.float32(episode.rewards))
        assert np.array_equal(rollout.final_obs, rollout.obs[-1])
        assert rollout.truncated[:, 0].tolist() == [False] * 4 + [True]
        assert not rollout.terminated.any()
        assert np.array_equal(rollout.history[:, 0], rollout.obs[[0, 0], 0])
    assert [each.num_steps for each in rollouts(path, most=1)] == [5]


def test_an_end_that_the_environment_made_is_a_termination():
    """Of value zero, whatever else was said of it."""

    def end(episodes):
        episodes[1].terminated = True

    first, second = rollouts(dataset("ended-v0", change=end))
    assert first.truncated[-1]
    assert second.terminated[-1]
    assert not second.truncated.any()


def test_a_dict_is_flattened_and_actions_count_from_0():
    """As the engine of the environment has them."""
    path = dataset("parts-v0", Parts(), episodes=1, steps=4)
    spec = envs.probe("tests.unit.data.made:Parts")
    (rollout,) = data.rollouts_of(data.Dataset.open(path), spec, "own")
    flat = gymnasium.spaces.flatten(Parts.observation_space, {"place": np.full(2, 0.2), "kind": 2})
    assert np.array_equal(rollout.obs[2, 0], np.float32(flat))
    assert rollout.action.dtype == np.int64
    assert set(rollout.reward[:, 0] - rollout.action[:, 0]) == {1.0}


def test_a_dict_of_images_alone_is_flattened_to_its_bytes():
    """As the engine of the environment has them."""
    path = dataset("eyes-v0", Eyes(), episodes=1, steps=3)
    spec = envs.probe("tests.unit.data.made:Eyes")
    (rollout,) = data.rollouts_of(data.Dataset.open(path), spec, "own")
    assert rollout.obs.dtype == np.uint8
    assert rollout.obs[:, 0].tolist() == [[step] * 8 + [200 + step] * 8 for step in range(4)]


def pairs(now, after):
    """The different rows ``[A]`` of two arrays, side by side."""
    return set(map(tuple, np.hstack([now, after]).astype(int).tolist()))


@pytest.mark.parametrize("form", ["info", "part", "within"])
def test_each_step_comes_with_its_action_mask(form):
    """Wherever the environment gives it: a replay of them has what may be done next, as of a sampler's."""
    path = dataset("game-v0", Game(form), steps=9, masked=True)
    spec = envs.probe("tests.masked:Game", {"form": form})
    for rollout in data.rollouts_of(data.Dataset.open(path), spec, "own"):
        masks = rollout.action_mask
        assert masks.shape == (10, 1, MOVES)
        assert 0 < masks.mean() < 1
        assert np.take_along_axis(masks[:-1], rollout.action[..., None], -1).all()
        if form != "info":  # the mask stands in the observation too
            assert np.array_equal(rollout.obs[..., :MOVES], masks)
        options = DQN.Options(replay_capacity=64, learning_starts=1)
        replay = replay_of(DQN.kept_fields("critic", options), spec, options, "cpu", 1)
        assert not replay.unfit(rollout)
        replay.add(rollout)
        batch = replay.sample(200)
        assert pairs(batch.action_mask, batch.next_action_mask) == pairs(masks[:-1, 0], masks[1:, 0])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda one: one.masks.clear(), "has no action_mask, which tests.masked:Game gives .spreeze record"),
        (lambda one: one.masks[2].fill(0), "action_mask of row 2 allows no action"),
        (lambda one: np.subtract(1, one.masks[0], one.masks[0]), "its action .* at 0 is one .*forbids"),
        (lambda one: one.masks.pop(), "it has 5 rows of action_mask, expected 6"),
        (lambda one: one.masks[1].__imul__(2), "its action_mask is no array of 0 and 1"),
    ],
)
def test_masks_that_do_not_fit_are_named(spoil, says):
    """By their episode; nothing that they forbid is learned from."""
    path = dataset("game-v0", Game(), change=lambda found: spoil(found[1]), masked=True)
    with pytest.raises(InputError, match=f"episode 1: .*{says}"):
        rollouts(path, "tests.masked:Game")


def test_a_dataset_is_found_by_name_or_folder(root, tmp_path):
    """A name that there is not gives those near it."""
    path = dataset("reach/expert-v0")
    assert path == root / "reach/expert-v0"
    assert data.find("minari:reach/expert-v0", tmp_path) == path
    assert data.find("minari/reach/expert-v0", tmp_path) == path
    with pytest.raises(InputError, match=r'no dataset called reach/export-v0 .*"reach/expert-v0"'):
        data.find("minari:reach/export-v0", tmp_path)
    with pytest.raises(InputError, match=r'no Minari dataset.*write "minari:reach/expert-v0"'):
        data.find("reach/expert-v0", tmp_path)


def odd(change):
    """The line about a dataset of random episodes that were changed before they were written."""
    path = dataset("odd-v0", change=change)
    with pytest.raises(InputError) as found:
        rollouts(path)
    return str(found.value)


def test_a_number_that_is_not_finite_is_named():
    """By its episode, array and place."""

    def spoil(episodes):
        episodes[1].observations[3] = np.array([0.0, np.nan, 0.0], np.float32)

    assert odd(spoil) == (
        "episode 1: its observations hold nan at [3, 1], expected a finite number of at most 1e+15"
    )


def test_an_episode_of_which_something_is_missing_is_named():
    """A reward less than there are steps."""
    line = odd(lambda episodes: episodes[0].rewards.pop())
    assert line.startswith("episode 0: it has 4 rewards and 6 observations, 5 actions")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPole-v1", r"episode 0: its observations have the shape \(3,\), those of CartPole-v1 \(4,\)"),
        ("MountainCar-v0", r"have the shape \(3,\), those of MountainCar-v0 \(2,\)"),
        ("tests.unit.data.made:Parts", "are not those of .*Parts: the observation has no obs"),
    ],
)
def test_a_dataset_of_other_spaces_is_refused(env, says):
    """In a line that names both."""
    path = dataset("pendulum-v0")
    with pytest.raises(InputError, match=says):
        rollouts(path, env)


@pytest.mark.parametrize(("size", "says"), [(2.0001, ""), (200.0, "100.0% of its actions outside")])
def test_actions_far_outside_the_bounds_are_told(size, says):
    """In other units, they are others once they are clipped; what was only rounded is not named."""

    def scale(episodes):
        for episode in episodes:
            episode.actions[:] = [np.full(1, size, np.float32) for _ in episode.actions]

    path, outside = dataset("own-v0", change=scale), data.Outside()
    opened = data.Dataset.open(path)
    (action, *_) = [
        one.action for one in data.rollouts_of(opened, envs.probe("Pendulum-v1"), "own", outside=outside)
    ]
    assert action.max() == 2.0
    assert says in outside.said
    assert bool(says) is bool(outside.num)


def test_actions_of_another_kind_are_refused():
    """A number of a box is no choice; a choice is one of those that there are."""
    path = dataset("pendulum-v0")
    spec = dataclasses.replace(
        envs.probe("Pendulum-v1"), action_kind="discrete", action_shape=(), action_sizes=(2,)
    )
    opened = data.Dataset.open(path)
    with pytest.raises(InputError, match=r"its actions have the shape \(1,\), those of Pendulum-v1 \(\)"):
        list(data.rollouts_of(opened, spec, "own"))
    several = dataclasses.replace(spec, action_kind="multi_discrete", action_shape=(1,))
    with pytest.raises(InputError, match="its actions are float32, those of Pendulum-v1 int64"):
        list(data.rollouts_of(opened, several, "own"))
    choices = dataset("acrobot-v0", gymnasium.make("Acrobot-v1").unwrapped)
    few = dataclasses.replace(envs.probe("Acrobot-v1"), action_sizes=(2,))
    with pytest.raises(InputError, match="its actions are not all among the"):
        list(data.rollouts_of(data.Dataset.open(choices), few, "own"))


def test_a_torn_dataset_is_a_line_and_no_environment_is_made(root):
    """Also one that leaves it to its environment to say what its spaces are."""
    path = dataset("torn-v0")
    about = path / "data" / "metadata.json"
    fields = json.loads(about.read_text())
    del fields["action_space"]
    about.write_text(json.dumps(fields))
    with pytest.raises(InputError, match="does not say its action_space"):
        data.Dataset.open(path)
    about.write_text("{")
    with pytest.raises(InputError, match="cannot be read as a Minari dataset"):
        data.Dataset.open(path)
    path = dataset("short-v0")
    (path / "data" / "main_data.hdf5").write_bytes(b"no file of that kind")
    with pytest.raises(InputError, match="episode 0 cannot be read"):
        rollouts(path)


def test_without_minari_a_line_says_what_to_install(monkeypatch):
    """And nothing else happens."""
    path = dataset("there-v0")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(InputError, match=r"this needs minari, .*pip install 'spreeze_zmq\[minari\]'"):
        data.Dataset.open(path)
    with pytest.raises(InputError, match="this needs minari"):
        data.check_name("new-v0")


def test_a_minari_that_keeps_no_exact_images_is_named_before_anything_is_played(monkeypatch):
    """Its 0.5.0 to 0.5.3, whose function is without the argument."""

    def create_dataset_from_buffers(dataset_id, buffer, env=None, description=None):
        raise AssertionError("it is not called")

    monkeypatch.setattr(minari, "create_dataset_from_buffers", create_dataset_from_buffers)
    with pytest.raises(InputError, match=r"cannot keep images exactly: pip install -U 'minari>=0\.5\.4'"):
        data.check_name("new-v0")


def test_a_name_that_is_taken_or_odd_is_refused(root):
    """Before anything is played."""
    dataset("taken-v0")
    with pytest.raises(InputError, match="taken-v0 is there already"):
        data.check_name("taken-v0")
    for name in ("no_version", "../out-v0", "a b-v0", "/root/x-v0"):
        with pytest.raises(InputError, match="expected a name with a version"):
            data.check_name(name)
