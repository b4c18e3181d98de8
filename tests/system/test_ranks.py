"""Whole runs whose critics train in several processes as one."""

import re

from tests.system.conftest import adds_up

TWO = (
    *("--set", "components.critic_learner.count=2"),
    *("--set", "components.sampler.count=1"),
    *("--set", "algorithm.hidden_sizes=[16]"),
    *("--set", "run.stop.return=0"),
)


def weights(run):
    """What each critic-learner says of its weights at the end: updates and checksum."""
    said = [(run.folder / "logs" / f"critic_learner-{index}.log").read_text() for index in range(2)]
    return [re.findall(r"critics after (\d+) updates: CRC-32 (\w+)", text) for text in said]


def test_two_critic_learners_train_as_one(launch):
    """The run ends by its env steps, which are those of both; samples are accounted for, and both end with
    equal weights after the same number of updates.
    """
    run = launch(*TWO, "--set", "run.stop.env_steps=8000")
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert summary["exit_reason"].startswith("env_steps")
    assert 8000 <= summary["env_steps"] < 8000 + 8000  # what was under way to both is taken in
    assert summary["samples"]["received"] == summary["env_steps"]
    assert summary["samples"]["in_flight"] == 0
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert summary["critic_updates"] > 100
    assert summary["trained_transitions"] == 2 * 256 * summary["critic_updates"]
    assert summary["replay_ratio"]["measured"] <= summary["replay_ratio"]["target"]
    first, second = weights(run)
    assert first == second
    assert int(first[-1][0]) == summary["critic_updates"]
    assert summary["restarts"] == 0
    assert run.leftovers() == []


def test_when_one_of_two_is_killed_both_go_on_from_the_last_checkpoint(launch):
    """Here the one that publishes: one restart, one failure, the same weights in the end, every sample
    accounted for.
    """
    run = launch(*TWO, "--set", "run.checkpoint_minutes=0.02", "--set", "run.save_replay=true")
    run.until_training()
    run.until(lambda: [*(run.folder / "checkpoints").glob("*/MANIFEST.json")], "a checkpoint")
    lives = [run.pid(f"critic_learner-{number}") for number in range(2)]
    run.kill("critic_learner-0")
    for number in range(2):
        run.until(lambda n=number: run.pid(f"critic_learner-{n}") not in (None, lives[n]), "new lives")
    before = run.summary()["actor_updates"]
    run.until(lambda: run.summary()["actor_updates"] > before + 50, "training that goes on")
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert summary["restarts"] == 1
    assert [failure["name"] for failure in summary["failures"]] == ["critic_learner-0"]
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    first, second = weights(run)
    assert first[-1] == second[-1]
    assert run.said().count("the replay is back") == 2
    assert f"critic_learner-1 leaves to begin anew: critic_learner-0 (process {lives[0]})" in run.said()
    assert run.leftovers() == []
