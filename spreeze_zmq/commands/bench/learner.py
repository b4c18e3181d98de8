"""The learner section of ``spreeze bench``: updates of any algorithm beside the matrix products they need.

Everything is measured in a process with the environment of a learner.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.commands.bench import isolated
from spreeze_zmq.commands.bench.figures import Figure, Job, Section, Way, by_clock, in_turn, number, paired
from spreeze_zmq.commands.bench.trial import Halves, make_trial, timed
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.arithmetic import multiply_limits

BATCH_SIZES = {"cpu": (256, 1024, 8192), "cuda": (1024, 8192, 32_768, 131_072)}
#: On a CPU the largest batch is left out of shorter sections: its five rounds take 2 s.
SECONDS_FOR_ALL = 5.0
#: Environments for shipped algorithms that cannot act in the requested one.
SUITABLE = ("HalfCheetah-v5", "CartPole-v1")
ROUNDS, COMPARED_ROUNDS = 5, 3
#: Duration of a turn; the clock of a core with busy neighbours changes by a quarter within a second.
TURN_S = 0.1
#: Rows and columns of the matrix product that shows the peak of a GPU.
PEAK_SIZE = 8192
#: The names of the variants that ours is compared with.
LIMITS = {"torch": "plain torch", "fp32": "fp32"}


def measure(job: Job) -> Section:
    """Measure updates for about ``job.seconds``; raises like :func:`isolated.figures_of`."""
    where = "on one core" if job.device == "cpu" else f"on {job.device}"
    limit = "multiply-adds alone" if job.device == "cpu" else "a large product of matrices"
    about = (
        f"updates alone {where} of batches at hand, trained transitions counted once; limit: {limit}; "
        f"{job.algorithm} in {job.env_id}"
    )
    if job.shipped:
        about += ", first each shipped algorithm at its own batch size"
    return Section("learner", about, isolated.figures_of("learner", job))


def figures(job: Job) -> list[Figure]:
    """Each precision of the device at each batch size; to be called in a learner's process."""
    kind, spec = algorithms.get(job.algorithm), envs.probe(job.env_id)
    combinations = [(precision, size) for precision in precisions(job.device) for size in batch_sizes(job)]
    shipped = suited(job.env_id) if job.shipped else {}
    share_s = job.seconds / (2 * len(combinations) + len(shipped))
    found = [measure_shipped(name, env_id, job.device, share_s) for name, env_id in shipped.items()]
    for precision, size in combinations:
        trial = make_trial(kind, spec, job.device, batch_size=size, precision=precision)
        found += measure_updates(trial, share_s)
        found += measure_beside_others(trial, kind, spec, share_s)
    return found


def precisions(device: str) -> tuple[str, ...]:
    """The precisions to measure: fp32 on a CPU, and the device's faster ones."""
    if device != "cpu":
        return ("bf16", "tf32")
    return ("fp32", "bf16") if nn.has_bf16(torch.device("cpu")) else ("fp32",)


def batch_sizes(job: Job) -> tuple[int, ...]:
    if job.device != "cpu" or job.seconds >= SECONDS_FOR_ALL:
        return BATCH_SIZES["cpu" if job.device == "cpu" else "cuda"]
    return BATCH_SIZES["cpu"][:-1]


def suited(env_id: str) -> dict[str, str]:
    """The environment for each shipped algorithm: ``env_id`` where it can act there."""
    suitable = {}
    for name in algorithms.names():
        kind = algorithms.get(name)
        for candidate in (env_id, *SUITABLE):
            try:
                kind.check(envs.probe(candidate), kind.Options())
            except InvalidEnvironment:
                continue
            suitable[name] = candidate
            break
    return suitable


# --- figures --------------------------------------------------------------------------------------


def measure_shipped(name: str, env_id: str, device: str, seconds: float) -> Figure:
    """Transitions/s of a shipped algorithm with default options, its halves updated one after the other."""
    trial = make_trial(algorithms.get(name), envs.probe(env_id), device)
    measured = measure_updates(trial, seconds)
    halves = [figure.details["updates_per_s"] for figure in measured[-len(trial.steps) :]]
    label = f"{name} {trial.options.batch_size}, {env_id}"
    note = " + ".join(f"{per_s:,.0f}" for per_s in halves) + " updates/s"
    return replace(measured[0], name=label, note=note)


def measure_updates(trial: Halves, seconds: float) -> list[Figure]:
    """Both halves after one another, if there are two, then each alone, in turn with the limit."""
    limits = limit_ways(trial)
    rates = by_clock(in_turn({**limits, **half_ways(trial)}, seconds, ROUNDS, TURN_S))
    limit = max((rates[name] for name in limits), key=statistics.median)
    return update_figures(trial, limit, {part: rates[part] for part in trial.steps})


def update_figures(
    trial: Halves, limits: Sequence[float], rates: Mapping[str, Sequence[float]]
) -> list[Figure]:
    """The figures of one batch size and precision.

    Args:
        trial: the measured trial.
        limits: FLOP/s of the limit, one for each round.
        rates: transitions/s of each part, one for each round.
    """
    series = {"both": together(trial, rates)} if len(rates) > 1 else {}
    flops = {**trial.flops, "both": sum(trial.shares[part] * trial.flops[part] for part in rates)}
    figures = []
    for name, reached in {**series, **rates}.items():
        label = f"{name}, {trial.precision}, batch {trial.options.batch_size}"
        figure = paired(label, "transitions/s", [limit / flops[name] for limit in limits], reached)
        updates = figure.reached / trial.options.batch_size
        peak = statistics.median(limits)
        details = {
            "updates_per_s": updates,
            "flops_per_update": flops[name] * trial.options.batch_size,
            "batch_size": trial.options.batch_size,
            "limit_flops_per_s": peak,
        }
        note = f"{number(updates)} updates/s"
        if name == "both":
            scale, unit = (1e-12, "TFLOP/s") if peak > 1e13 else (1e-9, "GFLOP/s")
            note = f"{number(scale * figure.reached * flops[name])} of {number(scale * peak)} {unit}"
        figures.append(replace(figure, note=note, details=details))
    return figures


def measure_beside_others(
    trial: Halves, kind: type[Algorithm], spec: EnvironmentSpec, seconds: float
) -> list[Figure]:
    """On a CPU all halves in turn with the same in torch's layers, one operation after another, and with the
    same in float32; nothing on a GPU.
    """
    if trial.device != "cpu":
        return []
    options = {"batch_size": trial.options.batch_size, "precision": trial.precision}
    others: dict[str, dict[str, Any]] = {"torch": {**options, "native": False}}
    if trial.precision != "fp32":
        others["fp32"] = {**options, "precision": "fp32"}
    trials = {name: make_trial(kind, spec, trial.device, **changed) for name, changed in others.items()}
    ways = half_ways(trial)
    for name, other in trials.items():
        ways |= {f"{name} {part}": way for part, way in half_ways(other).items()}
    rates = by_clock(in_turn(ways, seconds, COMPARED_ROUNDS, TURN_S))
    ours = together(trial, {part: rates[part] for part in trial.steps})
    figures = []
    for name, other in trials.items():
        theirs = together(other, {part: rates[f"{name} {part}"] for part in other.steps})
        label = f"over {name}, {trial.precision} {trial.options.batch_size}"
        figures.append(paired(label, "transitions/s", theirs, ours, f"limit: {LIMITS[name]}"))
    return figures


def together(trial: Halves, rates: Mapping[str, Sequence[float]]) -> list[float]:
    """Transitions/s of all halves after one another, each transition counted once, one for each round."""
    shares = [trial.shares[part] for part in rates]
    return [
        1.0 / sum(share / rate for share, rate in zip(shares, round_, strict=True))
        for round_ in zip(*rates.values(), strict=True)
    ]


# --- ways -----------------------------------------------------------------------------------------


def half_ways(trial: Halves) -> dict[str, Way]:
    """Transitions/s of each part's half."""
    return {part: timed(step, trial.transitions, trial.device) for part, step in trial.steps.items()}


def limit_ways(trial: Halves) -> dict[str, Way]:
    """FLOP/s of computations that do little but multiply."""
    dtype = torch.bfloat16 if trial.precision == "bf16" else torch.float32
    limits = multiply_limits(trial.device, dtype, PEAK_SIZE)
    return {f"limit of {name}": timed(call, flops, trial.device) for name, (call, flops) in limits.items()}
