"""Whole runs that end as they should: the main job, resume, processes started by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.system.conftest import LAUNCH, adds_up

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_the_main_job_solves_pendulum(launch):
    """Evaluated at -200 or better; the policy's file alone plays its score again; every figure of the summary
    is there.
    """
    run = launch()
    assert run.end(240) == 0, run.said()
    summary = run.summary()
    print(f"\npendulum: {summary['best_return']:.1f} after {summary['wall_s']:.1f} s")
    assert summary["best_return"] >= -200
    assert summary["exit_reason"].startswith("return")
    assert adds_up(summary["samples"])
    assert summary["failures"] == []
    assert summary["restarts"] == 0
    assert summary["trained_transitions"] == 256 * summary["critic_updates"]
    assert 0 < summary["replay_ratio"]["measured"] <= summary["replay_ratio"]["target"] == 32
    assert run.leftovers() == []
    played = subprocess.run(
        [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "eval", str(run.folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    again = float(played.split("mean return ")[1].split()[0])
    assert again == pytest.approx(summary["best_return"], abs=0.01)
    events = EventAccumulator(str(run.folder)).Reload()
    assert {"eval/mean_reward", "rollout/ep_rew_mean", "time/fps"} <= set(events.Tags()["scalars"])
    steps = [event.step for event in events.Scalars("eval/mean_reward")]
    assert steps == sorted(steps)
    assert steps[-1] > 1000
    for line in (run.folder / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["t_s"] >= 0


def test_resume_goes_on_from_the_last_checkpoint(launch):
    """Networks, optimisers and counters: the second run begins where the first one ended."""
    first = launch("--set", "run.stop.env_steps=6000", "--set", "run.stop.return=0")
    assert first.end() == 0, first.said()
    before = first.summary()
    second = launch(
        "--resume", str(first.folder), "--set", "run.stop.return=0", "--set", "run.stop.env_steps=12000"
    )
    assert second.end() == 0, second.said()
    after = second.summary()
    assert 12000 <= after["env_steps"] < 12000 + 4000
    assert after["critic_updates"] > before["critic_updates"]
    assert after["samples"]["received"] < after["env_steps"] - 5000
    assert adds_up(after["samples"])
    assert "going on from" in second.said()


def test_the_replay_goes_along_where_the_topology_asks(launch):
    """With ``save_replay`` the resumed run trains at once on what was collected before."""
    ask = ("--set", "run.save_replay=true", "--set", "run.stop.return=0")
    first = launch(*ask, "--set", "run.stop.env_steps=6000")
    assert first.end() == 0, first.said()
    second = launch(*ask, "--set", "run.stop.env_steps=9000", "--resume", str(first.folder))
    assert second.end() == 0, second.said()
    sizes = [json.loads(line) for line in (second.folder / "metrics.jsonl").read_text().splitlines()]
    assert second.said().count("the replay is back") == 2
    assert sizes
    assert adds_up(second.summary()["samples"])


def test_resume_of_what_has_no_checkpoint_is_refused(tmp_path):
    """One clear line, exit code 2."""
    done = subprocess.run(
        [*LAUNCH, "pendulum", "--resume", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "no complete checkpoint" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_component_by_hand_takes_the_place_that_was_left_free(launch):
    """``--without sampler`` trains once a sampler is started by hand, and stops it with the rest."""
    run = launch("--without", "sampler", "--set", "run.stop.env_steps=4000", "--set", "run.stop.return=0")
    run.until(lambda: len(run.processes()) == 4, "four processes")
    assert "components/sampler" in run.output.read_text()
    by_hand = subprocess.Popen(
        [sys.executable, str(ROOT / "components/sampler"), str(run.folder / "run.json")],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.end() == 0, run.said()
    assert by_hand.wait(10) == 0
    assert "ready" in by_hand.stderr.read()
    assert run.summary()["env_steps"] >= 4000
    assert run.leftovers() == []


def test_two_runs_at_once_do_not_disturb_each_other(launch):
    """Each has its own sockets."""
    runs = [launch("--set", "run.stop.env_steps=3000", "--set", "run.stop.return=0") for _ in range(2)]
    assert [run.end(90) for run in runs] == [0, 0]
    for run in runs:
        assert adds_up(run.summary()["samples"])
        assert run.summary()["restarts"] == 0
