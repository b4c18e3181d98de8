"""How whole runs end: the last policy is played, a second Ctrl-C leaves it out, no step is no success."""

import time

from spreeze_zmq.metrics import read_journal
from spreeze_zmq.policy import Policy

#: No look is paid for after the first one.
RARELY = ("--set", "components.evaluator.cost_share=0.000001", "--set", "run.stop.return=0")
SLOW = """
import time
import gymnasium, numpy as np

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.05)
        return np.zeros(1, np.float32), float(action[0]), False, False, {}
"""


def test_a_run_that_stops_by_its_steps_plays_its_last_policy(launch):
    """Though the evaluator's share was spent with the first look. What the file holds is what thirty fresh
    episodes say of it, and so says the summary.
    """
    run = launch(*RARELY, "--set", "run.stop.env_steps=6000", "--set", "components.evaluator.episodes=2")
    assert run.end() == 0, run.said()
    summary = run.summary()
    journal = read_journal(run.folder / "metrics.jsonl")
    evaluations = [line for line in journal if line["kind"] == "evaluation"]
    looks = [line for line in evaluations if not line["confirmed"]]
    assert looks[-1]["version"] == max(line["version"] for line in looks) > looks[0]["version"]
    assert looks[-1]["env_steps"] > 5000
    assert summary["evaluations"][-1][1] == looks[-1]["env_steps"]
    best = summary["best"]
    assert (best["num_episodes"], best["confirmed"]) == (30, True)
    assert best["version"] in {line["version"] for line in looks}
    kept = Policy.load(run.folder / "policy.safetensors")
    assert kept.version == best["version"]
    assert float(kept.metadata["mean_return"]) == best["mean_return"] == summary["best_return"]
    assert best["interval_low"] < best["mean_return"] < best["interval_high"]


def test_a_second_ctrl_c_leaves_the_last_policy_out(launch, tmp_path, monkeypatch):
    """The first one ends the run and would play episodes of a thousand slow steps. The broker writes the
    summary all the same.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    slow = ("--set", "run.env=slow:Slow", "--set", "components.sampler.rollout_steps=2")
    slow += ("--set", "components.sampler.workers=4", "--set", "components.sampler.envs=4")
    run = launch(*slow, *RARELY, "--set", "components.evaluator.stop_grace_s=60")
    run.until(lambda: run.summary().get("samples", {}).get("produced", 0) > 0, "samples")
    run.interrupt()
    run.until(lambda: "the last policy is evaluated" in run.output.read_text(), "the last evaluation")
    interrupted_s = time.monotonic()
    run.interrupt()
    assert run.end(20) == 0, run.said()
    assert time.monotonic() - interrupted_s < 10
    assert run.summary()["exit_reason"] == "interrupted by the user"
    assert run.leftovers() == []


def test_a_run_without_a_step_has_failed(launch):
    """Its sampler's place was left free: exit code 1, and one line that says who waited for whom."""
    run = launch("--without", "sampler")
    run.until(lambda: "waits for rollouts from sampler" in run.output.read_text(), "word of what is missing")
    run.interrupt()
    assert run.end() == 1, run.said()
    last = run.output.read_text().splitlines()[-1]
    assert last.startswith("no env step was taken in ")
    assert "critic_learner-0 waited for rollouts from sampler" in last
