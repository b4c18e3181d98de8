"""Runs that train on data: on them alone, and beside what they sample."""

import json
import tomllib

import numpy as np
import pytest

from spreeze_zmq import Policy, data
from spreeze_zmq.commands import launch as launching
from spreeze_zmq.commands import spreeze
from tests.system.conftest import BORNE_OUT, adds_up, said_in
from tests.system.detour import Detour, demonstrations
from tests.system.test_algorithms import counted

ENV = "tests.system.detour:Detour"
#: Of a task and networks as small as these.
SMALL = {
    "run.env": f'"{ENV}"',
    "run.stop.return": "none",
    "algorithm.hidden_sizes": "[64, 64]",
    "algorithm.batch_size": 128,
    "algorithm.gamma": 0.97,
    "algorithm.tau": 0.02,
    "data.shown.source": '"minari:detour/ten-v0"',
}
OFFLINE = {**SMALL, "run.algorithm": "td3_bc", "components.sampler.count": 0, "algorithm.learning_rate": 1e-3}
SPARSE = {
    **SMALL,
    "run.algorithm": "sac",
    "run.stop.minutes": 10,
    "run.stop.env_steps": 8_000,  # ten demonstrations take 2,000 to 4,000
    "algorithm.layer_norm": "true",
    "algorithm.initial_temperature": 0.01,
    "algorithm.learning_starts": 500,
    "algorithm.n_step": 5,
    "balance.replay_ratio": 16,
    "components.sampler.count": 1,
}


@pytest.fixture(autouse=True)
def shown(tmp_path, monkeypatch):
    """Ten episodes of one who knows the way, as a Minari dataset."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    episodes = []
    demonstrations(episodes.append, 10)
    data.write("detour/ten-v0", episodes, Detour(), "ten times around the wall")
    return sum(len(episode.rewards) for episode in episodes)


def words(settings):
    """As the command line has them."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def started(launch, settings, *more):
    """A run with these settings."""
    return launch(*words(settings), *more, topology="pendulum")


def reached(policy, episodes=50):
    """The share of episodes that end at the goal."""
    env, found = Detour(), 0.0
    for seed in range(episodes):
        obs, _ = env.reset(seed=1000 + seed)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            over = terminated or truncated
        found += reward
    return found / episodes


@pytest.mark.long("a policy is trained, and a run goes on from it")
@pytest.mark.timeout(1400)
def test_a_run_without_samplers_trains_on_data_alone(launch, tmp_path, shown):
    """To its limit of transitions and not one batch further; it takes no step, waits for no sample, is
    evaluated, saved, recorded from, and gone on with. Priorities are the critics' alone.
    """
    settings = {**OFFLINE, "algorithm.prioritized": "true", "run.save_replay": "true"}
    run = started(launch, {**settings, "run.stop.trained_transitions": 128 * 1400})
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert summary["trained_transitions"] == 128 * 1400
    assert summary["critic_updates"] == 1400
    assert (summary["env_steps"], summary["samples"]["produced"], summary["failures"]) == (0, 0, [])
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert not [row for row in summary["findings"] if "other programs" not in row["seen"]]
    said = run.said()
    (priorities,) = run.folder.glob("checkpoints/*/*priorities*")
    assert priorities.name.startswith("critic_learner")
    assert "ended after" in said
    assert "179,200 trained transitions" in said
    assert f"data.shown: {shown} transitions fill the replay" in said
    assert reached(Policy.load(run.folder)) >= BORNE_OUT
    code, out, err = said_in(tmp_path, "record", run.folder, "--minari", "own/first-v0", main=spreeze.main)
    assert code == 0, err
    assert "10 episodes" in out
    pasted = out.partition("in a topology:\n")[2]
    assert tomllib.loads(pasted) == {"data": {"first-v0": {"source": "minari:own/first-v0"}}}
    assert data.Dataset.open(data.find("minari:own/first-v0", tmp_path)).num_episodes == 10
    more = {**settings, "run.stop.trained_transitions": 128 * 1450}
    further = started(launch, more, "--resume", str(run.folder))
    assert further.end(630) == 0, further.said()
    assert further.summary()["critic_updates"] == 1450


@pytest.mark.long("two runs at once")
def test_two_runs_on_data_alone_in_lockstep_leave_the_same_bytes(launch):
    """With a source that fills the replay and one that has a share; the actor-learner follows every version
    of the critics to the last.
    """
    more = {
        "data.other.source": '"minari:detour/ten-v0"',
        "data.other.share": 0.25,
        "balance.mode": "lockstep",
        "run.stop.trained_transitions": 128 * 200,
    }
    runs = [started(launch, {**OFFLINE, **more}) for _ in range(2)]
    for run in runs:
        assert run.end(100) == 0, run.said()
    first, second = map(counted, runs)
    assert {"critic_learner.pt", "actor_learner.pt", "critic_learner.jsonl", "actor_learner.jsonl"} < {*first}
    assert first == second
    lines = [json.loads(line) for line in first["actor_learner.jsonl"].splitlines()]
    assert len(lines) == len(first["critic_learner.jsonl"].splitlines())
    assert all(np.isfinite(line["policy_loss"]) for line in lines)


@pytest.mark.long("three runs, one after the other")
def test_a_run_on_data_alone_in_lockstep_goes_on_with_other_batches(launch):
    """Both learners come to their end, of a larger batch and of a smaller one, and write their last parts."""
    lockstep, trained = {**OFFLINE, "balance.mode": "lockstep"}, 128 * 100
    run = started(launch, {**lockstep, "run.stop.trained_transitions": trained})
    assert run.end(100) == 0, run.said()
    for batch, updates in ((256, 300), (64, 500)):
        trained += batch * (updates - run.summary()["critic_updates"])
        more = {**lockstep, "algorithm.batch_size": batch, "run.stop.trained_transitions": trained}
        run = started(launch, more, "--resume", str(run.folder))
        assert run.end(100) == 0, run.said()
        assert run.summary()["critic_updates"] == updates
        assert {"critic_learner.pt", "actor_learner.pt"} < {*counted(run)}


@pytest.mark.long("a sparse task is trained")
@pytest.mark.timeout(700)
def test_a_sparse_task_is_learned_with_ten_demonstrations(launch):
    """Of which every batch holds as much as of what the run samples; its account has the latter alone."""
    run = started(launch, {**SPARSE, "data.shown.share": 0.5})
    assert run.end(630) == 0, run.said()
    summary = run.summary()
    assert summary["exit_reason"].startswith("env_steps"), run.said()
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert reached(Policy.load(run.folder)) >= BORNE_OUT


@pytest.mark.thorough
@pytest.mark.timeout(700)
def test_without_demonstrations_it_is_not_learned(launch):
    """In as many steps."""
    run = started(launch, {name: value for name, value in SPARSE.items() if not name.startswith("data.")})
    assert run.end(630) == 0, run.said()
    assert run.summary()["exit_reason"].startswith("env_steps"), run.said()
    assert max(mean for _, _, mean, *_ in run.summary()["evaluations"]) == 0.0


@pytest.mark.thorough
@pytest.mark.timeout(2000)
def test_nine_tenths_of_a_policys_return_are_learned_from_its_episodes(launch, tmp_path):
    """Of a MuJoCo task: a policy of ours is trained, episodes in which it explores are recorded, and a run
    that takes no step learns from these.
    """
    bare = tmp_path / "bare.toml"
    bare.write_text('[run]\nenv = "InvertedPendulum-v5"\n')
    limits = {"run.stop.return": 950, "run.stop.minutes": 10}
    teacher = launch(*words({**limits, "run.algorithm": "ppo"}), topology=str(bare))
    assert teacher.end(630) == 0, teacher.said()
    words_of_record = ("record", teacher.folder, "--minari", "own/explored-v0", "--episodes", 30, "--explore")
    code, _, err = said_in(tmp_path, *words_of_record, main=spreeze.main)
    assert code == 0, err
    best = teacher.summary()["best"]["mean_return"]
    limits |= {"run.algorithm": "td3_bc", "run.stop.return": 0.9 * best, "components.sampler.count": 0}
    limits["data.shown.source"] = '"minari:own/explored-v0"'
    run = launch(*words(limits), topology=str(bare))
    assert run.end(630) == 0, run.said()
    assert run.summary()["exit_reason"].startswith("return"), run.said()
    assert run.summary()["best"]["mean_return"] >= 0.9 * best


def test_a_dataset_of_another_task_starts_nothing(tmp_path):
    """One line, exit code 2."""
    settings = {**OFFLINE, "run.env": "Pendulum-v1", "run.stop.minutes": 1}
    folder = tmp_path / "run"
    code, _, err = said_in(tmp_path, "pendulum", "--run-dir", folder, *words(settings), main=launching.main)
    assert code == 2
    assert "data.shown.source: episode 0: its observations have the shape (2,)" in err
    assert not folder.exists()
