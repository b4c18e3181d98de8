"""The README's first command, the main job: what it reaches, and what a person sees of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spreeze_zmq.commands import spreeze
from spreeze_zmq.policy import Policy
from tests.system.conftest import LAUNCH, Left, adds_up, reached, said_in
from tests.system.test_terminal import DEADLINE_S, ROLES, Terminal

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def main_job(tmp_path_factory):
    """The run, and the small terminal without colour that it was started in."""
    folder = tmp_path_factory.mktemp("main") / "run"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # an activated environment
    command = [*LAUNCH, "pendulum", "--run-dir", str(folder)]
    terminal = Terminal(command, rows=12, columns=60, NO_COLOR="1", PATH=path)
    code = terminal.run()
    assert code == 0, terminal.text()
    return SimpleNamespace(run=Left(folder), terminal=terminal)


@pytest.mark.long("the main job trains to its return")
def test_the_main_job_solves_pendulum(main_job):
    """Evaluated at -200 or better; the policy's file alone plays its score again; every figure of the summary
    is there.
    """
    run = main_job.run
    summary = run.summary()
    print(f"\npendulum: {summary['best_return']:.1f} after {summary['wall_s']:.1f} s")
    assert reached(summary, -200)
    assert adds_up(summary["samples"])
    assert summary["failures"] == []
    assert summary["restarts"] == 0
    assert summary["trained_transitions"] == 256 * summary["critic_updates"]
    assert 0 < summary["replay_ratio"]["measured"] <= summary["replay_ratio"]["target"] == 32
    sampled = summary["sampled_transitions"]
    assert summary["replay_ratio"]["measured"] == summary["trained_transitions"] / sampled
    # Rollouts in flight when training stops are received, too: some 2,500 of 10,000 in the shortest runs.
    assert 0.5 * summary["samples"]["received"] < sampled <= summary["samples"]["received"]
    assert run.leftovers() == []
    seed = Policy.load(run.folder).metadata["evaluation_seed"]
    code, played, errors = said_in(run.folder, "eval", run.folder, "--seed", seed, main=spreeze.main)
    assert code == 0, errors
    again = float(played.split("mean return ")[1].split()[0])
    assert again == pytest.approx(summary["best_return"], abs=0.01)
    events = EventAccumulator(str(run.folder)).Reload()
    assert {"eval/mean_reward", "rollout/ep_rew_mean", "time/fps"} <= set(events.Tags()["scalars"])
    steps = [event.step for event in events.Scalars("eval/mean_reward")]
    assert steps == sorted(steps)
    assert steps[-1] > 1000
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["t_s"] >= 0


def test_the_readmes_first_command_ends_with_what_was_reached_and_what_can_be_done_with_it(keep, main_job):
    """On a small screen without colour: the returns to the end, then commands that work as they stand."""
    run, terminal = main_job.run.folder, main_job.terminal
    text = terminal.text()
    keep(terminal.screens[len(terminal.screens) // 2], "60x12 without colour, half-way")
    keep(terminal.screens[-1], "60x12 without colour, at the end")
    assert "Traceback" not in text
    assert "cannot be shown" not in text
    assert not any(f"\x1b[{number}m".encode() in terminal.written for number in range(30, 50))
    assert not any(f";{number}m".encode() in terminal.written for number in range(30, 50))
    for word in ("training", "evaluation", "best", *ROLES):
        assert word in text, word
    whole = "".join(terminal.scrolled())  # long commands go on in the next line
    assert "ended after" in whole
    returned = r"return\s+(-200\s+reached|\S+\s+>=\s+-200)"  # the second if the last episodes were worse
    assert re.search(returned, whole), whole
    assert f"spreeze-launch --resume {run}" in whole
    python = f'from spreeze_zmq import Policy; policy = Policy.load("{run}")'
    assert python in whole
    play = [sys.executable, "-c", python + "; print(abs(float(policy([1, 0, 0])[0])) <= 2)"]
    assert (
        subprocess.run(play, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
        == "True\n"
    )
    for command in ("play", "eval", "view"):
        assert f"spreeze {command} {run}" in whole
        with pytest.raises(SystemExit, match="0"):  # not 2: there is such a command
            spreeze.main([command, "--help"])
