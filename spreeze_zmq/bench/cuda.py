"""The learners on a GPU in ``spreeze bench``: both halves with their replays there, beside the peak of its
matrix products.

Updates are launched as a learner launches them, each batch drawn from a full replay.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.interface import CriticHalf, PolicyHalf
from spreeze_zmq.bench.figures import Figure, Rate, Way, in_turn, paired
from spreeze_zmq.bench.replay import CAPACITY, INGESTED_PER_S, full_replay
from spreeze_zmq.bench.update_arithmetic import (
    HIDDEN_SIZES,
    actor_flops,
    critic_flops,
    network_widths,
)
from spreeze_zmq.device import WARM_UP_CALLS, Download, Work
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.random_rollout import random_rollout
from spreeze_zmq.replay import ObservationReplay, Replay

BATCH_SIZES = (1024, 8192, 32_768, 131_072)
PRECISIONS = ("bf16", "tf32")
#: Rows and columns of the product that shows the peak; on a CPU, where only tests measure, a small one.
PEAK_SIZE = {"cuda": 8192, "cpu": 256}
ROUNDS = 5
#: As a learner publishes by default.
PUBLISH_INTERVAL_S = 0.05
#: Of the time, for feeding the learner and publishing from it.
FEEDING_SHARE = 0.2


@dataclass(frozen=True)
class Bench:
    """One precision at one batch size, everything on one device."""

    spec: EnvironmentSpec
    device: str
    precision: str
    batch_size: int
    critic: CriticHalf
    actor: PolicyHalf
    replay: Replay
    observations: ObservationReplay

    def update_critic(self) -> None:
        """Draw a batch and train on it."""
        self.critic.update(self.replay.sample(self.batch_size))

    def update_actor(self) -> None:
        """Likewise."""
        self.actor.update(self.observations.sample(self.batch_size))

    def update_both(self) -> None:
        """One of each, as where both learners share a GPU."""
        self.update_critic()
        self.update_actor()


def run(env_id: str, seconds: float, batch_sizes: Sequence[int], device: str) -> list[Figure]:
    """Measure every precision at each batch size for about ``seconds`` altogether.

    Args:
        env_id: gives the widths of observations and actions.
        seconds: besides filling the replays and recording the graphs.
        batch_sizes: those of this module where none are given.
        device: as torch names it.
    """
    spec = envs.probe(env_id)
    if device != "cpu":
        torch.cuda.set_device(device)
    sizes = batch_sizes or BATCH_SIZES
    replays = full_replay(spec, device), full_observations(spec, device)
    combinations = [(precision, size) for precision in precisions(device) for size in sizes]
    share_s = (1.0 - FEEDING_SHARE) * seconds / len(combinations)
    figures: list[Figure] = []
    best = 0.0, combinations[0]
    for precision, size in combinations:
        bench = prepared(spec, device, precision, size, replays)
        measured = measure_updates(bench, share_s)
        figures += measured
        best = max(best, (measured[0].reached, (precision, size)))
    bench = prepared(spec, device, *best[1], replays)
    return figures + measure_feeding(bench, FEEDING_SHARE * seconds)


def precisions(device: str) -> tuple[str, ...]:
    """Those that the device's tensor cores have."""
    return PRECISIONS if device != "cpu" else ("fp32",)


def prepared(
    spec: EnvironmentSpec,
    device: str,
    precision: str,
    batch_size: int,
    replays: tuple[Replay, ObservationReplay],
) -> Bench:
    """Both halves, warmed up: their graphs are recorded."""
    algorithm = algorithms.get("sac")
    options = algorithm.Options(hidden_sizes=HIDDEN_SIZES, batch_size=batch_size, precision=precision)
    critic = algorithms.make("critic", algorithm, options, spec, device, 1)
    actor = algorithms.make("policy", algorithm, options, spec, device, 1)
    bench = Bench(spec, device, precision, batch_size, critic, actor, *replays)
    for _ in range(WARM_UP_CALLS + 2):
        bench.update_both()
    return bench


def full_observations(spec: EnvironmentSpec, device: str) -> ObservationReplay:
    """An actor's replay as full as the critic's."""
    replay, rollout = (
        ObservationReplay(CAPACITY, spec.obs_shape, spec.obs_dtype, device),
        random_rollout(spec),
    )
    while len(replay) < CAPACITY:
        replay.add(rollout)
    return replay


def launched(step: Callable[[], object], amount: int, turn_s: float, device: str) -> Rate:
    """The rate of a step that does ``amount`` at once, launched for ``turn_s`` and then awaited."""
    work, count = Work(device), 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while time.perf_counter() - began_s < turn_s or not count:
        with work.update():
            step()
        count += 1
    if device != "cpu":
        torch.cuda.synchronize(device)
    passed_s = time.perf_counter() - began_s
    return Rate(count * amount / passed_s, count * amount / max(time.process_time() - began_cpu_s, 1e-9))


def peak_product(device: str, precision: str) -> tuple[Callable[[], object], int]:
    """The largest rate of products that is there to be had, and the FLOP of one."""
    size = PEAK_SIZE["cpu" if device == "cpu" else "cuda"]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right, product = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))
    return lambda: torch.mm(left, right, out=product), 2 * size**3


def measure_updates(bench: Bench, seconds: float) -> list[Figure]:
    """Critic, actor, and one after the other, in turn with the peak."""
    product, flops = peak_product(bench.device, bench.precision)

    def way(step: Callable[[], object], amount: int) -> Way:
        return lambda turn_s: launched(step, amount, turn_s, bench.device)

    ways = {
        "peak": way(product, flops),
        "critic": way(bench.update_critic, 1),
        "actor": way(bench.update_actor, 1),
        "both": way(bench.update_both, 1),
    }
    rates = {name: [rate.per_s for rate in rates] for name, rates in in_turn(ways, seconds, ROUNDS).items()}
    widths = network_widths(bench.spec)
    counted = {
        "critic": critic_flops(bench.batch_size, **widths),
        "actor": actor_flops(bench.batch_size, **widths, num_actions=math.prod(bench.spec.action_shape)),
    }
    counted["both"] = sum(counted.values())
    return [
        update_figure(name, bench, counted[name], rates["peak"], rates[name])
        for name in ("both", "critic", "actor")
    ]


def update_figure(
    name: str, bench: Bench, flops: int, peaks: Sequence[float], updates: Sequence[float]
) -> Figure:
    """Transitions trained on a second beside those that the peak would train.

    Args:
        name: ``both`` trains every batch size twice: once each half.
        bench: says what was measured.
        flops: of one update, of both halves' together for ``both``.
        peaks: FLOP/s of the products, one for each round.
        updates: updates/s, likewise.
    """
    trained = bench.batch_size * (2 if name == "both" else 1)
    limits = [peak / flops for peak in peaks]
    label = f"{name}, {bench.precision}, batch {bench.batch_size}"
    figure = paired(label, "transitions/s", limits, updates, trained)
    reached, peak = statistics.median(updates) * flops, statistics.median(peaks)
    note = f"{1e-12 * reached:,.1f} of {1e-12 * peak:,.0f} TFLOP/s"
    details = {
        "updates_per_s": statistics.median(updates),
        "flops_per_update": flops,
        "batch_size": bench.batch_size,
        "peak_flops_per_s": peak,
    }
    return replace(figure, note=note, details=details)


def measure_feeding(bench: Bench, seconds: float) -> list[Figure]:
    """Critic updates while rollouts come in or weights go out, beside updates alone."""
    rollout, download = random_rollout(bench.spec), Download(torch.device(bench.device))

    def alone(turn_s: float) -> Rate:
        return launched(bench.update_critic, 1, turn_s, bench.device)

    def ingesting(turn_s: float) -> Rate:
        began_s, added = time.perf_counter(), 0

        def step() -> None:
            nonlocal added
            while added < INGESTED_PER_S * (time.perf_counter() - began_s):
                bench.replay.add(rollout)
                added += rollout.num_transitions
            bench.update_critic()

        return launched(step, 1, turn_s, bench.device)

    def publishing(turn_s: float) -> Rate:
        due_s, under_way = 0.0, False

        def step() -> None:
            nonlocal due_s, under_way
            bench.update_critic()
            if under_way and download.ready():
                download.array()
                under_way = False
            elif not under_way and time.perf_counter() >= due_s:
                due_s, under_way = time.perf_counter() + PUBLISH_INTERVAL_S, True
                download.start(bench.critic.weights)

        rate = launched(step, 1, turn_s, bench.device)
        download.ready(wait=True)
        return rate

    ways = {"alone": alone, "ingesting": ingesting, "publishing": publishing}
    rates = {name: [rate.per_s for rate in rates] for name, rates in in_turn(ways, seconds, ROUNDS).items()}
    notes = {
        "ingesting": f"{INGESTED_PER_S:,} transitions/s come in",
        "publishing": f"weights copied out every {1000 * PUBLISH_INTERVAL_S:.0f} ms",
    }
    what = f"{bench.precision}, batch {bench.batch_size}"
    return [
        replace(paired(f"{name}, {what}", "updates/s", rates["alone"], rates[name]), note=note)
        for name, note in notes.items()
    ]
