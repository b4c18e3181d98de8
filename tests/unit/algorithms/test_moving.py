"""Options that move along the run: every one that may really does, in every algorithm, recorded or not."""

import dataclasses

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import ReplayOptions, gradient_steps, option, with_default
from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.base.errors import AlgorithmError, InputError
from spreeze_zmq.base.schema import Unfit, check, options_of
from spreeze_zmq.learner.at_hand import random_replay, random_round
from spreeze_zmq.replay import Minibatches
from tests.unit.algorithms.shipped import BOX, DISCRETE

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": [6, 4], "precision": "fp32"}
#: What an option needs to have an effect at once.
BESIDE = {"priority_beta": {"prioritized": True}, "target_noise": {"learning_rate": 1e-2}}
#: Both ends of an option's schedule, in the order that they are gone through: exact in float32.
ENDS = {
    "clip_range": (0.5, 2**-10),
    "max_gradient_norm": (1024.0, 0.0625),
    "target_entropy": (-4.0, 64.0),
    "entropy_share": (1.0, 0.0),
    "weight_decay": (64.0, 8.0),
}


def schedule(first, last):
    """Over 1,000 steps."""
    return {"from": first, "to": last, "over": {"env_steps": 1000}}


def half(name, part, changes):
    """One half of a shipped algorithm of small networks."""
    kind = algorithms.get(name)
    env = BOX if "box" in kind.acts_in and not kind.on_policy() else DISCRETE
    options = algorithms.options_from(kind.Options, {**SMALL, **changes})
    return algorithms.make(part, kind, options, env, "cpu", 0), env


def batches(made, env, count, size=16):
    """As a learner draws them: from a replay, or from a round that the half has prepared."""
    kind = type(made.algorithm)
    if not kind.on_policy():
        replay = random_replay(kind.fields_of(made.part), env, made.algorithm.options, "cpu")
        for _ in range(count):
            yield (batch := replay.sample(size))
            if getattr(replay, "prioritized", False):
                replay.prioritize(batch.reward.abs())
        return
    prepared = made.prepare(random_round(env, 64, "cpu"))
    drawn = Minibatches(prepared, count, size).drawn(torch.Generator().manual_seed(1))
    for _ in range(count):
        yield next(drawn)


def weights_after(name, part, changes, reached, plain=False):
    """The weights and targets after an update at each of these env steps."""
    made, env = half(name, part, changes)
    if plain:
        made.leave_to_torch()
    drawn = batches(made, env, len(reached))
    for env_steps in reached:
        made.follow({"env_steps": env_steps})
        made.update(next(drawn))
    state = made.state_dict()
    return torch.cat([state["own"], state["targets"]]), made


def is_replayed(made):
    """Whether its last update was one of a recording."""
    return any(course._steps for course in made._launch[True]._courses.values())


def parts(name):
    """That a learner trains."""
    return PARTS if algorithms.get(name).has_policy_loss() else PARTS[:1]


MARKED = [
    (name, option.name)
    for name in algorithms.names()
    for option in options_of(algorithms.get(name).Options)
    if option.schedule
]
#: Each option in one algorithm, and each algorithm with one option.
ONCE = list({each: pair for pair in MARKED for each in pair}.values())
OTHERS_APART = [pytest.param(*pair, marks=[pytest.mark.thorough] * (pair not in ONCE)) for pair in MARKED]


@pytest.mark.parametrize(("name", "option"), MARKED)
def test_every_option_that_may_move_does(monkeypatch, name, option):
    """At the end it is as if its last value had been stated, which in a learner at least is not as if the
    first had; for several updates, of which the last are replayed, and nothing is of the others.
    """
    first, last = ENDS.get(option, (0.5, 0.0625))
    beside, at_end = BESIDE.get(option, {}), [1000] * 6
    moving = {
        part: weights_after(name, part, {**beside, option: schedule(first, last)}, at_end)
        for part in parts(name)
    }
    monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
    moved = False
    for part, (found, made) in moving.items():
        assert is_replayed(made)
        expected, _ = weights_after(name, part, {**beside, option: last}, at_end)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        if not moved:
            other, _ = weights_after(name, part, {**beside, option: first}, at_end)
            moved = not torch.allclose(expected, other, rtol=1e-3, atol=1e-5)
    assert moved, "the option changes nothing: the comparison would show nothing"


@pytest.mark.parametrize("name", algorithms.names())
def test_no_other_option_may_move(name):
    """A schedule of any of them is refused in a line."""
    for other in options_of(algorithms.get(name).Options):
        if not other.schedule:
            with pytest.raises(Unfit) as caught:
                check(other, {"from": 0.5, "to": 0.25})
            assert "\n" not in caught.value.problem


WAY = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1000]
MOVING = {
    "sac": {
        "learning_rate": {
            "critic": schedule(1e-2, 1e-3),
            "policy": 1e-3,
            "log_temperature": schedule(1e-2, 1e-1),
        },
        "tau": schedule(0.5, 0.01),
        "target_entropy": schedule(-1.0, -3.0),
        "weight_decay": {"critics": schedule(0.5, 0.0)},
        "max_gradient_norm": schedule(0.5, 0.1),
        "adam_beta1": {"policy": 0.5},
    },
    "ppo": {
        "learning_rate": schedule(1e-2, 0.0),
        "clip_range": schedule(0.3, 0.01),
        "entropy_coefficient": schedule(0.1, 0.0),
        "value_clip_range": 0.2,
    },
}
KL = {"ppo kl": {"learning_rate": 1e-3, "desired_kl": 0.001, "value_clip_range": 0.1}}


@pytest.mark.parametrize("name", [*MOVING, *KL])
def test_what_moves_is_replayed_as_torch_alone_has_it(name):
    """A value for each update, the last ones of a recording; a half that was saved midway goes on with the
    same bits.
    """
    changes = {**MOVING, **KL}[name]
    name = name.split()[0]
    for part in parts(name):
        ours, made = weights_after(name, part, changes, WAY)
        assert is_replayed(made)
        theirs, _ = weights_after(name, part, changes, WAY, plain=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        before, env = half(name, part, changes)
        batch = next(batches(before, env, 1))
        for steps in WAY:
            if steps == 600:
                saved, reached = before.state_dict(), dict(before.reached)
            before.follow({"env_steps": steps})
            before.update(batch)
        after, _ = half(name, part, changes)
        after.load_state_dict(saved)
        after.follow(reached)
        for steps in [steps for steps in WAY if steps >= 600]:
            after.follow({"env_steps": steps})
            after.update(batch)
        assert torch.equal(after.weights, before.weights)


def test_the_rates_are_shown_as_they_are():
    """Of the part and of the networks that an option names, and what else moves once."""
    _, critic = weights_after("sac", "critic", MOVING["sac"], [500])
    _, policy = weights_after("sac", "policy", MOVING["sac"], [500])
    assert critic.rates() == {
        "tau": pytest.approx(0.255),
        "target_entropy": pytest.approx(-2.0),
        "max_gradient_norm": pytest.approx(0.3),
        "critics_learning_rate": pytest.approx(5.5e-3),
    }
    assert policy.rates() == {
        "policy_learning_rate": pytest.approx(1e-3),
        "log_temperature_learning_rate": pytest.approx(5.5e-2),
    }


def test_no_count_goes_back():
    """A learner that hears an older count stays where it is."""
    made, _ = half("dqn", "critic", {"learning_rate": schedule(1.0, 0.0)})
    for steps, expected in ((500, 0.5), (400, 0.5), (600, 0.4)):
        made.follow({"env_steps": steps})
        assert made.learning_rate == pytest.approx(expected)


def test_a_measured_batch_scales_both_ends():
    """And the run goes on where it was."""
    made, _ = half("dqn", "critic", {"learning_rate": schedule(1.0, 0.0), "tau": schedule(0.5, 0.25)})
    made.follow({"env_steps": 500})
    made.set_rates({"learning_rate": schedule(2.0, 1.0), "tau": schedule(0.25, 0.125)})
    assert (made.learning_rate, made.algorithm.options.tau.item()) == (1.5, 0.1875)


@pytest.mark.parametrize(("name", "option"), OTHERS_APART)
def test_a_number_that_is_set_while_it_trains_holds_from_the_next_update_on(name, option):
    """Also in updates that are replayed, and when it is set once more: as if that number had been stated and
    the weights been the same.
    """
    first, last = ENDS.get(option, (0.5, 0.0625))
    beside = BESIDE.get(option, {})
    for part in parts(name):
        made, env = half(name, part, {**beside, option: first})
        batch = next(batches(made, env, 1))
        for _ in range(3):
            made.update(batch)
        for number in (0.25, 0.125, 0.375, 0.5, last):
            made.turn(option, number)
            for _ in range(4):
                made.update(batch)
            saved = made.state_dict()
            made.update(batch)
        assert is_replayed(made), "a recording is given up where what it reads becomes another object"
        assert made.moves
        stated, _ = half(name, part, {**beside, option: last})
        stated.load_state_dict(saved)
        stated.update(batch)
        torch.testing.assert_close(made.weights, stated.weights, rtol=1e-4, atol=1e-6)


def test_what_is_set_is_shown_and_ends_a_schedule_and_stays_when_the_batch_changes():
    """Each network has it, whatever a table said."""
    made, _ = half("sac", "critic", MOVING["sac"])
    made.turn("learning_rate", 0.125)
    made.turn("tau", 0.25)
    made.follow({"env_steps": 1000})
    made.set_rates({"learning_rate": 1.0, "tau": 1.0})
    assert made.rates()["critics_learning_rate"] == 0.125
    assert (made.rates()["tau"], made.algorithm.options.tau.item()) == (0.25, 0.25)
    alone, _ = half("dqn", "critic", {"learning_rate": 0.5})
    alone.turn("learning_rate", 0.125)
    assert alone.rates() == {"learning_rate": 0.125}


def test_a_rate_that_a_loss_moves_starts_again_from_what_is_set():
    """Also where that is the number of the topology."""
    critic, _ = half("ppo", "critic", KL["ppo kl"])
    critic.turn("learning_rate", 2e-3)
    assert critic.learning_rate == pytest.approx(2e-3)
    made, env = half("ppo", "policy", KL["ppo kl"])
    for batch in batches(made, env, 3):
        made.update(batch)
    assert made.learning_rate != pytest.approx(1e-3)
    made.turn("learning_rate", 1e-3)
    assert made.learning_rate == pytest.approx(1e-3)
    with pytest.raises(InputError, match=r"learning_rate from 1e-05 to 0\.01, it is 1"):
        made.turn("learning_rate", 1.0)
    assert made.learning_rate == pytest.approx(1e-3)


def moved_from(rate=None):
    """A half whose loss has moved the learning rate from the one that is set, or stated."""
    made, env = half("ppo", "policy", KL["ppo kl"])
    if rate is not None:
        made.turn("learning_rate", rate)
    for batch in batches(made, env, 3):
        made.update(batch)
    return made


def test_a_rate_that_is_only_said_again_stays_where_a_loss_has_moved_it():
    """Of the broker that was started again; and to the learner of the next life, or of a resumed run, whether
    it hears that before or after it has its checkpoint back.
    """
    made = moved_from(2e-3)
    rate, state = made.learning_rate, made.state_dict()
    assert rate != pytest.approx(2e-3)
    made.turn("learning_rate", 2e-3)
    assert made.learning_rate == rate
    for is_first in (True, False):
        later, _ = half("ppo", "policy", KL["ppo kl"])
        for hears in (is_first, not is_first):
            later.turn("learning_rate", 2e-3) if hears else later.load_state_dict(state)
        assert (later.learning_rate, later.options.learning_rate) == (rate, 2e-3)
        again, _ = half("ppo", "policy", KL["ppo kl"])
        again.load_state_dict(later.state_dict())
        again.turn("learning_rate", 2e-3)
        assert again.learning_rate == rate


@pytest.mark.parametrize("before", [None, 3e-3])
def test_a_rate_that_is_set_anew_holds_whenever_the_state_comes(before):
    """A state from before that, also of an earlier release, throws nothing back, and leaves nothing."""
    state = moved_from(before).state_dict()
    for saved in (state, {name: value for name, value in state.items() if name != "turned"}):
        for is_first in (True, False):
            later, _ = half("ppo", "policy", KL["ppo kl"])
            for hears in (is_first, not is_first):
                later.turn("learning_rate", 2e-3) if hears else later.load_state_dict(saved)
            assert later.learning_rate == pytest.approx(2e-3)
            later.turn("learning_rate", 3e-3)
            assert later.learning_rate == pytest.approx(3e-3)


@pytest.mark.parametrize(
    ("stated", "rate"),
    [
        ({"learning_rate": 3e-4, "desired_kl": 0.001}, 3e-4),
        ({"learning_rate": 3e-4}, 3e-4),
        ({"learning_rate": 1e-3}, 1e-3),
        ({"learning_rate": schedule(1e-3, 1e-3)}, 1e-3),
    ],
)
def test_a_moved_rate_does_not_outlive_the_stated_one_or_its_rule(stated, rate):
    """A run that goes on with another rate has that; without the rule every step is by the stated one, also
    after a return to the same state, and nothing is kept of the moved one.
    """
    state = moved_from().state_dict()
    later, env = half("ppo", "policy", {"value_clip_range": 0.1, **stated})
    batch = next(batches(later, env, 1))
    for _ in range(2):
        later.load_state_dict(state)
        if rate != 1e-3:
            assert later.learning_rate == rate
        if "desired_kl" in stated:
            continue
        for _ in range(6):
            later.update(batch)
            assert later.learning_rate == pytest.approx(rate)
        assert is_replayed(later)
        assert not later.adapts
        assert "rates" not in later.state_dict()["adam"]


def test_a_moved_rate_goes_on_where_the_same_is_stated():
    """Also of an earlier release, which did not keep the stated one."""
    made = moved_from()
    state = made.state_dict()
    adam = {name: value for name, value in state["adam"].items() if name != "stated_rates"}
    for saved in (state, {**state, "adam": adam}):
        later, env = half("ppo", "policy", KL["ppo kl"])
        later.load_state_dict(saved)
        assert later.learning_rate == made.learning_rate != pytest.approx(1e-3)
        later.update(next(batches(later, env, 1)))
        assert later.adapts


class TwoRates(algorithms.get("sac")):
    """CleanRL's two learning rates and CrossQ's beta, and a number that falls, each in a line."""

    @dataclasses.dataclass(frozen=True)
    class Options(algorithms.get("sac").Options):
        """Other defaults."""

        learning_rate: float = with_default(
            ReplayOptions, "learning_rate", {"critic": 0.25, "policy": {"from": 0.5, "to": 0.25}}
        )
        adam_beta1: float = with_default(ReplayOptions, "adam_beta1", 0.5)
        bonus: float = option(0.25, "of size", minimum=0.0, schedule=True)

    def critic_loss(self, batch):
        """Plus the bonus."""
        loss = super().critic_loss(batch)
        bonus = self.options.bonus
        return loss._replace(loss=loss.loss + bonus, metrics={"bonus": 1.0 * bonus})


def test_in_an_algorithm_of_ones_own_each_is_a_line():
    """Its defaults, and what a topology changes of them: what is not named there has the class's default."""
    changes = {**SMALL, "bonus": schedule(4.0, 0.0), "learning_rate": {"log_temperature": 0.125}}
    for given in (SMALL, changes):
        for part, rate in (("critic", 0.25), ("policy", 0.5)):
            options = algorithms.options_from(TwoRates.Options, given)
            made = algorithms.make(part, TwoRates, options, BOX, "cpu", 0)
            assert made.learning_rate == rate
    made = algorithms.make("critic", TwoRates, options, BOX, "cpu", 0)
    replay = random_replay(TwoRates.critic_fields, BOX, made.options, "cpu")
    for steps in (0, 250, 500, 750, 1000):
        made.follow({"env_steps": steps})
        assert made.update(replay.sample(16))["bonus"].item() == 4.0 - steps / 250
    assert is_replayed(made)
    options = algorithms.options_from(TwoRates.Options, changes)
    assert algorithms.make("policy", TwoRates, options, BOX, "cpu", 0).rates() == {
        "policy_learning_rate": 0.5,
        "log_temperature_learning_rate": 0.125,
    }


def test_a_name_that_no_network_has_is_refused():
    """With the nearest one that there is."""
    problem = "value for 'temperature', expected a network; .*\"log_temperature\""
    with pytest.raises(AlgorithmError, match=problem) as caught:
        half("sac", "policy", {"learning_rate": {"temperature": 1e-3}})
    assert "\n" not in str(caught.value)
    with pytest.raises(AlgorithmError, match="value for 'policy', expected a network"):
        half("dqn", "critic", {"learning_rate": {"policy": 1e-3}})


def test_what_is_published_by_its_class_holds_numbers_and_no_tensors():
    """Samplers make the class of what its description has: the values as they are."""
    made, _ = half("sac", "policy", {"tau": schedule(0.5, 0.25)})
    made._networks.layers = None
    made.follow({"env_steps": 500})
    told = made.description()["options"]
    assert (told["tau"], told["learning_rate"]) == (0.375, 1e-3)
    algorithms.options_from(algorithms.get("sac").Options, {**told, "hidden_sizes": [6]})
    assert dataclasses.asdict(made.options)["tau"]["to"] == 0.25
