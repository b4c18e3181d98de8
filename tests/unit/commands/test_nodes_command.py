"""``spreeze nodes`` where there are none: one line that says what to do."""

from contextlib import closing
from dataclasses import replace

import pytest

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.nodes import machines_of, row
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.run.history import read_run


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


def test_of_a_run_that_is_over_all_machines_are_gone(run, tmp_path):
    """What they did last is no figure of now."""
    plan = topology.load("pendulum")
    run(plan)
    folder = RunFolder(tmp_path / "runs" / "one")
    about = {"host": "there", "cores": 8, "busy": 6.5, "memory_bytes": 1 << 34, "runs": "2 samplers"}
    about |= {"env_steps_per_s": 9000.0, "sent_bytes_per_s": 1e6, "received_bytes_per_s": 1e5}
    with closing(Journal(folder.metrics)) as journal:
        for t_s, machines in ((1.0, {"a": about, "b": about}), (2.0, {"b": about}), (3.0, {"b": about})):
            journal.write("status", t_s, {"machines": machines})
    past = read_run(folder.path)
    gone = row(machines_of(past)[1])
    assert gone == ["a", "there", "of 8", *[""] * 5, "0:01", "0:02"], "none of its cores is busy"
    assert [(each["node"], each["lost_s"]) for each in machines_of(past)] == [("b", None), ("a", 2.0)]
    over = replace(past, state="ended")
    assert {each["node"]: each["lost_s"] for each in machines_of(over)} == {"a": 2.0, "b": 3.0}


def test_without_a_run_a_line_says_to_name_one(tmp_path, monkeypatch, capsys):
    """Exit code 2."""
    monkeypatch.chdir(tmp_path)
    assert main(["nodes"]) == 2
    assert "name a run's folder, as in spreeze nodes RUN" in capsys.readouterr().err
    assert main(["nodes", "nowhere"]) == 2
