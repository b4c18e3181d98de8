"""What ``spreeze tune`` cannot measure, and what it measures of a run of groups."""

import contextlib
import json
import os
from types import SimpleNamespace

import pytest

from spreeze_zmq.base import machine
from spreeze_zmq.base.errors import ComponentFailed
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.commands.tune import measure
from spreeze_zmq.plan import topology, tuning
from tests.system.conftest import two_cores
from tests.unit.data.made import dataset

IN_ORDER = "in_order.toml"
SCHEDULED = """
[run]
env = "Pendulum-v1"
stop = { env_steps = 9000 }

[balance]
mode = "lockstep"

[algorithm]
learning_rate = { from = 1e-3, to = 1e-4 }
"""
ALONE = ("run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0")


def test_a_run_without_samplers_is_refused_at_once(tmp_path, monkeypatch, capsys):
    """Rather than run until its time is over, and ask for more of it."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda *_: pytest.fail("it is measured"))
    assert main(["tune", "pendulum", *(word for each in ALONE for word in ("--set", each))]) == 2
    said = "components.sampler.count = 0: the number of samplers is measured"
    assert said in capsys.readouterr().err


def test_a_wrong_level_of_logs_is_refused_at_once(monkeypatch, capsys):
    """It would end each process that is measured."""
    monkeypatch.setenv("SPREEZE_LOG", "loud")
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda *_: pytest.fail("it is measured"))
    assert main(["tune", "pendulum"]) == 2
    assert "spreeze tune: SPREEZE_LOG=loud: expected DEBUG," in capsys.readouterr().err


def figures(**more):
    """Of a last decision."""
    names = "busy_cores received_per_s trained_per_s blocked starved sampler_makes_per_s learners_take_per_s"
    ratio = {"measured": 1.0, "target": 1.0}
    known = {"samplers": 1, "tried_trained_per_s": {}, "replay_ratio": ratio, **more}
    return dict.fromkeys(names.split(), 1.0) | known


@pytest.mark.parametrize(
    ("topology", "setting", "fixes"),
    [
        ("cartpole", "run.seed=1", "an on-policy algorithm"),
        ("pendulum", "balance.mode=lockstep", "a fixed order"),
        (IN_ORDER, "run.seed=1", "a fixed order"),
        ("pendulum", "components.sampler.count=1", "the topology"),
    ],
)
def test_it_says_what_fixes_the_number_of_samplers(topology, setting, fixes, tmp_path, monkeypatch, capsys):
    """Where nothing can be kept, whoever would have it otherwise changes that. Of a run in order a schedule
    goes over the counts at which it ends, not over the time that is measured.
    """
    (tmp_path / IN_ORDER).write_text(SCHEDULED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda *_: figures(movable=False))
    assert main(["tune", topology, "--set", setting]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{fixes} fixes the count, so nothing is kept"


@pytest.mark.parametrize(
    ("about", "has_home", "said"),
    [
        ({"disturbances": 1}, True, "nothing is kept, since processes failed or started again"),
        ({"disturbances": 0}, True, ".json cannot be written"),
        ({"disturbances": 0}, False, "nothing is kept: this user has no home folder: set HOME to a folder"),
    ],
)
def test_it_says_when_nothing_was_kept(about, has_home, said, tmp_path, monkeypatch, capsys):
    """Though the number had settled; what was measured is said and written all the same, advice first."""
    found = figures(movable=True, settled=True, kept=False, **about)
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", lambda *_: found)
    if not has_home:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", "nowhere")
    idle = ["--set", "algorithm.priority_alpha=0.5"]
    assert main(["tune", "pendulum", *idle, "--json", str(tmp_path / "found.json")]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition(" has no")[0] for line in lines if line.startswith("advice")] == [
        "advice: algorithm.priority_alpha = 0.5"
    ]
    assert said in last
    assert json.loads((tmp_path / "found.json").read_text())["settled"]


@pytest.mark.parametrize(
    ("more", "limit", "interrupted", "longer"),
    [
        ((), 9000, "", "give it longer with --set run.stop.env_steps=N"),
        (("--set", "algorithm.learning_rate=1e-3"), None, "", "give it longer with --seconds"),
        ((), 9000, "interrupted by SIGINT", "; it was interrupted by SIGINT"),
    ],
    ids=["a schedule over the run", "none", "interrupted"],
)
def test_a_run_in_order_that_ends_too_early_says_what_makes_it_longer(
    more, limit, interrupted, longer, tmp_path, monkeypatch, capsys
):
    """It ends at its own counts only where a schedule goes over them; an interrupt needs no longer one."""
    (tmp_path / IN_ORDER).write_text(SCHEDULED)
    monkeypatch.chdir(tmp_path)
    limits = []

    def launch(plan, folder, view, **_):
        def run():
            stop = plan.run.stop
            limits.append(stop.env_steps)
            reason = interrupted or stop.reached(
                {"env_steps": 9000, "trained_transitions": 9000}, 60 * stop.minutes
            )
            folder.run_file.write_text(plan.to_json())
            folder.summary.write_text(json.dumps({"exit_reason": reason}))
            with contextlib.closing(Journal(folder.metrics)) as journal:
                journal.write("balance", 1.0, {"settled": True, "movable": False, "decision": {}})
            return 0

        return SimpleNamespace(run=run, folder=folder, outcome=SimpleNamespace(failures=[]))

    monkeypatch.setattr("spreeze_zmq.commands.tune.Launch", launch)
    assert main(["tune", IN_ORDER, *more]) == 1
    assert limits == [limit]
    assert capsys.readouterr().err.rstrip().endswith(longer)


@two_cores
def test_of_a_run_of_groups_its_own_groups_share_of_the_machine_is_measured(monkeypatch, capsys):
    """As such a run begins: the other groups are on cores of their own, and what is kept is found by it."""
    before, seen = os.sched_getaffinity(0), {}

    def launch(plan, folder, view, *, shares, **_):
        seen.update(shares=shares, own=os.sched_getaffinity(0))
        raise ComponentFailed("seen enough")

    monkeypatch.setattr("spreeze_zmq.commands.tune.Launch", launch)
    assert main(["tune", "pendulum", "--set", "groups.count=2"]) == 1
    assert list(seen["shares"]) == ["member-0"]
    assert seen["own"] < before
    assert seen["shares"]["member-0"].isdisjoint(seen["own"])

    def kept(plan, shares):
        seen["file"] = machine.file_of(tuning.subject_of(plan))
        return figures(movable=True, settled=True, disturbances=0, kept=True)

    capsys.readouterr()
    monkeypatch.setattr("spreeze_zmq.commands.tune.measure", kept)
    assert main(["tune", "pendulum", "--set", "groups.count=2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"kept in {seen['file']}"
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("failures", [[], [("broker-0", "crashed")]])
def test_a_broker_of_somebody_else_may_say_nothing_of_failures(failures, monkeypatch):
    """Its summary has the keys that PROTOCOL.md asks for, or there is none; a failure is told first."""

    def launch(plan, folder, view, **_):
        def run():
            folder.run_file.write_text(plan.to_json())
            if not failures:
                folder.summary.write_text('{"exit_reason": "measured"}')
                with contextlib.closing(Journal(folder.metrics)) as journal:
                    decided = {"settled": True, "movable": True, "decision": {"steady": True, "samplers": 2}}
                    journal.write("balance", 1.0, decided)
            return len(failures)

        return SimpleNamespace(run=run, folder=folder, outcome=SimpleNamespace(failures=failures))

    monkeypatch.setattr("spreeze_zmq.commands.tune.Launch", launch)
    if failures:
        with pytest.raises(ComponentFailed, match="broker-0: crashed"):
            measure(topology.load("pendulum"), {})
    else:
        found = measure(topology.load("pendulum"), {})
        assert (found["samplers"], found["disturbances"]) == (2, 0)
