"""Action masks through real processes: from the environment to the policy that is taken away."""

import numpy as np
import pytest

from spreeze_zmq.commands import spreeze
from spreeze_zmq.policy import Policy
from tests.masked import LENGTH, Game
from tests.system.conftest import adds_up, reached, said_in, thorough_but

WORDS = (
    *("--set", "run.env=tests.masked:Game"),
    *("--set", "run.stop.return=9.99"),
    *("--set", "run.stop.minutes=10"),
    *("--set", "algorithm.learning_rate=3e-3"),
)


@pytest.mark.long("a game is learned by a run")
@pytest.mark.parametrize("name", thorough_but("discrete_sac", of=("discrete_sac", "dqn", "ppo", "pqn")))
@pytest.mark.timeout(700)
def test_a_run_learns_a_game_that_illegal_moves_end(launch, tmp_path, name):
    """To its optimum, with masks of a Dict's part; the saved policy makes no illegal move, in Python as in
    ONNX, and asks for the mask where there is none.
    """
    topology = tmp_path / "game.toml"
    topology.write_text(f'[run]\nenv = "tests.masked:Game"\nalgorithm = "{name}"\n')
    run = launch(*WORDS, "--set", "run.env_kwargs.form=part", topology=str(topology))
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert reached(summary, 9.99), run.said()
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert summary["failures"] == []
    policy, onnx = Policy.load(run.folder), tmp_path / "policy.onnx"
    assert policy.takes_masks
    code, said, errors = said_in(tmp_path, "export", run.folder, "--onnx", onnx, main=spreeze.main)
    assert code == 0, errors
    assert "flattened by gymnasium.spaces.flatten and action_mask bool [batch, 4] to action" in said
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    game = Game(form="part")
    for seed in range(20):
        obs, _ = game.reset(seed=seed)
        for _ in range(LENGTH):
            mask = obs["action_mask"]
            inputs = {"obs": np.concatenate([mask, obs["context"]], dtype=np.float32)[None]}
            (action,) = session.run(None, {**inputs, "action_mask": mask[None].astype(bool)})[0]
            assert action == policy(obs)
            obs, reward, *_ = game.step(action)
            assert reward == 1.0


def test_a_wrong_mask_is_one_line_before_anything_starts(tmp_path):
    """Exit code 2, with the environment, the step and the place."""
    words = ["--env", "tests.masked:Game", "--set", "run.env_kwargs.fault=zeros", "--check"]
    words += ["--algorithm", "dqn", "--set", "run.env_kwargs.at=1"]
    code, *both = said_in(tmp_path, *words)
    said = "".join(both)
    assert code == 2, said
    assert "returned from step info['action_mask'] = [0 0 0 0], which allows no action" in said
    assert "Traceback" not in said
