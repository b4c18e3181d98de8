"""The arithmetic of a learner: what its updates multiply, and what its device could."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, NamedTuple

import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.algorithms.precision import dtypes_of
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.at_hand import NUM_ENVS, random_batch_of, random_round
from spreeze_zmq.replay import Minibatches

log = logging.getLogger("spreeze")

#: The arithmetic of an update grows with its batch; it is counted at this one.
COUNTED_BATCH = 32


class Arithmetic(NamedTuple):
    """Of a learner.

    Attributes:
        flops_per_transition: as the function of that name; 0 where it could not be counted.
        limit_flops_per_s: what one core multiplies in a second, or the learner's GPU.
    """

    flops_per_transition: float
    limit_flops_per_s: float


def arithmetic_of(
    half: Any, part: str, kind: type[Algorithm], options: Any, spec: EnvironmentSpec, device: str
) -> Arithmetic:
    """Count and measure, for some hundredths of a second; the half is afterwards as it was."""
    dtype = dtypes_of(options.precision, torch.device(device), kind.auto_bf16)[-1]
    with torch.random.fork_rng(devices=[]):
        limit = nn.most_flops_per_s(device, dtype)
        try:
            if device != "cpu":
                options = dataclasses.replace(options, precision="fp32")
                half = algorithms.make(part, kind, options, spec, "cpu", 1)
            return Arithmetic(flops_per_transition(half, part, kind, options, spec), limit)
        except Exception as error:  # whatever an algorithm of the user's makes of random numbers
            log.info("the arithmetic of an update is not counted: %s: %s", type(error).__name__, error)
            return Arithmetic(0.0, limit)


def flops_per_transition(
    half: Any, part: str, kind: type[Algorithm], options: Any, spec: EnvironmentSpec
) -> float:
    """Floating point operations of the matrix products and convolutions of an update, for each transition of
    its batch; the half is afterwards as it was.

    Args:
        half: of the algorithm, on the CPU.
        part: that it trains.
        kind: the algorithm.
        options: its options.
        spec: of the environment.
    """
    state = half.state_dict()
    try:
        if not kind.on_policy():
            batch = random_batch_of(kind.fields_of(part), spec, options, COUNTED_BATCH, "cpu")
            return _counted(half, batch) / COUNTED_BATCH
        made = random_round(
            spec, COUNTED_BATCH * NUM_ENVS, "cpu", options.frame_stack, kind.memory_size(options)
        )
        once = nn.CountedProducts()
        with once:
            fields = half.prepare(made)
        batch = next(Minibatches(fields, 1, COUNTED_BATCH).drawn(torch.Generator()))
        ahead: float = once.flops / made.reward.numel() / options.epochs
        counted: float = _counted(half, batch) / batch["log_prob"].numel()
        return ahead + counted
    finally:
        half.load_state_dict(state)


def _counted(half: Any, batch: Any) -> int:
    counted = nn.CountedProducts()
    with counted:
        half.update(batch)
    return counted.flops
