"""A run in an environment that only its sampler knows."""

import numpy as np
import pytest

from spreeze_zmq import Policy
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.evaluation.saved import SavedPolicy
from tests.peers.broken import sampler


def test_a_sampler_of_its_own_trains_in_an_environment_that_nobody_else_makes(launch, tmp_path):
    """The sampler of PROTOCOL.md; nothing is evaluated, which is said, and the last policy is saved."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "component.toml").write_text('role = "sampler"\ncommand = ["python", "{folder}/sampler.py"]\n')
    # nobody but the sampler could know what "swing" is
    program = sampler().replace('gym.make(self.about["id"], ', 'gym.make("Pendulum-v1", ')
    (folder / "sampler.py").write_text(program)
    topology = tmp_path / "swing.toml"
    topology.write_text(
        """
[run]
env = "swing"
obs_shape = [3]
action_low = [-2.0]
action_high = [2.0]
max_episode_steps = 200
stop = { env_steps = 3000 }
[algorithm]
batch_size = 64
hidden_sizes = [32]
learning_starts = 500
[components.sampler]
use = "./mine"
count = 1
"""
    )
    run = launch(topology=str(topology))
    assert run.end() == 0, run.said()
    assert "no Python program makes swing" in run.said()
    summary = run.summary()
    assert summary["env_steps"] >= 3000
    assert summary["critic_updates"] > 100
    assert summary["evaluations"] == []
    assert "watch it" not in run.said()
    with pytest.raises(InputError, match=r"only the sampler of its run makes swing.*Policy\.load"):
        SavedPolicy.load(run.folder)
    policy = Policy.load(run.folder)
    assert policy.version > 0
    assert abs(policy(np.zeros(3, np.float32))[0]) <= 2.0
