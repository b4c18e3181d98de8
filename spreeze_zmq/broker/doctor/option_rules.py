"""Options that cannot do what their values say, or undo what they are for: what the plan alone shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.schema import schedules_in
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.trend import numbers, whole_numbers
from spreeze_zmq.broker.doctor.vitals import Rule, Vitals
from spreeze_zmq.plan.roles import SAMPLER

#: Adam moves each weight by about the learning rate; fresh weights of 256-wide layers are around 0.05.
LARGEST_RATE = 0.05
#: Updates for each env step, beyond which one side of the balance stands still; published runs have from one
#: for 4,000 steps, of thousands of environments on a GPU, to 128 a step.
FEWEST_UPDATES, MOST_UPDATES = 1 / 20_000, 256.0
DEFAULT_RATIO = 8.0
#: Updates in which target networks come half of the way: DQN copies every 10,000 (Mnih et al. 2015).
SLOWEST_TARGETS = 5_000
#: Entropy of a normal distribution in nats is its log deviation plus this.
NORMAL_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
#: Sums of n rewards that the ends of rollouts cut to less than this share of n, in the mean, are others.
WHOLE_SUMS = 0.75


def learning_rate(vitals: Vitals) -> Finding | None:
    """A step size of the size of the weights, or none."""
    for name, value in vitals.algorithm.items():
        rates = _numbers_in(value) if name.endswith("learning_rate") else []
        largest = max(rates, default=None)
        if largest == 0:
            return Finding(f"algorithm.{name} is 0", "nothing is learned", f"algorithm.{name} = 1e-3", rank=0)
        if largest is not None and largest > LARGEST_RATE:
            return Finding(
                f"algorithm.{name} is {'up to ' * isinstance(value, Mapping)}{largest:g}",
                "each update moves every weight by about as much, more than fresh weights measure",
                f"algorithm.{name} = 1e-3",
                rank=0,
            )
    return None


def _numbers_in(value: Any) -> list[float]:
    """The numbers of an option: of each network, and of a schedule the first and the last."""
    if not isinstance(value, Mapping):
        return [*numbers({"": value}).values()]
    return [number for name, part in value.items() if name != "over" for number in _numbers_in(part)]


def target_entropy(vitals: Vitals) -> Finding | None:
    """An entropy that no policy within the bounds can have."""
    options, shape = numbers(vitals.algorithm), whole_numbers(vitals.environment.get("action_shape"))
    if (target := options.get("target_entropy")) is None or not shape:
        return None
    size = math.prod(shape)
    highest = size * math.log(2.0)
    lowest = size * (options.get("log_std_min", -5.0) + NORMAL_ENTROPY)
    if lowest <= target < highest:
        return None
    what = "uniformly random actions have" if target >= highest else "actions of the least noise have"
    then = "grows without end, and only randomness is rewarded" if target >= highest else "falls to 0"
    return Finding(
        f"algorithm.target_entropy is {target:g}, {what} {highest if target >= highest else lowest:.3g}",
        f"it is never reached, so the temperature {then}",
        'algorithm.target_entropy = "auto"',
        rank=0,
    )


def never_trains(vitals: Vitals) -> Finding | None:
    """A run that ends before its first update."""
    limit = int(numbers(vitals.table("run").get("stop")).get("env_steps", 0))
    starts = int(numbers(vitals.table("learning")).get("learning_starts", 0))
    first = first_update_at(vitals)
    if not limit or first <= limit or vitals.first_update_s is not None:
        return None
    remedy = f"algorithm.learning_starts = {max(1, limit // 10)}"
    if first - starts > limit:
        remedy = f"balance.replay_ratio = {DEFAULT_RATIO:g}"
    return Finding(
        f"training begins after {first:,} transitions, and the run ends at {limit:,}",
        "no update is taken",
        remedy,
        rank=0,
    )


def replay_ratio(vitals: Vitals) -> Finding | None:
    """A ratio at which samplers, or learners, do hardly anything but wait."""
    each, ratio = _updates_per_step(vitals), numbers(vitals.table("balance")).get("replay_ratio", 0.0)
    if not each or FEWEST_UPDATES <= each <= MOST_UPDATES:
        return None
    remedy = f"balance.replay_ratio = {DEFAULT_RATIO:g}, and from there up or down by factors of two"
    if each > MOST_UPDATES:
        return Finding(
            f"balance.replay_ratio is {ratio:,g}: {each:,.0f} updates for each env step",
            "samplers wait for the learners nearly all of the time, and hardly a step is taken",
            remedy,
        )
    return Finding(
        f"balance.replay_ratio is {ratio:,g}: one update for each {1.0 / each:,.0f} env steps",
        "learners wait for samples nearly all of the time, and hardly an update is taken",
        remedy,
    )


def small_replay(vitals: Vitals) -> Finding | None:
    """A replay that forgets the beginning of an episode before its end."""
    capacity, each = int(vitals.number("replay_capacity", 0)), rows_each(vitals)
    length = numbers(vitals.environment).get("max_episode_steps")
    if not capacity or not length or capacity // each >= length:
        return None
    holds = f", of which each transition takes {each}, and" if each > 1 else ","
    return Finding(
        f"algorithm.replay_capacity is {capacity:,}{holds} an episode has up to {length:,.0f} steps",
        "the beginning of an episode is forgotten before its end has come",
        f"algorithm.replay_capacity = {max(1_000_000, int(each * length)):_}",
    )


def still_targets(vitals: Vitals) -> Finding | None:
    """Target networks that never move, or hardly, or that are no others than the trained ones."""
    tau, every = numbers(vitals.algorithm).get("tau"), vitals.number("target_every", 1)
    if tau == 0:
        return Finding(
            "algorithm.tau is 0, so target networks never move",
            "values are learned of a fresh network's guesses, and of nothing that was found out since",
            "algorithm.tau = 0.01",
            rank=0,
        )
    half_way = every * math.log(0.5) / math.log1p(-tau) if tau is not None and 0 < tau < 1 else 0.0
    if half_way > SLOWEST_TARGETS:
        return Finding(
            f"algorithm.tau is {tau:g}" + f", once in target_every = {every:,.0f} updates" * (every > 1),
            f"target networks take {half_way:,.0f} updates to come half of the way to the trained ones",
            "algorithm.tau = 1, which copies them" if every > 1 else "algorithm.tau = 0.01",
        )
    if tau != 1 or every > 1:
        return None
    remedy = "algorithm.tau = 0.01"
    if "target_every" in vitals.algorithm:
        remedy += ", or algorithm.target_every = 1_000"
    return Finding(
        "algorithm.tau is 1, which copies the trained networks to their targets in every update",
        "values then follow their own errors, as without target networks",
        remedy,
    )


def cut_sums(vitals: Vitals) -> Finding | None:
    """Sums of rewards that are longer than the rollouts, at whose ends they are cut."""
    wanted, steps = int(vitals.number("n_step", 1)), _rollout_steps(vitals)
    if wanted < 2 or steps < 1 or samplers(vitals, "count").get("maximum") == 0:
        return None  # episodes of data are rollouts as they are
    most = min(wanted, steps)
    mean = most - most * (most - 1) / (2 * steps)  # the last ones of a rollout have the fewest
    if mean >= WHOLE_SUMS * wanted:
        return None
    remedy = f"components.{SAMPLER}.rollout_steps = {4 * wanted}, or a smaller n_step"
    if vitals.number("memory_size", 0):
        remedy += ", with algorithm.sequence_length likewise"
    return Finding(
        f"algorithm.n_step is {wanted:,}, but sums of rewards end with their rollout of {steps:,} steps: "
        f"they have {mean:.3g} rewards in the mean",
        "what is rewarded later reaches a value by the critic's guess alone",
        remedy,
    )


def large_batch(vitals: Vitals) -> Finding | None:
    """An on-policy batch that is larger than the round that it is cut from."""
    batch, steps = int(vitals.number("batch_size", 0)), _rollout_steps(vitals)
    each = _round_transitions(vitals)
    if not vitals.on_policy or not 0 < each < batch:
        return None
    return Finding(
        f"algorithm.batch_size is {batch:,}, but a round of rollouts has {each:,} transitions",
        f"an update takes {each:,}, and there are as many updates a round as there are epochs",
        f"components.{SAMPLER}.rollout_steps = {math.ceil(steps * batch / each)}",
    )


def early_schedules(vitals: Vitals) -> Finding | None:
    """A schedule that is over before the first update, which then is none."""
    first = first_update_at(vitals) if vitals.first_update_s is None else vitals.first_update_steps
    for name, value in vitals.algorithm.items():
        for table in schedules_in(value):
            ends = numbers(table.get("over"))
            if 0 < ends.get("env_steps", math.inf) <= first:
                return Finding(
                    f"the schedule of algorithm.{name} is over after {ends['env_steps']:,.0f} env steps, and "
                    f"training begins after {first:,}",
                    "every update takes its last value",
                    'over = "run" in the schedule, or a smaller algorithm.learning_starts',
                )
    return None


def late_exploration(vitals: Vitals) -> Finding | None:
    """Random actions that have not become fewer at the end of the run; without ``final_epsilon``
    ``exploration_steps`` is something else, of an algorithm of the user's own.
    """
    options, stop = numbers(vitals.algorithm), numbers(vitals.table("run").get("stop"))
    limit, steps = int(stop.get("env_steps", 0)), int(options.get("exploration_steps", 0))
    if not 0 < limit < steps or "final_epsilon" not in options:
        return None
    first, last = options.get("initial_epsilon", 1.0), options.get("final_epsilon", 0.0)
    return Finding(
        f"algorithm.exploration_steps is {steps:,}, and the run ends at {limit:,} env steps",
        f"{_random_actions(first + (last - first) * limit / steps, options)} are still random then",
        f"algorithm.exploration_steps = {max(1, limit // 10):_}",
    )


def _random_actions(epsilon: float, options: Mapping[str, float]) -> str:
    """How many actions are random, in words, where environments explore with powers of ``epsilon`` that are
    spread evenly between 1 and 1 + ``epsilon_spread``.
    """
    share, spread = epsilon, options.get("epsilon_spread", 0.0)
    if spread > 0 and 0 < epsilon < 1:
        share *= (1 - epsilon**spread) / (-spread * math.log(epsilon))
    return f"{share:.0%} of the actions" if share >= 0.01 else f"{100 * share:.1g}% of the actions"


def early_exploration(vitals: Vitals) -> Finding | None:
    """Random actions that have become few before the first update; as :func:`late_exploration`."""
    options = numbers(vitals.algorithm)
    limit = numbers(vitals.table("run").get("stop")).get("env_steps") or math.inf
    starts = int(numbers(vitals.table("learning")).get("learning_starts", 0))
    steps, first = int(options.get("exploration_steps", 0)), first_update_at(vitals)
    beside = first - starts  # what an update waits for besides
    if vitals.on_policy:
        beside = _round_transitions(vitals)
        first = max(first, beside)
    initial, final = options.get("initial_epsilon", 1.0), options.get("final_epsilon", 1.0)
    sampled = samplers(vitals, "count").get("maximum", 1) > 0
    if not 0 < steps <= first < limit or final >= initial or vitals.is_resumed or not sampled:
        return None
    remedy = f"algorithm.exploration_steps = {int(min(first + max(steps, first), limit)):_}"
    if limit <= 2 * first and beside + 1 < steps:
        remedy = f"algorithm.learning_starts = {int(max(1, min(limit // 10, (steps - beside) // 2))):_}"
    return Finding(
        f"algorithm.exploration_steps is {steps:,}, and training begins after {first:,} transitions",
        f"from the first update on only {_random_actions(final, options)} are random, whatever was learned",
        remedy,
    )


#: Of options that a request may set while the run trains.
MOVING_RULES: tuple[Rule, ...] = (
    learning_rate,
    target_entropy,
    never_trains,
    replay_ratio,
    still_targets,
    early_schedules,
)
OPTION_RULES = (*MOVING_RULES, small_replay, cut_sums, large_batch, late_exploration, early_exploration)


def samplers(vitals: Vitals, table: str) -> Mapping[str, float]:
    """The numbers of a table of the samplers."""
    sampler = vitals.table("components").get(SAMPLER)
    return numbers(sampler.get(table)) if isinstance(sampler, Mapping) else {}


def _rollout_steps(vitals: Vitals) -> int:
    return int(samplers(vitals, "options").get("rollout_steps", 0))


def _round_transitions(vitals: Vitals) -> int:
    """Transitions that the samplers of the beginning make in one rollout each."""
    count = max(1, int(samplers(vitals, "count").get("initial", 1)))
    return count * _rollout_steps(vitals) * int(samplers(vitals, "options").get("envs", 0))


def first_update_at(vitals: Vitals) -> int:
    """Transitions after which the first update is allowed: ``learning_starts``, and a batch by the ratio."""
    starts, each = int(numbers(vitals.table("learning")).get("learning_starts", 0)), _updates_per_step(vitals)
    return starts + (math.ceil(1.0 / each) if each else 0)


def rows_each(vitals: Vitals) -> int:
    """Places of a replay that a transition takes, with those that relabelling makes of it; a plan of an
    earlier release does not say.
    """
    goals = vitals.number("hindsight_goals", 0) if vitals.option("hindsight", "off") != "off" else 0
    return max(1, int(numbers(vitals.table("learning")).get("rows_each", 1 + goals)))


def _updates_per_step(vitals: Vitals) -> float:
    """Updates for each env step, as the replay ratio asks for them; 0 where it decides on none."""
    batch, count = vitals.number("batch_size", 0), samplers(vitals, "count").get("maximum", 0)
    if vitals.on_policy or batch < 1 or count < 1:
        return 0.0
    return float(numbers(vitals.table("balance")).get("replay_ratio", 0.0)) / batch
