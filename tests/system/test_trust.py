"""The last lines of a run in a user's own code: each command works as it stands."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.launcher import closing
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from tests.system.conftest import Run, thorough_but

ENVIRONMENT = """
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

def make(render_mode=None):
    return TimeLimit(CartPoleEnv(render_mode=render_mode), 50)
"""
ALGORITHM = """
from spreeze_zmq.algorithms.dqn import DQN

class Leaning(DQN):
    def act(self, obs, greedy):
        return (self.q(obs)[:, 0] + obs[:, 2] > 0).long()
"""
TOPOLOGY = """
run = { env = "own_env:make", algorithm = "own_algorithm:Leaning", stop = { env_steps = 600 } }
algorithm = { hidden_sizes = [16], batch_size = 32, learning_starts = 100 }
components.sampler = { count = 1, envs = 4 }
components.evaluator = { episodes = 2, confirm_episodes = 2 }
"""


@pytest.fixture(scope="module")
def own_run(tmp_path_factory):
    """A short run of an environment and a policy class in the topology's folder, and what it said."""
    code = tmp_path_factory.mktemp("code")
    for name, text in (("own_env.py", ENVIRONMENT), ("own_algorithm.py", ALGORITHM), ("own.toml", TOPOLOGY)):
        (code / name).write_text(text)
    with pytest.MonkeyPatch.context() as shell:  # an activated environment
        shell.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        run = Run(code / "run", topology=str(code / "own.toml"))
        try:
            assert run.end() == 0, run.said()
        finally:
            run.clear()
        yield run


def hints(lines):
    """What the last lines of a run tell to type, by its purpose."""
    named = (line.partition(":") for line in lines)
    return {what: how.strip() for what, _, how in named if how.strip()}


@pytest.mark.long("four programs import torch for a user's policy")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("marked", "what", "more"),
    thorough_but(
        (True, "evaluate it", ""),
        of=[
            (marked, what, more)
            for marked in (True, False)
            for what, more in (
                ("evaluate it", ""),
                ("in Python", "; assert policy([1, 0, 0, 0]) <= 1"),
                ("watch it", " --video own.mp4"),
                ("train on", " --check"),
            )
        ],
    ),
)
def test_what_the_last_lines_say_works_as_it_stands(own_run, tmp_path, monkeypatch, marked, what, more):
    """Typed in another folder. Where the run could leave no mark, as with a home that cannot be written, the
    commands say what is trusted and where it is.
    """
    monkeypatch.chdir(tmp_path)
    code, lines = own_run.folder.parent, own_run.output.read_text().splitlines()
    words = "--trust own_env --trust own_algorithm"
    assert words not in own_run.output.read_text()
    if not marked:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no home"))
        folder, ended = RunFolder(own_run.folder), own_run.summary()["exit_reason"]
        lines = closing.closing_lines(folder, Plan.read(folder.run_file), ended, [], None, "")
        assert hints(lines)["evaluate it"] == f"PYTHONPATH={code} spreeze eval {own_run.folder} {words}"
    if what == "watch it" and shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg")
    command = hints(lines)[what] + more
    if what == "in Python":
        command = f"python -c {shlex.quote(command)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
