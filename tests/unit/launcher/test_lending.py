"""The end of a run and the machines that have joined it."""

import time
from types import SimpleNamespace

import pytest

from spreeze_zmq.launcher import lending


@pytest.fixture
def lent():
    """Two machines, and what the user is told of them."""
    nodes = SimpleNamespace(
        lent={f"node-{k}": SimpleNamespace(host=f"desk{k}", owes=False) for k in (1, 2)},
        router=SimpleNamespace(endpoint=""),
    )
    folder = SimpleNamespace(invitation="", logs="")
    said = []
    return lending.Lending(nodes, (), folder, None, lambda *_: None, said.append), nodes.lent, said


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
