"""The rule under a fake clock: on simulated machines, and over hostile series of rates."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plant import Plant, live, run

from spreeze_zmq.broker.hosts import Host
from spreeze_zmq.broker.knobs import GAIN, LOSS, SPARE, Samplers
from spreeze_zmq.broker.rule import REST_S, Rule
from spreeze_zmq.broker.window import LARGE, Spell, Window

#: Four of these samplers feed the learners: a step is mostly waiting.
NAPPING = Plant(sampler_wait_s=2e-3, sampler_cpu_s=1e-4, critic_cpu_s=7e-5, actor_cpu_s=7e-5)
#: Figures of a spell that a journal of an earlier time does not have under these names.
SHARES = dict.fromkeys(("busy", "blocked", "starved", "cpu"), 0.0)


def settle(plant, count, seconds=60, **more):
    """Changes and last count of a run on an unchanging machine."""
    return live(lambda _: plant, count, seconds, **more)


def test_one_sampler_becomes_four_in_one_change():
    """The need is computed from the rates, not felt for."""
    changes, count = settle(NAPPING, 1)
    assert (len(changes), count) == (1, 4)
    assert changes[0][0] <= 10
    assert NAPPING.run(4)[0] == NAPPING.best(1, 8)


def test_eight_samplers_become_one_in_at_most_three_changes():
    """One produces 10,000 a second; the learners on two cores take 7,700 of them."""
    changes, count = settle(Plant(), 8)
    assert count == 1
    assert len(changes) <= 3
    assert changes[-1][0] <= 30


def test_what_is_right_stays():
    """No change at all in ten minutes."""
    assert settle(NAPPING, 4, seconds=600)[0] == []
    assert settle(Plant(), 1, seconds=600)[0] == []


def test_the_reason_is_in_figures():
    """Of growing and of shrinking."""
    (_, _, grown), *_ = settle(NAPPING, 1)[0]
    assert grown == (
        "samplers 1 -> 4: critic_learner starved 73 % of the time, 476 samples a second where it could take "
        "1,786; replay ratio 8.0 of 8"
    )
    (_, _, shrunk), *_ = settle(Plant(), 8)[0]
    assert shrunk == (
        "samplers 8 -> 1: blocked 84 % of the time, 1 can produce 10,000 samples a second where 7,692 are "
        "taken; replay ratio 8.0 of 8"
    )


def test_a_slow_run_gives_its_reasons_in_figures_too():
    """Steps that take two seconds: 0 samples a second where it could take 2 was no reason for four. Nor was
    a replay ratio of 0.1 the one of 0.05 that was kept.
    """
    slow = Plant(sampler_wait_s=2.0, sampler_cpu_s=0.1, critic_cpu_s=0.07, actor_cpu_s=0.07)
    (_, _, grown), *_ = settle(slow, 1)[0]
    assert grown == (
        "samplers 1 -> 4: critic_learner starved 73 % of the time, 0.476 samples a second where it could "
        "take 1.8; replay ratio 8.0 of 8"
    )
    (_, _, reason), *_ = settle(replace(NAPPING, replay_ratio=0.05), 1)[0]
    assert reason.endswith("; replay ratio 0.05 of 0.05")


class Deaf:
    """Rates that ask for four samplers where one trains as much; what four train is said by the test."""

    def __init__(self, of_four):
        self.knob, self.of_four = Samplers(1, 1, 8), of_four
        self.rule = Rule([self.knob])

    def window(self, now_s):
        """As with one sampler of ``NAPPING``, whatever the count is."""
        window = NAPPING.window(1)
        (critic,), count = window.critics, self.knob.present
        share = self.of_four(now_s) if count == 4 else 1.0
        critic = replace(critic, trained_per_s=critic.trained_per_s * share)
        return replace(window, samplers=window.samplers * count, critics=(critic,))

    def live(self, seconds):
        """The changes."""
        return run(self.rule, self.knob, self.window, seconds)[0]


def test_a_value_that_gains_too_little_is_taken_back():
    """Three more samplers that raise what is trained by 7 % leave again; the reason has both figures."""
    deaf = Deaf(lambda now_s: 1.07)
    (_, four, _), (back_s, one, reason), *_ = deaf.live(60)
    assert (four, one) == (4, 1)
    assert back_s <= 15
    assert reason == (
        "samplers 4 -> 1: 4 trained 4,076 transitions a second, 1 trained 3,810; replay ratio 8.6 of 8"
    )
    assert deaf.knob.tried == pytest.approx({1: 3810, 4: 4076}, rel=1e-3)


def test_what_did_not_pay_rests_twice_as_long_each_time():
    """Two minutes, then four: in an hour at most five tries, and no count but these two."""
    changes = Deaf(lambda now_s: 1.0).live(3600)
    back_s = [now_s for now_s, count, _ in changes if count == 1]
    again_s = [now_s for now_s, count, _ in changes[1:] if count == 4]
    rests = [again - back for back, again in zip(back_s, again_s, strict=False)]
    assert rests == [REST_S, 2 * REST_S, 4 * REST_S, 8 * REST_S]
    assert {count for _, count, _ in changes} == {1, 4}


def test_a_new_world_ends_the_rest():
    """At 30 s one sampler trains half of what it did: what more of them trained before says nothing."""
    deaf = Deaf(lambda now_s: 1.0)

    def window(now_s):
        found = deaf.window(now_s)
        (critic,) = found.critics
        slower = replace(critic, trained_per_s=critic.trained_per_s * (0.5 if now_s >= 30 else 1.0))
        return replace(found, critics=(slower,))

    changes, _ = run(deaf.rule, deaf.knob, window, 60)
    assert [value for _, value, _ in changes[:2]] == [4, 1]
    assert changes[1][0] < 20
    assert changes[2][0] == 30


@pytest.mark.parametrize(("starved", "stays"), [(0.0, 1), (0.2, 8)])
def test_fewer_samplers_are_only_to_blame_where_learners_starve(starved, stays):
    """One instead of eight, and a tenth less is trained: while it never starves something else is slower."""
    knob, plant = Samplers(8, 1, 8), Plant()
    rule = Rule([knob])

    def window(now_s):
        found = plant.window(knob.present)
        (critic,) = found.critics
        if knob.present == 1:
            critic = replace(critic, trained_per_s=0.9 * critic.trained_per_s, starved=starved)
        return replace(found, critics=(critic,))

    assert run(rule, knob, window, 60)[1] == stays


def test_a_load_that_comes_and_goes_moves_the_count_ever_less():
    """Learners that are ten times slower every other half minute: what grew shrinks again later each time."""
    slowed = replace(NAPPING, critic_wait_s=9 * 7e-5)
    changes, _ = live(lambda t: NAPPING if t // 30 % 2 else slowed, 1, 1200)
    assert len(changes) <= 10
    assert len([t_s for t_s, _, _ in changes if t_s > 600]) <= 2


def test_a_full_machine_gets_no_more_processes():
    """The learner starves, but the cores are all in use: another sampler would only share them."""
    plant = Plant(cores=2, sampler_cpu_s=1e-3)
    assert plant.window(2).starved > 0.5
    assert settle(plant, 2)[0] == []


def test_one_core_keeps_one_sampler():
    """Whatever the environment costs."""
    for cpu_s in (1e-5, 1e-3, 1e-1):
        assert settle(Plant(cores=1, sampler_cpu_s=cpu_s), 1) == ([], 1)


def test_a_big_machine_is_filled_at_once():
    """128 cores and an expensive environment: what the learner takes, in two changes."""
    plant = Plant(cores=128, sampler_cpu_s=1e-2, critic_cpu_s=1e-5)
    changes, count = settle(plant, 1, high=128)
    assert len(changes) <= 2
    assert plant.run(count)[0] >= 0.97 * plant.best(1, 128)


def test_a_slowed_learner_needs_fewer_samplers():
    """Ten times slower from 60 s on: demand falls, samplers are blocked, and most of them leave."""
    slowed = replace(NAPPING, critic_wait_s=9 * 7e-5)
    changes, count = live(lambda t: slowed if t > 60 else NAPPING, 4, 120)
    assert count == 1
    assert len(changes) <= 3
    assert all(60 < t_s <= 90 for t_s, _, _ in changes)


@pytest.mark.parametrize("critic_cpu_s", [4e-4, 2e-4, 7e-5])
def test_a_slowed_sampler_is_made_up_for(critic_cpu_s):
    """sampler-0 ten times slower from 60 s on: one or two healthy ones take its place where it was needed."""
    plant = replace(NAPPING, critic_cpu_s=critic_cpu_s, actor_cpu_s=1e-5)
    slowed = replace(plant, slowed=(10.0,))
    _, right = settle(plant, 1)
    changes, count = live(lambda t: slowed if t > 60 else plant, right, 300)
    assert 60 < changes[0][0] <= 70
    assert slowed.run(changes[0][1])[0] >= 0.9 * slowed.best(1, 8)
    assert right <= count <= right + 2
    assert slowed.run(count)[0] >= 0.9 * slowed.best(1, 8)
    assert len(changes) <= 2


def test_a_core_taken_away_leaves_the_best_count():
    """A busy loop on one of two cores from 60 s on."""
    plant = Plant(sampler_cpu_s=4e-4)
    taken = replace(plant, foreign=1.0)
    _, count = live(lambda t: taken if t > 60 else plant, 1, 180)
    assert taken.run(count)[0] >= 0.9 * taken.best(1, 8)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_who_waits_for_policies_gets_no_more(count):
    """Where the lag is bounded and the actor-learner sets the pace, the critic-learner starves because its
    samplers do: more of them would only be staler, and those that are not needed leave.
    """
    plant = replace(NAPPING, policies_for=3_000.0)
    assert plant.window(count).starved > 0.5
    changes, left = settle(plant, count)
    assert all(later < earlier for earlier, later in pairwise([count, *(n for _, n, _ in changes)]))
    assert plant.run(left)[0] >= 0.9 * plant.best(1, 8)
    for _, _, why in changes:
        assert "waiting for newer policies " in why


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0.05, 0.95), count=st.integers(1, 8), seed=st.integers(0, 999))
def test_no_pace_of_policies_makes_the_count_grow(share, count, seed):
    """Whatever part of what the critic could train, and with noise; but back to where it was."""
    draw = random.Random(seed)
    pace = share * min(NAPPING.run(count)[0], 8 * 476 * count * 0.85)
    plant = replace(NAPPING, policies_for=pace)
    changes, _ = settle(plant, count, noise=lambda: 1 + draw.uniform(-0.03, 0.03))
    assert all(number <= count for _, number, _ in changes)


@pytest.mark.parametrize("ramp_s", [40, 80])
def test_a_machine_that_becomes_faster_is_followed(ramp_s):
    """Three times slower for a minute, then faster by and by: neither what a count trained in the slow minute
    nor the changes that were made then hold the count where it was right.
    """
    fast = Plant(replay_ratio=32, sampler_wait_s=1.1e-3, critic_cpu_s=6e-6, actor_cpu_s=6e-6)

    def at(now_s):
        slower = 1 + 2 * min(1.0, max(0.0, 1 - (now_s - 60) / ramp_s))
        return replace(fast, critic_cpu_s=slower * 6e-6, actor_cpu_s=slower * 6e-6)

    _, count = live(at, 1, 300)
    assert at(0).run(count)[0] <= at(299).run(count)[0] / 2
    assert fast.run(count)[0] >= 0.9 * fast.best(1, 8)


def recorded(line):
    """A window of a run as its journal kept it."""
    spells = {}
    for name, figures in line["processes"].items():
        role, _, index = name.rpartition("-")
        spells[name] = Spell(role, int(index), 4.0, **{**SHARES, **figures})
    samplers = tuple(spell for name, spell in sorted(spells.items()) if spell.role == "sampler")
    critic, actor = spells["critic_learner-0"], spells["actor_learner-0"]
    return Window(samplers, (critic,), (actor,), 32.0, (Host(2, line["busy_cores"]),))


def test_a_recorded_run_of_waiting_environments_is_decided_as_it_was_right():
    """Environments that wait 1 ms a step, two cores: one sampler gave 27,000 transitions a second, six gave
    148,000, and fixed counts of six and eight 140,000 to 155,000. From one to as many, which stay.
    """
    lines = json.loads(Path(__file__).with_name("napping_series.json").read_text())
    windows = [recorded(line) for line in lines]
    grown = Rule([Samplers(1, 1, 8)]).decide(windows[1], 5.0)
    assert 6 <= grown.count <= 8
    rule, six = Rule([Samplers(6, 1, 8)]), [window for window in windows if len(window.samplers) == 6]
    assert [rule.decide(window, float(now_s)) for now_s, window in enumerate(six[1:])] == [None] * (
        len(six) - 1
    )
    assert rule.settled


positive = st.floats(-1, 1).map(lambda power: 10**power)


@settings(max_examples=60, deadline=None)
@given(
    cores=st.sampled_from([1, 2, 4, 16, 128]),
    high=st.sampled_from([2, 8, 16]),
    start=st.floats(0, 1),
    ratio=positive,
    costs=st.tuples(positive, positive, positive),
    nap=st.sampled_from([0.0, 1.0, 10.0]),
    foreign=st.sampled_from([0.0, 1.0]),
    noise=st.sampled_from([0.0, 0.03]),
    seed=st.integers(0, 999),
)
def test_any_machine_is_near_its_best_within_thirty_seconds(
    cores, high, start, ratio, costs, nap, foreign, noise, seed
):
    """From any count: at most four changes, near the best fixed count, and it stays. Beside a process of
    somebody else's, from which each further sampler takes a little more, it is no worse than at the start.
    """
    draw = random.Random(seed)
    plant = Plant(
        cores=cores,
        replay_ratio=8 * ratio,
        sampler_cpu_s=3e-4 * costs[0],
        sampler_wait_s=3e-4 * nap,
        critic_cpu_s=1e-5 * costs[1],
        actor_cpu_s=1e-5 * costs[2],
        foreign=foreign,
    )
    begin = 1 + round(start * (high - 1))
    changes, count = settle(plant, begin, high=high, noise=lambda: 1 + draw.uniform(-noise, noise))
    if foreign:
        assert plant.run(count)[0] >= 0.9 * plant.run(begin)[0]
        return
    assert len(changes) <= 4
    early = [number for t_s, number, _ in changes if t_s <= 30]
    for found in {[begin, *early][-1], count}:
        assert plant.run(found)[0] >= 0.87 * plant.best(1, high)


share = st.floats(0, 1)
rate = st.one_of(st.just(0.0), st.floats(1e-9, 1e12))


def spell(role, index, numbers):
    """A spell of whatever numbers."""
    busy, blocked, starved, cpu, per_s = numbers
    return Spell(role, index, 5.0, busy, blocked, starved, cpu, per_s, per_s, per_s, per_s)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(share, share, share, share, rate), min_size=2, max_size=6),
            st.floats(0, 200),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.integers(1, 4),
    st.integers(0, 8),
)
def test_no_series_of_rates_breaks_the_limits(series, low, more):
    """Anything that can be measured, one window after the other: the range holds, reasons are lines."""
    knob = Samplers(low, low, low + more)
    rule = Rule([knob])
    for now_s, (numbers, busy_cores, steady) in enumerate(series):
        critic, *rest = numbers
        count = min(max(len(rest), low), low + more)
        samplers = tuple(spell("sampler", i, (rest * count)[i]) for i in range(count))
        critics = (spell("critic_learner", 0, critic),)
        knob.present = count
        change = rule.decide(
            Window(samplers, critics, (), 8.0, (Host(128, busy_cores),), steady), float(now_s)
        )
        if change is not None:
            assert low <= change.count <= low + more
            assert change.count != change.before == count
            assert "\n" not in change.reason
        begun = rule.begin(
            Window(samplers, critics, (), 8.0, (Host(128, busy_cores, samplers=len(samplers)),))
        )
        assert begun is None or count < begun.count <= low + more


def test_who_does_not_starve_gets_no_more():
    """However slow the samplers look: they never kept the learner waiting."""
    window = NAPPING.window(1)
    fed = replace(window, critics=(replace(window.critics[0], starved=GAIN),))
    rule = Rule([Samplers(1, 1, 8)])
    assert all(rule.decide(fed, float(now_s)) is None for now_s in range(20))


def test_an_unsteady_window_decides_nothing():
    """While rates drift or the ratio is not kept, the count stays and nothing counts as settled."""
    rule = Rule([Samplers(1, 1, 8)])
    for now_s in range(20):
        assert rule.decide(replace(NAPPING.window(1), steady=False), float(now_s)) is None
    assert not rule.settled


def test_nobody_leaves_whose_samples_are_taken():
    """Five wait 41 % of their time, yet three would make less than is taken now."""
    numbers = ((0.88, 0.12, 0.21, 794), (0.66, 0.34, 0.27, 408), (0.33, 0.67, 0.17, 216))
    numbers += ((0.17, 0.83, 0.06, 154), (0.89, 0.11, 0.77, 672))
    samplers = tuple(
        spell("sampler", i, (busy, blocked, 0.0, cpu, per_s))
        for i, (busy, blocked, cpu, per_s) in enumerate(numbers)
    )
    critic = Spell("critic_learner", 0, 5.0, 0.94, 0.0, 0.06, 0.89, 0.0, 2244.0, 0.0, 32 * 2244.0)
    actor = Spell("actor_learner", 0, 5.0, 0.8, 0.0, 0.2, 0.29)
    window = Window(samplers, (critic,), (actor,), 32.0, (Host(2, 1.19),))
    assert sum(window.makes_per_s[:3]) < window.produced_per_s
    change = Rule([Samplers(5, 1, 8)]).decide(window, 0.0)
    assert change is None or sum(window.makes_per_s[: change.count]) >= window.produced_per_s


def test_the_readme_has_the_rules_numbers():
    """In "How many samplers"."""
    readme = (Path(__file__).parents[3] / "launch" / "README.md").read_text()
    text = " ".join(readme.split("## How many samplers\n")[1].split("\n## ")[0].split())
    for said in (
        f"samplers to make {1 + LOSS:.2f} times what it takes",
        f"still make {SPARE:.2f} times what it takes",
        f"rose by {100 * GAIN:.0f} %, a smaller one if they fell by at most {100 * LOSS:.0f} %",
        f"at the same count change by {100 * LARGE:.0f} %",
    ):
        assert said in text
