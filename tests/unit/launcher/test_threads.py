"""A run in one process, for one debugger."""

import sys
from types import SimpleNamespace

import pytest

from spreeze_zmq.launcher.threads import OF_ONE_THREAD, why_untraced


@pytest.fixture
def as_pdb(monkeypatch):
    """What the pdb of Python 3.14 registers; Python 3.11 has nothing to register with."""
    if not hasattr(sys, "monitoring"):
        has_it = SimpleNamespace(DEBUGGER_ID=0, get_tool={0: OF_ONE_THREAD}.get)
        monkeypatch.setattr(sys, "monitoring", has_it, raising=False)
        yield
        return
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, OF_ONE_THREAD)
    yield
    sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)


def test_without_a_debugger_nothing_is_said():
    """Nor where there is nothing to register with."""
    assert why_untraced() == ""


@pytest.mark.usefixtures("as_pdb")
def test_a_debugger_of_the_main_thread_alone_is_said_with_the_way_to_one_of_all(monkeypatch):
    """One that has set a trace function is taken to the components."""
    monkeypatch.setattr(sys, "argv", ["launch.py", "pendulum", "--inproc"])
    assert why_untraced().endswith("pdb.run('main()')\" pendulum --inproc")
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert why_untraced() == ""
    finally:
        sys.settrace(before)
