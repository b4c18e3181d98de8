"""``spreeze doctor``: judges a run's folder without running anything of it."""

import json

import pytest

from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology


def folder_of(tmp_path, *overrides, env="Pendulum-v1"):
    """A run's folder with its plan, of an environment that the name alone stands for."""
    plan = json.loads(topology.load("pendulum", overrides).to_json())
    plan["run"]["env"] = plan["environment"]["id"] = env
    (tmp_path / "run.json").write_text(json.dumps(plan))
    return tmp_path


def test_a_run_without_findings_ends_with_0(tmp_path, capsys):
    """Also before its first line."""
    assert main(["doctor", str(folder_of(tmp_path))]) == 0
    assert capsys.readouterr().out.endswith(": nothing found\n")


def test_findings_end_with_1_and_run_nothing_of_the_folder(tmp_path, capsys):
    """Neither its environment's module nor its algorithm's is imported, whatever the files name."""
    (tmp_path / "marks.py").write_text("raise SystemExit('it was imported')")
    folder = folder_of(tmp_path, "algorithm.learning_rate=1.0", env="marks:Env")
    (folder / "metrics.jsonl").write_text('{"kind": "status", "t_s": 1.0}\n{"kind": 5}\n[]\nnot JSON\n')
    assert main(["doctor", str(folder)]) == 1
    assert capsys.readouterr().out.startswith("learning_rate: algorithm.learning_rate is 1: ")
    assert main(["doctor", str(folder), "--json"]) == 1
    [row] = json.loads(capsys.readouterr().out)
    assert row.keys() == {"name", "seen", "why", "try", "rank", "t_s"}


@pytest.mark.parametrize("words", [["missing"], ["."]])
def test_what_is_no_run_is_refused(tmp_path, monkeypatch, capsys, words):
    """With exit code 2, as for every command."""
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *words]) == 2
    assert "no run's folder" in capsys.readouterr().err
