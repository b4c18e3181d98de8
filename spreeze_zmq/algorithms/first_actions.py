"""The first actions of an algorithm, before anything starts: its networks act as samplers will have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from spreeze_zmq.algorithms.acting import (
    Withdrawn,
    acting_part,
    check_described,
    frozen_targets,
    set_networks,
    targets_alike,
)
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.algorithms.declared import blaming, declared, shown
from spreeze_zmq.algorithms.distributions import Deterministic, described
from spreeze_zmq.algorithms.flat_networks import FlatNetworks
from spreeze_zmq.algorithms.moving import MovingOptions
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.policy.actor import ActionDistribution
from spreeze_zmq.policy.heads import make_head


@torch.no_grad()
def rehearse(kind: type[Algorithm], options: Any, env: EnvironmentSpec) -> None:
    """Make the networks of an algorithm and act on two observations of zeros, as samplers do.

    Raises:
        AlgorithmError: the networks, the distribution and ``act`` do not fit together, or do not fit ``env``.
    """
    with torch.random.fork_rng(devices=[]):
        algorithm, networks = declared(kind, MovingOptions(options), env)
        set_networks(algorithm, networks)
        with blaming(kind, "distribution"):
            distribution: Any = algorithm.distribution()
        if not isinstance(getattr(distribution, "num_outputs", None), int):
            problem = f"distribution() returned {shown(distribution)}, expected one of"
            raise AlgorithmError(kind, f"{problem} spreeze_zmq.algorithms.distributions")
        with blaming(kind, "distribution, as samplers get it"):
            head = make_head(described(distribution), distribution.arrays(), distribution.num_outputs)
        asked = {name for part in PARTS for name in kind.fields_of(part)}
        if isinstance(distribution, Deterministic) and "log_prob" in asked:
            raise AlgorithmError(
                kind, "its fields ask for log_prob, which a Deterministic distribution has not"
            )
        with blaming(kind, "distribution, as samplers have it"):
            check_described(algorithm, distribution)
        with blaming(kind, "networks, called again"):
            kept = targets_alike(algorithm, networks.targets, frozen_targets(networks))
        withdrawn = Withdrawn(algorithm, networks, kept)
        published = FlatNetworks(acting_part(networks), networks.acting, trained=False)
        try:
            _act(algorithm, networks.acting, head, withdrawn)
        finally:  # a class may return the same modules again
            withdrawn.release()
            for parameter in published.parameters:
                parameter.requires_grad_(True)


def _act(algorithm: Algorithm, acting: str, head: ActionDistribution, withdrawn: Withdrawn) -> None:
    """Act on two observations of zeros by ``act``, or by the network called ``acting`` and its ``head``."""
    kind, env, size = type(algorithm), algorithm.env, algorithm.memory_size(algorithm.options)
    obs = torch.zeros(2, math.prod(env.obs_shape), dtype=torch.float32)
    dtype = torch.float32 if env.action_kind == "box" else torch.int64
    if kind.acts_by_itself():
        for greedy in (True, False):
            with blaming(kind, f"act, greedy={greedy}"), withdrawn.refused():
                action = algorithm.act(obs, greedy)
            _check_rows(kind, "act gives", obs, action, env.action_shape)
            if action.dtype != dtype:
                hint = f"end it with .to({dtype})"
                raise AlgorithmError(kind, f"act gives {action.dtype}, expected {dtype}: {hint}")
        return
    what = f"the network {acting!r}"
    memory = [torch.zeros(len(obs), size, dtype=torch.float32)] if size else []
    with blaming(kind, what), withdrawn.refused():
        outputs = getattr(algorithm, acting)(obs, *memory)
    if memory:
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            problem = f"{what} gives {shown(outputs)}, expected its output and the next memory"
            raise AlgorithmError(kind, problem)
        outputs, next_memory = outputs
        _check_rows(kind, f"{what}, as the next memory, gives", obs, next_memory, (size,))
    _check_rows(kind, f"{what}, which acts, gives", obs, outputs, (head.num_outputs,))
    with blaming(kind, f"{what}, which acts"):
        drawn, _ = head.draw(outputs.detach().numpy(), np.random.default_rng(0), None, log_prob=False)
    if drawn.dtype.kind == "f" and drawn.dtype != np.float32:  # samplers refuse it; a choice has no such
        problem = f"{what}, which acts, gives {outputs.dtype}, expected {dtype}"
        raise AlgorithmError(kind, f"{problem}: end it with .to({dtype})")


def _check_rows(
    kind: type[Algorithm], what: str, obs: torch.Tensor, rows: Any, shape: tuple[int, ...]
) -> None:
    """Raise AlgorithmError unless ``rows`` has one row of ``shape`` for each observation."""
    if not isinstance(rows, torch.Tensor) or rows.shape != (len(obs), *shape):
        problem = f"{what} {shown(rows)} for {len(obs)} observations of {obs.shape[1]} numbers"
        raise AlgorithmError(kind, f"{problem}, expected shape {(len(obs), *shape)}")
