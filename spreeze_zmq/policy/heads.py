"""The head that a description asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.policy.box_heads import Deterministic, Normal, TanhNormal
from spreeze_zmq.policy.description import count, counts, number, numbers_in_order
from spreeze_zmq.policy.discrete_heads import Categorical, EpsilonGreedy
from spreeze_zmq.policy.head import Box, Floats, Head


def make_head(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    """The head of the table ``description.distribution``.

    Args:
        about: the table.
        arrays: of the policy; ``action_low`` and ``action_high`` are read.
        num_outputs: numbers that the network gives.

    Raises:
        KeyError, TypeError, ValueError: there is no such distribution, or it does not fit.
    """
    kind = about["kind"]
    if kind not in HEADS:
        raise ValueError(f"unknown distribution {kind!r}; there is {', '.join(HEADS)}")
    head = HEADS[kind](about, arrays, num_outputs)
    if head.num_outputs != num_outputs:
        raise ValueError(
            f"the last layer gives {num_outputs} numbers, the distribution takes {head.num_outputs}"
        )
    return head


def _box(arrays: Mapping[str, Floats]) -> Box:
    return Box(arrays["action_low"], arrays["action_high"])


def _tanh_normal(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    if about["log_std"] != "tanh":
        raise ValueError(f"unknown log_std {about['log_std']!r} of a tanh_normal; there is 'tanh'")
    return TanhNormal(_box(arrays), *numbers_in_order(about, "log_std_min", "log_std_max"))


def _normal(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    bounded = "action_low" in arrays or "action_high" in arrays
    limits = numbers_in_order(about, "log_std_min", "log_std_max")
    return Normal(_box(arrays) if bounded else None, num_outputs, *limits)


def _deterministic(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    noise_min, noise_max = number(about, "noise_min"), number(about, "noise_max")
    if min(noise_min, noise_max) < 0.0:
        raise ValueError(f"noise_min {noise_min} and noise_max {noise_max} must not be negative")
    return Deterministic(_box(arrays), noise_min, noise_max)


def _categorical(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    return Categorical(counts(about, "sizes"))


def _epsilon_greedy(about: Mapping[str, Any], arrays: Mapping[str, Floats], num_outputs: int) -> Head:
    num_actions, atoms = count(about, "num_actions"), count(about, "atoms")
    if num_actions * atoms != num_outputs:  # before anything of that size is made
        raise ValueError(
            f"the last layer gives {num_outputs} numbers, {num_actions} actions of {atoms} atoms take "
            f"{num_actions * atoms}"
        )
    v_min, v_max = numbers_in_order(about, "v_min", "v_max") if atoms > 1 else (0.0, 0.0)
    return EpsilonGreedy(num_actions, number(about, "epsilon"), number(about, "spread"), atoms, v_min, v_max)


HEADS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Floats], int], Head]] = {
    "tanh_normal": _tanh_normal,
    "normal": _normal,
    "deterministic": _deterministic,
    "categorical": _categorical,
    "epsilon_greedy": _epsilon_greedy,
}
