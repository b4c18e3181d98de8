"""Callbacks in whole runs: those of a script, and those that the command line names."""

import importlib
import json
import textwrap
import time

import numpy as np
import pytest

import spreeze_zmq
from spreeze_zmq.base.journal import read_journal
from tests.system.conftest import LIGHT, PATIENCE
from tests.system.test_examples import EXAMPLES

#: A run that lasts until a callback ends it; its environment sleeps, so that it needs few cores.
NAPPING = {
    "algorithm": "dqn",
    "options": {"hidden_sizes": [16], "batch_size": 32, "learning_starts": 200, "learning_rate": 1e-3},
    "balance": {"replay_ratio": 4.0},
    "stop": {"minutes": 20, "env_steps": 10_000_000},
    "components": {
        "sampler": {"count": 1, "envs": 4},
        "evaluator": {"episodes": 2},
        "critic_learner": {"start_timeout_s": 120},
    },
}


class Sleeps(spreeze_zmq.Callback):
    """Takes for ever."""

    def on_status(self, run, status):
        time.sleep(1000)


class Raises(spreeze_zmq.Callback):
    """Has a mistake."""

    def on_evaluation(self, run, evaluation):
        raise LookupError("a mistake")


class Ends(spreeze_zmq.Callback):
    """Stops the run when the learner has followed, and all that is to be seen has been seen."""

    def __init__(self, followed, seen):
        self.followed, self.seen = followed, seen

    def on_started(self, run, started):
        run.note("it has begun")

    def on_status(self, run, status):
        if self.followed(status.gauges.get("learning_rate", 1.0)) and self.seen():
            run.stop("all is seen")


@pytest.mark.long("a run of ten callbacks, until each has done what it does")
@pytest.mark.timeout(240)
def test_ten_recipes_run_beside_one_that_raises_and_one_that_sleeps(tmp_path, monkeypatch, capfd):
    """Each does what its docstring says; the learner follows the number that is set; the run ends with its
    own exit code.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    recipes = importlib.import_module("callbacks")
    marks = []
    best, returns = recipes.TryBest(), recipes.CollectReturns()
    every = recipes.EverySteps(500, lambda run, status: marks.append(status.env_steps))
    schedule = recipes.LinearSchedule(2.0**-11, 20_000)
    extra = tmp_path / "run" / "extra.jsonl"

    ends = Ends(
        lambda rate: rate < 2.0**-11 and rate == pytest.approx(schedule.last),
        lambda: best.actions and returns.count and len(marks) > 1 and extra.exists(),
    )
    given = [
        *(recipes.StopAtReturn(1e6), recipes.StopWithoutImprovement(10_000), every, schedule, best, returns),
        *(recipes.KeepCheckpoints(tmp_path / "kept"), recipes.SaveBest(tmp_path / "best")),
        *(recipes.ProgressBar(), recipes.LogExtra(), ends, Raises(), Sleeps()),
    ]
    env = "tests.benchmarks.napping:cartpole"
    run = spreeze_zmq.train(env, callbacks=given, seed=1, run_dir=tmp_path / "run", **NAPPING)
    out, err = capfd.readouterr()
    summary = run.summary
    assert summary["exit_reason"] == "Ends: all is seen"
    journal = list(read_journal(run.folder / "metrics.jsonl"))
    rows = [entry for entry in journal if entry["kind"] == "request"]
    assert any(row["who"] == "LinearSchedule" and row["what"] == "set" for row in rows)
    assert "note Ends: it has begun" in out
    assert (
        f"callback Raises is called no more: on_evaluation raised LookupError: a mistake [{__file__}:" in out
    )
    assert out.count("note script: callback Raises") == 1
    (failure,) = [entry for entry in journal if entry["kind"] == "failure"]
    assert 'raise LookupError("a mistake")' in failure["traceback"]
    assert best.actions[0] in (0, 1)
    assert np.mean(returns.means) > 0
    assert marks == sorted(marks)
    assert list((tmp_path / "best").glob("*.safetensors"))
    checkpoints = [entry["folder"] for entry in journal if entry["kind"] == "checkpoint"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == checkpoints
    assert json.loads(extra.read_text().splitlines()[0])["env_steps"] > 0
    assert "Ends: all is seen" in err


MODULE = r"""
    import os
    import spreeze_zmq

    print("imported")


    class Stops(spreeze_zmq.Callback):
        def __init__(self):
            self.heard = []

        def on_started(self, run, started):
            self.heard.append(f"started {started.env} {os.getpid()}")

        def on_evaluation(self, run, evaluation):
            run.set("tau", 0.5)
            run.stop("one evaluation is enough")

        def on_ended(self, run, ended):
            self.heard.append(f"ended {ended.reason} {ended.best_return is not None}")
            (run.folder / "heard").write_text("\n".join(self.heard))
"""


@pytest.mark.long("a run until its first evaluation")
@pytest.mark.timeout(180)
def test_a_named_callback_has_a_process_of_its_own_and_ends_the_run(launch, tmp_path):
    """It hears of the end after the last evaluation, and what it prints is in its log."""
    (tmp_path / "my_callbacks.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "mine.toml").write_text('[run]\nenv = "CartPole-v1"\nalgorithm = "dqn"\n')
    words = [word for each in (*LIGHT, PATIENCE.format("critic_learner")) for word in ("--set", each)]
    run = launch("--callback", "my_callbacks:Stops", *words, topology=str(tmp_path / "mine.toml"))
    assert run.end() == 0, run.said()
    assert run.summary()["exit_reason"] == "Stops: one evaluation is enough"
    heard = (run.folder / "heard").read_text().splitlines()
    assert heard[0].startswith("started CartPole-v1")
    assert heard[1] == "ended Stops: one evaluation is enough True"
    assert "imported" in (run.folder / "logs" / "observer-0.log").read_text()
    assert run.plan()["components"]["observer"]["options"]["callbacks"] == ["my_callbacks:Stops"]
    assert not run.leftovers()
