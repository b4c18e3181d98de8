"""Every shipped algorithm as real processes: it repeats itself bit by bit and resumes."""

import numpy as np
import pytest

from tests.system.conftest import adds_up, thorough_but

#: Topology and settings of each road that learners can take.
ROADS = {
    "sac": ("pendulum", "--set", "algorithm.hidden_sizes=[16]"),
    "td3": ("pendulum", "--set", "run.algorithm=td3", "--set", "algorithm.hidden_sizes=[16]"),
    "dqn": ("cartpole_dqn", "--set", "algorithm.hidden_sizes=[16]"),
    "ppo": ("cartpole", "--set", "algorithm.hidden_sizes=[16]"),
    "recurrent": ("cartpole", "--set", "algorithm.hidden_sizes=[16]", "--set", "algorithm.memory_size=8"),
    "pqn": ("cartpole_pqn", "--set", "algorithm.hidden_sizes=[16]"),
}
ENDLESS = (
    "--set",
    "run.stop.return=1000",
    "--set",
    "run.stop.minutes=3",
    "--set",
    "run.checkpoint_minutes=0.05",
)
LOCKSTEP = (
    *("--set", "run.stop.return=1000"),
    *("--set", "balance.mode=lockstep"),
    *("--set", "components.sampler.count=2"),
    *("--set", "run.stop.env_steps=5120"),
)


def started(launch, road, *more):
    """A run of one road."""
    topology, *settings = ROADS[road]
    return launch(*settings, *more, topology=topology)


def updates(run):
    """Updates of the learner that has made fewest."""
    names, summary = {"critic_learner": "critic_updates", "actor_learner": "actor_updates"}, run.summary()
    return min((summary[names[role]] for role in summary.get("learners", ())), default=0)


def counted(run):
    """The bytes of what a run in lock-step decides by count."""
    folder = max((run.folder / "checkpoints").iterdir())
    return {
        path.name: path.read_bytes() for path in (*folder.glob("*.pt"), *(run.folder / "learning").iterdir())
    }


@pytest.mark.long("three runs at once crowd each other")
@pytest.mark.parametrize("road", thorough_but("dqn", "ppo", of=ROADS))
def test_two_runs_in_lockstep_leave_the_same_bytes(launch, road):
    """Started together, so that they crowd each other: checkpoints and losses are the same. Another seed
    gives others.
    """
    runs = [started(launch, road, *LOCKSTEP, "--set", f"run.seed={seed}") for seed in (1, 1, 2)]
    assert [run.end(100) for run in runs] == [0, 0, 0], runs[0].said()
    first, second, other = map(counted, runs)
    assert len(first) == 2 * len(runs[0].summary()["learners"])
    assert first == second
    assert all(first[name] != other[name] for name in first)
    for run in runs:
        summary = run.summary()
        assert summary["policy_lag"]["max"] == (0 if road in ("ppo", "recurrent", "pqn") else 1)
        assert summary["policy_lag"]["stale"] == 0
        assert all(map(adds_up, summary["samples_by_channel"].values()))


@pytest.mark.parametrize("road", thorough_but("ppo", of=("dqn", "ppo", "pqn")))
def test_a_run_goes_on_from_its_checkpoint(launch, road):
    """Updates and policy versions count on from where they stood."""
    first = started(launch, road, *ENDLESS)
    first.until(lambda: updates(first) >= 50, "updates")
    first.interrupt()
    assert first.end() == 0, first.said()
    second = started(launch, road, *ENDLESS, "--resume", str(first.folder))
    second.until(
        lambda: second.summary().get("critic_updates", 0) > first.summary()["critic_updates"], "more"
    )
    second.until(lambda: updates(second) > updates(first) + 50, "updates of every learner")
    second.interrupt()
    assert second.end() == 0, second.said()
    assert second.summary()["failures"] == []


def test_rounds_are_trained_on_for_their_epochs_and_no_more(launch):
    """The measured ratio of an on-policy run is its number of epochs, whatever the speed of either side."""
    run = started(launch, "ppo", *ENDLESS, "--set", "algorithm.epochs=3")
    run.until(lambda: run.summary().get("env_steps", 0) > 20_000, "20,000 steps")
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert summary["replay_ratio"]["target"] == 3
    assert summary["replay_ratio"]["measured"] == pytest.approx(3, rel=0.05)
    assert summary["policy_lag"]["max"] <= 1
    returns = [mean for _, _, mean, _ in summary["evaluations"]]
    assert np.isfinite(returns).all()
