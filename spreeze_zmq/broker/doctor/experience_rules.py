"""What the samplers' experience shows: rewards, observations, actions, and how episodes end."""

from __future__ import annotations

import math
from collections.abc import Mapping

from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.option_rules import samplers
from spreeze_zmq.broker.doctor.trend import LATELY_S, LONGEST_WINDOW_S, numbers
from spreeze_zmq.broker.doctor.vitals import Rule, Vitals
from spreeze_zmq.broker.sightings import OUTSIDE
from spreeze_zmq.envs.bounds import Beyond
from spreeze_zmq.plan.roles import EVALUATOR

#: Rewards beyond this as a root mean square make errors and gradients of its square; the largest of the
#: shipped tasks have 10.
LARGE_REWARD = 100.0
#: No reward so far has reached this: the entropy bonus, initial errors and noise drown them.
SMALL_REWARD = 1e-3
#: No number of an observation has varied by this deviation: fresh networks hardly tell observations apart.
SMALL_OBSERVATION = 0.01
#: A deviation beyond this saturates or drowns all other numbers; contact forces reach 1,000 for a moment.
LARGE_OBSERVATION = 10_000.0
#: Steps of one environment without the end of any episode: half more than the longest usual time limit.
UNENDED_STEPS = 1_500
#: Episodes from which a rule about all of them begins, as for a running mean of short tasks.
ENOUGH_EPISODES = 32
#: Env steps from which rewards that are always the same are no accident.
ENOUGH_STEPS = 5_000
#: Share of action numbers at their bounds, or of the way to one bound that their mean has gone, while nothing
#: is learned. Shipped tasks have up to 0.55 at both bounds; TD3 begins with up to 9 s beside one.
SATURATED = 0.85
#: Shortest episodes whose lengths are taken for a time limit where all are equal, and where only the longest
#: ones are; many tasks are over in a few steps.
LEAST_LIMIT, LEAST_LIMIT_OF_SOME = 10, 50
#: Share of the episodes that have the longest one's length: of millions some do by chance.
LIMIT_SHARE = 0.01
#: Evaluated looks without a success.
LOOKS_WITHOUT_SUCCESS = 20
#: Failures of which a run is full, and their share of all episodes.
MANY_FAILURES, FAILURE_SHARE = 20, 0.2


def large_rewards(vitals: Vitals) -> Finding | None:
    """Rewards far above 1."""
    size = vitals.typical("reward_rms")
    if size is None or size <= LARGE_REWARD or vitals.divides_rewards:
        return None
    return Finding(
        f"rewards are around {size:.2g} in size",
        "values and their errors are far from 1, for which step sizes and fresh networks are made",
        _divided(vitals),
    )


def _divided(vitals: Vitals) -> str:
    """What divides rewards, beside a range of returns that may be stated for rewards as they are."""
    if vitals.number("num_atoms", 1) > 1 and vitals.option("v_max", "auto") != "auto":
        return "leave algorithm.v_min and algorithm.v_max out, so that rewards are divided to fit their range"
    return "algorithm.normalize_rewards = true, so that rewards are around 1"


def small_rewards(vitals: Vitals) -> Finding | None:
    """Rewards far below 1."""
    low, high = vitals.rewards or (0.0, 0.0)
    size = max(-low, high)
    if not 0.0 < size < SMALL_REWARD or not vitals.steady("reward_rms"):
        return None
    if vitals.divides_rewards or vitals.has_other_rewards:
        return None
    return Finding(
        f"no reward reported so far is larger than {size:.1g}",
        "the noise of fresh values and a bonus for entropy are larger than what there is to learn",
        _divided(vitals),
    )


def constant_reward(vitals: Vitals) -> Finding | None:
    """The same reward in each step, and the same return in each episode."""
    if vitals.has_other_rewards:
        return None
    if not vitals.steady("reward_min") or vitals.env_steps < ENOUGH_STEPS:
        return None
    low, high = vitals.rewards or (0.0, 1.0)
    ended = vitals.num_episodes >= ENOUGH_EPISODES
    if low != high or (ended and vitals.only_return is None):
        return None
    if not ended and high != 0.0:
        return None  # -1 a step until the goal: episodes will differ once one has ended
    seen = f"every reward reported in {vitals.env_steps:,} env steps was {low:g}"
    seen += f", and every episode returned {vitals.only_return:g}" if ended else ""
    return Finding(
        seen,
        "no action is better than another, so there is nothing to learn from",
        "print the rewards of a few random episodes; a goal that is seldom met needs a reward on the way",
        rank=0,
    )


def identical_episodes(vitals: Vitals) -> Finding | None:
    """Rewards differ, returns do not: each episode is the same, whatever is done."""
    if vitals.num_episodes < ENOUGH_EPISODES or not vitals.steady("reward_min"):
        return None
    if vitals.only_return is None:
        return None
    if vitals.rewards is None or vitals.rewards[0] == vitals.rewards[1]:
        return None
    return Finding(
        f"every episode so far returned exactly {vitals.only_return:g}",
        "neither actions nor seeds change anything",
        "check that step() uses its action, and reset() its seed",
        rank=0,
    )


def small_observations(vitals: Vitals) -> Finding | None:
    """Observations far below 1."""
    _, largest = vitals.extremes.get("obs_std", (0.0, 0.0))
    if not 0.0 < largest < SMALL_OBSERVATION or not vitals.steady("obs_std"):
        return None
    if vitals.option("normalize_observations"):
        return None
    return Finding(
        f"in no rollout looked at does a number of the observation vary by more than {largest:.1g}",
        "a fresh network gives nearly the same output for all of them",
        "algorithm.normalize_observations = true",
    )


def large_observations(vitals: Vitals) -> Finding | None:
    """Observations far above 1."""
    spread, offset = vitals.typical("obs_std"), vitals.typical("obs_mean")
    if spread is None or offset is None or vitals.option("normalize_observations"):
        return None
    if max(spread, offset) <= LARGE_OBSERVATION or vitals.tried.get("lost_digits"):
        return None
    return Finding(
        f"a number of the observation is around {max(spread, offset):.1g} in size",
        "it drowns all others, and the first layer's outputs are far from 1",
        "algorithm.normalize_observations = true",
    )


def constant_observations(vitals: Vitals) -> Finding | None:
    """Observations that never change."""
    least, _ = vitals.extremes.get("obs_still", (0.0, 0.0))
    if least < 1.0 or not vitals.steady("obs_still"):
        return None
    return Finding(
        "every observation looked at is the same",
        "the policy cannot tell one state from another",
        "return a new array from step(), made of the present state",
        rank=0,
    )


def outside_box(vitals: Vitals) -> Finding | None:
    """Observations that the space does not contain, in the first steps or later."""
    seen, row = str(vitals.tried.get("outside") or ""), vitals.status.get("experience", {})
    if not seen and row.keys() >= OUTSIDE:
        beyond = Beyond(int(row["outside_place"]), row["outside_value"], row["outside_bound"])
        seen = f"{beyond}, after {row['outside_steps']:,.0f} env steps of its sampler"
    if not seen:
        return None
    return Finding(
        seen,
        "observation_space says otherwise, and what is scaled by its bounds is scaled wrongly",
        "correct the bounds of observation_space, or the units of the observation",
        rank=2,
    )


def saturated_actions(vitals: Vitals) -> Finding | None:
    """Actions at their bounds, without progress."""
    share = min(vitals.steady("action_at_bounds"), default=0.0)
    one_sided = min(vitals.steady("action_one_sided", LONGEST_WINDOW_S), default=0.0)
    if max(share, one_sided) < SATURATED or vitals.has_risen:
        return None
    seen = f"{share:.0%} of all action numbers are at their bounds"
    if share < SATURATED:  # noise moves them off the bound in every second step
        seen = f"actions stay beside one bound: their mean is {one_sided:.0%} of the way to it"
    return Finding(
        seen,
        "there the policy's gradient vanishes, and exploration has no effect",
        "a smaller algorithm.learning_rate; with a noise of the policy's own, a smaller one",
    )


def never_ending(vitals: Vitals) -> Finding | None:
    """No episode has ended, when the environment was tried out or since; evaluation cuts its own."""
    each, limit = vitals.steps_each, numbers(vitals.environment).get("max_episode_steps", 0)
    tried = 0 if limit else int(numbers(vitals.tried).get("unended_steps", 0))
    if vitals.num_episodes or samplers(vitals, "count").get("maximum") == 0:
        return None
    seen = f"no episode has ended in {each:,.0f} steps of each environment"
    if each <= tried:
        seen = f"no episode ended in {tried:,} random steps, and there is no time limit"
    if each < max(UNENDED_STEPS, 2 * limit) and not tried:
        return None
    remedy = "run.env_kwargs = { max_episode_steps = 1000 }"
    if vitals.environment.get("described"):
        remedy = "run.max_episode_steps = 1000, which the sampler has to heed"
    return Finding(seen, "without an end no return is known and nothing begins again", remedy)


def limit_as_termination(vitals: Vitals) -> Finding | None:
    """All terminated episodes, or many of them, have the longest one's length, and none is truncated."""
    row = vitals.status.get("experience", {})
    count, longest = row.get("terminated", 0), int(row.get("terminated_longest", 0))
    equal = row.get("terminated_at_longest", 0)
    least = LEAST_LIMIT if equal == count else LEAST_LIMIT_OF_SOME
    if equal < max(ENOUGH_EPISODES, LIMIT_SHARE * count) or row.get("truncated") or longest < least:
        return None
    return Finding(
        f"{equal:,.0f} of {count:,.0f} episodes were terminated after exactly {longest:,} steps, none later",
        "a time limit that is reported as terminated teaches that the future is worth nothing there",
        "return truncated = True, terminated = False at the limit",
    )


def cut_evaluations(vitals: Vitals) -> Finding | None:
    """Evaluation cuts episodes, as their spec has no time limit, and those of training last longer."""
    look, evaluator = vitals.last_look, vitals.table("components").get(EVALUATOR)
    options = evaluator.get("options") if isinstance(evaluator, Mapping) else None
    steps, lasts = (
        int(look.get("max_length", 0)),
        numbers(vitals.status.get("episodes")).get("mean_length", 0),
    )
    if not isinstance(options, Mapping) or options.get("episode_steps") != "auto":
        return None
    if not look.get("num_truncated") or not 0 < steps < lasts:
        return None
    return Finding(
        f"evaluation cuts episodes after {steps:,} steps, those of training last {lasts:,.0f}",
        "its returns are of their beginnings, and a stop at a return of whole ones is not reached",
        f"components.{EVALUATOR}.episode_steps = {2 * math.ceil(lasts):_}",
    )


def no_success(vitals: Vitals) -> Finding | None:
    """The environment counts successes, and there is none."""
    without = vitals.successes[False]
    if vitals.successes[True] or without < LOOKS_WITHOUT_SUCCESS or vitals.training_s < 60.0:
        return None
    return Finding(
        f"no success in {without} evaluations",
        "a reward that is given only at success has never been seen",
        "a dense reward, an easier start, or a wider goal",
    )


def many_failures(vitals: Vitals) -> Finding | None:
    """The samplers' environment fails in a large part of all episodes, or of those of the last minutes."""
    in_all = int(vitals.status.get("num_sampler_failures", 0)), vitals.num_episodes, ""
    lately = f" in the last {LATELY_S / 60:.0f} minutes"
    of_late = int(vitals.played.gain("failures")), int(vitals.played.gain("episodes")), lately
    for failures, episodes, when in (in_all, of_late):
        if failures >= max(MANY_FAILURES, FAILURE_SHARE * episodes):
            return Finding(
                f"{failures:,} failures beside {episodes:,} whole episodes{when}",
                "each is taught as a step that stays there for the lowest reward so far",
                "mend the first failure: its traceback is in the samplers' logs",
            )
    return None


EXPERIENCE_RULES: tuple[Rule, ...] = (
    large_rewards,
    small_rewards,
    constant_reward,
    identical_episodes,
    small_observations,
    large_observations,
    constant_observations,
    outside_box,
    saturated_actions,
    never_ending,
    limit_as_termination,
    cut_evaluations,
    no_success,
    many_failures,
)
