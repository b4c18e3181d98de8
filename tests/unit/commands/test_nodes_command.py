"""``spreeze nodes`` where there are none: one line that says what to do."""

import pytest

from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan


@pytest.fixture
def run(tmp_path):
    """Makes the folder of a run that is held by this process."""
    held = []

    def make(plan):
        folder = RunFolder.create("pendulum", str(tmp_path / "runs" / "one"))
        held.append(write_plan(plan, folder)[1])

    yield make
    for sockets in held:
        sockets.remove()


@pytest.mark.parametrize(
    ("listens", "why"),
    [
        (False, "no other machine can join it: start a run with spreeze-launch --listen ADDRESS"),
        (True, "no other machine has joined it yet: its launcher has printed the line to run there"),
    ],
)
def test_a_run_without_machines_says_what_to_do(run, tmp_path, monkeypatch, capsys, listens, why):
    """The newest run of ./runs that is running, where none is named."""
    monkeypatch.chdir(tmp_path)
    plan = topology.load("pendulum")
    run(Listening.at("127.0.0.1", plan).plan if listens else plan)
    assert main(["nodes"]) == 0
    assert capsys.readouterr().out == f"runs/one: {why}\n"
    assert main(["nodes", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_without_a_run_a_line_says_to_name_one(tmp_path, monkeypatch, capsys):
    """Exit code 2."""
    monkeypatch.chdir(tmp_path)
    assert main(["nodes"]) == 2
    assert "name a run's folder, as in spreeze nodes RUN" in capsys.readouterr().err
    assert main(["nodes", "nowhere"]) == 2
