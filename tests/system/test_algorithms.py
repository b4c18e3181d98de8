"""Every shipped algorithm as real processes: it repeats itself bit by bit and resumes."""

import numpy as np
import pytest

from tests.system.conftest import adds_up, thorough_but

#: Topology and settings of each road that learners can take.
ROADS = {
    "sac": ("pendulum", "--set", "algorithm.hidden_sizes=[16]"),
    "td3": ("pendulum", "--set", "run.algorithm=td3", "--set", "algorithm.hidden_sizes=[16]"),
    "td3_bc": ("pendulum", "--set", "run.algorithm=td3_bc", "--set", "algorithm.hidden_sizes=[16]"),
    "discrete_sac": (
        "cartpole_dqn",
        *("--set", "run.algorithm=discrete_sac"),
        *("--set", "algorithm.hidden_sizes=[16]"),
    ),
    "own noise": (
        "pendulum",
        *("--set", "run.algorithm=tests.system.noisy:Noisy"),
        *("--set", "algorithm.hidden_sizes=[16]"),
    ),
    "dqn": (
        "cartpole_dqn",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.num_atoms=11"),
        *("--set", "algorithm.learning_rate={ from = 1e-3, to = 1e-4 }"),
        *("--set", "algorithm.tau={ from = 0.1, to = 0.01, over = { trained_transitions = 9000 } }"),
    ),
    "moving": (
        "pendulum",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.learning_rate={ critic = { from = 3e-3, to = 3e-4 }, policy = 1e-3 }"),
        *("--set", "algorithm.target_entropy={ from = -1.0, to = -2.0 }"),
    ),
    "hindsight": (
        "pendulum",
        *("--set", "run.env=tests.system.maze:Maze"),
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.hindsight=random"),
        *("--set", "algorithm.n_step=3"),
        *("--set", "algorithm.prioritized=true"),
        *("--set", "algorithm.normalize_observations=true"),
    ),
    "camera": (
        "pendulum",
        *("--set", "run.env=tests.system.camera:Camera"),
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.network=mlp"),
        *("--set", "algorithm.n_step=3"),
        *("--set", "algorithm.normalize_observations=true"),
    ),
    "kl": (
        "cartpole",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.desired_kl=0.01"),
        *("--set", "algorithm.value_clip_range=0.2"),
        *("--set", "algorithm.clip_range={ from = 0.3, to = 0.1, shape = 'cosine' }"),
    ),
    "ppo": ("cartpole", "--set", "algorithm.hidden_sizes=[16]"),
    "recurrent": ("cartpole", "--set", "algorithm.hidden_sizes=[16]", "--set", "algorithm.memory_size=8"),
    "sequences": (
        "cartpole_dqn",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.memory_size=8"),
        *("--set", "algorithm.n_step=3"),
        *("--set", "algorithm.prioritized=true"),
    ),
    "sac sequences": (
        "pendulum",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.memory_size=8"),
        *("--set", "algorithm.n_step=3"),
        *("--set", "algorithm.prioritized=true"),
    ),
    "td3 sequences": (
        "pendulum",
        *("--set", "run.algorithm=td3"),
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.memory_size=8"),
        *("--set", "algorithm.burn_in=false"),
    ),
    "pqn": (
        "cartpole_pqn",
        *("--set", "algorithm.hidden_sizes=[16]"),
        *("--set", "algorithm.learning_rate={ from = 1e-3, to = 1e-4, shape = 'cosine' }"),
    ),
}
#: A run that its test ends, on a slow machine too.
ENDLESS = (
    *("--set", "run.stop.return=1000", "--set", "run.stop.minutes=30"),
    *("--set", "run.checkpoint_minutes=0.05"),
)
LOCKSTEP = (
    *("--set", "run.stop.return=1000"),
    *("--set", "balance.mode=lockstep"),
    *("--set", "components.sampler.count=2"),
    *("--set", "run.stop.env_steps=2560"),
    *("--without", "evaluator"),
)


def started(launch, road, *more):
    """A run of one road."""
    topology, *settings = ROADS[road]
    return launch(*settings, *more, topology=topology)


def counted(run):
    """The bytes of what a run in lock-step decides by count: its checkpoint but for the manifest, with the
    replays and the samplers' states, and the losses.
    """
    folder = max((run.folder / "checkpoints").iterdir())
    files = (*folder.iterdir(), *(run.folder / "learning").iterdir())
    return {path.name: path.read_bytes() for path in files if path.suffix != ".json"}


@pytest.mark.long("runs at once crowd each other")
@pytest.mark.parametrize("road", thorough_but("dqn", of=ROADS))
def test_two_runs_in_lockstep_leave_the_same_bytes(launch, road):
    """Started together, so that they crowd each other: checkpoints and losses are the same. Another seed
    gives others, on any road as on this one.
    """
    seeds = (1, 1, 2) if road == "td3" else (1, 1)
    runs = [started(launch, road, *LOCKSTEP, "--set", f"run.seed={seed}") for seed in seeds]
    for run in runs:
        assert run.end(100) == 0, run.said()
    first, second, *others = map(counted, runs)
    learners = runs[0].summary()["learners"]
    assert {f"{role}{kind}" for role in learners for kind in (".pt", ".jsonl")} < set(first)
    assert first == second
    assert all(first[name] != other[name] for other in others for name in first)
    for run in runs:
        summary = run.summary()
        assert summary["policy_lag"]["max"] == (0 if road in ("ppo", "recurrent", "kl", "pqn") else 1)
        assert summary["policy_lag"]["stale"] == 0
        assert all(map(adds_up, summary["samples_by_channel"].values()))


@pytest.mark.long("a run is interrupted, and another one goes on from it")
@pytest.mark.parametrize("road", thorough_but("pqn", of=("dqn", "ppo", "pqn")))
def test_a_run_goes_on_from_its_checkpoint(launch, road):
    """Updates and policy versions count on from where they stood. Rounds are trained on for their epochs and
    no more: the measured ratio of an on-policy run is their number, whatever the speed of either side.
    """
    settings = ENDLESS if road == "dqn" else (*ENDLESS, "--set", "algorithm.epochs=3")
    first = started(launch, road, *settings)
    first.until_training()
    if road != "dqn":
        first.until(lambda: first.summary()["env_steps"] > 20_000, "20,000 steps")
    first.interrupt()
    assert first.end() == 0, first.said()
    if road != "dqn":
        epochs_are_kept(first.summary())
    second = started(launch, road, *settings, "--resume", str(first.folder))
    second.until(lambda: second.updates() > first.updates() + 50, "updates of every learner")
    second.interrupt()
    assert second.end() == 0, second.said()
    assert second.summary()["failures"] == []


def epochs_are_kept(summary):
    """Those of a run with three epochs, and no policy acts for longer than a round."""
    assert summary["replay_ratio"]["target"] == 3
    assert summary["replay_ratio"]["measured"] == pytest.approx(3, rel=0.05)
    assert summary["policy_lag"]["max"] <= 1
    returns = [mean for _, _, mean, _ in summary["evaluations"]]
    assert np.isfinite(returns).all()
