"""Learning from pixels through real processes: a task that only a stack of images tells how to solve."""

import json
import re
import subprocess

import pytest

from spreeze_zmq.commands import spreeze
from spreeze_zmq.policy import Policy
from tests.system.conftest import LAUNCH, adds_up, reached, said_in, thorough_but
from tests.system.drift import BEST_RETURN

DRIFT = (
    *("--set", "run.env=tests.system.drift:Drift"),
    *("--set", "run.env_kwargs.channels=3"),
    *("--set", "run.stop.return=14"),
    *("--set", "run.stop.minutes=10"),
    *("--set", "algorithm.frame_stack=2"),
)
DQN = (
    *("--set", "algorithm.network=nature_cnn"),
    *("--set", "algorithm.batch_size=32"),
    *("--set", "algorithm.replay_capacity=4000"),
    *("--set", "balance.replay_ratio=4"),
)
PPO = (
    *("--set", "algorithm.network=small_cnn"),
    *("--set", "algorithm.normalize_observations=true"),
    *("--set", "algorithm.batch_size=256"),
    *("--set", "algorithm.epochs=4"),
    *("--set", "algorithm.learning_rate=5e-4"),
    *("--set", "components.sampler.envs=16"),
    *("--set", "components.sampler.rollout_steps=64"),
)


@pytest.mark.long("convolutions are trained")
@pytest.mark.parametrize(
    ("topology", "settings"),
    thorough_but(("cartpole_dqn", DQN), of=[("cartpole_dqn", DQN), ("cartpole", PPO)]),
)
@pytest.mark.timeout(700)
def test_a_task_that_needs_a_stack_of_images_is_learned(launch, topology, settings):
    """A random policy's return is 0 on average, and so is that of every policy that sees one image, whose
    returns of -16 and 16 thirty fresh episodes tell from a learned one; `spreeze eval` stacks as the run did.
    """
    run = launch(*DRIFT, *settings, topology=topology)
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert reached(summary, 14), run.said()
    assert summary["best_return"] <= BEST_RETURN + 1
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert summary["failures"] == []
    policy = Policy.load(run.folder / "policy.safetensors")
    assert policy.description["observation"]["stack"] == 2
    assert policy.description["observation"]["channels_last"] is True
    seed = policy.metadata["evaluation_seed"]
    code, said, errors = said_in(run.folder, "eval", run.folder, "--seed", seed, main=spreeze.main)
    assert code == 0, errors
    again, claimed = re.search(r"mean return ([-0-9.]+) .*when it was saved: ([-0-9.]+)", said, re.S).groups()
    assert again == claimed


@pytest.mark.thorough
@pytest.mark.timeout(420)
def test_a_ball_of_one_pixel_is_learned_by_the_defaults_alone(tmp_path):
    """Nothing is said but the environment; a random policy catches one ball of seven, a return of -7."""
    words = ["--env", "tests.system.catch:Catch", "--run-dir", tmp_path / "run"]
    words += ["--set", "run.stop.return=8", "--set", "run.stop.minutes=6"]
    done = subprocess.run([*LAUNCH, *words], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reached(json.loads((tmp_path / "run" / "summary.json").read_text()), 8), done.stdout


SWING = (
    *("--set", "run.env_kwargs.repeat=2"),
    *("--set", "algorithm.frame_stack=3"),
    *("--set", "algorithm.replay_capacity=30000"),
    *("--set", "algorithm.batch_size=64"),
    *("--set", "algorithm.reference_batch_size=64"),
    *("--set", "algorithm.learning_rate=1e-3"),
    *("--set", "algorithm.hidden_sizes=[128,128]"),
    *("--set", "algorithm.tau=0.02"),
    *("--set", "balance.replay_ratio=16"),
    *("--set", "components.sampler.count=1"),
)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_pendulum_is_swung_up_and_held_by_its_images(tmp_path):
    """By SAC; a random policy's return is -1,200, and one image does not show the velocity. The saved policy
    is whole, and goes to ONNX.
    """
    folder, onnx = tmp_path / "run", tmp_path / "policy.onnx"
    words = ["--env", "tests.system.swing:Swing", "--algorithm", "sac", "--run-dir", folder, *SWING]
    words += ["--set", "run.stop.return=-250", "--set", "run.stop.minutes=13"]
    done = subprocess.run([*LAUNCH, *words], capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reached(json.loads((folder / "summary.json").read_text()), -250), done.stdout
    kinds = [layer["kind"] for layer in Policy.load(folder).description["layers"]]
    assert kinds.count("conv2d") == 2
    code, _, errors = said_in(tmp_path, "export", folder, "--onnx", onnx, main=spreeze.main)
    assert code == 0, errors
