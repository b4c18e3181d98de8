"""The distributions over actions that a policy's description can name, in NumPy.

Each is made of the table ``description.distribution``, the policy's arrays (``action_low`` and
``action_high`` are read) and the number of outputs of its network; one that does not fit raises KeyError,
TypeError or ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy.actor import Actions, Actor, Box, Drawn, Floats, Head, evenly_spread
from spreeze_zmq.policy.description import count, counts, number, numbers_in_order
from spreeze_zmq.policy.legal import LegalChoices, LegalEpsilonGreedy

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)

Arrays = Mapping[str, Floats]


def make_head(about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> Head:
    """The head that the table ``about`` describes.

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


class TanhNormal(Head):
    """SAC's squashed normal: ``tanh(mean + std * noise)``, stretched from [-1, 1] to the action bounds.

    Log densities are those of the action in [-1, 1]. The log standard deviation approaches ``log_std_min``
    for raw outputs far below 0, and ``log_std_max`` far above.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        if about["log_std"] != "tanh":
            raise ValueError(f"unknown log_std {about['log_std']!r} of a tanh_normal; there is 'tanh'")
        self._box = Box(arrays["action_low"], arrays["action_high"])
        low, high = numbers_in_order(about, "log_std_min", "log_std_max")
        self.num_outputs = 2 * self._box.num  # rows of the network are [mean, raw log std]
        self._log_std_min, self._half_range = np.float32(low), np.float32(0.5 * (high - low))

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions within the bounds, and their log densities."""
        return self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise."""
        return self._box.stretch(np.tanh(output[:, : self._box.num]))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        log_std = np.tanh(output[:, self._box.num :])
        log_std += np.float32(1.0)
        log_std *= self._half_range
        log_std += self._log_std_min
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._box.num]
        density = _normal_terms(log_std, noise) - _log_slope(u) if log_prob else None
        action = self._box.stretch(np.tanh(u, out=u))
        return action, None if density is None else density.sum(1, dtype=np.float32)


class Normal(Head):
    """PPO's normal: ``u = mean + std * noise``; the action is ``centre + half * u`` in a bounded box and
    ``u`` elsewhere.

    Drawn actions may leave the bounds: their density is that of ``u``, and the environment receives them
    clipped. The network's rows are the means ``[A]``, then the log standard deviations ``[A]``, which are
    clipped to ``log_std_min`` and ``log_std_max``.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        if num_outputs % 2:
            raise ValueError(
                f"a normal takes two numbers for each action, the last layer gives {num_outputs}"
            )
        bounded = "action_low" in arrays or "action_high" in arrays
        self._box = Box(arrays["action_low"], arrays["action_high"]) if bounded else None
        self._num = num_outputs // 2 if self._box is None else self._box.num
        self.num_outputs = 2 * self._num
        self._limits = [np.float32(limit) for limit in numbers_in_order(about, "log_std_min", "log_std_max")]

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` actions within the bounds, and the log densities of their ``u``; None without bounds."""
        return None if self._box is None else self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, 2 A]`` without noise, within the bounds."""
        return self.env_action(self._scaled(output[:, : self._num].copy()))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, 2 A]``, from ``[N, A]`` standard normal numbers."""
        low, high = self._limits
        log_std = np.minimum(np.maximum(output[:, self._num :], low), high)
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self._num]
        density = _normal_terms(log_std, noise).sum(1, dtype=np.float32) if log_prob else None
        return self._scaled(u), density

    def env_action(self, action: Actions) -> Actions:
        """Clipped to the bounds, where there are some."""
        return action if self._box is None else self._box.clip(action)

    def _scaled(self, u: Floats) -> Floats:
        """Overwrites ``u`` ``[N, A]``."""
        if self._box is None:
            return u
        u *= self._box.half
        u += self._box.centre
        return u.reshape(len(u), *self._box.shape)


class Deterministic(Head):
    """TD3's action with noise: ``tanh(output) + sigma * noise`` within [-1, 1], stretched to the action
    bounds.

    ``sigma`` grows evenly from ``noise_min`` in the first of the run's environments to ``noise_max`` in the
    last one (Ape-X, arXiv 1803.00933, spreads its exploration over actors in the same spirit).
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        low, high = number(about, "noise_min"), number(about, "noise_max")
        if min(low, high) < 0.0:
            raise ValueError(f"noise_min {low} and noise_max {high} must not be negative")
        self._box = Box(arrays["action_low"], arrays["action_high"])
        self.num_outputs = self._box.num
        self._noise_min, self._noise_max = np.float32(low), np.float32(high)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` actions within the bounds, and their log densities."""
        return self._box.uniform(num, rng)

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, A]`` without noise."""
        return self._box.stretch(np.tanh(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, A]``, from ``[N, A]`` standard normal numbers.

        Raises:
            ValueError: a density is requested; clipped noise has none.
        """
        if log_prob:
            raise ValueError("a deterministic policy has no log_prob, but it is asked for")
        places = evenly_spread(len(output)) if place is None else np.asarray(place, np.float32)
        sigma = self._noise_min + (self._noise_max - self._noise_min) * places
        unit = rng.standard_normal(output.shape, np.float32)
        unit *= sigma[:, None]
        unit += np.tanh(output)
        np.clip(unit, -1.0, 1.0, out=unit)
        return self._box.stretch(unit), None


class Categorical(Head):
    """One or several independent choices of ``sizes`` options, each with the softmax of its own logits; the
    network's rows are these logits one after the other.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        self._sizes = counts(about, "sizes")
        self.num_outputs = sum(self._sizes)
        ends = np.cumsum(self._sizes).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        self._log_uniform = -sum(math.log(size) for size in self._sizes)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed actions, and their log probabilities."""
        action = rng.integers(0, self._sizes, (num, len(self._sizes)))
        return self._shaped(action), np.full(num, self._log_uniform, np.float32)

    def mode(self, output: Floats) -> Actions:
        """The likeliest action of each row ``[N, sum(sizes)]``; the first of equally likely ones."""
        return self._shaped(self._best(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, or ``[N, k]`` for several choices.

        Takes ``[N, sum(sizes)]`` standard exponential numbers ``e`` (float64) and chooses the greatest
        ``logit - log(e)``, the Gumbel-max trick.
        """
        action = self._best(output - np.log(rng.standard_exponential(output.shape)))
        return self._shaped(action), self._log_prob(output, action) if log_prob else None

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """See :class:`Actor`."""
        return LegalChoices(self, legal, self._parts)

    def _best(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """``[N, k]``."""
        return np.stack([scores[:, part].argmax(1) for part in self._parts], 1)

    def _log_prob(self, output: Floats, action: NDArray[np.int64]) -> Floats:
        """``[N]``: the sum over the choices of the log softmax at the chosen option."""
        total = np.zeros(len(output), np.float32)
        for part, chosen in zip(self._parts, action.T, strict=True):
            logits = output[:, part]
            logits = logits - logits.max(1, keepdims=True)
            total += np.take_along_axis(logits, chosen[:, None], 1)[:, 0] - np.log(np.exp(logits).sum(1))
        return total

    def _shaped(self, action: NDArray[np.int64]) -> Actions:
        return action[:, 0] if len(self._sizes) == 1 else action


class EpsilonGreedy(Head):
    """The action of the greatest value, or with probability ``epsilon ** (1 + spread * place)`` a uniform one
    (Ape-X, arXiv 1803.00933, section 4.1, with a spread of 7).

    The network's rows are ``atoms`` numbers for each action: its value, or for several atoms the logits of a
    distribution over values from ``v_min`` to ``v_max`` (C51, arXiv 1707.06887).
    """

    def __init__(self, about: Mapping[str, Any], arrays: Arrays, num_outputs: int) -> None:
        self._num, self._atoms = count(about, "num_actions"), count(about, "atoms")
        self.num_outputs = self._num * self._atoms
        if self.num_outputs != num_outputs:  # before the support is allocated
            raise ValueError(
                f"the last layer gives {num_outputs} numbers, {self._num} actions of {self._atoms} atoms "
                f"take {self.num_outputs}"
            )
        self._epsilon, self._spread = number(about, "epsilon"), number(about, "spread")
        if not 0.0 <= self._epsilon <= 1.0 or self._spread < 0.0:
            raise ValueError(
                f"epsilon {self._epsilon} is not within 0 to 1, or spread {self._spread} is below 0"
            )
        limits = numbers_in_order(about, "v_min", "v_max") if self._atoms > 1 else (0.0, 0.0)
        self._support = np.linspace(*limits, self._atoms, dtype=np.float32)

    def values(self, output: Floats) -> Floats:
        """The value ``[N, num_actions]`` of each action, for rows ``[N, num_actions * atoms]``."""
        if self._atoms == 1:
            return output
        logits = output.reshape(len(output), self._num, self._atoms)
        weight = np.exp(logits - logits.max(2, keepdims=True))
        values: Floats = (weight @ self._support) / weight.sum(2)
        return values

    def epsilon(self, num: int, place: Floats | None) -> NDArray[np.float64]:
        """The probability ``[num]`` of a random action in each environment."""
        places = evenly_spread(num) if place is None else np.asarray(place)
        return np.asarray(self._epsilon ** (1.0 + self._spread * places.astype(np.float64)))

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """See :class:`Actor`."""
        return LegalEpsilonGreedy(self, legal, self._num)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed actions, and their log probabilities."""
        return rng.integers(0, self._num, num), np.full(num, -math.log(self._num), np.float32)

    def mode(self, output: Floats) -> NDArray[np.int64]:
        """The best action of each row; the first of equally good ones."""
        best: NDArray[np.int64] = self.values(output).argmax(1)
        return best

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row, int64 ``[N]``, from ``[N]`` uniform numbers (float64; below epsilon the
        action is random) and then ``[N]`` uniform actions.
        """
        best, epsilon = self.mode(output), self.epsilon(len(output), place)
        explores = rng.random(len(output)) < epsilon
        action = np.where(explores, rng.integers(0, self._num, len(output)), best)
        if not log_prob:
            return action, None
        return action, np.log(epsilon / self._num + (1.0 - epsilon) * (action == best)).astype(np.float32)


HEADS: dict[str, Callable[[Mapping[str, Any], Arrays, int], Head]] = {
    "tanh_normal": TanhNormal,
    "normal": Normal,
    "deterministic": Deterministic,
    "categorical": Categorical,
    "epsilon_greedy": EpsilonGreedy,
}

#: Those over discrete actions, which an action mask can restrict.
CHOICES = frozenset({"categorical", "epsilon_greedy"})


def _normal_terms(log_std: Floats, noise: Floats) -> Floats:
    """Log densities ``[N, A]`` of the numbers of a normal that ``noise`` standard deviations make."""
    terms: Floats = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI)
    return terms


def _log_slope(u: Floats) -> Floats:
    """``log(1 - tanh(u)^2)``, the correction of arXiv 1812.05905, equation 26; this form never overflows."""
    slope: Floats = np.float32(2.0) * (
        np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
    )
    return slope
