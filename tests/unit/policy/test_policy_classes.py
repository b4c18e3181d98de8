"""Policies that name a class: made only where there is a loader, and of files only in trust."""

import numpy as np
import pytest
import torch

import spreeze_zmq
from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.class_policy import loader_of_modules, loader_of_run
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.evaluation.saved import load_policy
from spreeze_zmq.policy import Policy, actor, register_class_loader, usable

DESCRIPTION = {"class": "tests.my_module:Mine", "options": {"gain": 2.0}, "environment": {"id": "Own-v0"}}
ARRAYS = {"parameters": np.array([0.5], np.float32)}


class Twice:
    """Acts by the first number of the observation, times a gain, plus its parameter; alike at any time."""

    memory_size = 0

    def __init__(self, description, arrays):
        assert description["environment"]["id"] == "Own-v0"
        self.gain, self.offset = description["options"]["gain"], arrays["parameters"][0]

    def output(self, obs, memory):
        """The observations."""
        return obs

    def uniform(self, num, rng):
        """There is none."""

    def draw(self, obs, rng, place, log_prob):
        """The mode, with certainty."""
        return self.mode(obs), np.zeros(len(obs), np.float32) if log_prob else None

    def mode(self, obs):
        """One number for each observation."""
        return self.gain * obs[:, :1] + self.offset

    def env_action(self, action):
        """Clipped."""
        return np.clip(action, -1.0, 1.0)


@pytest.fixture
def loader(monkeypatch):
    """A loader of the one class, for one test."""
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(Twice)


def policy_of(description, version=0):
    """From a message."""
    return Policy.from_message({"version": version, "description": description}, ARRAYS)


def test_without_a_loader_a_class_is_refused(monkeypatch):
    """The one clear word says which class it is."""
    monkeypatch.setattr(actor, "_loaders", [])
    with pytest.raises(WireError, match=r"class 'tests.my_module:Mine', and this program loads no classes"):
        policy_of(DESCRIPTION)


def test_what_the_loader_makes_acts(loader):
    """It gets the observations as they come, also at version 0 where it has no uniform distribution."""
    policy = policy_of(DESCRIPTION)
    obs = np.array([[1.0, 9.0], [-1.0, 9.0]], np.float32)
    action, log_prob = policy.act(obs, np.random.default_rng(0), log_prob=True)
    assert action.tolist() == policy.mode(obs).tolist() == [[2.5], [-1.5]]
    assert log_prob.tolist() == [0.0, 0.0]
    assert policy.env_action(action).tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize("named", ["my_module", ":Mine", "my_module:", 7, None])
def test_a_class_without_a_module_is_refused(loader, named):
    """It is written module:Name."""
    with pytest.raises(WireError, match="expected 'module:Name'"):
        policy_of({**DESCRIPTION, "class": named})


def test_a_class_that_cannot_be_imported_is_refused(monkeypatch):
    """By name."""

    def fails(description, arrays):
        raise ModuleNotFoundError("No module named 'my_module'")

    monkeypatch.setattr(actor, "_loaders", [fails])
    with pytest.raises(WireError, match="cannot be imported: No module named 'my_module'"):
        policy_of(DESCRIPTION)


def test_a_file_that_names_a_class_is_loaded_in_trust_alone(loader, tmp_path):
    """The user of someone else's file learns which code it would run."""
    path = tmp_path / "policy.safetensors"
    policy_of(DESCRIPTION, version=4).save(path, {})
    with pytest.raises(
        InputError, match=r"policy\.safetensors names a class of the module 'tests.my_module'"
    ):
        Policy.load(path)
    with pytest.raises(InputError, match=r"'tests\.my_module'"):
        Policy.load(path, trust=("tests", "my_module"))
    loaded = Policy.load(path, trust=["tests.my_module"])
    assert (loaded.version, loaded.mode(np.ones((1, 2))).tolist()) == (4, [[2.5]])


class Fading(SAC):
    """Acts by how far the run was."""

    def act(self, obs, greedy):
        """One number for all."""
        return torch.full((len(obs), 1), self.env_steps / 10_000)


def test_an_act_of_ones_own_knows_how_far_the_run_was_when_its_policy_was_published(monkeypatch, tmp_path):
    """For a schedule: in a sampler, whose policy is replaced by later ones, as in a file."""
    monkeypatch.setattr(actor, "_loaders", [loader_of_modules([Fading.__module__])])
    env = envs.probe("Pendulum-v1")
    half = algorithms.make("policy", Fading, Fading.Options(hidden_sizes=(8,)), env, "cpu", 1)
    acted, policy = [], None
    for env_steps in (0, 2_500, 7_500):
        half.env_steps = env_steps
        about = {"description": half.description(), "extras": half.extras()}
        policy = Policy.from_message({"version": 1, **about}, half.policy_arrays(), policy)
        acted.append(policy.act(np.zeros((1, 3), np.float32), np.random.default_rng(0))[0].item())
    assert acted == [0.0, 0.25, 0.75]
    policy.save(tmp_path / "policy.safetensors", {})
    loaded = Policy.load(tmp_path / "policy.safetensors", trust=[Fading.__module__])
    assert loaded.mode(np.zeros((1, 3), np.float32)).item() == 0.75


def published(kind):
    """The fields and the arrays of a message with an untrained policy of an algorithm."""
    half = algorithms.make(
        "policy", kind, kind.Options(hidden_sizes=(8,)), envs.probe("Pendulum-v1"), "cpu", 1
    )
    fields = {"version": 1, "description": half.description(), "extras": {"env_steps": 2_500}}
    return fields, half.policy_arrays()


def test_an_act_of_ones_own_in_a_group_that_began_later_is_where_group_0_is(monkeypatch, tmp_path):
    """As its losses and distributions are, also of a file; the transitions that it has sampled itself are
    counted apart. A group that is ahead of group 0 is where it is.
    """
    monkeypatch.setattr(actor, "_loaders", [loader_of_modules([Fading.__module__])])
    env, told, obs = envs.probe("Pendulum-v1"), [], np.zeros((1, 3), np.float32)
    half = algorithms.make("policy", Fading, Fading.Options(hidden_sizes=(8,)), env, "cpu", 1)
    for half.env_steps, half.run_env_steps in ((500, 5_000), (7_500, 5_000)):
        fields = {"version": 1, "description": half.description(), "extras": half.extras()}
        policy = Policy.from_message(fields, half.policy_arrays())
        policy.save(tmp_path / "policy.safetensors", {})
        loaded = Policy.load(tmp_path / "policy.safetensors", trust=[Fading.__module__])
        told.append((policy.extras["env_steps"], policy.mode(obs).item(), loaded.mode(obs).item()))
    assert told == [(500, 0.5, 0.5), (7_500, 0.75, 0.75)]
    assert half.algorithm.env_steps == 7_500


OPPONENT = """from tests.unit.policy.test_policy_classes import Fading
class Slower(Fading):
    def act(self, obs, greedy):
        return super().act(obs, greedy) / 2
"""


def test_code_of_a_run_that_loads_policies_leaves_samplers_the_algorithm_of_the_run(monkeypatch, tmp_path):
    """A callback or an environment imports ``Policy``, perhaps to play against the policy of another run,
    whose algorithm acts as soon as the user says that it may.
    """
    (tmp_path / "my_opponents.py").write_text(OPPONENT)
    monkeypatch.syspath_prepend(tmp_path)
    opponent = published(algorithms.get("my_opponents:Slower"))
    monkeypatch.setattr(actor, "_loaders", [loader_of_modules(["my_opponents"])])
    Policy.from_message(*opponent).save(tmp_path / "theirs.safetensors", {})
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(loader_of_run(f"{Fading.__module__}:Fading"))
    opened, own, obs = spreeze_zmq.Policy, published(Fading), np.zeros((1, 3), np.float32)
    assert Policy.from_message(*own).mode(obs).item() == 0.25
    with pytest.raises(WireError, match=r"'my_opponents:Slower', this run's algorithm is '.*:Fading'"):
        Policy.from_message(*opponent)
    theirs = tmp_path / "theirs.safetensors"
    assert opened.load(theirs, trust=["my_opponents"]).mode(obs).item() == 0.125
    load_policy(theirs, trust=["my_opponents"])
    assert Policy.from_message(*own).mode(obs).item() == 0.25


def test_what_cannot_be_used_ends_in_one_line():
    """The version, and why."""
    with (
        pytest.raises(
            InputError, match=r"^policy version 7 cannot be used: bad_policy: 'layers' is missing$"
        ),
        usable(7),
    ):
        policy_of({"observation": {"shape": [1], "normalize": False}}, version=7)


class Counts(Twice):
    """Remembers how often it has acted."""

    memory_size = 2

    def output(self, obs, memory):
        """The observations, as without a memory."""
        memory += 1.0
        return obs


@pytest.mark.parametrize(
    ("memory", "got"),
    [
        (None, "none"),
        (np.zeros(2), r"\(1, 2\) float64"),
        ([0.0, 0.0], "list"),
        (np.zeros(3, np.float32), r"\(1, 3\) float32"),
    ],
    ids=["none", "float64", "list", "of another size"],
)
def test_a_memory_that_the_next_one_cannot_be_written_to_is_named(monkeypatch, memory, got):
    """NumPy's default dtype among them: a converted copy would never come back to who holds it."""
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(Counts)
    policy = policy_of({**DESCRIPTION, "observation": {"shape": [3]}}, version=1)
    kept = np.zeros(2, np.float32)
    assert policy(np.zeros(3, np.float32), kept).shape == (1,)
    assert kept.tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match=f"takes a memory of shape .*; got {got}"):
        policy(np.zeros(3, np.float32), memory)
