"""The look at an environment with which commands begin; they say what is odd about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment

#: An environment that takes as long to make is one to tell of.
SLOW_S = 5.0


class FirstLook:
    """``envs.look`` that says what takes long, and looks once at what is asked for again.

    Attributes:
        last: what was seen last; None for an environment that a topology describes.
    """

    def __init__(self) -> None:
        self.last: envs.Look | None = None
        self._seen: dict[str, envs.Look] = {}

    def __call__(
        self, env_id: str, env_kwargs: Mapping[str, Any], randomize: Mapping[str, Any], **named: Any
    ) -> envs.Look:
        """As ``envs.look``."""
        key = json.dumps([env_id, env_kwargs, randomize], default=repr)
        if key not in self._seen:
            self._seen[key] = envs.look(env_id, env_kwargs, randomize, **named, say=_say)
        self.last = self._seen[key]
        return self.last

    def observations(self) -> NDArray[Any] | None:
        """The environment's first observations, ``[3, *obs_shape]``, if there are any.

        Raises:
            InvalidEnvironment: it cannot be trained in.
        """
        if self.last is not None and self.last.fault:
            raise InvalidEnvironment(self.last.fault)
        return self.last.observations if self.last else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is odd about the environment, one line each."""
        if self.last is None:
            return ()
        make_s = self.last.timing.make_s
        slow = (f"making one took {make_s:.0f} s; a sampler makes components.sampler.envs of them",)
        return (*self.last.remarks, *slow * (make_s >= SLOW_S))


def _say(line: str) -> None:
    print(f"note {line}", flush=True)
