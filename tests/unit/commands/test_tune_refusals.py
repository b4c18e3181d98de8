"""What ``spreeze tune`` cannot measure."""

import pytest

from spreeze_zmq.commands.spreeze import main
from tests.unit.data.made import dataset

ALONE = ("run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0")


def test_a_run_without_samplers_is_refused_at_once(tmp_path, monkeypatch, capsys):
    """Rather than run until its time is over, and ask for more of it."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda plan: pytest.fail("it is measured"))
    assert main(["tune", "pendulum", *(word for each in ALONE for word in ("--set", each))]) == 2
    said = "components.sampler.count = 0: the number of samplers is measured"
    assert said in capsys.readouterr().err
