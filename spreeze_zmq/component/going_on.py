"""A sampler of a run in order keeps what it is in the middle of with each rollout, and goes on from there."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import CheckpointError, StateNotKept, in_one_line
from spreeze_zmq.base.files import read_whole
from spreeze_zmq.base.importing import loaded
from spreeze_zmq.base.kept_state import Keeper, Maker
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.component.component import Component
from spreeze_zmq.envs.seeds import shared_generators
from spreeze_zmq.policy import FrameStack
from spreeze_zmq.run.sampler_state import MOST_BYTES, WHY_NOT, packed, state_file, unpacked

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

log = logging.getLogger("spreeze")

#: What values of other kinds than expected make the code raise that reads them.
_ODD = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)


class SamplerState:
    """What a sampler is in the middle of: its environments, random generators, frames.

    Args:
        component: the sampler.

    Attributes:
        lowest: reward that the sampler had seen, as it was restored; 0 before.
    """

    def __init__(self, component: Component) -> None:
        self.component = component
        #: The policy of a user's own may draw from torch's generator.
        self.draws_in_torch = ":" in component.plan.run.algorithm
        self.lowest = 0.0
        self._frames: dict[str, Any] | None = None
        self._why_not: bytes | None = None

    def of(
        self,
        envs: BatchedEnv,
        rng: np.random.Generator,
        obs: NDArray[Any],
        frames: FrameStack,
        lowest: float = 0.0,
    ) -> NDArray[np.uint8]:
        """The state between two rollouts, as bytes; those of the reason where it cannot be kept."""
        if self._why_not is None:
            try:
                own = {"obs": obs, "frames": frames.get_state(), "rng": Keeper().keep(rng, "its generator")}
                own["lowest"] = lowest
                own["shared"] = [Keeper().keep(each, "a shared generator") for each in shared_generators()]
                if self.draws_in_torch:
                    own["torch"] = loaded("torch").get_rng_state().numpy()
                return np.frombuffer(packed({"envs": envs.get_state(), **own}), np.uint8)
            except StateNotKept as error:
                log.warning("a run that goes on from this one will not be exact: %s", error)
                self._why_not = packed({WHY_NOT: str(error)})
        return np.frombuffer(self._why_not, np.uint8)

    def restore(self, envs: BatchedEnv, rng: np.random.Generator, obs: NDArray[Any]) -> NDArray[Any]:
        """Bring environments, which have been reset to ``obs``, and a generator to where the sampler of this
        name was in the checkpoint that the run goes on from; returns the observations that they are at. Where
        that does not go, a line says so, and the episodes begin.
        """
        if self.component.plan.run.resume_from is None:
            return obs
        try:
            if (state := self._read()) is None:
                return obs
            envs.set_state(state["envs"])
            Maker().make(state["rng"], rng)
            if state["obs"].shape != obs.shape or state["obs"].dtype != obs.dtype:
                raise StateNotKept("its observations are others")
            if self.draws_in_torch:
                torch: Any = importlib.import_module("torch")
                torch.set_rng_state(torch.from_numpy(state["torch"]))
            # earlier releases have neither of these
            for shared, generator in zip(state.get("shared", ()), shared_generators(), strict=False):
                Maker().make(shared, generator)
            lowest = state.get("lowest", 0.0)
            if not -LARGEST <= lowest <= 0.0:
                raise StateNotKept(f"its lowest reward is {lowest}")
            self._frames, self.lowest = state["frames"], lowest
        except (CheckpointError, StateNotKept, *_ODD) as error:
            self._begin_anew(error)
            return envs.reset(seed=envs.first_seed)[0].astype(obs.dtype, copy=False)
        log.info("the episodes go on where they were")
        return np.array(state["obs"])

    def restore_frames(self, frames: FrameStack) -> None:
        """Likewise what the first policy sees and remembers."""
        if self._frames is not None:
            try:
                frames.set_state(self._frames)
            except (StateNotKept, *_ODD) as error:
                self._begin_anew(error)
            self._frames = None

    def _read(self) -> dict[str, Any] | None:
        """The state; None where the checkpoint has none, as the launcher has said."""
        checkpoint = self.component.restore_point()
        name = state_file(self.component.name)
        if checkpoint is None or name not in checkpoint.parts:
            log.info("new episodes: the checkpoint has no %s", name)
            return None
        path: Path = checkpoint.part(name)
        try:
            state = unpacked(read_whole(path, MOST_BYTES))
        except (OSError, StateNotKept, ValueError) as error:
            raise StateNotKept(f"{path}: {error}") from error
        if WHY_NOT in state:
            log.info("new episodes: %s", state[WHY_NOT])
            return None
        return state

    def _begin_anew(self, error: Exception) -> None:
        why = error if isinstance(error, StateNotKept) else in_one_line(error)
        what = f"this run is not exact: {self.component.name} begins new episodes: {why}"
        log.warning("%s", what)
        self.component.report_failure(what, "")
