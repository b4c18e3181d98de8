"""The dial at lock-step, on a whole run; that such runs come out the same shows ``test_algorithms.py``."""

import pytest

from spreeze_zmq.run.checkpoint import latest

SMALL = ("--set", "algorithm.hidden_sizes=[16]", "--set", "run.stop.return=0")
LOCKSTEP = (
    *SMALL,
    *("--set", "balance.mode=lockstep"),
    *("--set", "components.sampler.count=2"),
    *("--set", "run.stop.env_steps=5000"),
)


@pytest.mark.long("the end of a whole run, whose learner waits for samples that never come")
def test_a_run_in_lockstep_ends_when_a_sampler_dies(launch):
    """Its successor could not take up its place in the order: the run says so and ends, saved although the
    launcher has not heard of an update.
    """
    endless = ("--set", "run.stop.env_steps=1000000", "--set", "run.stop.return=1000")
    endless += ("--set", "components.broker.status_interval_s=20")
    run = launch(*LOCKSTEP, *endless, topology="cartpole_dqn")
    run.until_training()
    run.kill("sampler-1")
    assert run.end() == 1
    said = run.output.read_text()
    last = said[said.index("the first failure was ") :]  # nothing else follows it
    assert last.startswith("the first failure was sampler-1: ")
    assert "SIGKILL was not ours" in last.splitlines()[-1]
    assert run.summary()["unfinished_checkpoint"] == []
    assert latest(run.folder / "checkpoints") is not None
    assert run.leftovers() == []
