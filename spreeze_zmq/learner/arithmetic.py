"""Counts the floating point operations of a learner's updates and measures its device's limit."""

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

#: Batch size of the update that is counted; operations grow in proportion to it.
COUNTED_BATCH = 32


class Arithmetic(NamedTuple):
    """The arithmetic of a learner's updates, and its device's limit.

    Attributes:
        flops_per_transition: result of :func:`flops_per_transition`; 0 if it could not be counted.
        limit_flops_per_s: largest measured rate of matrix products, of one CPU core or of the GPU.
    """

    flops_per_transition: float
    limit_flops_per_s: float


def arithmetic_of(
    half: Any, part: str, kind: type[Algorithm], options: Any, spec: EnvironmentSpec, device: str
) -> Arithmetic:
    """Count an update and measure the device, in some hundredths of a second; the half stays as it was."""
    dtype = dtypes_of(options.precision, torch.device(device), kind.auto_bf16)[-1]
    with torch.random.fork_rng(devices=[]):
        limit = nn.most_flops_per_s(device, dtype)
        try:
            if device != "cpu":
                options = dataclasses.replace(options, precision="fp32")
                half = algorithms.make(part, kind, options, spec, "cpu", 1)
            return Arithmetic(flops_per_transition(half, part, kind, options, spec), limit)
        except Exception as error:  # a user's algorithm may fail on random numbers
            log.info("the arithmetic of an update is not counted: %s: %s", type(error).__name__, error)
            return Arithmetic(0.0, limit)


def flops_per_transition(
    half: Any, part: str, kind: type[Algorithm], options: Any, spec: EnvironmentSpec
) -> float:
    """Floating point operations of an update's matrix products and convolutions per transition of its batch;
    on-policy, with a share of the preparation of a round. The half stays as it was.

    Args:
        half: a half of the algorithm on the CPU.
        part: the part that it trains, ``"critic"`` or ``"policy"``.
        kind: the algorithm.
        options: its options.
        spec: the environment.
    """
    state = half.state_dict()
    try:
        if not kind.on_policy():
            batch = random_batch_of(kind.fields_of(part), spec, options, COUNTED_BATCH, "cpu")
            return _update_flops(half, batch) / COUNTED_BATCH
        rollouts = random_round(
            spec, COUNTED_BATCH * NUM_ENVS, "cpu", options.frame_stack, kind.memory_size(options)
        )
        preparation = nn.CountedProducts()
        with preparation:
            fields = half.prepare(rollouts)
        batch = next(Minibatches(fields, 1, COUNTED_BATCH).drawn(torch.Generator()))
        per_epoch: float = preparation.flops / rollouts.reward.numel() / options.epochs
        return per_epoch + _update_flops(half, batch) / batch["log_prob"].numel()
    finally:
        half.load_state_dict(state)


def _update_flops(half: Any, batch: Any) -> int:
    products = nn.CountedProducts()
    with products:
        half.update(batch)
    return products.flops
