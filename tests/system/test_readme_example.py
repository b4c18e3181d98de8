"""The MuJoCo task of the environments' README, word for word, trains."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq import envs
from tests.system.conftest import reached

README = Path(envs.__file__).parent / "README.md"


def code_blocks(section):
    """The indented blocks below a heading of the README."""
    text = README.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=\n*    ))+", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks if block.strip()]


def random_return(env_id):
    """Mean return of uniform actions over whole episodes."""
    env = envs.make(env_id, 32, seed=1)
    env.reset()
    returns = []
    while len(returns) < 32:
        info = env.step(env.action_space.sample())[4]
        if "episode" in info:
            returns += info["episode"]["r"][info["_episode"]].tolist()
    return float(np.mean(returns))


@pytest.mark.long("a run trains to its return")
@pytest.mark.timeout(700)
def test_the_readmes_mujoco_task_trains(tmp_path, launch, monkeypatch):
    """Copied into two files, launched as it says: the best return leaves the random policy's far behind."""
    task, topology = code_blocks("Your own MuJoCo task")
    (tmp_path / "swing_up.py").write_text(task)
    (tmp_path / "swing_up.toml").write_text(topology)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert random_return("swing_up:SwingUp") < 10
    run = launch("--set", "run.stop.return=20", "--set", "run.stop.minutes=10", topology="swing_up.toml")
    assert run.end(630) == 0, run.said()
    assert reached(run.summary(), 20), run.said()
    assert set(run.plan()["run"]["randomize"]) == {"body_mass", "dof_damping", "opt"}
