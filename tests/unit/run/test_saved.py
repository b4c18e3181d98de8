"""Saved policies, and what a stranger's file may not do."""

import json
import re

import numpy as np
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.errors import InputError
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.saved import SavedPolicy


def save(path, env_id, **kwargs):
    """Save an untrained policy for Pendulum whose file names the environment ``env_id``."""
    spec = envs.probe("Pendulum-v1", {})
    kind = algorithms.get("sac")
    half = algorithms.make("policy", kind, kind.Options(hidden_sizes=(8,)), spec, "cpu", 1)
    fields = {"version": 1, "description": half.description(), "extras": {}}
    about = {"environment": json.dumps({**spec.to_dict(), "id": env_id, "kwargs": kwargs})}
    about |= {"mean_return": "-1", "num_episodes": "2", "evaluation_seed": "3"}
    Policy.from_message(fields, half.policy_arrays()).save(path, about)


def test_a_file_plays_where_it_was_scored(tmp_path):
    """From the file alone, for any number of episodes."""
    save(tmp_path / "mine.safetensors", "Pendulum-v1", max_episode_steps=5)
    saved = SavedPolicy.load(tmp_path / "mine.safetensors")
    assert saved.play().lengths.tolist() == [5, 5]
    np.testing.assert_allclose(saved.play(1, seed=4).returns, saved.play(2, seed=3).returns[1:], rtol=1e-5)
    with pytest.raises(InputError, match="episodes is 0, at least 1 is expected"):
        saved.play(0)


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
    assert "when it was saved: -1.00 in 2 episodes (policy version 1; --seed 3 repeats them)" in first
    assert "confirm nothing" in of_the_score
    assert "confirm nothing" not in first


def test_the_environment_of_a_strange_file_is_not_run(tmp_path):
    """Its module is neither imported nor called, unless it is trusted or the run's own."""
    proof = tmp_path / "proof"
    save(tmp_path / "theirs.safetensors", "os:system", command=f"touch {proof}")
    with pytest.raises(InputError, match="environment of the module 'os', whose code would run"):
        SavedPolicy.load(tmp_path / "theirs.safetensors")
    assert not proof.exists()
    own = tmp_path / "own" / "run"
    own.mkdir(parents=True)
    (tmp_path / "own" / "saved_module.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('Pendulum-v1', max_episode_steps=4)\n"
    )
    save(own / "policy.safetensors", "saved_module:make")
    with pytest.raises(InputError, match="--trust saved_module"):
        SavedPolicy.load(own)
    plan = {"topology_file": str(tmp_path / "own" / "mine.toml"), "run": {"env": "saved_module:make"}}
    (own / "run.json").write_text(json.dumps(plan))
    assert SavedPolicy.load(own).play(1).lengths.tolist() == [4]
