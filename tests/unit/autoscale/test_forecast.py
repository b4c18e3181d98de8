"""How many samplers to go on with from the start, by what the processes told before there were rates."""

from dataclasses import replace

import pytest

from spreeze_zmq.autoscale.forecast import Forecast
from spreeze_zmq.autoscale.spell import Spell

#: A cheap environment: a sample takes 10 us of a core.
CHEAP = Spell("sampler", 0, 1.0, 0.5, 0.0, 0.5, 0.5, stepped_per_s=50_000.0)
#: One that sleeps 1 ms for each sample, and gives its core up for that.
NAPPING = Spell("sampler", 0, 1.0, 1.0, 0.0, 0.0, 0.1, stepped_per_s=900.0, voluntary_per_s=900.0)
#: One that takes more than any machine has.
DEAR = Spell("sampler", 0, 1.0, 1.0, 0.0, 0.0, 1.0, stepped_per_s=10.0)
#: A learner that takes 5 us of a core for a transition.
REHEARSAL = {"transitions": 2000.0, "seconds": 0.01, "cpu_s": 0.01}
LIMITS = (1, 128)


def told(rehearsal=REHEARSAL, learners=("critic_learner-0", "actor_learner-0"), **options):
    """A forecast that has heard the rehearsals of these learners."""
    forecast = Forecast(options.pop("num_critics", 1), replay_ratio=8.0, **options)
    for name in learners:
        forecast.take(name, rehearsal)
    return forecast


def wanted(sampler, cores, count=1, limits=LIMITS, busy=0.0, **options):
    """The number of samplers that it would go on with, and its reason."""
    forecast, spells = told(**options), {f"sampler-{i}": replace(sampler, index=i) for i in range(count)}
    change = forecast.decide(spells, count, limits, cores, busy)
    assert forecast.figures["wanted"] == (change.count if change else count)
    return forecast.figures["wanted"], change.reason if change else ""


@pytest.mark.parametrize("cores", [1, 2, 16, 128])
@pytest.mark.parametrize("count", [1, 3, 14])
def test_one_sampler_of_a_cheap_environment_is_enough_on_any_machine(cores, count):
    """100,000 steps a second where learners can take 25,000; what was begun with on top of it leaves."""
    assert wanted(CHEAP, cores, count)[0] == 1


@pytest.mark.parametrize(("cores", "count"), [(1, 6), (2, 12), (4, 24), (16, 29), (128, 29)])
def test_samplers_that_sleep_are_as_many_as_cores_or_learners_can_take(cores, count):
    """A step and its eight trainings take 0.19 ms of a core, so that one core has 5,240 of them a second;
    learners alone could take 25,000. A sampler makes 900, and 97 % with a twentieth to spare is asked for.
    """
    assert abs(wanted(NAPPING, cores)[0] - count) <= max(1, 0.1 * count)


@pytest.mark.parametrize("cores", [2, 16, 128])
def test_samplers_of_a_dear_environment_get_every_core_and_no_more(cores):
    """What they want exceeds the machine: one for each core, but for what a little less would lose."""
    assert 0.9 * cores <= wanted(DEAR, cores, limits=(1, 4 * cores))[0] <= 1.1 * cores + 1


@pytest.mark.parametrize(
    ("voluntary", "involuntary", "off_core"),
    [(0.0, 80.0, 0.0), (20.0, 80.0, 0.0), (900.0, 0.0, 0.7), (900.0, 50.0, 0.5), (900.0, 500.0, 0.0)],
)
def test_who_waits_for_a_core_is_told_from_who_sleeps(voluntary, involuntary, off_core):
    """It had 0.3 of a core. Where that was taken from it more often than it gave it up it waited for it all
    the time; else each time for 4 ms, and slept for the rest.
    """
    spell = replace(NAPPING, cpu=0.3, voluntary_per_s=voluntary, involuntary_per_s=involuntary)
    forecast = told()
    forecast.decide({"sampler-0": spell}, 1, LIMITS, 2, 2.0)
    sample = forecast.figures["sample"]
    assert sample["on_core_s"] == pytest.approx(0.3 / 900)
    assert sample["off_core_s"] == pytest.approx(off_core / 900)


def test_workers_of_a_sampler_are_its_own_load():
    """Four that compute side by side: they take four cores for what their sampler needs one second."""
    spell = replace(DEAR, cpu=4.0, lanes=4)
    assert wanted(spell, 8, limits=(1, 8))[0] <= 3


def test_other_work_on_the_machine_leaves_less():
    """A busy core of two."""
    expected = []
    for busy in (0.1, 1.1):
        forecast = told()
        forecast.decide({"sampler-0": NAPPING}, 1, LIMITS, 2, busy)
        assert forecast.figures["other_cores"] == pytest.approx(busy - 0.1)
        expected.append(forecast.figures["expected_trained_per_s"]["128"])
    assert 0.4 < expected[1] / expected[0] < 0.9


def test_the_range_is_kept():
    """Too few allowed, or more than needed demanded."""
    assert wanted(NAPPING, 16, limits=(1, 3))[0] == 3
    assert wanted(CHEAP, 16, count=6, limits=(4, 8))[0] == 4


def test_several_critics_can_take_more():
    """Each trains a part."""
    learners = ("critic_learner-0", "critic_learner-1", "actor_learner-0")
    two = wanted(NAPPING, 128, num_critics=2, learners=learners)[0]
    assert two == pytest.approx(2 * wanted(NAPPING, 128)[0], abs=3)


def test_an_actor_that_updates_seldom_leaves_more():
    """Every eighth update of the critics."""
    assert wanted(NAPPING, 1, policy_delay=8)[0] > wanted(NAPPING, 1)[0]


def test_the_line_has_the_figures():
    """What one sampler makes, what learners could take, and what that would give."""
    assert wanted(NAPPING, 16, limits=(1, 3))[1] == (
        "samplers 1 -> 3 at the start: a sampler makes 900 samples a second, the learners could take 25,000; "
        "3 should train 21,600 transitions a second, 1 would 7,200"
    )


def test_nothing_is_decided_before_everybody_has_told():
    """A sampler that has hardly worked, one that is missing, a learner that has not rehearsed."""
    spells = {"sampler-0": NAPPING}
    for forecast, seen, count in (
        (told(), {"sampler-0": replace(NAPPING, busy=0.01)}, 1),
        (told(), {"sampler-0": replace(NAPPING, stepped_per_s=0.0)}, 1),
        (told(), spells, 2),
        (told(learners=["critic_learner-0"]), spells, 1),
        (told(learners=["actor_learner-0"]), spells, 1),
        (told(num_critics=2), spells, 1),
    ):
        assert forecast.decide(seen, count, LIMITS, 2, 0.5) is None
        assert forecast.figures == {}


def test_first_updates_tell_what_a_rehearsal_would_have():
    """Where samples came too fast for one."""
    critic = Spell("critic_learner", 0, 1.0, 0.5, 0.0, 0.5, 0.4, trained_per_s=80_000.0)
    spells = {"sampler-0": NAPPING, "critic_learner-0": critic}
    spells["actor_learner-0"] = Spell("actor_learner", 0, 1.0, 0.5, 0.0, 0.5, 0.4)
    forecast = told(learners=())
    assert forecast.decide(spells, 1, LIMITS, 16, 0.0).count == wanted(NAPPING, 16)[0]
    on_gpu = told(learners=(), on_cpu=False)
    on_gpu.decide(spells, 1, LIMITS, 16, 0.0)
    assert on_gpu.figures["critic"]["off_core_s"] == pytest.approx(0.1 / 80_000)


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"transitions": 0.0, "seconds": 1.0}, {"transitions": 9.0, "seconds": float("nan"), "cpu_s": 1.0}],
)
def test_a_rehearsal_that_makes_no_sense_is_none(nonsense):
    """What a program of any language reports is looked at before anything is decided from it."""
    forecast = told(nonsense)
    assert forecast.decide({"sampler-0": NAPPING}, 1, LIMITS, 2, 0.5) is None
    assert forecast.figures == {}
