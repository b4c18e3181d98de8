"""The learners' batch under a fake clock: smaller where they starve, larger where samplers wait for them."""

from dataclasses import replace

import pytest
from plant import Plant, run

from spreeze_zmq.broker.hosts import Host
from spreeze_zmq.broker.knobs import SPARE, BatchSize, Samplers
from spreeze_zmq.broker.rule import Rule
from spreeze_zmq.broker.window import Spell, Window

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


def test_no_sampler_is_tried_for_the_other_half_of_a_learners_core():
    """Pinned learners have four of 16 CPUs and use less than two; the samplers use all of theirs."""
    window = Plant(cores=16, sampler_cpu_s=1e-3, critic_cpu_s=2e-6, actor_cpu_s=2e-6).window(12)
    apart = replace(window, hosts=(replace(window.here, sampler_cores=12),))
    assert Samplers(12, 1, 16).wanted(window)[0] == 16
    assert Samplers(12, 1, 16).wanted(apart)[0] == 12


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


def test_the_batch_waits_until_the_count_of_samplers_is_right():
    """Samplers first; where one more did not pay, and rests, a smaller batch is tried."""
    samplers, batch = Samplers(1, 1, 2), BatchSize(2048, 64, 2048, curve=CURVE)
    rule, seen = Rule([samplers, batch]), trained(2048)
    first = rule.decide(seen, 5.0)
    assert (first.option, first.count) == ("", 2)
    samplers.present = 2
    back = rule.decide(replace(seen, samplers=seen.samplers * 2), 12.0)
    assert (back.option, back.count) == ("", 1)
    samplers.present = 1
    then = rule.decide(seen, 19.0)
    assert (then.option, then.count) == ("batch_size", 64)
    assert not rule.settled


def test_samplers_that_have_made_nothing_yet_count_as_idle_ones():
    """A machine has just joined, with samplers that nobody has heard of; the learner takes nearly all that
    the one sampler makes.
    """
    sampler = Spell("sampler", 0, 5.0, 0.9, 0.1, 0.0, cpu=0.9, produced_per_s=450.0)
    learner = Spell("critic_learner", 0, 5.0, 1.0, 0.0, 0.0, 1.0, received_per_s=450.0, trained_per_s=3600.0)
    hosts = (Host(4, 1.2, samplers=1, maximum=8), Host(4, 0.0, "node-1", samplers=3, maximum=4))
    window = Window((sampler,), (learner,), (), 8.0, hosts)
    knob = Samplers(1, 1, 8)
    knob.look(window)
    assert knob.present == 4
    assert knob.wanted(window)[0] == 4
