"""The bound of the policy lag on whole runs: kept exactly, whoever is slow, stopped or killed."""

import signal
import time
from contextlib import contextmanager

import pytest

from tests.benchmarks.slowed import Slowed
from tests.system.conftest import NAPPING, adds_up, thorough_but

#: A role that is slowed, and the bound of the lag.
BOUNDS = (("actor_learner", 2), ("critic_learner", 8))
TWO_SAMPLERS = (
    *("--set", "algorithm.hidden_sizes=[16]"),
    *("--set", "components.sampler.count=2"),
    *("--set", "run.stop={minutes=30}"),
    *("--set", "run.checkpoint_minutes=0.05"),
    *("--without", "evaluator"),
)


def bounded(lag):
    """Samplers wait for newer policies, and what is older than this when it is received is dropped."""
    return ("--set", "balance.mode=bounded", "--set", f"balance.max_policy_lag={lag}")


@contextmanager
def slowed(run, name, period_s=0.1):
    """A tenth of the time is left to one process."""
    one = Slowed(lambda: run.processes().get(name), period_s)
    try:
        yield
    finally:
        one.end()


def goes_on(run, updates=50):
    """Both learners train this many updates more."""
    before = run.summary()
    for counter in ("critic_updates", "actor_updates"):
        run.until(lambda name=counter: run.summary()[name] >= before[name] + updates, f"more {counter}")


@pytest.mark.long("a tenth of the time is left to a learner, twice")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("role", "bound"), thorough_but(BOUNDS[0], of=BOUNDS))
def test_a_slowed_learner_keeps_the_bound_and_so_does_its_next_life(launch, role, bound):
    """Slowed tenfold, killed and slowed again: the run goes on, no transition that was received is older than
    the bound, and every one is accounted for.
    """
    run = launch(*TWO_SAMPLERS, *NAPPING["pendulum"], *bounded(bound))
    run.until_training()
    name = f"{role}-0"
    with slowed(run, name):
        goes_on(run)
    killed = run.kill(name)
    run.until(lambda: run.pid(name) not in (None, killed), f"another {name}")
    run.until(lambda: run.summary().get("restarts") == 1, "a restart in the summary")
    goes_on(run)
    with slowed(run, name):
        goes_on(run)
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    lag = summary["policy_lag"]
    assert lag["max"] <= lag["bound"] == bound
    assert lag["stale"] <= summary["samples"]["dropped"]
    assert all(map(adds_up, summary["samples_by_channel"].values()))


@pytest.mark.thorough
@pytest.mark.long("a sampler is stopped within a rollout until its samples are old")
def test_older_samples_are_trained_on_where_nothing_bounds_them(launch):
    """A sampler that stands still within a rollout while policies are published, without a bound: what it has
    is received beyond the bounds of the tests beside this one, and not dropped.
    """
    run = launch(*TWO_SAMPLERS, *NAPPING["cartpole_dqn"], topology="cartpole_dqn")
    run.until_training()
    bound = max(bound for _, bound in BOUNDS)
    with slowed(run, "sampler-0", 2.0):
        run.until(lambda: run.summary()["policy_lag"]["max"] > bound, f"samples of over {bound} versions ago")
    run.interrupt()
    assert run.end() == 0, run.said()
    assert run.summary()["policy_lag"]["stale"] == 0
    assert adds_up(run.summary()["samples"])


@pytest.mark.long("learners and a sampler are stopped again and again")
def test_the_lag_is_bounded_whoever_is_stopped(launch):
    """Learners that are stopped again and again: no sample older than the bound is trained on, every one is
    dropped and counted; and with samplers that wait for newer policies the run goes on every time.
    """
    run = launch(*TWO_SAMPLERS, *NAPPING["pendulum"], *bounded(1))
    run.until_training()
    for name in ("critic_learner-0", "actor_learner-0", "critic_learner-0"):
        process, before = run.processes()[name], run.summary()["critic_updates"]
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        process.send_signal(signal.SIGCONT)
        run.until(lambda before=before: run.summary()["critic_updates"] > before + 50, "more updates")
    with slowed(run, "sampler-0"):  # until it was stopped within a rollout
        run.until(lambda: run.summary()["policy_lag"]["stale"] > 0, "samples that are too old")
    goes_on(run)
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    lag, samples = summary["policy_lag"], summary["samples"]
    assert lag["max"] <= lag["bound"] == 1
    assert 0 < lag["stale"] == samples["dropped"] < 0.5 * samples["produced"]
    assert samples["received"] == summary["env_steps"]
    assert adds_up(samples)
    assert summary["restarts"] == 0
