"""Updates of any algorithm's halves on batches at hand, without replay or channels, for ``spreeze bench``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm, ReplayOptions
from spreeze_zmq.algorithms.declarations import PARTS, TRANSITION_FIELDS
from spreeze_zmq.commands.bench.figures import Rate, Way, typical
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner import flops_per_transition
from spreeze_zmq.learner.at_hand import random_batch_of, random_round, round_size
from spreeze_zmq.nn.device import WARM_UP_CALLS, Work
from spreeze_zmq.replay import Batch, Minibatches, Round

Step = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Halves:
    """Both halves of an algorithm at one batch size.

    Attributes:
        options: the algorithm's options.
        precision: of the matrix products.
        device: ``"cpu"`` or ``"cuda:0"``.
        steps: for each part one update, or for an on-policy algorithm all updates of one round.
        transitions: number that a step trains on, counted once per epoch.
        shares: for each part its updates per critic update.
        flops: for each part those of the matrix products, per transition of a batch.
    """

    options: Any
    precision: str
    device: str
    steps: Mapping[str, Step]
    transitions: int
    shares: Mapping[str, float]
    flops: Mapping[str, float]


def make_trial(
    kind: type[Algorithm], spec: EnvironmentSpec, device: str, *, native: bool = True, **changed: Any
) -> Halves:
    """All halves with default options except those in ``changed``, warmed up.

    Args:
        kind: the algorithm.
        spec: of an environment that it can act in.
        device: ``"cpu"`` or ``"cuda:0"``.
        native: use native layers and recorded updates; otherwise torch runs one operation after another.
        changed: options by name.
    """
    options = dataclasses.replace(kind.Options(), **changed)
    if options.batch_size == "auto":
        options = dataclasses.replace(options, batch_size=options.reference_batch_size)
    steps, transitions = make_steps(kind, spec, device, options, native)
    for _ in range(WARM_UP_CALLS + 2 if device != "cpu" else 3):
        for step in steps.values():
            step()
    delay = getattr(options, "policy_delay", 1)
    return Halves(
        options=options,
        precision=precision_of(kind, options, device),
        device=device,
        steps=steps,
        transitions=transitions,
        shares={part: 1.0 / delay if part == PARTS[1] else 1.0 for part in steps},
        flops=flops_of(kind, spec, options),
    )


def parts_of(kind: type[Algorithm]) -> tuple[str, ...]:
    return PARTS if kind.has_policy_loss() else PARTS[:1]


def make_steps(
    kind: type[Algorithm], spec: EnvironmentSpec, device: str, options: Any, native: bool = True
) -> tuple[dict[str, Step], int]:
    """The step of each part, and the transitions that it trains on."""
    halves: dict[str, Any] = {
        part: algorithms.make(part, kind, options, spec, device, 1) for part in parts_of(kind)
    }
    if not native:
        for half in halves.values():
            half.leave_to_torch()
    if kind.on_policy():
        size = round_size(options.batch_size)
        data = random_round(spec, size, device, 1, kind.memory_size(options))
        trained = options.epochs * data.reward.numel()
        return {part: _round_step(half, data, options) for part, half in halves.items()}, trained
    steps: dict[str, Step] = {}
    for part, half in halves.items():
        live, fields = half.algorithm.options.drawn(part), kind.kept_fields(part, options)
        batch = random_batch_of(fields, spec, live, options.batch_size, device)
        steps[part] = partial(half.update, batch)
    return steps, options.batch_size


def _round_step(half: Any, data: Round, options: Any) -> Step:
    generator = torch.Generator(data.reward.device).manual_seed(1)

    def step() -> None:
        batches = Minibatches(half.prepare(data), options.epochs, options.batch_size)
        left = len(batches)
        for batch in batches.drawn(generator):
            left -= 1
            half.update(batch, measured=left == 0)  # as a learner does

    return step


def flops_of(kind: type[Algorithm], spec: EnvironmentSpec, options: Any) -> dict[str, float]:
    """:func:`spreeze_zmq.learner.flops_per_transition` of each part in float32."""
    fp32 = dataclasses.replace(options, precision="fp32")
    halves = {part: algorithms.make(part, kind, fp32, spec, "cpu", 1) for part in parts_of(kind)}
    return {part: flops_per_transition(half, spec) for part, half in halves.items()}


def precision_of(kind: type[Algorithm], options: Any, device: str) -> str:
    """The precision of the options; for ``"auto"`` the lowest one that it may choose."""
    if options.precision != "auto":
        return str(options.precision)
    dtype = nn.dtypes_of("auto", torch.device(device), kind.auto_bf16)[-1]
    return "bf16" if dtype == torch.bfloat16 else "fp32"


# --- data at hand ---------------------------------------------------------------------------------


def random_batch(spec: EnvironmentSpec, batch_size: int) -> Batch:
    """Random transitions, each counted for one step."""
    batch = random_batch_of(TRANSITION_FIELDS, spec, ReplayOptions(), batch_size, "cpu")
    assert isinstance(batch, Batch)
    return batch


# --- time on a device -----------------------------------------------------------------------------


def timed(
    step: Step, amount: float, device: str, on_cpu: Callable[[Step, float, float], Rate] = typical
) -> Way:
    """The rate of a step that does ``amount`` at once: on a CPU as ``on_cpu`` measures it, by default from
    the typical duration of a step; on a GPU from all steps.
    """
    if device == "cpu":
        return partial(on_cpu, step, amount)
    return partial(launched, step, amount, device=device)


def launched(step: Step, amount: float, turn_s: float, device: str) -> Rate:
    """The rate of a step that does ``amount`` at once, launched for ``turn_s`` like a learner's updates, then
    synchronised.
    """
    work, count = Work(device), 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while time.perf_counter() - began_s < turn_s or not count:
        work.run(step)
        count += 1
    if device != "cpu":
        torch.cuda.synchronize(device)
    passed_s = time.perf_counter() - began_s
    return Rate(count * amount / passed_s, count * amount / max(time.process_time() - began_cpu_s, 1e-9))
