"""The dial at lock-step, on whole runs: they come out the same."""

import pytest

from tests.system.conftest import adds_up

SMALL = ("--set", "algorithm.hidden_sizes=[16]", "--set", "run.stop.return=0")
LOCKSTEP = (
    *SMALL,
    *("--set", "balance.mode=lockstep"),
    *("--set", "components.sampler.count=2"),
    *("--set", "run.stop.env_steps=5000"),
)


def counted(run):
    """The bytes of everything that a run in lock-step decides by count: the last checkpoint, the losses."""
    folder = max((run.folder / "checkpoints").iterdir())
    files = [*folder.glob("*.pt"), *(run.folder / "learning").iterdir()]
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.thorough
def test_runs_in_lockstep_leave_the_same_bytes(launch):
    """One alone, two while three runs crowd the machine: the same checkpoints and losses. The third of those
    has another seed, and differs.
    """
    alone = launch(*LOCKSTEP)
    assert alone.end() == 0, alone.said()
    crowded = [launch(*LOCKSTEP, "--set", f"run.seed={seed}") for seed in (1, 1, 2)]
    assert [run.end(120) for run in crowded] == [0, 0, 0]
    expected = counted(alone)
    assert sorted(expected) == [
        *("actor_learner.jsonl", "actor_learner.pt", "critic_learner.jsonl", "critic_learner.pt"),
    ]
    assert len(expected["critic_learner.jsonl"].splitlines()) > 5
    assert counted(crowded[0]) == expected
    assert counted(crowded[1]) == expected
    other = counted(crowded[2])
    assert all(other[name] != expected[name] for name in expected)
    for run in (alone, *crowded):
        summary = run.summary()
        assert summary["policy_lag"] == {"p50": 1, "p99": 1, "max": 1, "stale": 0, "bound": 1}
        assert all(map(adds_up, summary["samples_by_channel"].values()))


def test_a_run_in_lockstep_ends_when_a_sampler_dies(launch):
    """Its successor could not take up its place in the order: the run says so and ends."""
    run = launch(*LOCKSTEP, "--set", "run.stop.env_steps=1000000")
    run.until_training()
    run.kill("sampler-1")
    assert run.end() == 1
    said = run.output.read_text()
    last = said[said.index("the first failure was ") :]  # nothing else follows it
    assert last.startswith("the first failure was sampler-1: ")
    assert "SIGKILL was not ours" in last.splitlines()[-1]
    assert run.leftovers() == []
