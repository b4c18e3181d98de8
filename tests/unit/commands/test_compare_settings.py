"""What ``spreeze compare`` takes for runs of one setting: those that differ in their seeds alone."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.base.trust import RUN_FILE
from spreeze_zmq.commands.compare import _labels, _once
from spreeze_zmq.commands.drawn_curves import draw
from spreeze_zmq.commands.setting import Setting, setting_of
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.plan.topology import algorithm
from spreeze_zmq.plan.tuning import subject_of
from spreeze_zmq.run.curves import AXES, Curve
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run


@pytest.fixture(scope="module")
def plan():
    """Without data, of one group."""
    return topology.load("pendulum", cores=2)


def setting(plan, folder):
    """Of a run with this plan."""
    (folder / RUN_FILE).write_text(plan.to_json())
    return setting_of(read_run(folder))


FALLS = "algorithm.learning_rate={from=1e-3,to=1e-5}"
INNER = "algorithm.learning_rate={critics={from=1e-3,to=1e-5},policy=1e-3}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["components.evaluator.episode_steps=50"]),
        ([FALLS, "run.stop.env_steps=10000"], [FALLS, "run.stop.env_steps=10000000"]),
        ([INNER, "run.stop.env_steps=10000"], [INNER, "run.stop.env_steps=10000000"]),
    ],
    ids=["other episodes", "a schedule over another run", "one of a network"],
)
def test_runs_that_are_scored_or_scheduled_otherwise_are_no_seeds_of_one_setting(before, after, tmp_path):
    """Their returns are not of one task, or their learning rates of one course."""
    one, other = (setting(topology.load("pendulum", given, cores=2), tmp_path) for given in (before, after))
    assert one != other


@pytest.mark.parametrize(
    "other",
    [
        ["components.sampler.count=1"],
        ["components.sampler.count=[1, 4]"],
        ["components.sampler.backend=gymnasium"],
        ["components.critic_learner.publish_interval_s=1"],
        ["components.actor_learner.slack_updates=1"],
        ["components.evaluator.episodes=20"],
        ["components.evaluator.confirm_episodes=5"],
    ],
)
def test_runs_of_other_components_are_no_seeds_of_one_setting(plan, other, tmp_path):
    """They act, learn or are scored otherwise."""
    made = topology.load("pendulum", other, cores=2)
    assert setting(made, tmp_path) != setting(plan, tmp_path)


def test_a_name_without_its_version_is_the_environment_that_it_stood_for(plan, tmp_path):
    """Also where samplers are tuned; a run of the version before is of another setting."""
    latest = topology.load("pendulum", ["run.env=Pendulum"], cores=2)
    assert setting(latest, tmp_path) == setting(plan, tmp_path)
    assert subject_of(latest) == subject_of(plan)
    before = replace(latest, environment=replace(latest.environment, id="Pendulum-v0"))
    assert setting(before, tmp_path) != setting(latest, tmp_path)


def test_an_environment_that_was_edited_is_another_setting(plan, tmp_path):
    """Its runs would be joined with those of another reward; a label names the file."""
    codes = ({}, {"bike.py": "3f9a17c02b55"}, {"bike.py": "77aa17c02b55"})
    first, one, other = (
        setting(replace(plan, own_code={"environment": code, "algorithm": {}}), tmp_path) for code in codes
    )
    assert first == setting(plan, tmp_path)
    run = read_run(tmp_path)
    labels = list(_labels([run, run], [one, other]))
    assert labels == ["pendulum sac code of bike.py=3f9a17c0", "pendulum sac code of bike.py=77aa17c0"]


def test_the_machine_of_a_run_is_no_setting(plan, tmp_path):
    """Its cores, its devices and the number of samplers that an earlier run has settled on."""
    sampler = plan.components["sampler"]
    tuned = replace(sampler, count=replace(sampler.count, initial=5))
    elsewhere = topology.load("pendulum", ["components.critic_learner.threads=3"], cores=16)
    for made in (replace(plan, components={**plan.components, "sampler": tuned}), elsewhere):
        assert setting(made, tmp_path) == setting(plan, tmp_path)


def test_the_samplers_of_a_round_are_part_of_its_setting(tmp_path, monkeypatch):
    """Where each round takes a rollout of each, another machine's number of them learns otherwise; on-policy
    it has the same one, where no step is slow.
    """
    monkeypatch.setattr(algorithm, "SLOW_STEP_S", math.inf)
    auto = "components.sampler.count=auto"
    for name, mode, same in (("hopper_ppo", "free", True), ("pendulum", "lockstep", False)):
        plans = [topology.load(name, [auto, f"balance.mode={mode}"], cores=cores) for cores in (2, 16)]
        one, other = (setting(plan, tmp_path) for plan in plans)
        assert (one == other) is same
    two = topology.load("hopper_ppo", ["components.sampler.count=[2, 4]"])
    assert setting(two, tmp_path) != setting(topology.load("hopper_ppo", [auto]), tmp_path)


def test_what_was_set_while_a_run_trained_is_said(plan, tmp_path, capsys):
    """Its curve is joined with those of its setting, by which alone it did not learn; in a run that goes on
    from it, too.
    """
    turned = {"tau": 0.5, "odd name": 1.0, "odd": "value"}
    for number, entries in enumerate(
        (
            [],
            [("request", {"what": "set", "option": "tau", "value": 0.25})],
            [("resumed", {"turned": turned})],
        )
    ):
        folder = RunFolder.create("run", str(tmp_path / f"run-{number}"))
        folder.run_file.write_text(replace(plan, launcher=number).to_json())
        folder.summary.write_text("{}")
        journal = Journal(folder.metrics)
        for kind, about in entries:
            journal.write(kind, 1.0, about)
        journal.write("evaluation", 2.0, {"env_steps": 10, "mean_return": 1.0})
        journal.close()
    assert main(["compare", str(tmp_path)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "set while it trained" in line]
    rest = "set while it trained, beside its setting: tau"
    assert said == [f"{tmp_path}/run-1: {rest} 0.25", f"{tmp_path}/run-2: {rest} 0.5"]


def evaluated_run(plan, path):
    """A folder of a run with one evaluation."""
    folder = RunFolder.create("run", str(path))
    folder.run_file.write_text(plan.to_json())
    folder.summary.write_text("{}")
    journal = Journal(folder.metrics)
    journal.write("evaluation", 2.0, {"env_steps": 10, "mean_return": 1.0})
    journal.close()


def test_a_picture_is_of_the_kind_that_its_name_says_or_refused_before_anything_is_read(
    plan, tmp_path, capsys, monkeypatch
):
    """A name without an ending is that of a PNG; nothing half-written stays."""
    monkeypatch.chdir(tmp_path)
    evaluated_run(plan, tmp_path / "run")
    assert main(["compare", "run", "--png", "curves.v2"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--png curves.v2: no kind of picture is called v2; expected a name that ends in .png" in said.err
    begins = {"curves": b"\x89PNG", "curves.PDF": b"%PDF"}
    for name, begin in begins.items():
        assert main(["compare", "run", "--png", name]) == 0
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert {path.name for path in tmp_path.iterdir()} == {"run", *begins}


def test_what_time_has_cut_is_said_of_a_best_return(plan, tmp_path, capsys):
    """It is no return, and compares with no other; a small one is not rounded to nothing."""
    best = {
        "mean_return": 0.0421,
        "std_return": 0.0,
        "num_episodes": 5,
        "timed_out": True,
        "num_truncated": 4,
    }
    folder = RunFolder.create("run", str(tmp_path / "run"))
    folder.run_file.write_text(plan.to_json())
    folder.summary.write_text(json.dumps({"best_return": 0.0421, "best": best}))
    journal = Journal(folder.metrics)
    journal.write("evaluation", 2.0, {"env_steps": 10, "mean_return": 0.0421})
    journal.close()
    assert main(["runs", str(tmp_path)]) == main(["compare", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.042, 4 of 5 cut by time" in said
    assert "0.042 0.042" in said
    assert "of the episodes of its best return, 4 of 5 cut by time: it compares with no other" in said


@pytest.mark.parametrize(
    ("cut", "last", "line"),
    [
        ([False, True], -60.0, "1 of 2 looks are left out: time has cut them"),
        ([True, True], -6.5, "time has cut every look of it: its returns compare with no other"),
    ],
)
def test_looks_that_time_has_cut_are_said_and_no_return_beside_whole_ones(
    plan, tmp_path, capsys, cut, last, line
):
    """In the table and in the file."""
    folder = RunFolder.create("run", str(tmp_path / "run"))
    folder.run_file.write_text(plan.to_json())
    folder.summary.write_text("{}")
    journal = Journal(folder.metrics)
    for row, mean in enumerate((-60.0, -6.5)):
        look = {"env_steps": row, "mean_return": mean, "timed_out": cut[row]}
        journal.write("evaluation", float(row), look)
    journal.close()
    curves = tmp_path / "curves.csv"
    assert main(["compare", str(folder.path), "--csv", str(curves)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"{folder.path}: {line}" in said
    assert [float(each) for each in said[1].split("  1  ")[1].split()[:2]] == [last, last]
    assert float(list(csv.DictReader(curves.open()))[-1]["return"]) == last


def test_runs_that_only_end_elsewhere_are_of_one_setting(plan, tmp_path):
    """Where nothing is scheduled over the run."""
    longer = topology.load("pendulum", ["run.stop.env_steps=10000"], cores=2)
    assert setting(longer, tmp_path) == setting(plan, tmp_path)


@pytest.mark.parametrize("order", [("far", "near"), ("near", "far")])
def test_of_runs_on_data_alone_the_one_that_came_furthest_is_kept(plan, order, tmp_path, capsys):
    """They take no env step, so that what they have trained on counts."""
    runs = []
    for name in order:
        folder = RunFolder.create(name, str(tmp_path / name)).path
        (folder / RUN_FILE).write_text(replace(plan, ancestors=("first",), launcher=len(name)).to_json())
        trained = {"near": 4e4, "far": 2e6}[name]
        x = {axis: np.array([1.0, trained if axis == "trained_transitions" else 0.0]) for axis in AXES}
        runs.append((read_run(folder), Curve(x, np.zeros(2))))
    assert [run.folder.name for run, _ in _once(runs)] == ["far"]
    assert "near" in capsys.readouterr().err


DATA = DataPlan("minari:pendulum/expert-v0", share=0.5, path="/data", transitions=100)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"data": {}}, {"data": {"own": DATA}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, share=0.25)}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, source="minari:pendulum/other-v0")}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, episodes=3)}}),
        ({"groups": {"count": 1}}, {"groups": {"count": 2}}),
        ({"groups": {"count": 2}}, {"groups": {"count": 2, "outer": "momentum"}}),
    ],
)
def test_runs_of_other_data_or_groups_are_no_seeds_of_one_setting(plan, before, after, tmp_path):
    """They learn otherwise."""
    plans = []
    for changes in (before, after):
        made = {
            key: replace(plan.groups, **value) if key == "groups" else value for key, value in changes.items()
        }
        plans.append(replace(plan, **made))
    assert setting(plans[0], tmp_path) != setting(plans[1], tmp_path)
    other_seed = replace(plans[1], run=replace(plan.run, seed=7))
    assert setting(other_seed, tmp_path) == setting(plans[1], tmp_path)
    elsewhere = {name: replace(one, path="/mnt") for name, one in plans[1].data.items()}
    assert setting(replace(plans[1], data=elsewhere), tmp_path) == setting(plans[1], tmp_path)


def test_no_two_settings_have_one_label(plan, tmp_path):
    """Four options are shown, and more where these are the same; what one lacks tells it from others, too."""
    (tmp_path / RUN_FILE).write_text(plan.to_json())
    run, first = read_run(tmp_path), {f"algorithm.{name}": 1 for name in "abcdef"}
    others = {f"algorithm.{name}": 2 for name in "abcd"}
    settings = [first, {**first, **others}, {**first, **others, "algorithm.f": 2}, {**first, "data.x": 3}]
    labels = list(_labels([run] * 4, settings))
    assert len(set(labels)) == 4
    assert labels[1].endswith(" a=2, b=2, c=2, d=2, f=1")
    assert labels[2].endswith(" a=2, b=2, c=2, d=2, f=2")


def test_no_two_settings_of_a_picture_have_the_same_line(plan, tmp_path, monkeypatch):
    """There are ten colours; also in the profile of best returns."""
    folder = RunFolder.create("one", str(tmp_path / "one")).path
    (folder / RUN_FILE).write_text(plan.to_json())
    curve = Curve({axis: np.array([1.0, 2.0]) for axis in AXES}, np.zeros(2))
    runs, curves, figures = [read_run(folder)] * 2, [curve] * 2, []
    monkeypatch.setattr("spreeze_zmq.commands.picture.save", lambda figure, path: figures.append(figure))
    draw([Setting("Pendulum-v1", str(number), runs, curves) for number in range(12)], tmp_path / "all.png")
    for panel in figures[0].axes:
        lines = [line for line in panel.get_lines() if line.get_alpha() is None]
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 12
