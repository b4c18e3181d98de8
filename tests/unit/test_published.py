"""Published curves beside ours: what is read of the files of others, and what is said without them."""

import dataclasses
import hashlib
import io
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # where a script finds what lies beside it

import four_axes
import published

from spreeze_zmq.base.errors import InputError

EVALUATIONS = """,exp_name,env_name,seed,metric,env_step,value
0,sac,Hopper-v4,0,avg_return,1.0,10.0
1,sac,Hopper-v4,0,avg_return,100000.0,200.0
2,sac,Hopper-v4,1,avg_return,100000.0,300.0
3,sac,Hopper-v4,1,avg_success,100000.0,1.0
4,sac,dog-run,0,avg_return,100000.0,5.0
5,xqc,Hopper_v4,0,avg_return,100000.0,900.0
"""
ZOO = """
|algo|env_id|mean_reward|std_reward|n_timesteps|eval_timesteps|eval_episodes|
|----|------|----------:|---------:|-----------|-------------:|------------:|
|sac |Hopper-v3| 2325.547| 1129.676|1M | 149841| 236|
|sac |Humanoid-v3| 6232.287| 279.885|2M | 149460| 150|
|tqc |Pendulum-v1| -150.0| 1.0|20k | 1| 1|
"""


def source(row, path="results/table.csv", licence="MIT", trained=256):
    """An entry of the table of sources."""
    return published.Source("theirs", "some/repo", "c" * 40, path, "0" * 64, row, licence, trained)


def test_published_evaluations_are_read_by_method_task_and_seed():
    """Other methods, tasks and metrics of the same file are passed over."""
    (line,) = source("sac").lines(EVALUATIONS)
    assert (line.who, line.env, line.task, line.seeds) == ("theirs", "Hopper-v4", "Hopper", 2)
    assert line.at("env_steps", 1e5) == (250.0, 200.0)
    assert line.at("trained_transitions", 2.56e7) == (250.0, 200.0)
    assert line.at("wall_s", 60) is None
    assert [each.env for each in source("xqc").lines(EVALUATIONS)] == ["Hopper-v4"]


def test_the_zoos_table_has_one_return_of_one_run():
    """After as many env steps as it says; nothing is known of transitions trained on."""
    hopper, humanoid = source("sac", "benchmark.md", trained=None).lines(ZOO)
    assert (hopper.env, hopper.at("env_steps", 1e6), hopper.seeds) == ("Hopper-v3", (2325.547, 2325.547), 1)
    assert humanoid.at("env_steps", 2e6) == (6232.287, 6232.287)
    assert humanoid.at("trained_transitions", 2e6) is None


def test_nothing_is_said_of_places_that_a_curve_was_not_near():
    """Neither after its end nor long after its last evaluation before it."""
    line = four_axes.line_of("ours", "Hopper-v5", [published.curve_of([(100, 1.0), (1000, 9.0)], None)])
    found = {place: line.at("env_steps", place) for place in (99, 100, 200, 201, 999, 1000, 1001)}
    assert [place for place, value in found.items() if value is not None] == [100, 200, 1000]


def test_without_a_network_a_few_returns_stand_for_the_curves(tmp_path, monkeypatch, capsys):
    """One line says so; what no free licence covers is not among them."""

    def down(source, folder):
        raise urllib.error.URLError("no route to host")

    sources = [source("sac"), dataclasses.replace(source("xqc", licence="CC-BY-NC-4.0"), who="others")]
    whole = published.lines_of_others(sources, tmp_path, lambda source, folder: EVALUATIONS)
    monkeypatch.setattr(published, "POINTS", tmp_path / "points.csv")
    published.write_points(whole, sources, published.POINTS)
    monkeypatch.setattr(published, "load", lambda: sources)
    (line,) = published.lines_of_others(sources, tmp_path, down)
    assert (line.who, line.at("env_steps", 1e5), line.seeds) == ("theirs", (250.0, 200.0), 2)
    assert line.at("trained_transitions", 2.56e7) == (250.0, 200.0)
    said = capsys.readouterr().err
    assert said == "no whole curves of theirs, others (no route to host): of these only points.csv\n"


def test_another_file_than_the_one_named_is_not_believed(tmp_path, monkeypatch):
    """Neither from the network nor from the cache."""
    held = tmp_path / f"{'0' * 16}-table.csv"
    held.write_text("something else")
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(b"another"))
    with pytest.raises(InputError, match=r"has the sha256 [0-9a-f]{64}, 0{64} was expected"):
        published.text_of(source("sac"), tmp_path)
    right = dataclasses.replace(source("sac"), sha256=hashlib.sha256(b"another").hexdigest())
    assert published.text_of(right, tmp_path) == "another"
    monkeypatch.undo()
    assert published.text_of(right, tmp_path) == "another"  # from the cache


def test_the_kept_returns_are_of_free_licences_and_of_tasks_that_we_have():
    """The table in this repository is small, and every row is of a source that is named."""
    free = {each.who for each in published.load() if each.licence in published.FREE}
    kept = list(published.read_points(published.POINTS))
    assert {line.who for line in kept} == free
    assert {line.task for line in kept} == set(published.TASKS)
    assert published.POINTS.stat().st_size < 10_000


def test_the_table_over_an_axis_leaves_out_what_nobody_reached():
    """The mean, the worst seed in brackets, an empty cell for who was not there."""
    ours = [published.curve_of([(1e5, value), (3e5, 2 * value)], None) for value in (1000.0, 3000.0)]
    lines = [four_axes.line_of("ours", "Hopper-v5", ours)]
    lines.append(four_axes.line_of("theirs", "Hopper-v4", [published.curve_of([(1e5, 70.0)], None)]))
    assert four_axes.table(lines, "env_steps") == [
        "| env steps | | seeds | 100k | 300k |",
        "|---|---|---|---|---|",
        "| Hopper-v5 | ours | 2 | 2,000 (1,000) | 4,000 (2,000) |",
        "| Hopper-v4 | theirs | 1 | 70 |  |",
    ]
    assert four_axes.tables(lines, ["wall_s"]) == ""


def test_the_picture_has_the_axes_that_are_known_and_names_whom_it_shows(tmp_path):
    """A row for each task, with a cross for a single return, of whatever format the file's name asks for."""
    lines = list(source("sac").lines(EVALUATIONS)) + list(source("sac", "a.md", trained=None).lines(ZOO))
    four_axes.draw(lines, tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text()
    for said in ("theirs, Hopper-v4 (2)", "theirs, Humanoid-v3 (1)", "env steps", "trained transitions"):
        assert f"<!-- {said} -->" in drawn
    assert "core-seconds" not in drawn


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/nowhere"], "/nowhere: no such folder"),
        (["--out", "/nowhere/curves.png"], "--out /nowhere/curves.png: there is no folder /nowhere"),
    ],
)
def test_a_mistake_of_the_command_line_is_one_line(words, said, monkeypatch, capsys):
    """Before anything is downloaded."""
    monkeypatch.setattr(sys, "argv", ["published.py", *words])
    monkeypatch.setattr(published, "lines_of_others", None)
    with pytest.raises(SystemExit, match="2"):
        published.main()
    assert said in capsys.readouterr().err
