"""The learners' batch under a fake clock: smaller where they starve, larger where samplers wait for them."""

from dataclasses import replace

import pytest
from plant import Plant

from spreeze_zmq.autoscale.batch_size import BatchSize
from spreeze_zmq.autoscale.rebalance import SPARE
from spreeze_zmq.autoscale.restraint import Restraint

#: A curve as small networks have it, transitions/s of one core: 64 to 8,192, of which 2,048 suffice.
CURVE = {64: 50e3, 128: 95e3, 256: 170e3, 512: 280e3, 1024: 390e3, 2048: 470e3, 4096: 500e3, 8192: 510e3}
CHOICE = {"chosen": 2048, "curve": [[size, rate] for size, rate in CURVE.items()]}
#: One sampler that gives 4,000 transitions a second, each trained on 8 times; cores to spare.
SCARCE = Plant(cores=4, sampler_cpu_s=2.5e-4)


def window(size, plant=SCARCE):
    """What is measured where both learners train batches of this size, as fast as the curve says."""
    return replace(plant, critic_cpu_s=1 / CURVE[size], actor_cpu_s=1 / CURVE[size]).window(1)


def live(at, seconds=120, choice=CHOICE):
    """The changes under a fake clock, each measured for five seconds before the next window."""
    batch = BatchSize.measured(choice, Restraint())
    changes, since_s = [], 0.0
    for now_s in range(seconds):
        if now_s < since_s + 5:
            continue
        change = batch.decide(at(batch.present, now_s), float(now_s))
        if change is not None:
            assert (change.role, change.option) == ("critic_learner", "batch_size")
            assert change.before == (changes[-1][1] if changes else choice["chosen"])
            changes.append((now_s, change.count, change.reason))
            since_s = now_s
    return changes


def test_learners_that_starve_take_the_smallest_batch_that_trains_what_is_fed():
    """32,000 transitions a second are fed: 64 trains 50,000, which leaves a quarter to spare; one change."""
    changes = live(lambda size, now_s: window(size))
    assert [size for _, size, _ in changes] == [64]
    assert changes[0][0] < 10
    assert changes[0][2] == (
        "batch size 2,048 -> 64: critic_learner starved 93 % of the time, 64 could train 50,000 transitions "
        "a second where 32,000 are fed; replay ratio 8.0 of 8"
    )


@pytest.mark.parametrize("fed_per_s", [60e3, 130e3, 200e3, 300e3])
def test_what_is_fed_is_trained_with_room_to_spare(fed_per_s):
    """Smaller ones would not keep up, were an update a quarter dearer than it was measured alone."""
    plant = replace(SCARCE, sampler_cpu_s=8 / fed_per_s)
    changes = live(lambda size, now_s: window(size, plant))
    enough = min(size for size, rate in CURVE.items() if rate >= SPARE * fed_per_s)
    assert [size for _, size, _ in changes] == [enough]
    assert window(enough, plant).critic.trained_per_s == pytest.approx(fed_per_s, rel=0.01)


def test_learners_that_are_nearly_busy_keep_their_batch():
    """What starves less than a quarter of its time has no smaller batch to afford."""
    plant = replace(SCARCE, sampler_cpu_s=8 / 370e3)
    assert live(lambda size, now_s: window(size, plant)) == []


def test_a_batch_grows_where_learners_hold_the_samplers_up():
    """More is fed than when the batch shrank: as many doublings as train 8 % more each, in one change; fewer
    where these train what there is.
    """

    def fed(per_s):
        return lambda size, now_s: window(
            size, replace(SCARCE, sampler_cpu_s=2.5e-4 if now_s < 30 else 8 / per_s)
        )

    changes = live(fed(600e3))
    assert [size for _, size, _ in changes] == [64, 2048]
    assert changes[1][0] < 60
    assert changes[1][2] == (
        "batch size 64 -> 2,048: samplers blocked 92 % of the time, 2,048 could train 470,000 transitions "
        "a second where 50,000 are trained; replay ratio 8.0 of 8"
    )
    assert [size for _, size, _ in live(fed(200e3))] == [64, 512]


def test_no_batch_grows_beyond_what_was_measured_or_twice_the_knee():
    """The curve ends where memory or the topology ended it; a rising one is followed for one doubling."""
    rising = {size: 100.0 * size for size in (64, 128, 256, 512)}

    def at(size, now_s):
        plant = replace(SCARCE, sampler_cpu_s=1e-6, critic_cpu_s=1 / rising[size], actor_cpu_s=1e-6)
        return plant.window(1)

    for chosen, most in ((64, 128), (256, 512), (512, 512)):
        choice = {"chosen": chosen, "curve": list(rising.items())}
        sizes = [size for _, size, _ in live(at, choice=choice)]
        assert sizes == ([most] if most > chosen else [])


def test_one_core_pays_at_most_a_tenth():
    """There the time that learners wait is the samplers' own, and smaller batches take it from them: no more
    of it than the start gives up as well.
    """
    plant = Plant(cores=1, sampler_cpu_s=2e-4)
    assert window(2048, plant).critic.starved > 0.5
    changes = live(lambda size, now_s: window(size, plant))
    trained = {size: window(size, plant).critic.trained_per_s for size in CURVE}
    enough = min(size for size in CURVE if trained[size] >= 0.9 * max(trained.values()))
    assert [size for _, size, _ in changes] == [enough]
    assert 64 < enough < 2048


def test_a_load_that_comes_and_goes_moves_the_batch_a_few_times_alone():
    """Every turn must be wanted four times as long as the one before it: of twenty turns of the load, few."""

    def at(size, now_s):
        scarce = now_s // 30 % 2 == 0
        return window(size, replace(SCARCE, sampler_cpu_s=2.5e-4 if scarce else 8 / 600e3))

    changes = live(at, seconds=600)
    assert changes[0][1] == 64
    assert len(changes) <= 2


def test_nothing_moves_beside_another_change_or_in_an_unsteady_window():
    """Others have their rest first; rates that drift say nothing; samplers that wait for policies neither."""
    others = Restraint()
    others.note(0.0)
    batch = BatchSize.measured(CHOICE, others)
    decided = [now_s for now_s in range(20) if batch.decide(window(batch.present), float(now_s))]
    assert decided == [5]  # REST_S and twice the start of a sampler
    assert live(lambda size, now_s: replace(window(size), steady=False)) == []
    assert live(lambda size, now_s: window(size, replace(SCARCE, policies_for=10e3))) == []


def test_an_actor_learner_that_could_not_follow_keeps_the_batch():
    """It does as many updates as the critic-learner: a batch is no smaller than both can train."""

    def at(size, now_s):
        seen = window(size)
        return replace(seen, actor=replace(seen.actor, busy=min(1.0, 0.2 * CURVE[2048] / CURVE[size])))

    assert [size for _, size, _ in live(at)] == [128]
