"""A whole run in one process, for one debugger."""

import sys

import psutil
import pytest

from tests.system.conftest import adds_up
from tests.system.terminal import Terminal, place_of_update
from tests.unit.supervisor.lives import words_of

SMALL = ("--inproc", "--without", "visualizer", "--set", "algorithm.hidden_sizes=[16]")


def logs_of(run):
    """Name -> what each component has logged so far."""
    return {path.stem: path.read_text() for path in (run.folder / "logs").glob("*.log")}


def test_a_run_in_one_process_trains_and_ends_at_ctrl_c(launch):
    """No component is a process; updates, checkpoint, account and logs are those of any run."""
    run = launch(*SMALL, "--set", "run.stop.minutes=6", "--set", "run.stop.return=0")
    run.until_training()
    run.until(lambda: all("ready after" in text for text in logs_of(run).values()), "components")
    children = psutil.Process(run.launcher.pid).children(recursive=True)
    assert not any("components" in " ".join(words_of(child)) for child in children)
    assert run.processes() == {}
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert summary["critic_updates"] >= 50
    assert summary["exit_reason"].startswith("interrupted")
    assert adds_up(summary["samples"])
    assert list((run.folder / "checkpoints").iterdir())
    logs = logs_of(run)
    assert set(logs) >= {"broker-0", "critic_learner-0", "actor_learner-0", "sampler-0", "evaluator-0"}
    for name, text in logs.items():
        assert "ready after" in text, name
        assert "stopped: " in text, name
    assert run.leftovers() == []


@pytest.mark.long("a debugger slows a whole run")
@pytest.mark.timeout(400)
def test_a_breakpoint_in_any_component_holds_the_run(tmp_path):
    """pdb asks in the learner's thread; afterwards the run goes on, and Ctrl-C ends it."""
    # while it is debugged torch would be imported for as long as all the rest takes
    begun = "import pdb, torch; from spreeze_zmq.commands.launch import main; pdb.run('main()')"
    words = [sys.executable, "-c", begun, "cartpole_dqn", *SMALL]
    words += [
        "--run-dir",
        str(tmp_path / "run"),
        "--set",
        "run.stop.minutes=6",
        "--set",
        "run.stop.return=1000",
    ]
    with Terminal(*words) as pdb:
        pdb.answer("(Pdb) ", f"b {place_of_update()}\n")
        pdb.answer("(Pdb) ", "c\n")
        pdb.answer("(Pdb) ", "import threading; threading.current_thread().name\n")
        pdb.answer("(Pdb) ", "n\n")
        pdb.answer("(Pdb) ", "p 'updates', self.half.num_updates\n")
        pdb.answer("(Pdb) ", "cl 1\nc\n")
        pdb.answer("critic_updates=", "\x03")
        pdb.answer("(Pdb) ", "q\n")
        assert "critic_learner-0" in pdb.said
        assert "('updates', 1)" in pdb.said
        assert "interrupted by the user" in pdb.said
        pdb.end()


def test_what_is_no_python_component_runs_beside_it(launch, tmp_path):
    """A program of another kind is a process of its own; a component that fails says so as ever."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "component.toml").write_text(
        'role = "evaluator"\ncommand = ["sh", "{folder}/run.sh"]\ndescription = "fails"\n'
    )
    (folder / "run.sh").write_text("echo no evaluator here >&2\nexit 2\n")
    run = launch(*SMALL, "--set", f"components.evaluator.use={folder}", topology="cartpole_dqn")
    assert run.end() == 2
    assert "no evaluator here" in run.output.read_text().splitlines()[-1]
    assert run.leftovers() == []
