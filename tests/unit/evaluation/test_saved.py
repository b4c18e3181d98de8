"""Saved policies, and what a stranger's file may not do."""

import json
import re
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.evaluation.arena import Arena
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.saved import SavedPolicy
from spreeze_zmq.plan import topology
from spreeze_zmq.policy import Policy
from tests.unit.envs import own_environments

OWN = "tests.unit.envs.own_environments"


def save(path, env_id, **kwargs):
    """Save an untrained policy for Pendulum whose file names the environment ``env_id``."""
    save_for(path, {**pendulum().to_dict(), "id": env_id, "kwargs": kwargs}, "sac")


@cache
def pendulum():
    """What is known of Pendulum-v1, looked at once."""
    return envs.probe("Pendulum-v1", {})


def save_for(path, spec, name, **more):
    """Save an untrained policy of an algorithm for an environment."""
    about = {"environment": json.dumps(spec)}
    about |= {"mean_return": "-1", "num_episodes": "2", "evaluation_seed": "3"}
    untrained(json.dumps(spec), name).save(path, about | more)


@cache
def untrained(spec, name):
    """A policy of an algorithm for an environment, made once: a learner's half tries its layers."""
    kind = algorithms.get(name)
    part = "policy" if kind.has_policy_loss() else "critic"
    env = envs.EnvironmentSpec.from_dict(json.loads(spec))
    half = algorithms.make(part, kind, kind.Options(hidden_sizes=(8,)), env, "cpu", 1)
    fields = {"version": 1, "description": half.description(), "extras": {}}
    return Policy.from_message(fields, half.policy_arrays())


@pytest.mark.parametrize("randomize", ["[[1, 2]]", "[]", "5", '"mass"', "{"])
def test_ranges_that_are_no_table_are_refused_in_a_line(tmp_path, randomize):
    """The file may be anybody's."""
    path = tmp_path / "theirs.safetensors"
    save_for(path, envs.probe("Pendulum-v1", {}).to_dict(), "sac", randomize=randomize)
    with pytest.raises(InputError, match="does not say where it was scored"):
        SavedPolicy.load(path)


def test_a_policy_of_an_environment_that_nobody_makes_here_is_exported(tmp_path, capsys):
    """It is played nowhere, and so has no score; what its file says of the spaces is enough."""
    path, spec = tmp_path / "policy.safetensors", {**pendulum().to_dict(), "id": "swing", "described": True}
    untrained(json.dumps(spec), "sac").save(path, {"environment": json.dumps(spec)})
    assert main(["export", str(path), "--torchscript", str(tmp_path / "swing.pt")]) == 0
    assert "swing.pt: obs float32 [batch, 3] to action" in capsys.readouterr().out
    assert main(["eval", str(path)]) == 2
    assert "only the sampler of its run makes swing" in capsys.readouterr().err


def test_an_export_of_what_no_run_saved_is_refused_in_a_line(tmp_path, capsys):
    """Nothing says what its input is."""
    path = tmp_path / "policy.safetensors"
    untrained(json.dumps(pendulum().to_dict()), "sac").save(path, {})
    assert main(["export", str(path), "--torchscript", str(tmp_path / "swing.pt")]) == 2
    assert "it was not saved by a run" in capsys.readouterr().err


def test_a_file_plays_where_it_was_scored(tmp_path):
    """From the file alone, for any number of episodes."""
    save(tmp_path / "mine.safetensors", "Pendulum-v1", max_episode_steps=5)
    saved = SavedPolicy.load(tmp_path / "mine.safetensors")
    assert saved.play().lengths.tolist() == [5, 5]
    np.testing.assert_allclose(saved.play(1, seed=4).returns, saved.play(2, seed=3).returns[1:], rtol=1e-5)
    with pytest.raises(InputError, match="episodes is 0, at least 1 is expected"):
        saved.play(0)


def test_environments_with_a_number_each_are_played_in_turn_with_one_that_no_live_run_has(tmp_path):
    """A run's page, films, evaluator and samplers have those from 1 on; the episodes are the same."""
    path, spec = tmp_path / "mine.safetensors", envs.probe(f"{OWN}:Simulator", {})
    returns = {}
    for port in (5000, "50{index:02d}"):
        save_for(path, {**spec.to_dict(), "kwargs": {"port": port}}, "sac")
        own_environments.Simulator.ports.clear()
        returns[port] = SavedPolicy.load(path, trust=[OWN]).play(3, seed=5).returns.tolist()
    assert (own_environments.Simulator.ports, len(set(returns[port])), returns[port]) == (
        ["5000"],
        3,
        returns[5000],
    )


def test_eval_says_where_all_episodes_are_the_same(tmp_path, capsys):
    """Its mean has no interval then."""
    path = tmp_path / "mine.safetensors"
    for chance in (False, True):
        save(path, f"{OWN}:Again", max_episode_steps=5, chance=chance)
        assert main(["eval", str(path), "--episodes", "9", "--trust", OWN]) == 0
        said = capsys.readouterr().out
        assert ("all 9 episodes were the same, from their first observation" in said) is not chance
        assert ("its mean lies between" in said) is chance


def test_eval_says_that_its_environment_was_edited_since_the_run(tmp_path, capsys):
    """Another score would be taken for another policy's."""
    path = tmp_path / "policy.safetensors"
    save(path, f"{OWN}:Again", max_episode_steps=5)
    plan = topology.load({"run": {"env": f"{OWN}:Again", "algorithm": "sac"}})
    (name, *_) = plan.own_code["environment"]
    for code in (plan.own_code, {"environment": {**plan.own_code["environment"], name: "1"}}):
        (tmp_path / "run.json").write_text(replace(plan, own_code=code).to_json())
        assert main(["eval", str(path), "--trust", OWN]) == 0
        says = f"this is not the environment that it was trained in: {name} changed since"
        assert (says in capsys.readouterr().out) == (code is not plan.own_code)


def test_eval_plays_fresh_episodes_and_names_their_seed(tmp_path, capsys):
    """To repeat the episodes of the score would look like a confirmation of it."""
    path = tmp_path / "mine.safetensors"
    save(path, "Pendulum-v1", max_episode_steps=5)

    def said(*arguments):
        assert main(["eval", str(path), *arguments]) == 0
        return capsys.readouterr().out

    first, second, of_the_score = said(), said(), said("--seed", "3")
    assert first.splitlines()[:2] != second.splitlines()[:2]
    assert said("--seed", re.search(r"episodes \(--seed (\d+) repeats them\)", first)[1]) == first
    assert first.endswith(" in 2 episodes, which also chose it (policy version 1; --seed 3 repeats them)\n")
    assert "confirm nothing" in of_the_score
    assert "confirm nothing" not in first
    assert re.search(r"mean return -[0-9.]+ over 1 episode \(", said("--episodes", "1"))


HERE = "tests.unit.evaluation.test_saved"


class Cents(own_environments.Count):
    """Each step pays a ten-thousandth of what the action is."""

    def step(self, action):
        """Count."""
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1e-4 * (1 + action[0] ** 2), terminated, truncated, info


@pytest.mark.parametrize(
    ("final", "episodes"), [({}, "episodes, which also"), ({"final": "True"}, "fresh ep")]
)
def test_eval_tells_small_returns_apart_and_what_chose_the_policy(tmp_path, capsys, final, episodes):
    """Of a score that chose it only some episodes may be fresh."""
    path, spec = tmp_path / "mine.safetensors", envs.probe(f"{HERE}:Cents").to_dict()
    save_for(path, spec, "sac", confirmed="True", **final)
    assert main(["eval", str(path), "--trust", HERE]) == 0
    said = capsys.readouterr().out
    returns = [float(text) for text in re.findall(r"return ([^ ,]+)", said)]
    low, high = re.search(r"between (\S+) and (\S+) ", said).groups()
    assert all(3e-4 <= value <= 6e-4 for value in returns)
    assert len(returns) == 3
    assert float(low) <= returns[-1] <= float(high) < 0.01
    assert f"-1.00 in 2 {episodes}" in said


@pytest.mark.parametrize(("several", "name"), [(False, "dqn"), (True, "ppo")])
def test_a_policy_acts_in_an_environment_whose_actions_have_a_start(tmp_path, several, name):
    """``policy(obs)`` gives the environment's own actions, ``play`` shifts them once, and files of earlier
    versions count from 0.
    """
    path, spec = tmp_path / "policy.safetensors", envs.probe(f"{OWN}:shifted", {"several": several})
    save_for(path, spec.to_dict(), name)
    policy, env, total, over = Policy.load(path), own_environments.shifted(several), 0.0, False
    obs, _ = env.reset(seed=3)
    while not over:
        action = policy(obs)
        assert np.array_equal(policy(obs[None]), [action])
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + reward, terminated or truncated
    assert SavedPolicy.load(path, trust=[OWN]).play(1, seed=3).returns.tolist() == [total]
    earlier = {field: value for field, value in spec.to_dict().items() if field != "action_start"}
    save_for(path, earlier, name)
    assert np.array_equal(Policy.load(path)(obs) + spec.action_start, np.atleast_1d(action))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ([[0.0]], "expected a pair of numbers or null"),
        ([["a", None], [0.0, 1.0]], "expected a pair"),
        ("0", "expected a pair"),
        ([[0.0, 1.0]] * 3, "bounds 3 actions, the policy gives"),
    ],
)
def test_limits_that_do_not_fit_the_policy_are_refused(tmp_path, limits, said):
    """The file may be anybody's."""
    path, spec = tmp_path / "policy.safetensors", envs.probe(f"{OWN}:bounded_in_part").to_dict()
    assert spec["action_limits"] == [[0.0, None], [-1.0, 1.0]]
    save_for(path, spec, "ppo")
    policy = Policy.load(path)
    assert policy(np.full((9, 2), -3.0, np.float32))[:, 0].min() >= 0.0
    policy.save(path, {"environment": json.dumps({**spec, "action_limits": limits})})
    with pytest.raises(InputError, match=said):
        Policy.load(path)(np.zeros(2, np.float32))


def test_a_start_that_does_not_fit_the_policy_is_refused(tmp_path):
    """The file may be anybody's."""
    path, spec = tmp_path / "policy.safetensors", envs.probe(f"{OWN}:shifted").to_dict()
    for start, said in (([1, 2], "2 numbers for 1 discrete"), (["1"], "expected a list of integers")):
        save_for(path, {**spec, "action_start": [1]}, "dqn")
        policy = Policy.load(path)
        policy.save(path, {"environment": json.dumps({**spec, "action_start": start})})
        with pytest.raises(InputError, match=said):
            Policy.load(path)


RANGES = {"body_mass": [0.5, 2.0], "opt.gravity": [0.5, 1.5]}


def test_a_policy_scored_on_models_that_vary_is_played_on_them_again(tmp_path, capsys):
    """With the seed of its score its returns come again; a window can show the nominal model alone."""
    spec, path = envs.probe("HalfCheetah-v5", {"max_episode_steps": 20}), tmp_path / "mine.safetensors"
    save_for(path, spec.to_dict(), "sac")
    arena = Arena(spec, 3, options={"randomize": RANGES})
    with closing(arena):
        one = Contestant(Policy.load(path), seed=3)
        one.take(play(arena.batch(3), one.policy, 3), 1.0)
        one.save(path, arena.spec, arena.step_cap, arena.randomize)
    saved = SavedPolicy.load(path)
    np.testing.assert_allclose(saved.play(seed=saved.seed).returns, one.returns, rtol=1e-5)
    assert main(["play", str(path), "--video", str(tmp_path / "no.avi")]) == 2
    assert capsys.readouterr().out == (
        "on the nominal model; its score is of models that vary: body_mass, opt.gravity\n"
    )
