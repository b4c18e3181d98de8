"""A published policy as samplers and evaluators use it: NumPy alone, from a message or from a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import InputError, WireError

Floats = NDArray[np.float32]

#: What a policy file says it is; the number goes up when older readers could not read it.
FILE_FORMAT = "spreeze_zmq.policy.1"
_ARRAYS = ("parameters", "action_low", "action_high", "observation_mean", "observation_std")
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Policy:
    """Acts in a batch of environments.

    Args:
        fields: of a policy message: ``version``, ``description`` and ``extras`` are read.
        arrays: of a policy message; viewed, not copied.
        metadata: words that came with a file.

    Attributes:
        version: counts publications; 0 acts uniformly at random.
        extras: numbers that travelled with it, such as the temperature.
        metadata: words that came with the file, empty for a message.

    Raises:
        WireError: ``bad_policy``, where description and arrays do not make a policy.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
    ):
        self.metadata = dict(metadata or {})
        try:
            self.version = int(fields["version"])
            self.description: dict[str, Any] = dict(fields["description"])
            self.extras: dict[str, float] = dict(fields.get("extras", {}))
            self._arrays = {name: _floats(name, arrays[name]) for name in _ARRAYS if name in arrays}
            low, high = self._arrays["action_low"], self._arrays["action_high"]
            self._distribution = _tanh_normal(self.description["distribution"], low, high)
            self._observation = _Observation(self.description["observation"], self._arrays)
            self._network = _Network(
                self.description["layers"],
                self._arrays["parameters"],
                self._observation.size,
                self._distribution.num_outputs,
            )
        except KeyError as error:
            raise WireError("bad_policy", f"{error.args[0]!r} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise WireError("bad_policy", str(error)) from error

    @classmethod
    def from_message(cls, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The policy of a policy message. Raises WireError ``bad_policy``."""
        return cls(fields, arrays)

    def act(self, obs: NDArray[Any], rng: np.random.Generator) -> Floats:
        """Draw an action for each of ``obs`` ``[N, *obs_shape]``.

        Returns ``[N, *action_shape]`` float32 in the environment's own units.
        """
        return self.act_with_log_prob(obs, rng, log_prob=False)[0]

    def act_with_log_prob(
        self, obs: NDArray[Any], rng: np.random.Generator, log_prob: bool = True
    ) -> tuple[Floats, Floats | None]:
        """As ``act``, with the log density ``[N]`` of the action in [-1, 1]; None unless ``log_prob``."""
        if self.version == 0:
            return self._distribution.uniform(len(obs), rng)
        return self._distribution.draw(self._output(obs), rng, log_prob)

    def mode(self, obs: NDArray[Any]) -> Floats:
        """The deterministic action for each of ``obs``; the network's own at version 0 too."""
        return self._distribution.mode(self._output(obs))

    def _output(self, obs: NDArray[Any]) -> Floats:
        return self._network(self._observation(obs))

    def save(self, path: Path | str, metadata: Mapping[str, str]) -> None:
        """Write everything needed to act to a safetensors file, whole or not at all.

        ``metadata`` comes back on ``load``.
        """
        from safetensors.numpy import save

        path = Path(path)
        own = {"description": self.description, "version": self.version, "extras": self.extras}
        about = {"format": FILE_FORMAT, **{name: json.dumps(value) for name, value in own.items()}}
        if taken := about.keys() & metadata.keys():
            raise ValueError(f"metadata may not use {', '.join(sorted(taken))}")
        content = save(dict(self._arrays), {**metadata, **about})
        # A name of its own for each process: two that write the same path must not share a half-written file.
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a file that ``save`` wrote.

        Raises:
            InputError: there is no such file, or it holds no policy of this format.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                about: dict[str, str] = dict(file.metadata() or {})
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path} cannot be read as a policy: {error}") from error
        if about.get("format") != FILE_FORMAT:
            raise InputError(f"{path} is of format {about.get('format')!r}, expected {FILE_FORMAT!r}")
        own = ("description", "version", "extras")
        try:
            fields = {name: json.loads(about[name]) for name in own}
            metadata = {name: text for name, text in about.items() if name not in (*own, "format")}
            return cls(fields, arrays, metadata)
        except (KeyError, ValueError, WireError) as error:
            raise InputError(f"{path} holds no whole policy: {error}") from error


def _floats(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}, expected float32")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    # A view into a received frame may lie off the alignment; every product would then copy it again.
    return np.require(array, requirements=["C", "A"])


class _Observation:
    """Observations of any shape and dtype to float32 rows, normalised where the description asks for it."""

    def __init__(self, about: Mapping[str, Any], arrays: Mapping[str, Floats]):
        self.size = math.prod(int(size) for size in about["shape"])
        self._normalize = bool(about["normalize"])
        if self._normalize:
            self._clip = np.float32(about["clip"])
            self._mean = arrays["observation_mean"].reshape(self.size)
            self._std = arrays["observation_std"].reshape(self.size)
            if not (self._std > 0).all():
                raise ValueError("observation_std must be positive")

    def __call__(self, obs: NDArray[Any]) -> Floats:
        rows = obs.reshape(len(obs), self.size).astype(np.float32, copy=False)
        if not self._normalize:
            return rows
        scaled = (rows - self._mean) / self._std
        return np.clip(scaled, -self._clip, self._clip, out=scaled)


class _Network:
    """The layers, over buffers that are kept while the number of observations stays the same."""

    def __init__(
        self, layers: Sequence[Mapping[str, Any]], parameters: Floats, num_inputs: int, num_outputs: int
    ):
        self._steps: list[_Step] = []
        size, offset = num_inputs, 0
        for layer in layers:
            shapes, size = _shapes(layer, size)
            weights = []
            for shape in shapes:
                end = offset + math.prod(shape)
                if end > parameters.size:
                    raise ValueError(f"the layers need more than the {parameters.size} parameters that came")
                weights.append(parameters[offset:end].reshape(shape))
                offset = end
            self._steps.append(_Step(layer, weights))
        if offset != parameters.size or parameters.ndim != 1:
            raise ValueError(f"parameters are {parameters.shape}, the layers need ({offset},)")
        if size != num_outputs:
            raise ValueError(f"the last layer gives {size} numbers, the distribution takes {num_outputs}")
        self._batch_size = -1
        self._buffers: list[Floats] = []

    def __call__(self, rows: Floats) -> Floats:
        """``[N, outputs]``; holds until the next call."""
        if len(rows) != self._batch_size:
            self._batch_size = len(rows)
            self._buffers = [np.empty((len(rows), max(step.out_size, 1)), np.float32) for step in self._steps]
        if self._steps[0].out_size == 0:
            rows = rows.copy()  # everything but a linear layer works in place, and these are the caller's
        for step, buffer in zip(self._steps, self._buffers, strict=True):
            rows = step(rows, buffer)
        return rows


def _shapes(layer: Mapping[str, Any], size: int) -> tuple[list[tuple[int, ...]], int]:
    """The shapes of a layer's parameters and the size of its output, for an input of ``size``."""
    kind = layer["kind"]
    if kind in ACTIVATIONS:
        return [], size
    if kind == "linear":
        if layer["in"] != size or not layer["out"] >= 1:
            raise ValueError(
                f"a linear layer takes {layer['in']} and gives {layer['out']}, {size} numbers come to it"
            )
        return [(layer["out"], size), (layer["out"],)], layer["out"]
    if kind == "layer_norm":
        if layer["size"] != size:
            raise ValueError(f"a layer_norm takes {layer['size']} numbers, {size} come to it")
        return [(size,), (size,)], size
    raise ValueError(f"unknown layer {kind!r}; there is linear, layer_norm, {', '.join(ACTIVATIONS)}")


class _Step:
    """One layer: linear into its buffer, everything else in place."""

    def __init__(self, layer: Mapping[str, Any], weights: Sequence[Floats]):
        self._function = ACTIVATIONS.get(layer["kind"])
        self._linear = layer["kind"] == "linear"
        self.out_size = int(layer["out"]) if self._linear else 0
        self._eps = float(layer.get("eps", 1e-5))
        if weights:
            self._weight = weights[0].T if self._linear else weights[0]
            self._bias = weights[1]

    def __call__(self, x: Floats, buffer: Floats) -> Floats:
        if self._linear:
            np.matmul(x, self._weight, out=buffer)
            buffer += self._bias
            return buffer
        if self._function is not None:
            self._function(x)
            return x
        x -= x.mean(1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(1, keepdims=True) + np.float32(self._eps))
        x *= self._weight
        x += self._bias
        return x


def _relu(x: Floats) -> None:
    np.maximum(x, 0.0, out=x)


def _elu(x: Floats) -> None:
    below = np.expm1(np.minimum(x, 0.0))
    np.maximum(x, 0.0, out=x)
    x += below


def _silu(x: Floats) -> None:
    # x / (1 + exp(-x)) by way of tanh, which does not overflow.
    x *= 0.5 * (1.0 + np.tanh(0.5 * x))


def _tanh(x: Floats) -> None:
    np.tanh(x, out=x)


#: In place on ``[N, size]``.
ACTIVATIONS: dict[str, Callable[[Floats], None]] = {"relu": _relu, "elu": _elu, "silu": _silu, "tanh": _tanh}


@dataclass(frozen=True)
class _TanhNormal:
    """``tanh(mean + std * noise)``, stretched from [-1, 1] to the action bounds.

    ``low`` and ``high`` have the shape of one action. Rows of the network are ``[mean, raw log std]``.
    """

    low: Floats
    high: Floats
    log_std_min: float
    log_std_max: float

    @property
    def num_actions(self) -> int:
        return self.low.size

    @property
    def num_outputs(self) -> int:
        return 2 * self.num_actions

    def uniform(self, num: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        unit = rng.random((num, self.num_actions), np.float32) * np.float32(2.0) - np.float32(1.0)
        log_prob = np.full(num, -self.num_actions * math.log(2.0), np.float32)
        return self._stretch(unit), log_prob

    def mode(self, output: Floats) -> Floats:
        return self._stretch(np.tanh(output[:, : self.num_actions]))

    def draw(self, output: Floats, rng: np.random.Generator, log_prob: bool) -> tuple[Floats, Floats | None]:
        half_range = np.float32(0.5 * (self.log_std_max - self.log_std_min))
        log_std = np.tanh(output[:, self.num_actions :])
        log_std += np.float32(1.0)
        log_std *= half_range
        log_std += np.float32(self.log_std_min)
        noise = rng.standard_normal(log_std.shape, np.float32)
        u = np.exp(log_std)
        u *= noise
        u += output[:, : self.num_actions]
        density = _log_density(u, log_std, noise) if log_prob else None
        return self._stretch(np.tanh(u, out=u)), density

    def _stretch(self, unit: Floats) -> Floats:
        """Overwrites ``unit`` ``[N, A]``; rounding never leaves the bounds."""
        low, high = self.low.reshape(-1), self.high.reshape(-1)
        unit *= (high - low) * np.float32(0.5)
        unit += (high + low) * np.float32(0.5)
        np.clip(unit, low, high, out=unit)
        return unit.reshape(len(unit), *self.low.shape)


def _log_density(u: Floats, log_std: Floats, noise: Floats) -> Floats:
    """Log density ``[N]`` of ``tanh(u)``: arXiv 1812.05905, equation 26, in a form that cannot overflow."""
    squash = np.float32(2.0) * (
        np.float32(math.log(2.0)) - u - np.logaddexp(np.float32(0.0), np.float32(-2.0) * u)
    )
    terms = np.float32(-0.5) * noise * noise - log_std - np.float32(_LOG_SQRT_2PI) - squash
    density: Floats = terms.sum(1, dtype=np.float32)
    return density


def _tanh_normal(about: Mapping[str, Any], low: Floats, high: Floats) -> _TanhNormal:
    """The distribution of a description; the only one that there is so far."""
    if about["kind"] != "tanh_normal" or about["log_std"] != "tanh":
        raise ValueError(f"unknown distribution {about['kind']!r} with log_std {about['log_std']!r}")
    if low.shape != high.shape or low.size == 0 or not (low < high).all():
        raise ValueError(f"action bounds {low.tolist()} to {high.tolist()} are not a box")
    return _TanhNormal(low, high, float(about["log_std_min"]), float(about["log_std_max"]))
