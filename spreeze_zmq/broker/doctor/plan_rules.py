"""What the plan alone shows, before anything is trained: options out of reach, observations that lose their
form, and what was seen of the environment when it was tried out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spreeze_zmq.broker.doctor.trend import numbers, whole_numbers
from spreeze_zmq.broker.doctor.vitals import Finding, Rule, Vitals
from spreeze_zmq.envs.goals import DIFFER, GOAL_PARTS, LACK

#: Adam moves each weight by about the learning rate; fresh weights of 256-wide layers are around 0.05.
LARGEST_RATE = 0.05
#: Entropy of a normal distribution in nats is its log deviation plus this.
NORMAL_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
#: Parts of an observation with at least these sides are images.
IMAGE_SIDE = 8
#: Wrappers of Gymnasium that keep running statistics.
STATISTICS = {"NormalizeObservation": "normalize_observations", "NormalizeReward": "normalize_rewards"}


def learning_rate(vitals: Vitals) -> Finding | None:
    """A step size of the size of the weights."""
    for name, value in numbers(vitals.algorithm).items():
        if name.endswith("learning_rate") and value > LARGEST_RATE:
            return Finding(
                f"algorithm.{name} is {value:g}",
                "each update moves every weight by about as much, more than fresh weights measure",
                f"algorithm.{name} = 1e-3",
                rank=0,
            )
    return None


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
    starts = int(numbers(vitals.table("learning")).get("learning_starts", 0))
    limit = int(numbers(vitals.table("run").get("stop")).get("env_steps", 0))
    if not limit or starts < limit:
        return None
    return Finding(
        f"training begins after {starts:,} transitions, and the run ends at {limit:,}",
        "no update is taken",
        f"algorithm.learning_starts = {max(1, limit // 10)}",
        rank=0,
    )


def small_replay(vitals: Vitals) -> Finding | None:
    """A replay that forgets the beginning of an episode before its end."""
    capacity = numbers(vitals.algorithm).get("replay_capacity")
    length = numbers(vitals.environment).get("max_episode_steps")
    if not capacity or not length or capacity >= length:
        return None
    return Finding(
        f"algorithm.replay_capacity is {capacity:,}, an episode has up to {length:,} steps",
        "the beginning of an episode is forgotten before its end has come",
        "algorithm.replay_capacity = 1_000_000",
    )


def goal_observation(vitals: Vitals) -> Finding | None:
    """A goal environment whose goals are not relabelled, or that pays for them in another way."""
    if not {path.partition(".")[0] for path, _ in _parts(vitals)} >= GOAL_PARTS:
        return None
    lacks, differs = (str(vitals.tried.get(name) or "") for name in (LACK, DIFFER))
    hindsight = vitals.algorithm.get("hindsight")
    if hindsight not in (None, "off"):
        effect = "relabelled transitions are paid by another rule than the others"
        return Finding(differs, effect, "step() that pays what compute_reward gives") if differs else None
    if ":" in str(vitals.algorithm.get("name")) and hindsight is not None:
        return None  # it may relabel them by itself
    remedy = 'algorithm.hindsight = "future"'
    if lacks:
        remedy = 'a dense reward, as with env_kwargs = { reward_type = "dense" }, or a compute_reward'
    elif hindsight is None:
        remedy = 'run.algorithm = "sac", or "dqn", with algorithm.hindsight = "future"'
    return Finding(
        f"observations are a Dict of {', '.join(sorted(GOAL_PARTS))}, flattened to one vector",
        "goals are not relabelled in hindsight, and a reward that is given only at the goal is hardly found",
        remedy,
    )


def action_mask(vitals: Vitals) -> Finding | None:
    """An action mask that the run does not use."""
    if vitals.environment.get("action_mask"):
        return None
    places = [f"the observation's part {path}" for path, _ in _parts(vitals) if "mask" in path.lower()]
    places += [f"info[{name!r}]" for name in _names(vitals, "info") if "mask" in name.lower()]
    if not places:
        return None
    return Finding(
        f"{places[0]} is there, and the run does not use it",
        "actions that it forbids are drawn all the same",
        "discrete actions, with a flag for each of them as info['action_mask'] of every reset and step, and "
        "dqn, pqn, ppo or discrete_sac; or have step() replace a forbidden action by a valid one",
    )


def image_beside_vector(vitals: Vitals) -> Finding | None:
    """An image that is flattened because a vector is observed beside it."""
    parts = _parts(vitals)
    images = [(path, shape) for path, shape in parts if _is_image(shape)]
    if not images or len(parts) < 2 or vitals.algorithm.get("network") in ("auto", "parts"):
        return None
    path, size = images[0][0], "x".join(map(str, images[0][1]))
    return Finding(
        f"the image {path} of {size} is flattened to one vector with {len(parts) - 1} other parts",
        "no convolution sees it, and a network of full layers hardly learns from pixels",
        'network = "auto" of the shipped algorithms, which has an encoder for each part, or features of the '
        "image as a vector",
    )


def wrapper_statistics(vitals: Vitals) -> Finding | None:
    """Running statistics in a wrapper, of which each environment has its own."""
    for wrapper in _names(vitals, "wrappers"):
        if wrapper in STATISTICS:
            known = STATISTICS[wrapper] in vitals.algorithm
            remedy = f", and algorithm.{STATISTICS[wrapper]} = true" if known else ""
            return Finding(
                f"the environment is wrapped in {wrapper}",
                "every environment of every sampler and the evaluator keeps statistics of its own, and none "
                "is saved with the policy",
                f"leave the wrapper out{remedy}",
            )
    return None


def ignored_seed(vitals: Vitals) -> Finding | None:
    """Two resets with one seed begin differently."""
    if not vitals.tried.get("same_seed_differs"):
        return None
    return Finding(
        "two resets with the same seed gave different observations",
        "no run repeats, and policies are not compared on the same episodes",
        "call super().reset(seed=seed) in reset() and draw from self.np_random alone",
        rank=2,
    )


def outside_box(vitals: Vitals) -> Finding | None:
    """Observations that the space does not contain."""
    outside = vitals.tried.get("outside")
    if not outside:
        return None
    return Finding(
        str(outside),
        "observation_space says otherwise, and what is scaled by its bounds is scaled wrongly",
        "correct the bounds of observation_space, or the units of the observation",
        rank=2,
    )


def lost_digits(vitals: Vitals) -> Finding | None:
    """Observations whose digits are lost before anything can normalise them."""
    lost = vitals.tried.get("lost_digits")
    if not lost:
        return None
    return Finding(
        str(lost),
        "what it says is gone before a policy or algorithm.normalize_observations sees it",
        "subtract a constant near it in the environment, in float64, before the observation is returned",
    )


def never_ending(vitals: Vitals) -> Finding | None:
    """No episode of random actions ended when the environment was tried out, and nothing limits them."""
    steps = int(numbers(vitals.tried).get("unended_steps", 0))
    if not steps or numbers(vitals.environment).get("max_episode_steps"):
        return None
    return Finding(
        f"no episode ended in {steps:,} random steps, and there is no time limit",
        "without an end no return is known and nothing begins again",
        "env_kwargs = { max_episode_steps = 1000 }",
    )


PLAN_RULES: tuple[Rule, ...] = (
    learning_rate,
    target_entropy,
    never_trains,
    small_replay,
    goal_observation,
    action_mask,
    image_beside_vector,
    wrapper_statistics,
    ignored_seed,
    outside_box,
    lost_digits,
    never_ending,
)


def _parts(vitals: Vitals) -> list[tuple[str, tuple[int, ...]]]:
    """Path and shape of each part of a flattened observation."""
    parts = vitals.environment.get("obs_parts")
    found = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    paths = [part["path"] if isinstance(part.get("path"), list) else [] for part in found]
    return [
        (".".join(map(str, path)), whole_numbers(part.get("shape")))
        for path, part in zip(paths, found, strict=True)
    ]


def _names(vitals: Vitals, what: str) -> list[str]:
    """Names of ``what`` that were seen then."""
    words = vitals.tried.get(what)
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) in (2, 3) and sorted(shape)[-2] >= IMAGE_SIDE
