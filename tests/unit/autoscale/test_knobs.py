"""Environments in each sampler and the batch under a fake clock: asked where the count is right."""

from dataclasses import replace

import pytest
from plant import Plant, run

from spreeze_zmq.autoscale.knobs import SPARE, BatchSize, Envs, Samplers
from spreeze_zmq.autoscale.rule import Rule
from spreeze_zmq.autoscale.windows import Spell

#: One sampler whose steps cost 2 ms whatever the batch, and so much for each environment.
PER_STEP_S, PER_ENV_S = 2e-3, 2e-5
#: Learners that take seven times what 16 environments give.
LEARNERS = Plant(cores=4, critic_cpu_s=2.5e-6, actor_cpu_s=1e-6)


def window(envs, learners=LEARNERS, per_step_s=PER_STEP_S, per_env_s=PER_ENV_S):
    """What is measured with so many environments in the one sampler."""
    return replace(learners, sampler_cpu_s=per_step_s / envs + per_env_s).window(1)


def live(at, begin=16, least=4, most=128, seconds=120):
    """The changes of a run with so many environments."""
    knob = Envs(begin, least, most)
    return run(Rule([knob]), knob, lambda _: at(knob.present), seconds)


def test_a_batch_grows_while_that_feeds_the_learners():
    """A step's own cost is shared by more environments; each doubling must have paid."""
    changes, _ = live(window)
    assert [count for _, count, _ in changes] == [32, 64, 128]
    assert changes[-1][0] <= 30
    assert changes[0][2] == (
        "environments in each sampler 16 -> 32: critic_learner starved 86 % of the time and another sampler "
        "gains nothing, 6,897 samples a second; replay ratio 8.0 of 8"
    )


def test_a_batch_that_gains_nothing_is_taken_back():
    """Where every environment costs its own time the first doubling shows nothing, and no second follows."""
    changes, envs = live(lambda envs: window(envs, per_step_s=0.0, per_env_s=2e-4), seconds=60)
    assert [count for _, count, _ in changes] == [32, 16]
    assert "32 trained 40,000 transitions a second, 16 trained 40,000" in changes[-1][2]
    assert envs == 16


def test_learners_that_are_fed_need_no_more_environments():
    """Nor do samplers that are blocked, or that wait for policies."""
    fed = replace(LEARNERS, critic_cpu_s=1e-3)
    assert live(lambda envs: window(envs, fed))[0] == []
    waiting = replace(LEARNERS, policies_for=2_000.0)
    assert live(lambda envs: window(envs, waiting))[0] == []


def test_rollouts_that_arrive_too_old_become_smaller():
    """A third is refused: half the environments, as long as the topology allows."""

    def stale(envs):
        seen = window(envs)
        (critic,) = seen.critics
        return replace(seen, critics=(replace(critic, refused_per_s=critic.received_per_s / 2),))

    changes, _ = live(
        lambda envs: stale(envs) if envs > 8 else window(8, per_step_s=0.0), least=8, seconds=20
    )
    assert changes[0][1] == 8
    assert changes[0][2].startswith("environments in each sampler 16 -> 8: 33 % of what arrives is too old; ")


def test_environments_wait_until_the_count_of_samplers_is_right():
    """Samplers first; where one more did not pay, and rests, the environments in each are tried."""
    samplers, envs = Samplers(1, 1, 2), Envs(16, 4, 128)
    rule, seen = Rule([samplers, envs]), replace(LEARNERS, cores=8)
    first = rule.decide(window(16, seen), 5.0)
    assert (first.option, first.count) == ("", 2)
    samplers.present = 2
    spells = window(16, seen).samplers * 2
    back = rule.decide(replace(window(16, seen), samplers=spells), 12.0)
    assert (back.option, back.count) == ("", 1)
    samplers.present = 1
    then = rule.decide(window(16, seen), 19.0)
    assert (then.option, then.count) == ("envs", 32)
    assert not rule.settled


# --- the batch --------------------------------------------------------------------------------------

#: A curve as small networks have it, transitions/s of one core: 64 to 8,192, of which 2,048 suffice.
CURVE = {64: 50e3, 128: 95e3, 256: 170e3, 512: 280e3, 1024: 390e3, 2048: 470e3, 4096: 500e3, 8192: 510e3}
#: One sampler that gives 4,000 transitions a second, each trained on 8 times; cores to spare.
SCARCE = Plant(cores=4, sampler_cpu_s=2.5e-4)


def trained(size, plant=SCARCE):
    """What is measured where both learners train batches of this size, as fast as the curve says."""
    return replace(plant, critic_cpu_s=1 / CURVE[size], actor_cpu_s=1 / CURVE[size]).window(1)


def batches(at, seconds=120, chosen=2048):
    """The changes of a run that begins with the chosen batch."""
    knob = BatchSize(chosen, 64, chosen, curve=CURVE)
    return run(Rule([knob]), knob, lambda now_s: at(knob.present, now_s), seconds)[0]


def test_learners_that_starve_take_the_smallest_batch_that_trains_what_is_fed():
    """32,000 transitions a second are fed: 64 trains 50,000, which leaves a quarter to spare; one change."""
    changes = batches(lambda size, now_s: trained(size))
    assert [size for _, size, _ in changes] == [64]
    assert changes[0][0] < 10
    assert changes[0][2] == (
        "batch size 2,048 -> 64: critic_learner starved 93 % of the time, 64 could train 50,000 transitions "
        "a second where 32,000 are trained; replay ratio 8.0 of 8"
    )


@pytest.mark.parametrize("fed_per_s", [60e3, 130e3, 200e3, 300e3])
def test_what_is_fed_is_trained_with_room_to_spare(fed_per_s):
    """Smaller ones would not keep up, were an update a quarter dearer than it was measured alone."""
    plant = replace(SCARCE, sampler_cpu_s=8 / fed_per_s)
    changes = batches(lambda size, now_s: trained(size, plant))
    enough = min(size for size, rate in CURVE.items() if rate >= SPARE * fed_per_s)
    assert [size for _, size, _ in changes] == [enough]
    assert trained(enough, plant).trained_per_s == pytest.approx(fed_per_s, rel=0.01)


def test_learners_that_are_nearly_busy_keep_their_batch():
    """What starves less than a quarter of its time has no smaller batch to afford."""
    plant = replace(SCARCE, sampler_cpu_s=8 / 370e3)
    assert batches(lambda size, now_s: trained(size, plant)) == []


@pytest.mark.parametrize(("per_s", "size"), [(600e3, 2048), (200e3, 512)])
def test_a_batch_grows_back_where_learners_hold_the_samplers_up(per_s, size):
    """More is fed than when it shrank: back to what trains that, and no further than it began."""
    plants = {False: SCARCE, True: replace(SCARCE, sampler_cpu_s=8 / per_s)}
    changes = batches(lambda size, now_s: trained(size, plants[now_s >= 30]))
    assert [value for _, value, _ in changes] == [64, size]
    assert changes[1][0] < 60
    assert f"batch size 64 -> {size:,}: samplers blocked " in changes[1][2]


def test_one_core_loses_nothing():
    """There the time that learners wait is the samplers' own, and smaller batches take it from them: the
    first try shows that, and is taken back.
    """
    plant = Plant(cores=1, sampler_cpu_s=2e-4)
    assert trained(2048, plant).starved > 0.5
    changes = batches(lambda size, now_s: trained(size, plant))
    assert [size for _, size, _ in changes] == [64, 2048]
    assert changes[1][0] < 20


def test_a_load_that_comes_and_goes_moves_the_batch_a_few_times_alone():
    """What has grown back shrinks later each time: of twenty turns of the load, few."""
    plants = SCARCE, replace(SCARCE, sampler_cpu_s=8 / 600e3)
    changes = batches(lambda size, now_s: trained(size, plants[int(now_s // 30 % 2)]), seconds=600)
    assert changes[0][1] == 64
    assert len(changes) <= 6


def test_an_actor_learner_that_could_not_follow_keeps_the_batch():
    """It does as many updates as the critic-learner: a batch is no smaller than both can train."""

    def at(size, now_s):
        busy = min(1.0, 0.2 * CURVE[2048] / CURVE[size])
        return replace(trained(size), followers=(Spell("actor_learner", 0, 5.0, busy, 0.0, 1 - busy, 0.1),))

    assert [size for _, size, _ in batches(at)] == [128]


def test_nothing_moves_while_rates_drift_or_samplers_wait_for_policies():
    """Neither says anything of the batch."""
    assert batches(lambda size, now_s: replace(trained(size), steady=False)) == []
    assert batches(lambda size, now_s: trained(size, replace(SCARCE, policies_for=10e3))) == []
