"""Environments in each sampler under a fake clock: tried where learners starve and no sampler would help."""

from dataclasses import replace

import pytest
from plant import Plant

from spreeze_zmq.autoscale.envs_per_sampler import EnvsPerSampler
from spreeze_zmq.autoscale.restraint import Restraint

#: One sampler whose steps cost 2 ms whatever the batch, and so much for each environment.
PER_STEP_S, PER_ENV_S = 2e-3, 2e-5
#: Learners that take seven times what 16 environments give.
LEARNERS = Plant(cores=4, critic_cpu_s=2.5e-6, actor_cpu_s=1e-6)


def window(envs, learners=LEARNERS, per_step_s=PER_STEP_S, per_env_s=PER_ENV_S):
    """What is measured with so many environments in the one sampler."""
    return replace(learners, sampler_cpu_s=per_step_s / envs + per_env_s).window(1)


def live(at, begin=16, least=4, most=128, seconds=120):
    """The changes under a fake clock, each measured for five seconds before the next window."""
    envs = EnvsPerSampler(least, most, begin, Restraint())
    changes, since_s = [], 0.0
    for now_s in range(seconds):
        if now_s < since_s + 5:
            continue
        change = envs.decide(at(envs.present), float(now_s))
        if change is not None:
            assert (change.role, change.option) == ("sampler", "envs")
            assert change.before == (changes[-1][1] if changes else begin)
            changes.append((now_s, change.count, change.reason))
            since_s = now_s
    return changes, envs.present


def test_a_batch_grows_while_that_feeds_the_learners():
    """A step's own cost is shared by more environments; each doubling must have paid."""
    changes, _ = live(window)
    assert [count for _, count, _ in changes] == [32, 64, 128]
    assert changes[-1][0] <= 90
    assert changes[0][2] == (
        "environments in each sampler 16 -> 32: critic_learner starved 86 % of the time and another sampler "
        "gains nothing, 6,897 samples a second; replay ratio 8.0 of 8"
    )


def test_a_batch_that_gains_nothing_is_tried_once():
    """Where every environment costs its own time the first doubling shows nothing, and no second follows."""
    changes, envs = live(lambda envs: window(envs, per_step_s=0.0, per_env_s=2e-4), seconds=60)
    assert len(changes) == 1
    assert envs == 32


def test_a_batch_that_loses_is_taken_back():
    """Twice the environments fall out of the cache, say: back to what was better, and it stays."""
    changes, _ = live(lambda envs: window(envs, per_step_s=0.0, per_env_s=1e-4 * envs / 16), seconds=100)
    assert [count for _, count, _ in changes] == [32, 16]
    assert "16 trained " in changes[-1][2]


def test_learners_that_are_fed_need_no_larger_batch():
    """Nor do samplers that are blocked, or that wait for policies."""
    fed = replace(LEARNERS, critic_cpu_s=1e-3)
    assert live(lambda envs: window(envs, fed))[0] == []
    waiting = replace(LEARNERS, policies_for=2_000.0)
    assert live(lambda envs: window(envs, waiting))[0] == []


def test_rollouts_that_arrive_too_old_become_smaller():
    """A third is refused: half the environments, as long as the topology allows."""

    def stale(envs):
        seen = window(envs)
        return replace(seen, critic=replace(seen.critic, refused_per_s=seen.critic.received_per_s / 2))

    changes, _ = live(lambda envs: stale(envs) if envs > 8 else window(envs), least=8, seconds=60)
    assert changes[0][1] == 8
    assert changes[0][2].startswith("environments in each sampler 16 -> 8: 33 % of what arrives is too old; ")


@pytest.mark.parametrize("range_", [(16, 16), (8, 128)])
def test_nothing_moves_without_a_range_or_in_an_unsteady_window(range_):
    """A number in the topology forbids it; rates that drift say nothing."""
    least, most = range_
    steady = least == most
    assert live(lambda envs: replace(window(envs), steady=steady), least=least, most=most)[0] == []


def test_counts_and_batches_share_their_rests():
    """Three changes are three, whatever they are of."""
    restraint = Restraint()
    for now_s in (0.0, 10.0, 20.0):
        restraint.note(now_s)
    envs = EnvsPerSampler(8, 128, 16, restraint)
    assert all(envs.decide(window(16), now_s) is None for now_s in map(float, range(25, 100)))
