"""Whole runs with samplers in other languages, as a user starts them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.commands.spreeze import main
from tests.system.conftest import LIGHT, said_in

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "components"


def entries(run, kind):
    """The lines of one kind of the run's journal, into which its broker may be writing."""
    return [*read_journal(run.folder / "metrics.jsonl", (kind,))]


def heard(run):
    """The samplers that the journal's statuses show at work."""
    rows = (row for entry in entries(run, "status") for row in entry["processes"].items())
    return {name for name, row in rows if row["busy"] > 0}


@pytest.mark.timeout(300)
@pytest.mark.long("a program in C++ is compiled, and a run trains")
def test_cpp_and_python_in_one_run(built_cpp, launch):
    """A sampler in C++ joins a run of one in Python, before that one has its name: both are taken from, and
    nothing is lost.
    """
    words = ["run.stop={minutes=5}", "algorithm.learning_starts=1000", "components.sampler.count=1"]
    words += LIGHT
    run = launch(*(word for key in words for word in ("--set", key)), topology="halfcheetah")
    run.until((run.folder / "run.json").exists, "run.json")
    command = [sys.executable, str(COMPONENTS / "sampler_cpp"), str(run.folder)]
    log = run.folder / "joined.log"
    with log.open("w") as output:
        joined = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    run.until(lambda: {"sampler-0", "sampler-1"} <= heard(run), "both samplers at work")
    run.until(lambda: run.summary().get("env_steps", 0) > 2000, "rollouts")
    run.interrupt()
    assert run.end(90) == 0, run.said()
    assert joined.wait(30) == 0, log.read_text()
    assert "sampler-1 is ready" in log.read_text()
    samples = run.summary()["samples"]
    assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    assert {"sampler-0", "sampler-1"} <= {entry["name"] for entry in entries(run, "hello")}


@pytest.mark.thorough
def test_cpp_by_its_name_in_a_topology(built_cpp, launch):
    """``use = "sampler_cpp"`` is all that it takes."""
    words = ["run.stop={env_steps=3000}", "components.sampler.use=sampler_cpp", "components.sampler.count=1"]
    run = launch(*(word for key in words for word in ("--set", key)), topology="halfcheetah")
    assert run.end(90) == 0, run.said()
    assert run.summary()["env_steps"] >= 3000
    assert run.summary()["failures"] == []
    assert run.plan()["components"]["sampler"]["command"][-1] == str(COMPONENTS / "sampler_cpp")


@pytest.mark.long("packages of JavaScript are fetched, and a run trains")
def test_javascript_swings_a_pendulum_and_an_observer_sees_it(new_node, launch):
    """The Pendulum written in JavaScript, and a program of 30 lines that only looks."""
    words = ["run.stop={env_steps=20000}", f"components.sampler.use={new_node}", "components.sampler.count=1"]
    words += LIGHT
    run = launch(*(word for key in words for word in ("--set", key)))
    run.until((run.folder / "run.json").exists, "run.json")
    observer = [sys.executable, COMPONENTS / "examples" / "observer.py", run.folder]
    looking = subprocess.Popen(observer, stdout=subprocess.PIPE, text=True)
    assert run.end(90) == 0, run.said()
    said, _ = looking.communicate(timeout=30)
    assert all(f" s  {topic}: " in said for topic in ("hello", "status", "end")), said
    [*_, status] = [line for line in said.splitlines() if " s  status: " in line]
    assert "None" not in status
    summary = run.summary()
    assert summary["env_steps"] >= 20000
    assert summary["failures"] == []
    assert -10.0 * 200 < entries(run, "episodes")[0]["mean"] < 0.0


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_new_sampler_is_ready_to_use(built_cpp, tmp_path, monkeypatch, capsys, language):
    """``spreeze new`` writes a folder that a topology beside it takes by ``use``, and says how to check."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--kind", "sampler", "--language", language]) == 0
    said = capsys.readouterr().out
    assert 'use = "./mine"' in said
    assert re.search(
        r"^check it: \S*spreeze conform sampler (--topology halfcheetah )?-- \S", said, re.MULTILINE
    )
    (tmp_path / "t.toml").write_text('[run]\nenv = "HalfCheetah-v5"\n[components.sampler]\nuse = "./mine"\n')
    assert said_in(tmp_path, "t.toml", "--check")[0] == 0
    assert main(["new", "mine"]) == 2
    assert "mine: it is there already" in capsys.readouterr().err


def test_without_cmake_one_line_says_so(tmp_path, monkeypatch):
    """Before any process starts, with the exit code of bad input."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    use = ("--set", "components.sampler.use=sampler_cpp")
    code, _, errors = said_in(tmp_path, "halfcheetah", "--run-dir", "run", *use)
    assert code == 2
    line = "sampler_cpp: cannot be built: missing: cmake (apt install cmake)"
    assert errors.splitlines()[-1] == f"spreeze-launch: {line}"
    assert not (tmp_path / "run").exists()
