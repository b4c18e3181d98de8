"""What the plan shows of the environment, before anything is trained: observations that lose their form, and
what was seen when it was tried out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from spreeze_zmq.algorithms.encoders import LEAST_PART, LEAST_PIXELS
from spreeze_zmq.broker.doctor.experience_rules import never_ending, outside_box
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.option_rules import OPTION_RULES
from spreeze_zmq.broker.doctor.trend import numbers, whole_numbers
from spreeze_zmq.broker.doctor.vitals import Rule, Vitals
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.goals import DIFFER, GOAL_PARTS, LACK

#: Parts of an observation with at least these sides are images.
IMAGE_SIDE = 8
#: With a choice of 12,291 options DQN made 2.7 times as many updates a second where it is looked up, with one
#: of 500 three quarters as many.
WIDE_CHOICE = 4096
#: Bytes that are all at most this share of the largest one that is declared are small for networks.
SMALL_BYTES = 0.1
#: Wrappers of Gymnasium that keep running statistics.
STATISTICS = {"NormalizeObservation": "normalize_observations", "NormalizeReward": "normalize_rewards"}


def goal_observation(vitals: Vitals) -> Finding | None:
    """A goal environment whose goals are not relabelled, or that pays for them in another way."""
    if not {path.partition(".")[0] for path, _ in _parts(vitals)} >= GOAL_PARTS:
        return None
    lacks, differs = (str(vitals.tried.get(name) or "") for name in (LACK, DIFFER))
    hindsight = vitals.algorithm.get("hindsight")
    if hindsight not in (None, "off"):
        effect = "relabelled transitions are paid by another rule than the others"
        return Finding(differs, effect, "step() that pays what compute_reward gives") if differs else None
    if _is_own(vitals) and hindsight is not None:
        return None  # it may relabel them by itself
    remedy = 'algorithm.hindsight = "future"'
    if lacks:
        remedy = 'a dense reward, as with env_kwargs = { reward_type = "dense" }, or a compute_reward'
    elif hindsight is None:
        remedy = 'run.algorithm = "sac", or "dqn", with algorithm.hindsight = "future"'
    return Finding(
        f"observations are a Dict with {' and '.join(sorted(GOAL_PARTS))}, flattened to one vector",
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
    takes_them = "dqn, pqn, ppo or discrete_sac"
    if _is_own(vitals):
        takes_them = (
            f"takes_masks = True in the algorithm's class, without an act() of its own, or {takes_them}"
        )
    return Finding(
        f"{places[0]} is there, and the run does not use it",
        "actions that it forbids are drawn all the same",
        f"discrete actions, with a flag for each of them as info['action_mask'] of every reset and step, and "
        f"{takes_them}; or have step() replace a forbidden action by a valid one",
    )


def image_beside_vector(vitals: Vitals) -> Finding | None:
    """An image that is flattened because a vector is observed beside it."""
    parts = _parts(vitals)
    images = [(path, shape) for path, shape in parts if _has_sides(shape, IMAGE_SIDE, (3,))]
    if not images or len(parts) < 2 or vitals.algorithm.get("network") in ("auto", "parts"):
        return None
    if _is_own(vitals):
        return None  # its networks may take the image out of the vector
    path, size = images[0][0], "x".join(map(str, images[0][1]))
    return Finding(
        f"the image {path} of {size} is flattened to one vector with {len(parts) - 1} other parts",
        "no convolution sees it, and a network of full layers hardly learns from pixels",
        'network = "auto" of the shipped algorithms, which has an encoder for each part, or features of the '
        "image as a vector",
    )


def flat_image(vitals: Vitals) -> Finding | None:
    """An image that ``network = "auto"`` takes for a vector, by its dtype or its form."""
    parts, shape = _parts(vitals), whole_numbers(vitals.environment.get("obs_shape"))
    named = [(f"the part {path}", form) for path, form in parts if _has_sides(form, LEAST_PART, (2, 4))]
    remedy, stacked = "[height, width, channels]", ", with all images of a stack as its channels"
    if not parts and vitals.environment.get("obs_dtype") == "float32":
        named = [("an observation", shape)] if _has_sides(shape, LEAST_PIXELS["fine_cnn"], (2, 3, 4)) else []
        remedy, stacked = f"uint8 of 0 to 255, {remedy}", ", one at a time, with algorithm.frame_stack"
    if not named or vitals.algorithm.get("network") != "auto" or _is_own(vitals):
        return None  # networks of one's own may see an image in it
    what, form = named[0]
    either = ', or algorithm.network = "mlp" if it is none' if len(form) == 2 else ""
    return Finding(
        f"{what} of {'x'.join(map(str, form))} is one vector of {math.prod(form):,} numbers for the network",
        "if it is an image, no convolution sees it, and a network of full layers hardly learns from pixels",
        f"return an image as {remedy}{stacked if len(form) == 4 else ''}{either}",
    )


def wide_choice(vitals: Vitals) -> Finding | None:
    """A choice of so many options that a perceptron takes long over its one-hot vector."""
    if vitals.algorithm.get("network") not in ("auto", "mlp") or _is_own(vitals):
        return None  # networks of one's own may look it up
    images = any(_has_sides(shape, LEAST_PART, (3,)) for _, shape in _parts(vitals))
    if vitals.number("memory_size", 0) or (images and vitals.algorithm["network"] == "auto"):
        return None
    choices = [max(whole_numbers(part.get("sizes")), default=0) for part in _plain_parts(vitals)]
    most = max(choices, default=0)
    if most < WIDE_CHOICE:
        return None
    path = _parts(vitals)[choices.index(most)][0]
    what = f"the part {path}" if path else "an observation"
    return Finding(
        f"{what} is one of {most:,}, each a number of its own for the network",
        "each update multiplies all of them, though one alone is 1, and most of its time goes there",
        'algorithm.network = "parts", which looks up a learned vector for each option',
    )


def small_bytes(vitals: Vitals) -> Finding | None:
    """Observations of uint8 of which all are far below what their space declares."""
    largest = int(numbers(vitals.tried).get("largest_byte", 0))
    declared = int(numbers(vitals.environment).get("obs_max", BYTE_MAX))
    if not 0 < largest <= SMALL_BYTES * declared or vitals.option("normalize_observations"):
        return None
    return Finding(
        f"observations are bytes of at most {largest}, and observation_space declares {declared}",
        f"they are divided by what is declared, so networks see at most {largest / declared:.1g}",
        "an observation_space whose high is the largest number that there is, or "
        "algorithm.normalize_observations = true",
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


def sticking_seed(vitals: Vitals) -> Finding | None:
    """Resets without a seed repeat the last one that had a seed."""
    if not vitals.tried.get("seed_sticks"):
        return None
    return Finding(
        "resets without a seed begin as the last one with a seed",
        "each environment is given a seed once, and plays the same episode again and again",
        "super().reset(seed=seed) in reset(), and draw from self.np_random alone: without a seed it goes on",
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


PLAN_RULES: tuple[Rule, ...] = (
    *OPTION_RULES,
    goal_observation,
    action_mask,
    image_beside_vector,
    flat_image,
    wide_choice,
    small_bytes,
    wrapper_statistics,
    ignored_seed,
    sticking_seed,
    outside_box,
    lost_digits,
    never_ending,
)


def _plain_parts(vitals: Vitals) -> list[Mapping[str, Any]]:
    """The parts of a flattened observation."""
    parts = vitals.environment.get("obs_parts")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _parts(vitals: Vitals) -> list[tuple[str, tuple[int, ...]]]:
    """Path and shape of each of them."""
    found = _plain_parts(vitals)
    paths = [part["path"] if isinstance(part.get("path"), list) else [] for part in found]
    return [
        (".".join(map(str, path)), whole_numbers(part.get("shape")))
        for path, part in zip(paths, found, strict=True)
    ]


def _is_own(vitals: Vitals) -> bool:
    """Whether the algorithm is the user's own."""
    return ":" in str(vitals.algorithm.get("name"))


def _names(vitals: Vitals, what: str) -> list[str]:
    """Names of ``what`` that were seen then."""
    words = vitals.tried.get(what)
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _has_sides(shape: tuple[int, ...], least: int, ranks: Collection[int]) -> bool:
    """Whether an array has two sides of at least this length, as images have."""
    return len(shape) in ranks and sorted(shape)[-2] >= least
