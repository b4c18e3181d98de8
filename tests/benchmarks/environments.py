"""Env steps/s on all cores beside EnvPool, Gymnasium's AsyncVectorEnv and the bare physics.

    python tests/benchmarks/environments.py --seconds 8 --json environments.json
    python tests/benchmarks/environments.py --only HalfCheetah-v5 --only sampler

Each task of MuJoCo by the best setting of each side, which a first pass finds; uneven steps, which wait or
compute; small environments in workers; the memory of a sampler and the time until its first rollout. EnvPool
is left out where it is not installed. A line takes about ``--seconds``, besides the starts of processes.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import whole_runs
from numpy.typing import NDArray
from uneven import mean_step_s

from spreeze_zmq import envs
from spreeze_zmq.base.files import write_json
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.commands.bench import bench
from spreeze_zmq.commands.bench.figures import Figure, Rate, Section, Way, in_turn, paired, repeated
from spreeze_zmq.commands.bench.physics import bare_mujoco, cycled
from spreeze_zmq.commands.bench.sampler import bench_plan, policy_message, running_sampler
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.engines.envpool_batch import HOW_TO_INSTALL

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
NUM_ENVS = 64
#: Batches of actions, drawn once and used in turn: the figures do not include drawing them.
NUM_ACTIONS = 64
UNIT = "env steps/s"
#: Long beside the slowest uneven step: a turn ends when every step under way has ended.
UNEVEN_TURN_S = 1.5
#: Target ratios to EnvPool.
AGAINST_ENVPOOL = {"HalfCheetah-v5": 1.1, "Ant-v5": 1.1, "Humanoid-v5": 1.1}
#: The settings of each side that are tried; the best one counts. ``None`` waits for all environments.
BATCH_SIZES = (None, 16, 32)
MAX_RSS_MB, MAX_READY_S = 200.0, 1.0

Rates = dict[str, list[Rate]]


def lines(seconds: float) -> dict[str, Callable[[], list[Figure]]]:
    """The measurement of each line, by name; small environments are sixteen in two workers."""
    return {
        **{env_id: partial(measure_task, env_id, seconds) for env_id in TASKS},
        "waiting": lambda: [measure_uneven("64 that wait", "uneven:Waiting", 64, 64, 16, 2.0, seconds)],
        "computing": lambda: measure_computing(seconds),
        "Pendulum-v1": lambda: [measure_uneven("Pendulum-v1", "Pendulum-v1", 16, 2, None, 6.0, seconds)],
        "CartPole-v1": lambda: [measure_uneven("CartPole-v1", "CartPole-v1", 16, 2, None, 6.0, seconds)],
        "sampler": measure_sampler_process,
    }


def random_actions(spec: EnvironmentSpec, num_envs: int) -> list[NDArray[Any]]:
    """``NUM_ACTIONS`` batches ``[num_envs, *action]``, uniform within the bounds."""
    rng = np.random.default_rng(0)
    shape = (NUM_ACTIONS, num_envs, *spec.action_shape)
    if spec.action_kind != "box":
        return list(rng.integers(spec.action_sizes, size=shape))
    return list(rng.uniform(spec.action_low, spec.action_high, shape).astype(np.float32))


def measure_task(env_id: str, seconds: float) -> list[Figure]:
    """One task of MuJoCo: ours, EnvPool's, Gymnasium's, and the physics alone on all cores.

    A first pass finds the best setting of each side; only these are then measured in turn, so that leftovers
    of the others (work under way, 64 processes) disturb none of them.
    """
    actions = random_actions(envs.probe(env_id), NUM_ENVS)
    cores = available_cores()
    with ExitStack() as stack:
        ways: dict[str, Way] = {}
        for size in BATCH_SIZES:
            ours = stack.enter_context(batch(env_id, NUM_ENVS, num_workers=cores, batch_size=size))
            ways[f"ours {size or 'all'}"] = driven(ours, actions)
            if find_spec("envpool"):
                ways[f"EnvPool {size or 'all'}"] = envpool_way(env_id, size, actions)
        tried = in_turn(ways, seconds)
        sides = [best(tried, whose) for whose in ("ours", "EnvPool") if best(tried, whose)]
        single = stack.enter_context(batch(env_id, NUM_ENVS))
        single.reset()
        physics = bare_mujoco(single, actions, nthread=cores)
        chosen = {way: ways[way] for way in sides}
        chosen["raw physics"] = partial(repeated, physics, NUM_ENVS)
        rates = in_turn(chosen, 2 * seconds)
        figures = [against(f"{env_id} / physics", rates, "raw physics", 0.9)]
        if len(sides) == 2:
            asked = AGAINST_ENVPOOL.get(env_id, 0.95)
            figures.append(against(f"{env_id} / EnvPool", rates, "EnvPool", asked))
        pair = {sides[0]: ways[sides[0]]}
        pair["AsyncVectorEnv"] = async_vector_way(stack, env_id, NUM_ENVS, actions)
        figures.append(against(f"{env_id} / AsyncVec", in_turn(pair, seconds), "AsyncVectorEnv", None))
    return figures


def measure_uneven(
    name: str,
    env_id: str,
    num_envs: int,
    num_workers: int,
    batch_size: int | None,
    asked: float,
    seconds: float,
) -> Figure:
    """Ours in workers beside Gymnasium's with one process per environment; ``asked`` is the target ratio."""
    actions = random_actions(envs.probe(env_id), num_envs)
    with ExitStack() as stack:
        ours = stack.enter_context(batch(env_id, num_envs, num_workers=num_workers, batch_size=batch_size))
        ways = {
            "ours": driven(ours, actions),
            "AsyncVectorEnv": async_vector_way(stack, env_id, num_envs, actions),
        }
        rounds = max(3, math.ceil(seconds / (2 * UNEVEN_TURN_S)))
        return against(f"{name} / AsyncVec", in_turn(ways, seconds, rounds), "AsyncVectorEnv", asked)


def measure_computing(seconds: float) -> list[Figure]:
    """Uneven work on all cores, beside Gymnasium's and beside the work itself, evenly spread over cores."""
    cores = available_cores()
    figure = measure_uneven("16 that compute", "uneven:Computing", 16, cores, 4, 1.3, seconds)
    limit = cores / mean_step_s()
    # No batch is faster than its work: a peer that loses little to the slowest step leaves little to gain.
    figure = replace(figure, note=f"{figure.note}; the cores allow {limit / figure.limit:.2f}")
    note = f"limit: {cores} cores, {1000 * mean_step_s():.2f} ms of work a step"
    work = Figure("16 that compute / work", limit, figure.reached, UNIT, figure.reached / limit, note)
    return [figure, work]


def measure_sampler_process() -> list[Figure]:
    """Memory of a sampler with 64 HalfCheetahs, and the time until its first rollout."""
    plan = bench_plan("HalfCheetah-v5", "sac")
    message = policy_message(plan)
    ready_s, rss_mb = [], []
    for _ in range(4):
        began_s = time.monotonic()
        with running_sampler(plan, message) as whole:
            ready_s.append(time.monotonic() - began_s)
            rss_mb.append(whole.process.memory_info().rss / 1e6)
    ready, rss = statistics.median(ready_s[1:]), statistics.median(rss_mb)  # the first one warms the disk
    return [
        Figure("sampler, resident", MAX_RSS_MB, rss, "MB", rss / MAX_RSS_MB, "asked: at most 1"),
        Figure("sampler, first rollout", MAX_READY_S, ready, "s", ready / MAX_READY_S, "asked: at most 1"),
    ]


def against(name: str, rates: Rates, peer: str, asked: float | None) -> Figure:
    """Our best setting beside the best one of a peer; the names of a side's ways begin with its name."""
    ours, theirs = best(rates, "ours"), best(rates, peer)
    per_s = {way: [rate.per_s for rate in rates[way]] for way in (ours, theirs)}
    note = " over ".join(way for way in (ours, theirs) if way.split()[-1] in ("all", "16", "32"))
    asked_note = "" if asked is None else f"asked {asked:g}"
    figure = paired(name, UNIT, per_s[theirs], per_s[ours])
    details = {} if asked is None else {"asked": asked}
    return replace(figure, note="; ".join(part for part in (asked_note, note) if part), details=details)


def best(rates: Rates, whose: str) -> str:
    """The way of one side with the highest median; empty where there is none."""
    own = [way for way in rates if way.startswith(whose)]
    return max(own, key=lambda way: statistics.median(rate.per_s for rate in rates[way]), default="")


# --- the ways --------------------------------------------------------------------------------------


@contextmanager
def batch(env_id: str, num_envs: int, **kwargs: Any) -> Iterator[Any]:
    """A batch of ours in a context that closes it."""
    env = envs.make(env_id, num_envs, step_info=False, **kwargs)
    try:
        yield env
    finally:
        env.close()


def driven(env: Any, actions: list[Any]) -> Way:
    """Steps a batch of ours: all at once, or the first-finished ``batch_size`` environments."""
    env.reset()
    size: int = env.batch_size
    if size == env.num_envs:
        return partial(repeated, cycled(env.step, actions), size)

    def way(turn_s: float) -> Rate:
        began_s, began_cpu_s, steps = time.perf_counter(), time.process_time(), 0
        turns = itertools.cycle(actions)
        env.send(next(turns))
        while time.perf_counter() - began_s < turn_s:
            ids = env.recv()[4]["env_id"]
            env.send(next(turns)[ids], ids)
            steps += size
        # Steps under way would otherwise finish during the turns of others.
        for _ in range(env.num_envs // size):
            steps += len(env.recv()[1])
        cpu_s = max(time.process_time() - began_cpu_s, 1e-9)
        return Rate(steps / (time.perf_counter() - began_s), steps / cpu_s)

    return way


def envpool_way(env_id: str, size: int | None, actions: list[Any]) -> Way:
    """EnvPool alone; its dead steps, in which an environment only resets, do not count."""
    import envpool

    pool = envpool.make(env_id, env_type="gymnasium", num_envs=NUM_ENVS, batch_size=size or NUM_ENVS)
    actions = [batch_actions.astype(pool.action_space.dtype) for batch_actions in actions]
    dead = 0

    def step_all(batch_actions: Any) -> None:
        nonlocal dead
        dead += int(np.count_nonzero(pool.step(batch_actions)[4]["elapsed_step"] == 0))

    def step_first(batch_actions: Any) -> None:
        nonlocal dead
        info = pool.recv()[4]
        dead += int(np.count_nonzero(info["elapsed_step"] == 0))
        pool.send(batch_actions[info["env_id"]], info["env_id"])

    if size is None:
        pool.reset()
    else:
        pool.async_reset()
    step = cycled(step_all if size is None else step_first, actions)

    def way(turn_s: float) -> Rate:
        nonlocal dead
        dead, steps = 0, 0

        def counted() -> None:
            nonlocal steps
            step()
            steps += size or NUM_ENVS

        rate = repeated(counted, size or NUM_ENVS, turn_s)
        alive = 1 - dead / steps
        return Rate(rate.per_s * alive, rate.per_cpu_s * alive)

    return way


def async_vector_way(stack: ExitStack, env_id: str, num_envs: int, actions: list[Any]) -> Way:
    """Gymnasium's vector environment with one process per environment."""
    from gymnasium.vector import AsyncVectorEnv

    from spreeze_zmq.envs.source import find

    source = find(env_id)
    env = AsyncVectorEnv([lambda: source.make_one({})] * num_envs)
    stack.callback(env.close)
    env.reset(seed=0)
    return partial(repeated, cycled(env.step, actions), num_envs)


def main() -> None:
    """Measure, print each line's figures at once, and write all of them."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, metavar="N", help="for each line")
    parser.add_argument(
        "--only", action="append", choices=[*lines(1.0)], help="this line alone; may be repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    arguments = parser.parse_args()
    machine, sections = bench.machine(), []
    print(bench.machine_line(machine))
    if not find_spec("envpool"):
        print(f"EnvPool is not installed and left out ({HOW_TO_INSTALL})")
    about = f"batches of {NUM_ENVS} on {available_cores()} cores; limit: what each line names"
    for name, measure in lines(arguments.seconds).items():
        if name in (arguments.only or [name]):
            sections.append(Section(name, about, measure()))
            print("\n" + bench.table(sections[-1]), flush=True)
    if arguments.json:
        write_json(arguments.json, {"machine": machine, "figures": bench.plain_figures(sections)})


if __name__ == "__main__":
    main()
