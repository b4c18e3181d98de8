"""What the learners' figures show: values, exploration, updates, and whether the return rises."""

from __future__ import annotations

import math
from statistics import fmean, median

from spreeze_zmq.algorithms.options import LARGEST_RETURN
from spreeze_zmq.base.rates import rate
from spreeze_zmq.base.schema import show
from spreeze_zmq.broker.doctor.finding import Finding, fitting
from spreeze_zmq.broker.doctor.machine_rules import crowded
from spreeze_zmq.broker.doctor.option_rules import NORMAL_ENTROPY, first_update_at
from spreeze_zmq.broker.doctor.resumed_rules import first_update_again
from spreeze_zmq.broker.doctor.trend import LATELY_S, numbers, whole_numbers
from spreeze_zmq.broker.doctor.vitals import LOOKS_SINCE_BEST, Rule, Vitals

#: Probability of the targets on one end of the range of returns: a fresh network has 0.01 to 0.02 there.
END_MASS = 0.2
#: Times as large as the median return that the largest one may be: a reward that is seldom met, and
#: discounted over a long episode, has a hundred.
LARGEST_SPREAD = 10_000.0
#: Weights of the entropy beyond which it counts nothing or alone: shipped tasks end between 0.001 and 1.
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 1e-5, 100.0
#: What makes the entropy count as it does by default in SAC, and in that of discrete actions.
USUAL_ENTROPY = (
    {"target_entropy": "auto", "initial_temperature": "auto"},
    {"entropy_share": 0.9, "initial_temperature": 0.1},
)
#: How much smaller such a weight is where rewards are divided, at its start.
DIVIDED = 0.02
#: Log deviations of a policy's noise, in unit actions: 1 % of the range, and e times the range.
LOWEST_LOG_STD, HIGHEST_LOG_STD = -4.5, 1.0
#: Share of the greatest entropy that choices keep while nothing is learned.
LEAST_CHOICE = 0.01
#: Factor by which values may exceed the sum of the largest rewards seen.
VALUE_SLACK = 10.0
#: And this many times more where rewards come from data too, whose size is not known here.
DATA_SLACK = 100.0
#: Factor by which the loss of the last third exceeds the first one's, without any rise of the return.
LOSS_GROWTH = 100.0
#: Updates before the loss is compared, and before the return must have risen.
ENOUGH_UPDATES, UPDATES_TO_RISE = 2_000, 20_000
#: Seconds of training, and looks, before the return must have risen. Walker2d by TD3 needs over a minute on
#: two cores, Pong by PPO five minutes and more.
SECONDS_TO_RISE, SECONDS_TO_RISE_ON_POLICY, LOOKS_TO_RISE = 120.0, 600.0, 8
#: Fewer updates/s than this are too few, seconds after the first one.
FEW_UPDATES_PER_S, FEW_AFTER_S = 0.5, 20.0
#: Seconds of samples without a first update.
LONG_WARM_UP_S = 40.0


def end_atoms(vitals: Vitals) -> Finding | None:
    """Returns beyond the range of the distribution, unless the range is still following them."""
    divisors = vitals.steady("reward_divisor")
    if divisors and min(divisors) < max(divisors):
        return None
    for end, other, word in (("v_max", "v_min", "above"), ("v_min", "v_max", "below")):
        mass = vitals.typical(f"mass_at_{end}")
        if mass is not None and mass >= END_MASS:
            reach = LARGEST_RETURN if end == "v_max" else -LARGEST_RETURN
            now, far = vitals.number(end, reach), vitals.number(other, -reach)
            # A range that is stated is one of rewards as they are.
            unit = divisors[-1] if divisors else 1.0
            remedy = f"algorithm.{end} = {unit * (now + 4.0 * (now - far)):g}"  # a range five times as wide
            if divisors or other not in numbers(vitals.algorithm):
                remedy += f", algorithm.{other} = {unit * far:g}"
            if vitals.option("normalize_rewards") is True:
                remedy += ' and algorithm.normalize_rewards = "auto"'
            return Finding(
                f"{mass:.0%} of the returns lie at or {word} algorithm.{end} = {now:g}",
                "returns beyond it cannot be told apart",
                remedy,
                rank=0,
            )
    return None


def outlying_returns(vitals: Vitals) -> Finding | None:
    """Rewards that are divided for a return that hardly any other comes near."""
    spread = vitals.typical("return_spread")
    if spread is None or spread < LARGEST_SPREAD:
        return None
    return Finding(
        f"the largest return so far is {spread:,.0f} times as large as the median one",
        "rewards are divided to fit it, which leaves nothing of all others",
        "clip the reward that is an accident in step(), or state algorithm.v_min and algorithm.v_max",
        rank=0,
    )


def _of_policy(vitals: Vitals, name: str) -> float | None:
    """A figure of the policy's loss, whose name begins so where the critics' loss gives one of it, too."""
    own = vitals.typical(f"policy_{name}")
    return vitals.typical(name) if own is None else own


def _of_entropy(vitals: Vitals, more: str) -> str:
    """How the entropy comes to count as it usually does, or where it should by now, ``more``."""
    if vitals.option("learn_temperature") is False:
        return f"a {more} algorithm.initial_temperature"
    for usual in USUAL_ENTROPY:
        if usual.keys() <= vitals.algorithm.keys():
            unlike = {name: value for name, value in usual.items() if vitals.option(name) != value}
            states = " and ".join(f"algorithm.{name} = {show(value)}" for name, value in unlike.items())
            return states or f"a {more} algorithm.{next(iter(usual))}"
    return f"a {more} weight of the entropy in its losses"


def temperature(vitals: Vitals) -> Finding | None:
    """A weight of the entropy that is gone, or all that counts."""
    value = _of_policy(vitals, "temperature")
    lowest = LOWEST_TEMPERATURE * (DIVIDED if vitals.divides_rewards else 1.0)
    if value is None or lowest <= value <= HIGHEST_TEMPERATURE:
        return None
    gone = value < lowest
    remedy = _of_entropy(vitals, "larger" if gone else "smaller")
    return Finding(
        f"the temperature is {value:.1g}",
        "entropy no longer counts, and nothing is explored"
        if gone
        else "entropy counts, the reward does not",
        remedy if vitals.divides_rewards else f"{remedy}, with rewards around 1",
        rank=0,
    )


def exploration(vitals: Vitals) -> Finding | None:
    """A policy without a temperature whose noise is gone or larger than the bounds; where most actions are
    illegal, as much of it is all there can be.
    """
    entropy, is_masked = _of_policy(vitals, "entropy"), vitals.environment.get("action_mask")
    if entropy is None or is_masked or vitals.steady("temperature") or vitals.has_risen:
        return None
    sizes = whole_numbers(vitals.environment.get("action_sizes"))
    if sizes:
        if entropy >= LEAST_CHOICE * sum(math.log(size) for size in sizes if size > 1):
            return None
        seen, gone = f"the entropy of choices is {entropy:.1g} nats", True
    else:
        log_std = entropy / vitals.num_actions - NORMAL_ENTROPY
        if LOWEST_LOG_STD <= log_std <= HIGHEST_LOG_STD:
            return None
        gone = log_std < LOWEST_LOG_STD
        seen = f"the deviation of the policy's noise is {math.exp(log_std):.1g} of half the action's range"
    weight = "larger" if gone else "smaller"
    return Finding(
        seen,
        "the same actions are tried again and again" if gone else "nearly all actions are clipped",
        fitting(
            vitals.algorithm,
            f"a {weight} algorithm.entropy_coefficient",
            f"a {weight} weight of the entropy in its losses",
        ),
    )


def values_diverge(vitals: Vitals) -> Finding | None:
    """Values that no sum of rewards can reach."""
    gamma, value = vitals.number("gamma", 1.0), vitals.typical("q_mean")
    if value is None or gamma >= 1.0 or vitals.divides_rewards or vitals.number("num_atoms", 1) > 1:
        return None
    if vitals.rewards is None:
        return None
    # In hindsight a goal may be paid that no sampler has reached; what data pay, nobody has told.
    reward = max(-vitals.rewards[0], vitals.rewards[1], float(vitals.has_other_rewards))
    bonus = abs((_of_policy(vitals, "temperature") or 0.0) * (_of_policy(vitals, "entropy") or 0.0))
    most = (reward + bonus) / (1.0 - gamma)
    slack = VALUE_SLACK * (DATA_SLACK if vitals.table("data") else 1.0)
    if abs(value) <= slack * max(most, 1.0):
        return None
    return Finding(
        f"the critics expect a return of {value:.2g}; "
        f"the rewards reported so far, at most {reward:.2g}, add up to {most:.2g}",
        "they learn from their own growing errors",
        fitting(
            vitals.algorithm,
            "a tenth of algorithm.learning_rate, or algorithm.layer_norm = true",
            "a tenth of algorithm.learning_rate, or critics with layer norms",
            "smaller steps, or critics with layer norms",
        ),
        rank=0,
    )


def not_finite(vitals: Vitals) -> Finding | None:
    """A learner has lately lost its weights to numbers that are not finite."""
    if not vitals.went_back or vitals.t_s - vitals.went_back_s > LATELY_S:
        return None
    return Finding(
        f"a learner went back to a checkpoint {vitals.went_back} time{'s' * (vitals.went_back > 1)}",
        "its loss or weights were not finite",
        "a tenth of algorithm.learning_rate",
        rank=0,
    )


def loss_grows(vitals: Vitals) -> Finding | None:
    """A loss that grows while the return does not."""
    if vitals.updates < ENOUGH_UPDATES or len(vitals.critic_loss.values) < 15 or vitals.has_risen:
        return None
    first, _, last = (median(values) for values in vitals.critic_loss.thirds())
    if first <= 0.0 or last < LOSS_GROWTH * first:
        return None
    return Finding(
        f"the critics' loss grew from {first:.2g} to {last:.2g}, the return did not",
        "they fall behind their own targets",
        "a tenth of algorithm.learning_rate",
    )


def few_updates(vitals: Vitals) -> Finding | None:
    """Too few updates to learn from, and who is waited for."""
    per_s = vitals.updates_per_s
    if vitals.first_update_s is None:
        began_s = vitals.first_step_s
        if began_s is None or vitals.t_s - began_s < LONG_WARM_UP_S or vitals.on_policy:
            return None
        starts, remedy = _warm_up(vitals)
        seen = f"no update in {vitals.t_s - began_s:.0f} s: {vitals.env_steps:,} of {starts:,} transitions"
    elif vitals.training_s < FEW_AFTER_S or per_s >= FEW_UPDATES_PER_S:
        return None
    else:
        seen = f"{per_s:.1g} updates/s"
        more = "a smaller algorithm.batch_size" if vitals.on_policy else "a larger balance.replay_ratio"
        remedy = f"more environments or samplers, or {more}"
    return Finding(seen, *_why_few(vitals, remedy))


def _warm_up(vitals: Vitals) -> tuple[int, str]:
    """Transitions before the first update of this run, and how to have it sooner."""
    if not vitals.is_resumed:
        starts = first_update_at(vitals)
        return starts, "more environments or samplers, or a smaller algorithm.learning_starts"
    again = "run.save_replay = true, with which the next run need not wait"
    return first_update_again(vitals, vitals.steps_before), f"more environments or samplers, or {again}"


def _why_few(vitals: Vitals, remedy: str) -> tuple[str, str]:
    """Why there are few updates, and what to try: ``remedy`` where samples are few."""
    learner = vitals.status.get("workers", {}).get("critic_learner", {})
    if crowded(vitals) is not None:
        return "other programs hold the CPUs", "end them (top shows which)"
    if learner.get("starved", 0.0) >= 0.5:
        come = rate(vitals.status.get("env_steps_per_s", 0.0))
        return f"the learner waits for samples, of which {come} come in a second", remedy
    smaller = fitting(
        vitals.algorithm,
        "smaller algorithm.hidden_sizes or algorithm.batch_size",
        "smaller networks or algorithm.batch_size",
        "smaller networks",
    )
    return "each update takes long", smaller


def no_rise(vitals: Vitals) -> Finding | None:
    """The return is no better than at first, after enough of everything."""
    random = vitals.random_return
    least_s = SECONDS_TO_RISE_ON_POLICY if vitals.on_policy else SECONDS_TO_RISE
    if vitals.is_resumed or vitals.training_s < least_s:
        return None
    if vitals.updates < UPDATES_TO_RISE or random is None or vitals.has_risen:
        return None
    if vitals.looks.values and vitals.num_looks < LOOKS_TO_RISE:
        return None
    curve = vitals.looks if vitals.looks.values else vitals.training
    now = fmean(curve.thirds()[-1]) if curve.values else math.nan
    return Finding(
        f"the return has not risen: {now:.4g} lately, {random[0]:.4g} in the first, random episodes",
        f"{vitals.updates:,} updates have made the policy no better; some tasks need more, most do not",
        "print a few steps of the environment: is the reward what you mean, and can it be seen coming?",
        rank=0,
    )


def early_ends(vitals: Vitals) -> Finding | None:
    """The policies since the best one earn a little more a step and end their episodes early, as robots that
    run faster until they fall: at a discount near 1 - 1/steps that is worth as much as to last.
    """
    limit, gamma = numbers(vitals.environment).get("max_episode_steps", 0.0), vitals.number("gamma", 1.0)
    best, best_steps = vitals.best
    farther = 1.0 - (1.0 - gamma) / 2.0
    lasted = 0.0 < 0.9 * limit <= best_steps
    if not lasted or len(vitals.since_best) < LOOKS_SINCE_BEST or farther > 1.0 - 1.0 / limit:
        return None
    lately, steps = (median(column) for column in zip(*vitals.since_best, strict=True))
    pace, best_pace = median(got / max(lasts, 1.0) for got, lasts in vitals.since_best), best / best_steps
    if steps > 0.6 * best_steps or lately > 0.8 * best or not 1.05 < pace / best_pace < 1.35:
        return None
    return Finding(
        f"policies end their episodes after {steps:.0f} steps with {lately:.4g}, the best one lasted "
        f"{best_steps:.0f} for {best:.4g}",
        f"they earn more a step ({pace:.3g} beside {best_pace:.3g}), and a discount of {gamma:g} hardly "
        "counts what ends early",
        f"algorithm.gamma = {farther:g}",
    )


LEARNING_RULES: tuple[Rule, ...] = (
    end_atoms,
    outlying_returns,
    temperature,
    exploration,
    values_diverge,
    not_finite,
    loss_grows,
    few_updates,
    no_rise,
    early_ends,
)
