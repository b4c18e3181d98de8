"""run.json: complete, explicit, and read back as it was written."""

import json
from pathlib import Path

import pytest

from spreeze_zmq.base.errors import ChannelError, InputError
from spreeze_zmq.plan.roles import (
    BROKER,
    EVALUATOR,
    LEARNERS,
    OBSERVER,
    ROLES,
    SAMPLER,
    VISUALIZER,
    roles_of,
    stop_order,
)
from spreeze_zmq.plan.topology import Plan, load

EXPLICIT = [
    "channels.policy.endpoint=tcp://127.0.0.1:5555",
    "run.env_kwargs.g=9.0",
    "balance.max_policy_lag=3",
]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A placed plan with something of everything."""
    folder = tmp_path_factory.mktemp("run")
    return (
        load("pendulum", EXPLICIT, without=["evaluator"])
        .placed(folder, folder / "s")
        .resuming(folder / "old")
    )


def test_a_plan_survives_its_file(plan, tmp_path):
    """Reading what was written gives an equal plan."""
    path = tmp_path / "run.json"
    path.write_text(plan.to_json())
    assert Plan.read(path) == plan
    assert Plan.from_json(load("pendulum").to_json()) == load("pendulum")


def test_a_file_from_before_recordings_is_read(plan):
    """What has been added to the format may be missing."""
    values = json.loads(plan.to_json())
    del values["recording"], values["command"], values["channels"]["critic"]["curve"]
    assert Plan.from_json(json.dumps(values)) == plan


def test_a_file_of_an_earlier_release_is_read():
    """Whatever has been added since: its run is shown, and its recordings are replayed."""
    plan = Plan.read(Path(__file__).parent / "earlier_run.json")
    assert plan.run.env == "Pendulum-v1"
    assert plan.learning.rows_each == 1


def test_the_file_has_the_documented_shape(plan):
    """Components in other languages read these keys."""
    values = json.loads(plan.to_json())
    assert values["format"] == 2
    assert set(values) == {
        *("format", "name", "topology_file", "run_dir", "socket_dir", "run", "environment", "algorithm"),
        *("learning", "balance", "components", "channels", "to_measure", "measured", "pinning", "recording"),
        *("command", "ancestors", "tried", "timing", "placement", "left_to_node", "groups", "launcher"),
        *("data", "replaced", "began_s", "packages", "own_code"),
    }
    assert values["run"]["stop"] == {
        "return": -200.0,
        "env_steps": None,
        "trained_transitions": None,
        "minutes": 5.0,
    }
    assert values["run"]["resume_from"].endswith("/old")
    assert values["algorithm"]["name"] == "sac"
    assert values["components"]["evaluator"]["launched"] is False
    assert values["components"]["sampler"]["count"].keys() == {"initial", "minimum", "maximum"}
    assert values["channels"]["experience.actor_learner"]["fields"] == ["obs"]
    assert values["channels"]["control"]["connects"] == [
        role for role in roles_of(LEARNERS) if role != BROKER
    ]


def test_placing_fills_in_every_endpoint_and_keeps_explicit_ones(plan):
    """Nothing is left for a component to guess."""
    assert plan.channels["policy"].endpoint == "tcp://127.0.0.1:5555"
    assert plan.channels["critic"].endpoint == f"ipc://{plan.socket_dir}/critic"
    assert all(channel.endpoint for channel in plan.channels.values())


def test_placing_makes_paths_absolute(tmp_path, monkeypatch):
    """Processes of the run may have other current folders."""
    monkeypatch.chdir(tmp_path)
    placed = load("pendulum").placed(type(tmp_path)("runs/a"), type(tmp_path)("s"))
    assert placed.run_dir == str(tmp_path / "runs/a")
    assert placed.channels["policy"].endpoint == f"ipc://{tmp_path}/s/policy"


def test_a_socket_folder_too_deep_is_refused(tmp_path):
    """Linux takes 107 bytes; the longest channel's name must fit behind the folder."""
    with pytest.raises(ChannelError, match="at most 107 bytes"):
        load("pendulum").placed(tmp_path, type(tmp_path)("/" + "x" * 90))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda values: values.update(format=1), "not a run file of format 2: format is 1"),
        (lambda values: values.pop("format"), "format is None"),
        (lambda values: values.pop("balance"), "run file: balance is missing"),
        (lambda values: values["run"].pop("seed"), "run file: run: seed is missing"),
        (lambda values: values["run"].update(seed="1"), "run: seed: int was expected, got '1'"),
        (
            lambda values: values["run"]["stop"].update({"return": "x"}),
            "run: stop: return: float was expected",
        ),
        (lambda values: values.update(channels=[]), r"channels: dict was expected, got \[\]"),
        (lambda values: values["environment"].pop("obs_shape"), "environment: .*obs_shape"),
    ],
)
def test_a_run_file_of_another_kind_is_refused(edit, message, plan):
    """A component started on a wrong file says what is wrong with it, as the user's mistake."""
    values = json.loads(plan.to_json())
    edit(values)
    with pytest.raises(InputError, match=message):
        Plan.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "\x00"])
def test_what_is_no_json_is_refused(text, tmp_path):
    """So is a file that is not there, by its name."""
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.json: not a run file"):
        Plan.read(path)
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read"):
        Plan.read(tmp_path / "nowhere.json")


def test_a_run_ends_from_its_producers_to_its_books():
    """Each role once: learners take what is under way, the evaluator plays their last policy, callbacks and
    the page hear of that, and the broker writes it all down.
    """
    turns = stop_order()
    assert sorted(role for turn in turns for role in turn) == sorted(ROLES)
    at = {role: number for number, turn in enumerate(turns) for role in turn}
    assert at[SAMPLER] < min(at[learner] for learner in LEARNERS)
    assert max(at[learner] for learner in LEARNERS) < at[EVALUATOR]
    assert at[EVALUATOR] < min(at[OBSERVER], at[VISUALIZER]) <= max(at[OBSERVER], at[VISUALIZER]) < at[BROKER]
    assert turns[-1] == (BROKER,)
