"""What benchmarks make of the runs that they have: medians, bounds where a return was not reached, tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # where a script finds what lies beside it

import learning_curves
import time_to_return
import whole_runs


def timed(who, seed, wall_s, reached=True, topology="hopper"):
    """One run of a time to a return of 1,500 in 12 minutes."""
    task = {"topology": topology, "target": 1500.0, "minutes": 12.0, "settings": [], "env": "Hopper-v5"}
    counts = {"env_steps": 1000, "trained_transitions": 8000, "best_return": 1600.0 if reached else 303.0}
    return {**task, **counts, "who": who, "seed": seed, "wall_s": wall_s, "reached": reached}


def curved(who, seed, curve, topology="hopper", budget=1000):
    """One run up to a budget of trained transitions."""
    counts = {"env_steps": 100 * seed, "wall_s": 10.0 * seed, "trained_transitions": 1000, "budget": budget}
    names = {"topology": topology, "env": "Hopper-v5", "who": who, "seed": seed, "settings": []}
    return {**names, **counts, "curve": curve}


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([(30, True), (50, True), (90, True)], [(400, True)], "theirs / ours: 8.0"),
        (
            [(30, True), (60, True), (720, False)],
            [(720, False)],
            "theirs / ours: at least 12.0 (12.0 min without reaching it / 60.0 s)",
        ),
        (
            [(30, True), (720, False), (720, False)],
            [(360, True)],
            "theirs / ours: at most 0.5 (360.0 s / 12.0 min without reaching it)",
        ),
        ([(720, False)], [(720, False)], "theirs / ours: unknown, neither has reached it"),
    ],
)
def test_a_return_that_was_not_reached_bounds_the_ratio(ours, theirs, said):
    """Its time is longer than it was given, whichever side it is."""
    sides = [
        [timed(who, seed, *run) for seed, run in enumerate(runs)]
        for who, runs in (("ours", ours), ("theirs", theirs))
    ]
    assert time_to_return.ratio(*sides) == said


def test_a_run_that_was_cut_early_never_counts_as_the_faster():
    """Its wall time is below that of a run that reached the return, and it still stands behind it."""
    runs = [timed("ours", 1, 700, reached=True), timed("ours", 2, 600, reached=False), timed("ours", 3, 710)]
    assert time_to_return.median_s(runs) == (710, True)


def test_runs_of_several_files_are_merged_once_each():
    """The same task, side and seed is one run, and the first file that has it counts."""
    first, again = timed("ours", 1, 30.0), timed("ours", 1, 99.0)
    others = [timed("theirs", 1, 400.0), timed("ours", 1, 30.0, topology="ant"), timed("ours", 2, 31.0)]
    assert time_to_return.merge([first, others[0]], [again, *others]) == [first, *others]


def test_the_report_says_who_has_not_reached_the_return_and_by_which_rule():
    """With the best return until then."""
    text = "\n".join(time_to_return.report([timed("ours", 1, 60.0), timed("theirs", 1, 720.0, False)]))
    assert "theirs median more than 720.0 s; 0 of 1 reached it" in text
    assert "1500 NOT reached (best 303)" in text
    assert "at least 12.0" in text
    assert text.endswith("both sides: mean return of 10 deterministic episodes")


def test_a_report_of_one_side_has_no_ratio():
    """Nothing is compared with nothing."""
    assert not any("theirs / ours" in line for line in time_to_return.report([timed("ours", 1, 60.0)]))


def test_the_return_at_the_end_is_the_mean_of_the_last_tenth():
    """One evaluation of ten episodes is noisy."""
    run = curved("ours", 1, [[500, 1.0], [900, 20.0], [1000, 30.0]])
    assert learning_curves.final_return(run) == 25.0
    assert learning_curves.final_return({**run, "curve": [[100, 1.0], [500, 7.0]]}) == 7.0
    assert learning_curves.final_return({**run, "curve": []}) is None


def test_a_median_curve_takes_the_middle_seed_at_each_place():
    """Curves whose evaluations lie elsewhere are joined on one grid."""
    slow, middle, fast = ([[0, 0.0], [500, 500.0 * k], [1000, 1000.0 * k]] for k in (1, 2, 9))
    runs = [curved("ours", 1, slow), curved("ours", 2, fast), curved("ours", 3, [middle[0], middle[2]])]
    at, returns = learning_curves.median_curve(runs)
    assert at[-1] == 1000
    np.testing.assert_allclose(returns, 2 * at)


def test_the_table_has_a_row_for_each_task_and_side():
    """All seeds' returns, and the medians of what they took."""
    runs = [curved("ours", seed, [[1000, 10.0 * seed]]) for seed in (1, 2, 3)]
    runs += [curved("theirs", 1, [[1000, 5.0]]), curved("theirs", 2, [])]
    first, second = learning_curves.table(runs)
    assert first["final_returns"] == [10.0, 20.0, 30.0]
    assert (first["median_final_return"], first["median_env_steps"], first["median_wall_s"]) == (20, 200, 20)
    assert (second["who"], second["seeds"]) == ("theirs", [1])
    row = "| Hopper-v5 | spreeze_zmq | 10, 20, 30 | 20 | 1,000 | 200 | 20 s |"
    assert row in learning_curves.as_text([first, second])


def test_a_finished_run_is_found_again_and_another_one_is_refused(tmp_path):
    """By task, side, budget and seed; the same with other settings would be mixed up."""
    asked = {"topology": "hopper", "who": "ours", "seed": 1, "budget": 1000, "settings": []}
    assert learning_curves.finished(tmp_path, asked) is None
    result = curved("ours", 1, [[1000, 3.0]])
    whole_runs.write_whole(learning_curves.file_of(tmp_path, asked), result)
    assert learning_curves.finished(tmp_path, asked) == json.loads(json.dumps(result))
    assert learning_curves.finished(tmp_path, {**asked, "seed": 2}) is None
    with pytest.raises(SystemExit, match="holds a run with"):
        learning_curves.finished(tmp_path, {**asked, "settings": ["algorithm.tau=0.5"]})


def test_an_interpreter_that_is_not_there_is_told_before_the_first_run(capsys, monkeypatch):
    """In one line, as any other mistake of a command line."""
    asked = ["pendulum", "--target", "0", "--peer-python", "/nowhere/python"]
    monkeypatch.setattr(sys, "argv", ["time_to_return.py", *asked])
    with pytest.raises(SystemExit, match="2"):
        time_to_return.main()
    assert "an interpreter that has stable_baselines3 was expected" in capsys.readouterr().err


def test_a_run_that_fails_is_told_with_its_last_words():
    """Not a bare exit code after half an hour."""
    code = "import sys; print('last words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(whole_runs.RunFailed, match=r"exit code 3:\nlast words"):
        whole_runs.finish([sys.executable, "-c", code])
