"""Datasets whose environment was made or wrapped otherwise than a run's are told in words."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import data, envs
from tests.unit.data.made import Parts, dataset


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Minari keeps its datasets in a folder of the test's own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.mark.parametrize(
    ("recorded", "kwargs", "says"),
    [
        ({"id": "Pendulum-v1"}, {}, ""),
        ({"id": "Pendulum-v1", "render_mode": "rgb_array", "max_episode_steps": 7}, {}, ""),
        ({"id": "Pendulum-v1", "g": 5.0}, {"g": 5}, ""),
        ({"id": "Pendulum-v1", "g": 5.0}, {}, "recorded with g = 5.0, unlike run.env_kwargs"),
        ({"id": "Pendulum-v1"}, {"g": 5.0}, "recorded with no g, unlike run.env_kwargs"),
        ({"id": "Pendulum-v1", "g": 0.0}, {"g": "{index}"}, ""),
        ({"id": "Pendulum-v1"}, {"g": "{index}"}, ""),
        (
            {"id": "MountainCarContinuous-v0"},
            {},
            'recorded in "MountainCarContinuous-v0", not Pendulum-v1, '
            "and recorded with action 0 in [-1, 1], run.env's is in [-2, 2]",
        ),
    ],
)
def test_episodes_of_an_environment_made_otherwise_are_told(recorded, kwargs, says):
    """Whose rewards may be others, though its spaces are the same. The number that each of a run's has is
    another for each.
    """
    opened = data.Dataset.open(dataset("own-v0", gymnasium.make(**recorded)))
    assert opened.differs(dataclasses.replace(envs.probe("Pendulum-v1"), kwargs=kwargs)) == says


def test_an_environment_is_the_same_as_a_topology_and_json_write_it():
    """Without its version, with lists for tuples, and with braces that are no place for a number."""
    opened = data.Dataset.open(dataset("pendulum-v0"))
    assert opened.differs(dataclasses.replace(envs.probe("Pendulum-v1"), id="Pendulum")) == ""
    made_by = {"id": "Pendulum-v1", "kwargs": {"g": [1, 2], "name": "{index}"}}
    spec = dataclasses.replace(envs.probe("Pendulum-v1"), kwargs={"g": (1, 2), "name": "{{index}}"})
    assert dataclasses.replace(opened, made_by=made_by).differs(spec) == ""


def test_episodes_that_name_no_environment_are_taken_as_they_are():
    """A class of one's own is not registered."""
    opened = data.Dataset.open(dataset("parts-v0", Parts()))
    assert opened.made_by == {}
    assert opened.differs(envs.probe("tests.unit.data.made:Parts")) == ""


@pytest.mark.filterwarnings("ignore:.*lowered by casting")
def test_wrappers_that_change_transitions_are_told_with_the_bounds_that_they_give():
    """The registration is the same, and every number fits; but half an action is another one."""
    spec, wrappers = envs.probe("Pendulum-v1"), gymnasium.wrappers

    def said(name, wrap, *how):
        made = wrap(gymnasium.make("Pendulum-v1"), *how)
        return data.Dataset.open(dataset(name, made)).differs(spec)

    assert said("plain-v0", wrappers.RecordEpisodeStatistics) == ""
    assert said("seen-v0", wrappers.NormalizeObservation) == (
        "recorded through NormalizeObservation, unlike run.env"
    )
    assert said("mine-v0", wrappers.RescaleAction, -1.0, 1.0) == (
        "recorded through RescaleAction, unlike run.env, "
        "and recorded with action 0 in [-1, 1], run.env's is in [-2, 2]"
    )


def test_a_wrapper_of_the_registration_belongs_to_the_environment():
    """What lacks it was recorded otherwise."""
    clipped = gymnasium.wrappers.ClipReward.wrapper_spec(min_reward=-1.0)
    entry = gymnasium.spec("Pendulum-v1").entry_point
    gymnasium.register("Clipped-v0", entry, max_episode_steps=200, additional_wrappers=(clipped,))
    try:
        spec = envs.probe("Clipped-v0")
        opened = data.Dataset.open(dataset("clipped-v0", gymnasium.make("Clipped-v0")))
        assert opened.differs(spec) == ""
        bare = data.Dataset.open(dataset("bare-v0", gymnasium.make("Clipped-v0").unwrapped))
        assert bare.differs(spec) == "recorded without ClipReward, unlike run.env"
        odd = dataclasses.replace(opened, made_by={**opened.made_by, "additional_wrappers": [3, {"name": 1}]})
        assert odd.differs(spec) == "recorded without ClipReward, unlike run.env"
    finally:
        del gymnasium.registry["Clipped-v0"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"action_low": None, "action_high": None}, "in [-2, 2], run.env's is in [-inf, inf]"),
        (
            {"action_low": None, "action_high": None, "action_limits": ([-2.0, None],)},
            "in [-2, 2], run.env's is in [-2, inf]",
        ),
        ({"action_high": np.float32([2.000001])}, ""),
    ],
)
def test_other_bounds_of_actions_are_told(other, says):
    """Bounds that were only rounded are the same; of no bounds each is another."""
    opened = data.Dataset.open(dataset("own-v0"))
    found = opened.differs(dataclasses.replace(envs.probe("Pendulum-v1"), **other))
    assert found == (says and f"recorded with action 0 {says}")


def test_choices_that_count_from_another_number_are_told():
    """Those that fit would be others."""
    opened = data.Dataset.open(dataset("parts-v0", Parts()))
    spec = envs.probe("tests.unit.data.made:Parts")
    said = "recorded with actions that count from [1], run.env's from [0]"
    assert opened.differs(dataclasses.replace(spec, action_start=())) == said
