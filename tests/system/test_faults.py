"""Each kind of process is killed in turn, and the launcher: the run goes on or ends as declared, and the
account adds up.
"""

import signal
from pathlib import Path

import pytest

from tests.system.conftest import adds_up

#: Long enough to be ended by the test, and no return that would end it before.
ENDLESS = (
    "--set",
    "run.stop.return=0",
    "--set",
    "run.stop.minutes=3",
    "--set",
    "run.checkpoint_minutes=0.05",
)


@pytest.mark.parametrize("role", ["sampler", "critic_learner", "actor_learner", "evaluator", "broker"])
def test_a_killed_process_is_started_again_and_the_run_goes_on(launch, role):
    """Its successor takes over, training goes on, and in the end every sample is accounted for."""
    run = launch(*ENDLESS)
    run.until_training()
    name = f"{role}-0"
    killed = run.kill(name)
    run.until(lambda: run.pid(name) not in (None, killed), f"another {name}")
    before = run.summary()["actor_updates"]
    run.until(lambda: run.summary().get("restarts") == 1, "a restart in the summary")
    run.until(lambda: run.summary()["actor_updates"] > before + 50, "training that goes on")
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    for samples in summary["samples_by_channel"].values():
        assert adds_up(samples), summary
        assert samples["produced"] > 0
    assert summary["failures"][0]["name"] == name
    assert "SIGKILL" in summary["failures"][0]["summary"]
    assert run.leftovers() == []
    assert "the first failure was" in run.output.read_text()


def test_a_killed_launcher_leaves_nothing_behind(launch):
    """No process, no socket; the broker still writes the summary."""
    run = launch(*ENDLESS)
    run.until_training()
    assert len(run.processes()) == 5
    run.launcher.kill()
    run.launcher.wait()
    assert run.leftovers() == []
    assert "launcher" in run.summary()["exit_reason"]


def test_a_component_that_always_crashes_ends_the_run_with_its_own_traceback(launch, tmp_path):
    """The first failure is printed last, with the log's path; exit code 1."""
    folder = tmp_path / "sampler_that_fails"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "components" / "sampler" / "component.toml"
    (folder / "component.toml").write_text(shipped.read_text())
    (folder / "__main__.py").write_text("def step():\n    raise RuntimeError('the arm is jammed')\nstep()\n")
    run = launch("--set", f"components.sampler.use={folder}")
    assert run.end() == 1
    tail = run.output.read_text().splitlines()[-12:]
    assert any("RuntimeError: the arm is jammed" in line for line in tail), tail
    assert any(str(run.folder / "logs" / "sampler-0.log") in line for line in tail), tail
    assert run.leftovers() == []


def test_a_process_that_hangs_is_found_and_replaced(launch):
    """SIGSTOP: it lives and says nothing."""
    run = launch(*ENDLESS, "--set", "components.broker.heartbeat_timeout_s=4")
    run.until_training()
    hung = run.processes()["sampler-0"]
    hung.send_signal(signal.SIGSTOP)
    run.until(lambda: run.summary().get("restarts") == 1, "a restart")
    run.until(lambda: run.pid("sampler-0") not in (None, hung.pid), "another sampler-0")
    run.interrupt()
    assert run.end() == 0
    assert adds_up(run.summary()["samples"])


def test_ctrl_c_ends_the_run_well(launch):
    """Exit code 0, a checkpoint, a summary that says who ended it, nothing left."""
    run = launch(*ENDLESS)
    run.until_training()
    run.interrupt()
    assert run.end() == 0
    assert run.summary()["exit_reason"] == "interrupted by the user"
    assert list((run.folder / "checkpoints").glob("*/MANIFEST.json"))
    assert run.leftovers() == []
