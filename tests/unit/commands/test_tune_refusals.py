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


@pytest.mark.parametrize(
    ("topology", "setting", "fixes"),
    [
        ("cartpole", "run.seed=1", "an on-policy algorithm"),
        ("pendulum", "balance.mode=lockstep", "a fixed order"),
        ("pendulum", "components.sampler.count=1", "the topology"),
    ],
)
def test_it_says_what_fixes_the_number_of_samplers(topology, setting, fixes, monkeypatch, capsys):
    """Where nothing can be kept, whoever would have it otherwise changes that."""
    names = "busy_cores received_per_s trained_per_s blocked starved sampler_makes_per_s learners_take_per_s"
    found = dict.fromkeys(names.split(), 1.0) | {"samplers": 1, "movable": False, "tried_trained_per_s": {}}
    ratio = {"replay_ratio": {"measured": 1.0, "target": 1.0}}
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda plan: {**found, **ratio})
    assert main(["tune", topology, "--set", setting]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{fixes} fixes the count, so nothing is kept"
