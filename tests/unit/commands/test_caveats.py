"""What ``spreeze compare`` says of runs whose returns do not compare, and which of them are one."""

import csv
import json
from dataclasses import replace

import pytest

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.compare import evaluated_runs
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.learner.cadence import Cadence
from spreeze_zmq.learner.publication import Record
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder

LIMIT = "minutes 60.00 >= 60"


@pytest.fixture(scope="module")
def plans():
    """Of two settings, of which the second has no goal, and of one in order."""
    pytest.importorskip("scipy")
    changed = {
        "first": [],
        "other": ["algorithm.tau=0.01", "run.stop.return=none"],
        "in order": ["balance.mode=lockstep"],
    }
    return {name: topology.load("pendulum", more, cores=2) for name, more in changed.items()}


def evaluated_run(plan, path, *, wall_s=60.0, env_steps=1000, reason=LIMIT):
    """The folder of a run whose last look was then."""
    folder = RunFolder.create("run", str(path))
    folder.run_file.write_text(replace(plan, run_dir=str(path)).to_json())
    folder.summary.write_text(json.dumps({"exit_reason": reason}))
    journal = Journal(folder.metrics)
    journal.write("evaluation", wall_s, {"env_steps": env_steps, "mean_return": -150.0})
    journal.close()
    return folder


def said_of(plans, runs, place, capsys):
    """The lines of the command after its table; ``runs``: names of plans, and how each run ended."""
    for number, (name, ended) in enumerate(runs):
        evaluated_run(plans[name], place / str(number), **ended)
    assert main(["compare", str(place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines[1 + max(i for i, line in enumerate(lines) if line.startswith("returns")) :]


HOUR, MINUTE = {"wall_s": 3600.0, "env_steps": 1_000_000}, {"wall_s": 60.0, "env_steps": 12_000}
SLOWER = {"wall_s": 3590.0, "env_steps": 300_000}
REACHED = [
    {"wall_s": s, "env_steps": n, "reason": "return -199 >= -200"} for s, n in ((9.0, 400), (90.0, 7000))
]
FIRST, OTHER = "pendulum sac tau=0.02", "pendulum sac tau=0.01"


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (
            [*[("first", HOUR)] * 3, ("first", MINUTE)],
            [
                "pendulum sac: its runs are of 12,000 to 1,000,000 env steps: their last and "
                "best returns are not "
            ],
        ),
        (
            [*[("first", HOUR)] * 2, *[("other", MINUTE)] * 2],
            [
                f"Pendulum-v1: runs of {OTHER} are of 12,000 env steps, those of {FIRST} of 1,000,000: their "
                "returns are not "
            ],
        ),
        ([*[("first", HOUR)] * 2, ("first", SLOWER), *[("other", SLOWER)] * 2], []),
        ([("first", ended) for ended in REACHED], []),
        (
            [*[("first", REACHED[0])] * 2, *[("other", HOUR)] * 2],
            [
                f"Pendulum-v1: runs of {OTHER} are of 1,000,000 env steps, those of {FIRST} of 400: their "
                "returns are not "
            ],
        ),
    ],
    ids=["in a setting", "of two settings", "of one time", "until a return", "one of them until a return"],
)
def test_returns_of_runs_that_went_on_for_longer_are_said_not_to_compare(
    plans, runs, expected, tmp_path, capsys
):
    """Their best and last ones are of more training. Runs with one limit of time are of one length, and so
    are those that were to stop at one return: the better they learned, the sooner.
    """
    said = said_of(plans, runs, tmp_path, capsys)
    assert [line for line in said if "length" in line] == [f"{line}of one length" for line in expected]


def test_runs_that_have_not_come_to_their_end_are_counted(plans, tmp_path, capsys):
    """A line a setting: what is shown of them is what they had so far."""
    said = said_of(plans, [("first", {}), ("first", {"reason": ""}), ("other", {})], tmp_path, capsys)
    assert said == [f"{FIRST}: 1 crashed, of 2 runs: these returns are those so far"]


def test_runs_of_several_releases_are_told_apart_by_each_package_that_differs(plans, tmp_path, capsys):
    """Joined as one setting, or compared: ``packages`` of their run.json, as far as it says it."""
    stated = [("a", "2.9.0"), ("b", "2.9.0"), ("b", "2.9.0")]
    packages = [{"spreeze_zmq": f"0.1.0+{digest}", "torch": torch} for digest, torch in stated]
    names = ("first", "first", "other")
    made = {str(i): replace(plans[name], packages=packages[i]) for i, name in enumerate(names)}
    said = said_of(made, [(name, {}) for name in made], tmp_path, capsys)
    assert said == [
        f"Pendulum-v1: runs of several releases of spreeze_zmq: 0.1.0+a (1 of {FIRST}); "
        f"0.1.0+b (1 of {FIRST}, 1 of {OTHER})"
    ]


@pytest.mark.parametrize("order", [(9, 5), (5, 9)], ids=["longer first", "shorter first"])
def test_one_seed_in_order_is_one_run_however_often_it_was_started(plans, order, tmp_path, capsys):
    """It learns the same as far as it goes, so that its returns are no two samples; on a machine that
    computes otherwise it does not, nor where only the clock decides.
    """
    kinds = [("in order", count, 1.0) for count in order] + [("in order", 7, 1.5)] + [("first", 7, 1.0)] * 2
    for number, (name, count, scale) in enumerate(kinds):
        folder = evaluated_run(plans[name], tmp_path / f"{number}-{count}", env_steps=1000 * count)
        for role in ("critic_learner", "actor_learner"):
            cadence = Cadence(1.0, every=8)
            record = Record(folder.losses(role), cadence)
            for updates in range(8, 8 * count + 1, 8):
                assert cadence.due(updates)
                record.write({"critic_updates": updates}, {"loss": scale / updates})
    kept = [run.folder.name for run, _ in evaluated_runs([str(tmp_path)])]
    expected = [f"{number}-{count}" for number, (_, count, _) in enumerate(kinds) if number > 1 or count == 9]
    assert sorted(kept) == expected
    short, long = (f"{tmp_path}/{order.index(count)}-{count}" for count in (5, 9))
    said = capsys.readouterr().err
    assert said == f"left out: {short}: it is the same run in order as {long}, of the same seed\n"


@pytest.mark.parametrize(("num_runs", "expected"), [(4, "mean"), (5, "iqm")])
def test_a_csv_says_what_its_returns_are_of_the_runs(plans, num_runs, expected, tmp_path):
    """It is read without the lines of the command: of few runs they are no interquartile mean."""
    for number in range(num_runs):
        evaluated_run(plans["first"], tmp_path / "runs" / str(number))
    assert main(["compare", str(tmp_path / "runs"), "--csv", str(tmp_path / "curves.csv")]) == 0
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["return"], row["middle"]) for row in rows} == {("-150.0", expected)}
