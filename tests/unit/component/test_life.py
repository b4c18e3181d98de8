"""The end of a component's process: environments are closed last, and cannot keep it."""

import logging
import subprocess
import sys
import threading
from types import SimpleNamespace

from spreeze_zmq.component import life


def ending(*closers, leave=lambda code: None):
    """End a component whose environments are closed by these."""
    life._close_environments(SimpleNamespace(at_end=list(closers)), leave)


def test_a_close_that_raises_keeps_no_other_from_being_closed(caplog):
    """Nor does one that ends the program."""
    closed = []

    def bad():
        raise SystemExit("no server")

    with caplog.at_level(logging.WARNING):
        ending(bad, lambda: closed.append(1))
    assert closed == [1]
    assert "close() raised SystemExit: no server [" in caplog.text


def test_a_close_that_hangs_is_left(monkeypatch, caplog):
    """The process leaves with the code of a run that went well."""
    monkeypatch.setattr(life, "CLOSE_S", 0.05)
    left, codes = threading.Event(), []

    def leave(code):
        codes.append(code)
        left.set()

    ending(lambda: left.wait(30), leave=leave)
    assert codes == [0]
    assert "has not returned after 0 s: it is left" in caplog.text


def test_a_component_may_open_as_many_files_as_its_hard_limit_allows():
    """A shell's soft limit of 1,024 is too few for a broker of five hundred samplers."""
    script = """
import resource
hard = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
from spreeze_zmq.component.life import live
assert live("broker", None, ["/no/run.json"], None) == 2
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
files = [open("/dev/null") for _ in range(hard - 100)]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
