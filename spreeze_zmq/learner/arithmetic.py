"""Counts the floating point operations of a learner's updates and measures its device's limit."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, NamedTuple

import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.half import AutogradHalf
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


def arithmetic_of(half: AutogradHalf, spec: EnvironmentSpec, device: str) -> Arithmetic:
    """Count an update and measure the device, in some hundredths of a second; the half stays as it was."""
    kind, options = type(half.algorithm), half.algorithm.options
    dtype = dtypes_of(options.precision, torch.device(device), kind.auto_bf16)[-1]
    with torch.random.fork_rng(devices=[]):
        limit = nn.most_flops_per_s(device, dtype)
        try:
            if device != "cpu":
                options = dataclasses.replace(options, precision="fp32")
                half = algorithms.make(half.part, kind, options, spec, "cpu", 1)
            return Arithmetic(flops_per_transition(half, spec), limit)
        except Exception as error:  # a user's algorithm may fail on random numbers
            log.info("the arithmetic of an update is not counted: %s: %s", type(error).__name__, error)
            return Arithmetic(0.0, limit)


def flops_per_transition(half: AutogradHalf, spec: EnvironmentSpec) -> float:
    """Floating point operations of an update's matrix products and convolutions per transition of its batch;
    on-policy, with a share of the preparation of a round. The half, which is on the CPU, stays as it was.
    """
    kind, options, state = type(half.algorithm), half.algorithm.options, half.state_dict()
    preparation, update, per_epoch, size = nn.CountedProducts(), nn.CountedProducts(), 0.0, COUNTED_BATCH
    try:
        if kind.on_policy():
            memory_size = kind.memory_size(options)
            made = random_round(spec, size * NUM_ENVS, "cpu", options.frame_stack, memory_size)
            with preparation:
                fields = half.prepare(made)
            batch: Any = next(Minibatches(fields, 1, size).drawn(torch.Generator()))
            per_epoch, size = (
                preparation.flops / made.reward.numel() / options.epochs,
                batch["log_prob"].numel(),
            )
        else:
            batch = random_batch_of(kind.fields_of(half.part), spec, options, size, "cpu")
        with update:
            half.update(batch)
        return per_epoch + update.flops / size
    finally:
        half.load_state_dict(state)
