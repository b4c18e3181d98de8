"""Policies with known actions: random weights without noise, or a constant output with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.wire import Message

#: The log standard deviation of a distribution without visible noise, of one with it, and of one whose draws
#: are beyond the bounds more often than not.
QUIET, NOISY, WIDE = -14.0, -1.0, 0.5
#: The mean of a constant policy, in units of half the range.
MEAN = 0.25
HIDDEN = 8
HEADS = ("tanh_normal", "normal", "deterministic", "categorical", "epsilon_greedy")
ACTIVATIONS = ("relu", "tanh", "elu", "silu")


def heads(spec: EnvironmentSpec) -> tuple[str, ...]:
    """The distributions that can act in an environment; the first is the usual one."""
    if spec.action_kind == "box":
        return ("tanh_normal", "normal", "deterministic") if spec.has_bounds else ("normal",)
    return ("categorical", "epsilon_greedy") if spec.action_kind == "discrete" else ("categorical",)


def random_policy(spec: EnvironmentSpec, head: str, seed: int, *, rich: bool = False) -> Message:
    """A policy with random weights and no visible noise.

    Args:
        spec: the environment.
        head: the kind of the distribution.
        seed: the weights' seed.
        rich: whether to use every layer for vectors and scaled observations, else linear and relu alone.
    """
    rng = np.random.default_rng(seed)
    layers: list[dict[str, Any]] = []
    parameters: list[NDArray[Any]] = []

    def linear(size: int, out: int, gain: float) -> None:
        layers.append({"kind": "linear", "in": size, "out": out})
        parameters.extend([rng.normal(0, gain, out * size), rng.normal(0, gain, out)])

    size = math.prod(spec.obs_shape)
    for kind in ACTIVATIONS if rich else ("relu",):
        linear(size, HIDDEN, size**-0.5)
        if rich:
            layers.append({"kind": "layer_norm", "size": HIDDEN, "eps": 1e-5})
            parameters += [rng.uniform(0.5, 1.5, HIDDEN), rng.normal(0, 0.1, HIDDEN)]
        layers.append({"kind": kind})
        size = HIDDEN
    outputs, dueling = constant_output(spec, head).size, rich and head == "epsilon_greedy"
    tail = math.prod(spec.action_shape) if head in ("tanh_normal", "normal") else 0
    # discrete logits are so far apart that the best action is always drawn
    linear(HIDDEN, outputs - tail + dueling, 0.5 if spec.action_kind == "box" else 1e4)
    if tail:  # the standard deviations, the same for every observation
        layers.append({"kind": "append", "size": tail})
        parameters.append(np.full(tail, -50.0))
    if dueling:
        layers.append({"kind": "dueling", "actions": outputs, "atoms": 1})
    arrays = {"parameters": np.concatenate(parameters)}
    if rich:
        arrays["observation_mean"] = rng.normal(size=spec.obs_shape)
        arrays["observation_std"] = rng.uniform(0.5, 2.0, spec.obs_shape)
    return _message(spec, layers, _distribution(spec, head, QUIET), arrays)


def rich_policy(spec: EnvironmentSpec, head: str) -> Message:
    """A random policy with every layer for vectors and scaled observations."""
    return random_policy(spec, head, seed=2, rich=True)


def constant_policy(spec: EnvironmentSpec, head: str, log_std: float = NOISY) -> Message:
    """A policy with visible noise whose network has the same output for every observation."""
    size, output = math.prod(spec.obs_shape), constant_output(spec, head)
    layers = [{"kind": "linear", "in": size, "out": output.size}]
    parameters = np.concatenate([np.zeros(size * output.size), output])
    return _message(spec, layers, _distribution(spec, head, log_std), {"parameters": parameters})


def unusable_policy(spec: EnvironmentSpec) -> Message:
    """A policy with an unknown kind of layer."""
    message = random_policy(spec, heads(spec)[0], seed=1)
    message.fields["description"]["layers"].insert(0, {"kind": "fourier", "size": 3})
    return message


def misfit_policy(spec: EnvironmentSpec) -> Message:
    """A policy of an environment that takes one action more, or one more choice of the first."""
    if spec.action_kind != "box":
        first, *others = spec.action_sizes
        return random_policy(replace(spec, action_sizes=(first + 1, *others)), heads(spec)[0], seed=1)
    more: dict[str, Any] = {"action_shape": (math.prod(spec.action_shape) + 1,)}
    if spec.action_low is not None and spec.action_high is not None:
        more |= {"action_low": np.append(spec.action_low, -1), "action_high": np.append(spec.action_high, 1)}
    return random_policy(replace(spec, **more), heads(spec)[0], seed=1)


def constant_output(spec: EnvironmentSpec, head: str) -> NDArray[np.float64]:
    """The output of a constant policy's network: a mean of ``MEAN``, or falling logits."""
    if spec.action_kind != "box":
        return np.concatenate([np.linspace(1.0, 0.0, size) for size in spec.action_sizes])
    num_actions = math.prod(spec.action_shape)
    if head == "deterministic":
        return np.full(num_actions, np.arctanh(MEAN))
    return np.concatenate([np.full(num_actions, MEAN), np.zeros(num_actions)])


def probabilities(
    spec: EnvironmentSpec, head: str, legal: list[NDArray[np.bool_]]
) -> list[NDArray[np.float64]]:
    """For each discrete action, a constant policy's probability ``[steps, n]`` of each choice.

    Args:
        spec: the environment.
        head: the kind of the distribution.
        legal: for each discrete action, which choices are legal at each step, ``[steps, n]``.
    """
    outputs = np.split(constant_output(spec, head), np.cumsum(spec.action_sizes)[:-1])
    if head == "epsilon_greedy":  # the first legal choice has the greatest value
        best = np.eye(outputs[0].size)[legal[0].argmax(1)]
        return [0.5 * shares(legal[0]) + 0.5 * best]
    return [shares(np.exp(part) * allowed) for part, allowed in zip(outputs, legal, strict=True)]


def shares(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Rows ``[steps, n]`` divided by their sums."""
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float64)


def _distribution(spec: EnvironmentSpec, head: str, log_std: float) -> dict[str, Any]:
    """The description of a distribution with noise of about ``exp(log_std)``; no noise at ``QUIET``."""
    quiet, bounds = log_std == QUIET, {"log_std_min": log_std, "log_std_max": log_std}
    atoms = {"atoms": 1, "v_min": 0.0, "v_max": 0.0, "epsilon": 1e-9 if quiet else 0.5, "spread": 0.0}
    about: dict[str, dict[str, Any]] = {
        "tanh_normal": {"log_std": "tanh", **bounds},
        "normal": bounds,
        "deterministic": {"noise_min": 0.0, "noise_max": 0.0 if quiet else 0.4},
        "categorical": {"sizes": list(spec.action_sizes)},
        "epsilon_greedy": {"num_actions": sum(spec.action_sizes), **atoms},
    }
    masked = {"action_mask": True} if spec.action_mask else {}
    return {"kind": head, **about[head], **masked}


def _message(
    spec: EnvironmentSpec,
    layers: list[dict[str, Any]],
    distribution: Mapping[str, Any],
    arrays: dict[str, NDArray[Any]],
) -> Message:
    observation = {"shape": list(spec.obs_shape), "normalize": "observation_mean" in arrays, "clip": 1.5}
    if spec.has_bounds:
        arrays |= {"action_low": spec.action_low, "action_high": spec.action_high}  # type: ignore[dict-item]
    description = {"layers": layers, "distribution": distribution, "observation": observation}
    fields = {"version": 0, "critic_updates": 0, "actor_updates": 0, "description": description, "extras": {}}
    return Message("policy", fields, {name: np.asarray(array, np.float32) for name, array in arrays.items()})
