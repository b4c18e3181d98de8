"""The end of a run and the machines that have joined it."""

import time
from types import SimpleNamespace

import pytest

from spreeze_zmq.broker.machines import Machines
from spreeze_zmq.launcher import lending
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.nodes.head import HEAD_LOST, REFUSED
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.nodes.node import Gone, Node
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder


@pytest.fixture
def lent():
    """Two machines, and what the user is told of them."""
    nodes = SimpleNamespace(
        lent={f"node-{k}": SimpleNamespace(host=f"desk{k}", owes=False) for k in (1, 2)},
        router=SimpleNamespace(endpoint=""),
    )
    folder = SimpleNamespace(invitation="", logs="")
    said = []
    listening = Listening(topology.load("pendulum"), "", b"")
    return lending.Lending(nodes, listening, folder, None, lambda *_: None, said.append), nodes.lent, said


def test_the_end_waits_for_what_a_machine_owes_and_says_so_once(lent):
    """Until it has come; no run waits where nothing is owed."""
    ours, nodes, said = lent
    assert not ours.awaits()
    nodes["node-2"].owes = True
    assert ours.awaits()
    assert ours.awaits()
    assert said == ["waiting for what desk2 sent before the link was cut (at most 15 s)"]
    nodes["node-2"].owes = False
    assert not ours.awaits()


def test_the_end_does_not_wait_for_ever(lent, monkeypatch):
    """What has not come by then is in the account as dropped, with its cause."""
    ours, nodes, said = lent
    monkeypatch.setattr(lending, "OWED_S", 0.1)
    nodes["node-1"].owes = True
    began_s = time.monotonic()
    while ours.awaits():
        assert time.monotonic() < began_s + 5.0
    assert len(said) == 1


@pytest.mark.parametrize(("code", "named"), [(HEAD_LOST, 3), (REFUSED, 8)])
def test_of_many_machines_that_are_gone_the_last_line_names_few(lent, tmp_path, code, named):
    """As of a month of machines that are lent for an hour each; the broker keeps nothing of them either."""
    ours, _, _ = lent
    machines, now_s = Machines(), 0.0
    supervisor = SimpleNamespace(alive=lambda names: (), forget=lambda names: None)
    ours._crew = SimpleNamespace(waiting=[], supervisor=supervisor, miss=lambda names: None)
    ours._tell = lambda kind, **fields: machines.take({**fields, "most": 1, "samplers": 1, "processes": ()})
    for number in range(50):
        node = Node(f"node-{number}", f"spot{number}", 8, 8, b"peer", 0.0, has_beaten=True)
        ours._tell("machine", **node.about())
        machines.rows({}, now_s)
        ours._close(Gone(node, "it was silent", (), code))
    folder = RunFolder(tmp_path)
    folder.summary.write_text('{"samples": {"produced": 1}, "trained_transitions": 1}')
    outcome = Outcome(folder, topology.load("pendulum"))
    outcome.losses.settle((), {}, *ours.absent())
    outcome.settle({}, at_once=False)
    assert outcome.last_word.startswith(f"{50 - named} more before these; ")
    assert outcome.last_word.count("spot") == named
    assert "spot49 (node-49)" in outcome.last_word
    assert not machines._rates._points
