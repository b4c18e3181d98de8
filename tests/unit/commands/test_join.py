"""``spreeze join`` with a mistake: one line, exit code 2."""

import io

import pytest

from spreeze_zmq.base.endpoints import write_keys
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.wire.channels import make_keys


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["10.0.0.1"], "expected tcp://HOST:PORT"),
        (["ipc:///tmp/a"], "expected tcp://HOST:PORT"),
        (["tcp://10.0.0.1:1", "--samplers", "-1"], "0 to 256 are expected"),
        (["tcp://10.0.0.1:1", "--samplers", "300"], "0 to 256 are expected"),
        (["tcp://10.0.0.1:1", "--key", "nowhere"], "expected the join.key in the run's folder"),
        (["tcp://10.0.0.1:1", "--key", "own.json"], "expected the run's join.key"),
        (["tcp://10.0.0.1:1"], "standard input holds no key"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, words, why):
    """Before anything is connected to; keys of the user's own are none to join with."""
    monkeypatch.chdir(tmp_path)
    write_keys(make_keys(), tmp_path / "own.json")
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense"))
    assert main(["join", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("spreeze join: ")
    assert why in line


def test_a_wrong_level_of_logs_is_one_line(tmp_path, monkeypatch, capsys):
    """Each of its samplers would end by it."""
    monkeypatch.chdir(tmp_path)
    write_keys(make_keys(), tmp_path / "own.json")
    monkeypatch.setenv("SPREEZE_LOG", "loud")
    assert main(["join", "tcp://10.0.0.1:1", "--key", "own.json"]) == 2
    expected = "SPREEZE_LOG=loud: expected DEBUG, INFO, WARNING, ERROR or CRITICAL"
    assert capsys.readouterr().err == f"spreeze join: {expected}\n"
