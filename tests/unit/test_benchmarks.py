"""What benchmarks make of the runs that they have: medians, bounds where a return was not reached, tables."""

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # where a script finds what lies beside it

import arrival
import comparisons
import first_look
import held
import learning_curves
import pong
import time_to_return
import whole_runs

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.plan import topology


def shipped(entry):
    """The file of a comparison's topology."""
    return Path(__file__).parents[2] / "launch" / f"{entry.ours}.toml"


def timed(who, seed, wall_s, reached=True, comparison="hopper"):
    """One run of a time to a return of 1,500 in 12 minutes; the peer's start-up takes 2 s."""
    task = {"comparison": comparison, "stop": {"return": 1500.0, "minutes": 12.0}, "settings": []}
    outcome = {"best_return": 1600.0 if reached else 303.0, "exit_reason": "return 1600.0 >= 1500"}
    if not reached:
        outcome["exit_reason"] = "minutes 12.00 >= 12"
    counts = {"env_steps": 1000, "trained_transitions": 8000, "start_s": 2.0 if who == "theirs" else None}
    return {**task, **counts, **outcome, "who": who, "seed": seed, "wall_s": wall_s}


def curved(who, seed, curve, end=1000, by="trained_transitions"):
    """One run up to a budget of 1,000 transitions trained on, or of env steps."""
    counts = {"env_steps": 100 * seed, "wall_s": 10.0 * seed, "trained_transitions": end, by: end}
    names = {
        "comparison": "hopper",
        "who": who,
        "seed": seed,
        "stop": {by: 1000, "minutes": 9},
        "settings": [],
    }
    evaluations = [[float(place), place, mean, 0.0] for place, mean in curve]
    return {**names, **counts, "curve": curve, "evaluations": evaluations}


def asked(monkeypatch, *words, python=sys.executable):
    """The arguments of a command line, with an interpreter of the peer."""
    monkeypatch.setattr(sys, "argv", ["script", *words, "--peer-python", python, "--out", "results"])
    return comparisons.parse(comparisons.parser(""))


@pytest.mark.parametrize("name", [n for n, c in comparisons.load().items() if shipped(c).exists()])
def test_both_sides_of_a_comparison_have_the_same_environment(name):
    """An entry names the peer's, its topology ours; some budget ends its runs."""
    entry = comparisons.load()[name]
    if "atari" not in entry.settings:
        assert topology.load(str(shipped(entry)), entry.set).run.env == entry.env
    assert entry.target is not None
    assert entry.minutes > 0


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([(30, True), (50, True), (90, True)], [(400, True)], "8.0"),
        ([(30, True), (60, True), (720, False)], [(720, False)], "at least 12.0"),
        ([(30, True), (720, False), (720, False)], [(360, True)], "at most 0.5"),
        ([(720, False)], [(720, False)], "unknown, neither has reached it"),
    ],
)
def test_a_return_that_was_not_reached_bounds_the_ratio(ours, theirs, said):
    """Its time is longer than it was given, whichever side it is."""
    sides = [
        [timed(who, seed, *run) for seed, run in enumerate(runs)]
        for who, runs in (("ours", ours), ("theirs", theirs))
    ]
    assert time_to_return.ratio(*sides) == said


def test_the_peer_is_compared_without_its_start_too():
    """Ours keeps all of its own."""
    ours, theirs = [timed("ours", 1, 5.0)], [timed("theirs", 1, 22.0)]
    assert time_to_return.ratio(ours, theirs) == "4.4"
    assert time_to_return.ratio(ours, theirs, without_start=True) == "4.0"


def test_a_run_that_was_cut_early_never_counts_as_the_faster():
    """Its wall time is below that of a run that reached the return, and it still stands behind it."""
    runs = [timed("ours", 1, 700, reached=True), timed("ours", 2, 600, reached=False), timed("ours", 3, 710)]
    assert time_to_return.median_s(runs) == (710, True)


def test_the_table_of_times_shows_who_has_not_reached_the_return_and_by_which_rule():
    """Each time, the medians, and the ratio as a bound."""
    runs = [timed("ours", 1, 60.0), timed("ours", 2, 50.0), timed("theirs", 1, 720.0, reached=False)]
    (row,) = time_to_return.table(runs)
    assert (row["ours"]["median_s"], row["theirs"]["median_is_reached"]) == (55.0, False)
    text = time_to_return.as_text([row])
    assert "| hopper | Hopper-v5 | 1500 | 60.0, 50.0 | 55.0 s | more than 720.0 | more than 720.0 s |" in text
    assert "| at least 13.1 | at least 13.1 |" in text
    assert text.endswith(
        "thirty fresh episodes of the saved policy confirm the return, theirs when ten reach it"
    )
    assert "1500 NOT reached (best 303)" in time_to_return.line(runs[-1])


def test_a_table_of_one_side_has_no_ratio():
    """Nothing is compared with nothing."""
    (row,) = time_to_return.table([timed("ours", 1, 60.0)])
    assert "ratio" not in row
    assert "| 60.0 | 60.0 s |  |  |  |  |" in time_to_return.as_text([row])


def test_the_first_look_at_a_return_is_seen_in_a_journal_that_grows(tmp_path):
    """A line counts once it is whole; failed evaluations have no return."""
    path = tmp_path / "metrics.jsonl"
    assert first_look.new_lines(path, 0) == ([], 0)
    journal = Journal(path)
    journal.write("status", 0.9, {"mean_return": 3000.0})
    journal.write("evaluation", 1.0, {"mean_return": np.float32(1999.5)})
    journal.write("evaluation", 2.0, {"mean_return": math.nan})
    lines, position = first_look.new_lines(path, 0)
    assert [first_look.looks_at(line, 2000.0) for line in lines] == [False] * 3
    assert first_look.looks_at(lines[1], 1999.5)
    with path.open("ab") as torn:
        torn.write(b'{"kind": "evaluation", ')
    assert first_look.new_lines(path, position) == ([], position)
    with path.open("ab") as rest:
        rest.write(b'"mean_return": 2001.0}\n')
    (line,), end = first_look.new_lines(path, position)
    assert (first_look.looks_at(line, 2000.0), end) == (True, path.stat().st_size)


def test_the_first_looks_of_two_versions_are_of_ten_episodes(tmp_path):
    """Not of as many as each has by default."""
    command = first_look.command_of("pendulum", tmp_path, -200.0, 3, 12.0)
    given = [word for before, word in pairwise(command) if before == "--set"]
    plan = topology.load("pendulum", given, cores=2)
    assert plan.components["evaluator"].options["episodes"] == 10
    assert (plan.run.seed, plan.run.stop.mean_return, plan.run.stop.minutes) == (3, -200.0, 12.0)


def test_the_return_at_a_place_is_the_mean_of_the_tenth_before_it():
    """One evaluation of ten episodes is noisy."""
    run = curved("ours", 1, [[500, 1.0], [900, 20.0], [1000, 30.0]])
    assert learning_curves.return_at(run, 1.0) == 25.0
    assert learning_curves.return_at(run, 0.75) == 1.0
    assert learning_curves.return_at(run, 0.25) is None
    assert learning_curves.return_at({**run, "curve": []}, 1.0) is None


def test_a_run_that_was_cut_has_no_return_at_places_that_it_did_not_come_to():
    """What it had in the end stands at the end, and the cut beside it."""
    run = curved("ours", 1, [[250, 1.0], [600, 7.0]], end=600)
    assert learning_curves.return_at(run, 0.75) is None
    assert learning_curves.return_at(run, 1.0) == 7.0
    assert "CUT" in learning_curves.line(run)


def test_a_budget_of_env_steps_reads_the_curve_over_env_steps():
    """And not the one over transitions trained on."""
    run = {**curved("theirs", 1, [[1000, 5.0]], by="env_steps"), "curve": [[9, 1.0]]}
    assert learning_curves.return_at(run, 1.0) == 5.0


def test_a_median_curve_takes_the_middle_seed_at_each_place():
    """Curves with evaluations at other places are joined on one grid."""
    slow, middle, fast = ([[0, 0.0], [500, 500.0 * k], [1000, 1000.0 * k]] for k in (1, 2, 9))
    runs = [curved("ours", 1, slow), curved("ours", 2, fast), curved("ours", 3, [middle[0], middle[2]])]
    at, returns = learning_curves.median_curve(runs)
    assert at[-1] == 1000
    np.testing.assert_allclose(returns, 2 * at)


def test_the_table_of_curves_compares_both_sides_at_the_end():
    """All seeds' returns, the medians, the difference of the means with its noise, and the wall times."""
    runs = [curved("ours", seed, [[1000, 10.0 * seed]]) for seed in (1, 2, 3)]
    runs += [curved("theirs", 4, [[1000, 5.0]]), curved("theirs", 6, [[1000, 7.0]]), curved("theirs", 2, [])]
    (row,) = learning_curves.table(runs)
    assert row["ours"]["returns"][-1] == [10.0, 20.0, 30.0]
    assert row["theirs"]["seeds"] == [4, 6]
    assert row["difference"] == pytest.approx((14.0, (100 / 3 + 2 / 2) ** 0.5))
    text = learning_curves.as_text([row])
    assert "| hopper | ours | none | none | none | 20 | 10, 20, 30 | 200 | 1,000 | 20 s |" in text
    assert "hopper: ours +14 (standard error 6), theirs / ours in wall time 2.5" in text


def test_runs_of_the_two_sides_take_turns(monkeypatch):
    """Seed by seed; the peer's settings are those of its entry, ours those of the command line."""
    arguments = asked(monkeypatch, "cartpole_ppo", "--seeds", "7", "8", "--peer-seeds", "9", "--set", "a.b=1")
    runs = list(comparisons.wanted(arguments, lambda entry: {"return": entry.target}))
    assert [(run["who"], run["seed"]) for run in runs] == [("ours", 7), ("theirs", 9), ("ours", 8)]
    assert runs[0]["settings"] == ["a.b=1"]
    assert runs[1]["settings"]["n_envs"] == 8
    assert runs[0]["stop"] == {"return": 475, "minutes": 5}


def test_a_finished_run_is_found_again_and_another_one_is_refused(tmp_path):
    """By task, side, budget and seed; the same with other settings would be mixed up."""
    result = curved("ours", 1, [[1000, 3.0]])
    run = {key: result[key] for key in ("comparison", "who", "seed", "stop", "settings")}
    assert comparisons.finished(tmp_path, run) is None
    whole_runs.write_whole(comparisons.file_of(tmp_path, run), result)
    assert comparisons.finished(tmp_path, run) == json.loads(json.dumps(result))
    assert comparisons.finished(tmp_path, {**run, "seed": 2}) is None
    with pytest.raises(SystemExit, match="holds a run with settings"):
        comparisons.finished(tmp_path, {**run, "settings": ["algorithm.tau=0.5"]})


def test_an_interpreter_that_is_not_there_is_refused_before_the_first_run(capsys, monkeypatch):
    """In one line, as any other mistake of a command line."""
    with pytest.raises(SystemExit, match="2"):
        asked(monkeypatch, "pendulum", python="/nowhere/python")
    assert "an interpreter that has stable_baselines3 was expected" in capsys.readouterr().err


def test_the_floor_of_pong_is_emulation_acting_and_learning():
    """Each by its measured rate; a target costs a forward pass more."""
    rates = {"emulated": 5000.0, "acting": 10_000.0, "forward": 20_000.0, "both": 8000.0}
    assert pong.floor(10_000, 80_000, rates, 1) == (2.0, 1.0, pytest.approx(14.0))
    assert pong.floor(10_000, 80_000, rates, 0)[2] == pytest.approx(10.0)


def test_a_failed_run_is_reported_with_its_last_words():
    """Not a bare exit code after half an hour."""
    code = "import sys; print('last words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(whole_runs.RunFailed, match=r"exit code 3:\nlast words"):
        whole_runs.finish([sys.executable, "-c", code])


def test_what_a_run_held_counts_from_its_last_fifth():
    """The best look is no measure of what came after it."""
    looks = [(0, 10.0), (400, 3000.0), (700, 3200.0), (800, 1500.0), (900, 3100.0), (1000, 1400.0)]
    assert held.held(looks) == {
        "best": 3200.0,
        "median_of_last_fifth": 1500.0,
        "worst_after": 1400.0,
        "looks": 6,
    }
    assert held.held([(0, -200.0), (10, -100.0), (20, -105.0)])["worst_after"] == -105.0


def test_a_table_of_arrivals_has_the_median_and_the_worst_of_each_tasks_seeds():
    """Of a share that others took the worst is the greatest; a time before the first look is no figure."""
    rows = {
        ("hopper", 1): {"60 s": 2000.0, "of best": 0.9, "others": 0.01},
        ("hopper", 2): {"60 s": None, "of best": 0.5, "others": 0.07},
        ("hopper", 3): {"60 s": 1000.0, "of best": 0.8, "others": 0.02},
        ("ant", 1): {"60 s": None, "of best": 1.0, "others": 0.0},
    }
    lines = arrival.table(rows).splitlines()
    assert lines[0] == "| task | seed | 60 s | of best | others |"
    assert "| hopper | 2 | - | 0.50 | 0.07 |" in lines
    assert "| hopper | median | 1,500 | 0.80 | 0.02 |" in lines
    assert "| hopper | worst | 1,000 | 0.50 | 0.07 |" in lines
    assert "| ant | median | - | 1.00 | 0.00 |" in lines
