"""The learners in ``spreeze bench``: updates of both halves beside the matrix products that they need.

Everything runs in a process of its own, with the environment that the launcher gives to learners.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.interface import CriticHalf, PolicyHalf
from spreeze_zmq.autoscale.sizing import KEEP_FREED_MEMORY
from spreeze_zmq.bench.figures import Figure, Rate, Section, Way, in_turn, number, paired, typical
from spreeze_zmq.bench.replay import measure_feeding
from spreeze_zmq.bench.update_arithmetic import (
    HIDDEN_SIZES,
    actor_flops,
    critic_flops,
    network_widths,
)
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import ComponentFailed, PeerTimeout
from spreeze_zmq.supervisor import Exited, ProcessSpec, Supervisor

if TYPE_CHECKING:
    import torch

    from spreeze_zmq.replay import Batch

BATCH_SIZES = (256, 1024, 8192)
#: The largest batch takes part where a section lasts at least so long: five rounds of it take 2 s.
SECONDS_FOR_ALL = 5.0
ROUNDS = 5
#: Of one way: the clock of a core with neighbours changes by a quarter within a second.
TURN_S = 0.1
#: Rows of larger batches are multiplied faster so many at a time. The limit of the hidden layer is the better
#: of the whole batch and the last of these, that of all products the best of these.
IN_CACHE = (256, 1024)
#: Of the time, for comparing with plain PyTorch and with fp32, and for feeding the learner from its replay.
CONTEXT_SHARE = 0.4
#: Beyond the time that was asked for, until the process counts as hung.
TIMEOUT_S = 60.0


# --- measured in the learners' process ------------------------------------------------------------


def run(env_id: str, seconds: float, batch_sizes: Sequence[int]) -> list[Figure]:
    """Measure every precision that this CPU has, at each batch size, for about ``seconds`` altogether."""
    import torch

    from spreeze_zmq.algorithms.precision import has_bf16
    from spreeze_zmq.bench.plain import PlainSAC, measure_beside_plain

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as in a learner
    spec = envs.probe(env_id)
    precisions = ("fp32", "bf16") if has_bf16(torch.device("cpu")) else ("fp32",)
    share_s = (1.0 - CONTEXT_SHARE) * seconds / (len(precisions) * len(batch_sizes))
    figures = [
        figure
        for precision in precisions
        for batch_size in batch_sizes
        for figure in measure_one(spec, precision, batch_size, share_s)
    ]
    share_s = CONTEXT_SHARE * seconds / (len(precisions) * len(batch_sizes) + 1)
    for batch_size in batch_sizes:
        critic, actor = make_halves(spec, precisions[-1], batch_size)
        batch, plain = random_batch(spec, batch_size), PlainSAC(**network_widths(spec))
        figures.append(measure_beside_plain(plain, critic, actor, batch, precisions[-1], share_s))
        if len(precisions) > 1:
            figures.append(measure_over_fp32(spec, critic, batch, precisions[-1], share_s))
    what = f"{precisions[-1]}, batch {batch_sizes[-1]}"
    return figures + measure_feeding(spec, critic.update, batch, what, share_s)


def make_halves(spec: EnvironmentSpec, precision: str, batch_size: int) -> tuple[CriticHalf, PolicyHalf]:
    """SAC with two hidden layers."""
    algorithm = algorithms.get("sac")
    options = algorithm.Options(hidden_sizes=HIDDEN_SIZES, batch_size=batch_size, precision=precision)
    return algorithms.make("critic", algorithm, options, spec, "cpu", 1), algorithms.make(
        "policy", algorithm, options, spec, "cpu", 1
    )


def measure_one(spec: EnvironmentSpec, precision: str, batch_size: int, seconds: float) -> list[Figure]:
    """Both halves at one batch size and precision, in turn with the limit, and with their own products alone;
    in fp32 plain PyTorch too.
    """
    from spreeze_zmq.bench.bare_products import update_products
    from spreeze_zmq.bench.plain import PlainSAC

    critic, actor = make_halves(spec, precision, batch_size)
    batch = random_batch(spec, batch_size)
    widths, num_actions = network_widths(spec), math.prod(spec.action_shape)
    counted = {
        "critic": critic_flops(batch_size, **widths),
        "actor": actor_flops(batch_size, **widths, num_actions=num_actions),
    }
    what, flops = f"{precision}, batch {batch_size}", sum(counted.values())
    blocks = sorted({min(batch_size, rows) for rows in IN_CACHE})
    limits = {f"limit of {rows} rows": bare(rows, precision) for rows in {batch_size, blocks[-1]}}
    ways: dict[str, Way] = {
        **limits,
        "critic": lambda turn_s: typical(lambda: critic.update(batch), 1, turn_s),
        "actor": lambda turn_s: typical(lambda: actor.update(batch.obs), 1, turn_s),
    }
    own: dict[str, Way] = {}
    for rows in blocks:
        products = update_products(rows, precision, **widths, num_actions=num_actions)
        own[f"products of {rows} rows"] = partial(typical, products, flops * rows // batch_size)
    ways |= own
    if precision == "fp32":
        plain = PlainSAC(**widths, fused=True)
        ways["plain"] = lambda turn_s: typical(lambda: plain.update(batch), 1, turn_s)
    rates = in_turn(ways, seconds, ROUNDS, TURN_S)
    updates = {half: [rate.per_s for rate in rates[half]] for half in counted}
    limit, best_own = best_of(rates, limits), best_of(rates, own)
    figures = update_figures(what, batch_size, limit, counted, updates)
    figure = paired(f"products, {what}", "GFLOP/s", best_own, together(counted, updates), 1e-9)
    figures.append(replace(figure, note="limit: all products of both at their own shapes, alone"))
    if "plain" in rates:
        reached = [flops * rate.per_s for rate in rates["plain"]]
        figure = paired(f"plain both, {what}", "GFLOP/s", limit, reached, 1e-9)
        figures.append(replace(figure, note="eager PyTorch with fused Adam, for comparison"))
    return figures


def measure_over_fp32(
    spec: EnvironmentSpec, critic: CriticHalf, batch: Batch, precision: str, seconds: float
) -> Figure:
    """The critics' update in a shorter format, in turn with the same in float32."""
    batch_size = len(batch.reward)
    exact, _ = make_halves(spec, "fp32", batch_size)
    ways: dict[str, Way] = {
        "exact": lambda turn_s: typical(lambda: exact.update(batch), batch_size, turn_s),
        "shorter": lambda turn_s: typical(lambda: critic.update(batch), batch_size, turn_s),
    }
    rates = in_turn(ways, seconds, ROUNDS, TURN_S)
    per_s = {way: [rate.per_s for rate in rates[way]] for way in ways}
    figure = paired(f"over fp32, batch {batch_size}", "transitions/s", per_s["exact"], per_s["shorter"])
    return replace(figure, note=f"{precision}, critic; limit: the same in fp32")


def update_figures(
    what: str,
    batch_size: int,
    limits: Sequence[float],
    counted: Mapping[str, int],
    updates: Mapping[str, Sequence[float]],
) -> list[Figure]:
    """What the table says of one batch size and precision.

    Args:
        what: names both.
        batch_size: transitions in an update.
        limits: FLOP/s of the bare products, one for each round.
        counted: FLOP of one update of each half.
        updates: updates/s of each half, one for each round.
    """
    both = paired(f"both, {what}", "GFLOP/s", limits, together(counted, updates), 1e-9)
    figures = [replace(both, note="critic, then actor")]
    for half, flops in counted.items():
        per_s = statistics.median(updates[half])
        frames = paired(
            f"{half}, {what}",
            "transitions/s",
            [limit / flops for limit in limits],
            updates[half],
            batch_size,
        )
        note = f"{number(per_s)} updates/s, {flops / 1e6:,.0f} MFLOP"
        details = {"updates_per_s": per_s, "flops_per_update": flops, "batch_size": batch_size}
        figures.append(replace(frames, note=note, details=details))
    return figures


def best_of(rates: Mapping[str, Sequence[Rate]], names: Iterable[str]) -> list[float]:
    """The rates of the best of these ways, by their medians."""
    series = ([rate.per_s for rate in rates[name]] for name in names)
    return max(series, key=statistics.median)


def together(counted: Mapping[str, int], updates: Mapping[str, Sequence[float]]) -> list[float]:
    """FLOP/s of one half after the other, one for each round; arguments as of ``update_figures``."""
    flops = sum(counted.values())
    return [flops / sum(1.0 / rate for rate in rates) for rates in zip(*updates.values(), strict=True)]


def bare(num_rows: int, precision: str) -> Way:
    """The bare products of so many rows at a time; their rate is in FLOP/s."""
    from spreeze_zmq.bench.bare_products import hidden_products

    products, flops = hidden_products(num_rows, precision)
    return lambda turn_s: typical(products, flops, turn_s)


def random_batch(spec: EnvironmentSpec, batch_size: int) -> Batch:
    """Transitions at hand, so that drawing them from a replay is not in the figures."""
    import torch

    from spreeze_zmq.replay import Batch

    generator = torch.Generator().manual_seed(1)

    def observations() -> torch.Tensor:
        obs = torch.randn(batch_size, *spec.obs_shape, generator=generator)
        return obs.mul_(32).add_(128).clamp_(0, 255).to(torch.uint8) if spec.obs_dtype == "uint8" else obs

    low, high = torch.from_numpy(spec.action_low), torch.from_numpy(spec.action_high)
    return Batch(
        obs=observations(),
        action=low + (high - low) * torch.rand(batch_size, *spec.action_shape, generator=generator),
        reward=torch.randn(batch_size, generator=generator),
        discount=torch.full((batch_size,), 0.99),
        next_obs=observations(),
    )


# --- the process ----------------------------------------------------------------------------------


def measure(env_id: str, seconds: float, batch_sizes: Sequence[int] = (), device: str = "cpu") -> Section:
    """Measure the updates in a process of their own for about ``seconds``.

    Args:
        env_id: gives the widths of observations and actions.
        seconds: for all batch sizes and precisions together.
        batch_sizes: ``BATCH_SIZES`` as far as there is time, where none are given; on a GPU those of
            ``bench_cuda``.
        device: as torch names it.

    Raises:
        ComponentFailed: the process ended; holds its last words.
        PeerTimeout: it did not end.
    """
    sizes = batch_sizes
    if device == "cpu" and not sizes:
        sizes = [size for size in BATCH_SIZES if size < 4096 or seconds >= SECONDS_FOR_ALL]
    with tempfile.TemporaryDirectory(prefix="spreeze-bench-") as folder:
        path = Path(folder) / "figures.json"
        arguments = (env_id, str(seconds), ",".join(map(str, sizes)), device, str(path))
        spec = ProcessSpec(
            name="learner-0",
            role="critic_learner",
            command=(sys.executable, "-m", "spreeze_zmq.bench.learner", *arguments),
            log_path=Path(folder) / "learner-0.log",
            environment=KEEP_FREED_MEMORY,
            threads=1,
        )
        run_to_end(spec, seconds + TIMEOUT_S)
        figures = [Figure(**fields) for fields in json.loads(path.read_text())]
    about = f"{env_id}, sac, 2 x 256 units, updates alone on one core; limit: products of the hidden layer"
    if device != "cpu":
        about = (
            f"{env_id}, sac, 2 x 256 units, on {device}, batches drawn from a full replay there; limit: a "
            "product of 8192 x 8192"
        )
    return Section("learner", about, figures)


def run_to_end(spec: ProcessSpec, timeout_s: float) -> None:
    """Run one process until it ends of itself.

    Raises:
        ComponentFailed: it failed; holds its last words.
        PeerTimeout: it still ran after ``timeout_s``; it is killed.
    """
    deadline_s = time.monotonic() + timeout_s
    with Supervisor() as supervisor:
        supervisor.end_restarts()
        supervisor.start(spec)
        while supervisor.names():
            for event in supervisor.poll():
                if isinstance(event, Exited) and event.code != 0:
                    raise ComponentFailed(f"{event}\n{event.words}")
            if time.monotonic() > deadline_s:
                raise PeerTimeout("bench", spec.name, "its figures", timeout_s)
            time.sleep(0.02)


def main(arguments: Sequence[str]) -> None:
    """The process: measure, and write the figures to a file."""
    env_id, seconds, sizes, device, path = arguments
    batch_sizes = [int(size) for size in sizes.split(",") if size]
    if device == "cpu":
        figures = run(env_id, float(seconds), batch_sizes)
    else:
        from spreeze_zmq.bench import cuda as bench_cuda

        figures = bench_cuda.run(env_id, float(seconds), batch_sizes, device)
    Path(path).write_text(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    main(sys.argv[1:])
