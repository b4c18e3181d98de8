"""The policy itself: made of a message or a file, it draws actions or takes their mode."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import InputError, WireError
from spreeze_zmq.policy.network import Network, ObservationScaling
from spreeze_zmq.policy.tanh_normal import tanh_normal

Floats = NDArray[np.float32]

#: What a policy file says it is; the number goes up when older readers could not read it.
FILE_FORMAT = "spreeze_zmq.policy.1"
_ARRAYS = ("parameters", "action_low", "action_high", "observation_mean", "observation_std")


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
            self._distribution = tanh_normal(self.description["distribution"], low, high)
            self._observation = ObservationScaling(self.description["observation"], self._arrays)
            self._network = Network(
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
