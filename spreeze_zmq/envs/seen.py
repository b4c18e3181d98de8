"""What is known of an environment once one has been tried: its spec, what it took, and what is odd."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.spec import EnvironmentSpec


@dataclass(frozen=True)
class Timing:
    """What one environment took, in seconds; waits for a core of the machine do not count.

    Attributes:
        backend: the engine that stepped it.
        make_s: to make it.
        make_computes: CPU seconds of that.
        first_call_s: for its first reset or step, the longer one, which may load or compile something.
        reset_s: for a later reset.
        step_s: for a step, the median of three.
        step_computes: CPU seconds of such a step; a step that waits for another program has few.
        computes: the share of the resets' and steps' time for which it computed.
        close_s: for ``close()``; infinite where that did not return.
        reason: why that engine steps it, in words.
    """

    backend: str
    make_s: float = 0.0
    make_computes: float = 0.0
    first_call_s: float = 0.0
    reset_s: float = 0.0
    step_s: float = 0.0
    step_computes: float = 0.0
    computes: float = 1.0
    close_s: float = 0.0
    reason: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Plain data, with -1 for an infinite ``close_s``; ``from_plain`` is its inverse."""
        return {**asdict(self), "close_s": -1.0 if self.close_s == math.inf else self.close_s}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Timing:
        """The timing that ``to_plain`` described."""
        found = cls(**data)
        return replace(found, close_s=math.inf) if found.close_s < 0 else found


@dataclass(frozen=True)
class Look:
    """What is known of an environment after one was made, reset, stepped and closed.

    Attributes:
        spec: its spaces and time limit.
        timing: what that took.
        facts: what is odd about it, as ``envs.facts`` has it.
        fault: why it cannot be trained in, in one line with the user's file and line; empty where it can.
        observations: ``[3, *obs_shape]`` of a reset, a step and another reset; None if they are large.
        remarks: what else is odd, one line each: none of it keeps it from being trained in.
    """

    spec: EnvironmentSpec
    timing: Timing
    fault: str = ""
    observations: NDArray[Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Plain data for another process, without the arguments; ``from_plain`` is its inverse."""
        spec = {name: value for name, value in self.spec.to_dict().items() if name != "kwargs"}
        obs = self.observations
        sent = None if obs is None else [obs.dtype.str, list(obs.shape), np.ascontiguousarray(obs).tobytes()]
        timing = self.timing.to_plain()
        return {
            "spec": spec,
            "timing": timing,
            "fault": self.fault,
            "facts": self.facts,
            "remarks": self.remarks,
            "observations": sent,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any], env_kwargs: Mapping[str, Any]) -> Look:
        """The look that ``to_plain`` described, of an environment with these arguments."""
        spec = EnvironmentSpec.from_dict({**data["spec"], "kwargs": dict(env_kwargs)})
        observations = None
        if data["observations"] is not None:
            dtype, shape, content = data["observations"]
            observations = np.frombuffer(content, np.dtype(dtype)).reshape(shape)
        timing, facts, remarks = Timing.from_plain(data["timing"]), data["facts"], tuple(data["remarks"])
        return cls(spec, timing, data["fault"], observations, facts, remarks)

    def tried(self) -> NDArray[Any] | None:
        """The observations.

        Raises:
            InvalidEnvironment: it cannot be trained in; names the reason, and the user's file and line.
        """
        if self.fault:
            raise InvalidEnvironment(self.fault)
        return self.observations
