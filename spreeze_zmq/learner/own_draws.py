"""Makes the half of a learner. A user's own algorithm may also draw from what ``random`` and ``np.random``
share, which is seeded for it, and goes on from a checkpoint.
"""

from __future__ import annotations

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.learner_networks import FIRST_WEIGHTS, NOISE, seed_of
from spreeze_zmq.base.kept_state import Keeper, Maker
from spreeze_zmq.component import Component
from spreeze_zmq.envs.seeds import seed_shared_generators, shared_generators
from spreeze_zmq.learner.arithmetic import Arithmetic, arithmetic_of
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import PART_OF
from spreeze_zmq.run.sampler_state import packed, unpacked


def prepared(component: Component, device: str) -> tuple[AutogradHalf, Arithmetic]:
    """The half of a learner, and the arithmetic of its updates."""
    plan, env, part = component.plan, component.environment, PART_OF[component.role]
    _seed(plan, FIRST_WEIGHTS)  # of both learners alike
    half = algorithms.make(part, *algorithm_of(plan), env, device, plan.run.seed)
    half.algorithm.offline = plan.offline
    arithmetic = arithmetic_of(half, env, device)
    _seed(plan, NOISE[part])
    return half, arithmetic


def _seed(plan: Plan, stream: int) -> None:
    if may_draw(plan):
        seed_shared_generators(seed_of(plan.run.seed, stream))


def may_draw(plan: Plan) -> bool:
    """Whether the algorithm is a user's own; the shipped ones draw from torch's generator alone."""
    return ":" in plan.run.algorithm


def kept_draws() -> torch.Tensor:
    """The state of what ``random`` and ``np.random`` draw from, some 10 KB, uint8."""
    kept = [Keeper().keep(each, "a shared generator") for each in shared_generators()]
    return torch.frombuffer(bytearray(packed({"shared": kept})), dtype=torch.uint8)


def go_on_drawing(state: torch.Tensor) -> None:
    """Go on from :func:`kept_draws`."""
    kept = unpacked(state.numpy().tobytes())["shared"]
    for each, generator in zip(kept, shared_generators(), strict=True):
        Maker().make(each, generator)
