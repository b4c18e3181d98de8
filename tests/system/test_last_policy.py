"""How whole runs end: the last policy is played, a second Ctrl-C leaves it out, no step is no success."""

import os
import re
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.commands import spreeze
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.checkpoint import latest
from tests.system.conftest import said_in

ROOT = Path(__file__).parents[2]
#: No look is paid for after the first one.
RARELY = ("--set", "components.evaluator.cost_share=0.000001", "--set", "run.stop.return=0")
OWN = """
import time
import gymnasium, numpy as np
from tests.system.holding import Hold

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)  # which one learner is enough for

    def __init__(self, length=-1, step_s=0.0, until=""):
        self.length, self.step_s, self.hold = length, step_s, Hold(until)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        time.sleep(self.step_s)
        self.hold()
        self.steps += 1
        self.x += 0.1 * (int(action) - 1)
        info = {"is_success": abs(self.x) < 0.1, "steps": self.steps}
        return np.array([self.x], np.float32), -abs(self.x), self.steps == self.length, False, info
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The arguments of a run in an environment of a user's own."""
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}", prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    return ("--set", "run.env=own:Own")


def test_a_run_that_stops_by_its_steps_plays_its_last_policy(launch, own, tmp_path):
    """Though the evaluator's share was spent with the first look, until which the sampler is slow. What the
    file holds is what thirty fresh episodes say of it, and so say summary, TensorBoard and ``spreeze eval``.
    """
    stop = ("--set", "run.stop.env_steps=6000", "--set", "components.evaluator.episodes=2")
    stop += ("--set", "balance.replay_ratio=4")
    stop += ("--set", f"run.env_kwargs.until={tmp_path}/run0/policy.safetensors")
    run = launch(*own, *RARELY, *stop, "--set", "run.env_kwargs.length=20", topology="cartpole_dqn")
    assert run.end() == 0, run.said()
    summary = run.summary()
    journal = read_journal(run.folder / "metrics.jsonl")
    evaluations = [line for line in journal if line["kind"] == "evaluation"]
    looks = [line for line in evaluations if not line["confirmed"]]
    learner = torch.load(latest(run.folder / "checkpoints").path / "critic_learner.pt", weights_only=False)
    assert looks[-1]["version"] >= learner["counters"]["version"] > looks[0]["version"]
    assert summary["evaluations"][-1][1] == looks[-1]["env_steps"]
    best = summary["best"]
    assert (best["num_episodes"], best["confirmed"]) == (30, True)
    assert best["version"] in {line["version"] for line in looks}
    kept = Policy.load(run.folder / "policy.safetensors")
    assert kept.version == best["version"]
    assert float(kept.metadata["mean_return"]) == best["mean_return"] == summary["best_return"]
    assert best["interval_low"] < best["mean_return"] < best["interval_high"]
    assert 0 <= best["info"]["is_success"] <= 1
    assert best["info"]["steps"] == best["mean_length"] == 20
    curves = EventAccumulator(str(run.folder)).Reload()
    assert [event.value for event in curves.Scalars("eval/info/steps")] == [20] * len(looks)
    assert curves.Scalars("eval/success_rate")[-1].step == looks[-1]["env_steps"]
    assert curves.Scalars("eval/best_mean_reward")[-1].value == pytest.approx(best["mean_return"])
    words = ("eval", run.folder, "--seed", kept.metadata["evaluation_seed"])
    code, said, errors = said_in(tmp_path, *words, main=spreeze.main)
    assert code == 0, errors
    assert f"mean return {best['mean_return']:.2f}" in said
    assert "these begin as the episodes of its score did" in said
    assert f"between {best['interval_low']:.2f} and {best['interval_high']:.2f}" in said
    assert "episodes of 20 steps" in said
    assert f"is_success at the end: {best['info']['is_success']:.4g} in the mean" in said
    assert f"when it was saved: {best['mean_return']:.2f} in 30 fresh episodes" in said


def plays(run):
    """Whether the evaluator has said twice after its start that it had a policy to play all the time."""
    lines = read_journal(run.folder / "metrics.jsonl")
    rows = [line.get("processes", {}).get("evaluator-0", {}) for line in lines]
    ready = [row for row in rows if row.get("ready")]
    return len({(row["busy"], row["cpu_percent"]) for row in ready if row["busy"] > 0.9}) > 2


@pytest.mark.long("the evaluator must have reported what it does")
def test_a_second_ctrl_c_leaves_the_last_policy_out(launch, own):
    """The first one ends the run and would play episodes of a thousand slow steps. The broker writes the
    summary all the same.
    """
    slow = (*own, "--set", "run.env_kwargs.step_s=0.05", "--set", "components.sampler.rollout_steps=2")
    slow += ("--set", "components.sampler.workers=4", "--set", "components.sampler.envs=4")
    slow += ("--set", "components.evaluator.stop_grace_s=60")
    run = launch(*slow, *RARELY, topology="cartpole_dqn")
    run.until(lambda: run.summary().get("samples", {}).get("produced", 0) > 0, "samples")
    run.until(lambda: plays(run), "the first evaluation")
    run.interrupt()
    run.until(lambda: "the last policy is evaluated" in run.output.read_text(), "the last evaluation")
    run.interrupt()
    assert run.end(40) == 0, run.said()  # the episodes alone would take 50 s
    assert run.summary()["exit_reason"] == "interrupted by the user"
    assert "first failure" not in run.output.read_text()
    assert run.summary()["failures"] == []
    assert run.leftovers() == []


@pytest.mark.thorough
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_during_the_last_evaluation_is_no_failure(launch, own, presses):
    """As the line invites the user to: the evaluator is killed, and nobody is blamed."""
    slow = (*own, "--set", "run.env_kwargs.step_s=0.02", "--set", "components.sampler.rollout_steps=2")
    run = launch(*slow, *RARELY, "--set", "run.stop.env_steps=100", topology="cartpole_dqn")
    begun = "the last policy is evaluated"
    run.until(lambda: begun in run.output.read_text(), begun, 110)
    for _ in range(presses):
        run.interrupt()
        time.sleep(0.05)
    assert run.end() == 0, run.said()  # the episodes alone would take ten minutes
    assert "first failure" not in run.output.read_text()
    assert run.summary()["failures"] == []
    assert run.leftovers() == []


def test_a_run_without_a_step_has_failed(launch):
    """Its sampler's place was left free: exit code 1, and one line that says who waited for whom."""
    run = launch("--without", "sampler", topology="cartpole_dqn")
    run.until(lambda: "from sampler" in run.output.read_text(), "word of what is missing")
    run.interrupt()
    assert run.end() == 1, run.said()
    last = run.output.read_text().splitlines()[-1]
    assert last.startswith("no env step was taken in ")
    assert re.search(r"_learner-0 waited for (rollouts|observations) from sampler", last)
