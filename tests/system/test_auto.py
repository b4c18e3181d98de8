"""A run whose batch this machine chooses, as a user starts it."""

import json
from pathlib import Path

import pytest

from spreeze_zmq.plan import sizing, topology

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
AUTO = ("algorithm.batch_size=auto", "algorithm.max_batch_size=128", "algorithm.reference_batch_size=64")
SETTINGS = (*AUTO, "components.sampler.count=1", "run.stop={env_steps=2000}")


@pytest.mark.long("two batch sizes are measured until their rates are steady")
@pytest.mark.timeout(120)
def test_a_run_measures_its_batch_once_and_says_so(launch, nothing_measured):
    """Choice, curve and scaling are in run.json, summary.json and the log; whoever loads the same topology
    again begins at once.
    """
    arguments = [word for setting in SETTINGS for word in ("--set", setting)]
    run = launch(*arguments, topology="cartpole_dqn")
    assert run.end() == 0, run.said()
    plan, auto = run.plan(), run.summary()["auto"]
    chosen = auto["batch_size"]["chosen"]
    assert chosen in (64, 128)
    assert [size for size, _ in auto["batch_size"]["curve"]] == [64, 128]
    assert plan["algorithm"]["batch_size"] == chosen
    assert plan["algorithm"]["learning_rate"] == pytest.approx(1e-3 * (chosen / 64) ** 0.5)
    assert plan["algorithm"]["tau"] == pytest.approx(1 - 0.99 ** (chosen / 64))
    assert (plan["to_measure"], plan["measured"]) == ([], auto)
    summary = run.summary()
    assert summary["trained_transitions"] == chosen * summary["critic_updates"] > 0
    log = (run.folder / "logs" / "critic_learner-0.log").read_text()
    for said in (log, run.output.read_text()):
        assert f"batch_size {chosen} trains" in said
        assert f"for {chosen / 64:g} times the batch of 64: learning_rate 0.001 x sqrt" in said
    assert auto["source"].startswith("measured in")
    assert run.leftovers() == []
    again = sizing.settle(topology.load("cartpole_dqn", [*SETTINGS]))
    assert again.algorithm["batch_size"] == chosen
    assert again.measured["source"] == "as measured on this machine before"


@pytest.mark.thorough
@pytest.mark.timeout(150)
def test_a_run_that_starves_goes_on_with_a_smaller_batch(launch, monkeypatch, nothing_measured):
    """Pendulum at a thousand steps a second: the batch that a core could train is far more than is fed. Both
    learners go on with one that suits it, the ratio holds, and summary, log and journal say why.
    """
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS))
    scarce = ("run.env=napping:make", "components.sampler.count=1", "components.sampler.envs=4")
    run_of = ("algorithm.learning_starts=100", "balance.replay_ratio=8", "run.stop={env_steps=12000}")
    settings = (*AUTO, *scarce, *run_of)
    run = launch(*(word for setting in settings for word in ("--set", setting)))
    assert run.end(120) == 0, run.said()
    summary, plan = run.summary(), run.plan()
    assert summary["exit_reason"].startswith("env_steps")
    begin = plan["algorithm"]["batch_size"]
    _, size, reason = summary["moves"]["critic_learner.batch_size"][0]
    assert size < begin
    assert reason.startswith(f"batch size {begin} -> {size}: critic_learner starved ")
    assert reason in run.output.read_text()
    for role in ("critic_learner", "actor_learner"):
        log = (run.folder / "logs" / f"{role}-0.log").read_text()
        assert f"batch size {begin} -> {size}; for {size / 64:g} times the batch of 64" in log
    assert summary["trained_transitions"] / summary["critic_updates"] < begin
    assert summary["replay_ratio"]["measured"] == pytest.approx(8, rel=0.1)
    journal = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    decided = [line["decision"] for line in journal if line["kind"] == "balance"]
    assert any(figures.get("batch_size") == size for figures in decided)
