"""The algorithms' README, word for word: its example trains, and its first answer does."""

import re
import textwrap
from pathlib import Path

import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.sac import SAC
from tests.system.conftest import reached
from tests.system.test_readme_example import random_return

README = Path(algorithms.__file__).parent / "README.md"


def code_blocks(section):
    """The indented blocks below a heading."""
    text = README.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=\n*    ))+", text, re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") + "\n" for block in blocks if block.strip()]


def write_example(folder):
    """The example's two files in ``folder``; returns the topology's path."""
    code, topology = code_blocks("A complete example: REDQ")
    (folder / "redq.py").write_text(code)
    (folder / "redq.toml").write_text(topology)
    return folder / "redq.toml"


@pytest.mark.long("ten critics are trained")
@pytest.mark.timeout(700)
def test_the_readmes_algorithm_trains(tmp_path, launch):
    """Under 100 lines, and far beyond what random actions reach, on a task that is learned sooner."""
    topology = write_example(tmp_path)
    assert len((tmp_path / "redq.py").read_text().splitlines()) < 100
    assert random_return("InvertedPendulum-v5") < 15
    small = ("--set", "algorithm.batch_size=64", "--set", "balance.replay_ratio=8")  # as many updates
    stop = ("--set", "run.stop.return=60", "--set", "run.stop.minutes=10")
    run = launch("--set", "run.env=InvertedPendulum-v5", *small, *stop, topology=str(topology))
    assert run.end(630) == 0, run.said()
    assert reached(run.summary(), 60), run.said()
    assert run.plan()["algorithm"]["num_critics"] == 10


def test_another_loss_for_an_algorithm_that_ships():
    """The first answer: the class inherits everything else."""
    names = {"SAC": SAC}
    exec(code_blocks("How do I ...")[0], names)
    kind, env = names["Calm"], envs.probe("Pendulum-v1", {})
    options = kind.Options(hidden_sizes=(8,))
    half = algorithms.make("policy", kind, options, env, "cpu", 1)
    before = half.weights.clone()
    metrics = half.update(torch.randn(4, 3))
    assert metrics["policy_loss"].isfinite()
    assert not half.weights.equal(before)
