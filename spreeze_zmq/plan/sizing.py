"""Chooses the learners' batch size and threads where the topology leaves them open.

Before any process of the run starts, a short program (``learner.measure_updates``) makes real updates on
random data. Its curves are kept in the user's cache, so that the next run of the kind starts at once. The
plan then holds the numbers, the options that follow from them, and the curves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.options import WORDS, following, scaled
from spreeze_zmq.base import gpus, machine, provenance
from spreeze_zmq.base.errors import ComponentFailed, InputError, Mistake, TopologyError
from spreeze_zmq.base.guard import run_guarded
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.base.once import alone
from spreeze_zmq.base.schema import in_words
from spreeze_zmq.base.unbound import unbound
from spreeze_zmq.nn.native import library as native
from spreeze_zmq.plan.knee import knee
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, LEARNERS
from spreeze_zmq.plan.shares import come_to_nothing
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY, with_threads

log = logging.getLogger("spreeze")

BATCH_SIZE = "algorithm.batch_size"
THREADS = {role: f"components.{role}.threads" for role in LEARNERS}
MEASURE = (*PROGRAM, "spreeze_zmq.learner.measure_updates")
#: The measuring program takes seconds; after this time it hangs.
TIMEOUT_S = 120.0
#: Options that the speed of an update does not depend on, beside those that follow the batch size.
WITHOUT_EFFECT = ("reference_batch_size", "gamma", "learning_starts")
#: Why a curve has no larger batch, in words.
ENDS = {
    "flat": "more gains nothing",
    "time": "measuring may take no longer",
    "last": "max_batch_size and replay_capacity allow no more",
    "memory": "the memory takes no more",
}


@dataclass(frozen=True)
class Curves:
    """Transitions/s that the critic half trains on, measured while nothing else ran.

    Attributes:
        batch_sizes: batch size -> rate; empty where the batch size is given.
        ended: why there is no larger batch, a key of ``ENDS``.
        threads: number of threads -> rate, at the run's batch size; empty where the threads are given.
        took_s: duration of the measurement, the program's start included.
    """

    batch_sizes: dict[int, float]
    ended: str
    threads: dict[int, float]
    took_s: float

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Curves:
        """Curves from JSON, whose keys are strings. Raises ValueError, KeyError, TypeError."""
        batch_sizes, threads = (_curve(values[name]) for name in ("batch_sizes", "threads"))
        if not (batch_sizes or threads) or values["ended"] not in ENDS:
            raise ValueError("it holds no curve")
        return cls(batch_sizes, values["ended"], threads, float(values["took_s"]))


def _curve(values: Any) -> dict[int, float]:
    if not isinstance(values, dict):
        raise TypeError(f"{values!r} is no curve")
    curve = {int(size): float(rate) for size, rate in values.items()}
    for size, rate in curve.items():
        if size < 1 or not 0.0 < rate < math.inf:
            raise ValueError(f"{rate!r} transitions a second with {size}")
    return curve


def settle(plan: Plan, *, remeasure: bool = False, say: Callable[[str], None] = log.info) -> Plan:
    """The plan with batch size and threads chosen, from the cache or a new measurement. Of runs that begin
    together one measures, and the others take its curves: beside each other each would measure its share of
    the machine. A curve that the memory ended is of that moment's free memory, and not kept: such runs
    measure one after another.

    ``plan.measured`` then holds, for what was left open: ``batch_size`` {chosen, reaches, curve, ended},
    ``scaling`` {reference_batch_size, kappa, options}, ``threads`` {chosen, reaches, curve}, and
    ``source``, where the curves come from.

    Args:
        plan: of the topology.
        remeasure: measure even if the cache has curves.
        say: receives a line on what is done, and lines on the result.

    Raises:
        InputError: no batch fits into the memory, or the data's shares of it come to no transition.
        ComponentFailed: measuring failed.
    """
    if not plan.to_measure:
        return plan
    subject, source = subject_of(plan), "as measured on this machine before"
    doing = f"measuring the updates of this machine for {' and '.join(plan.to_measure)}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a cache that cannot be written
            stack.enter_context(alone(machine.file_of(subject), doing, say, most_s=TIMEOUT_S))
        curves = None if remeasure else machine.recall(subject, Curves.read)
        if curves is None:
            say(doing)
            curves = measure(plan)
            source = f"measured in {curves.took_s:.1f} s"
            if curves.ended != "memory":  # the next run may have more free memory, or less
                machine.remember(subject, asdict(curves))
    settled = resolved(plan, curves, source)
    for line in lines(settled.measured):
        say(line)
    return settled


def measure(plan: Plan) -> Curves:
    """Run the measuring program, on the learner's device and with its threads.

    Raises:
        InputError, ComponentFailed: see ``settle``.
    """
    threads = with_threads(plan.components[CRITIC_LEARNER].threads)
    environment = {**unbound(), **KEEP_FREED_MEMORY, **threads}
    what = " and ".join(plan.to_measure)
    began_s = time.monotonic()
    try:
        done = run_guarded(
            MEASURE,
            timeout=TIMEOUT_S,
            text=plan.to_json(),
            env=environment,
            errors="replace",  # the user's code may print anything
        )
    except subprocess.TimeoutExpired:
        problem = f"measuring took longer than {TIMEOUT_S:.0f} s; write a number"
        raise ComponentFailed(f"{what}: {problem}") from None
    words = done.stderr.strip()
    if done.returncode == InputError.exit_code:
        raise InputError(done.stdout.strip())
    if done.returncode != 0 or not done.stdout:
        raise ComponentFailed(f"{what}: measuring failed; a number needs none\n{words}")
    return Curves.read({**json.loads(done.stdout), "took_s": time.monotonic() - began_s})


def resolved(plan: Plan, curves: Curves, source: str) -> Plan:
    """The plan with the numbers at the knees of the curves, and the options that follow from them.

    Raises:
        TopologyError: shares of a batch come to no transition of the chosen one.
    """
    algorithm, components, learning = dict(plan.algorithm), dict(plan.components), plan.learning
    measured: dict[str, Any] = {"source": source}
    if BATCH_SIZE in plan.to_measure:
        batch_size = knee(curves.batch_sizes)
        if none := come_to_nothing(plan.data, batch_size):
            mistakes = [Mistake(f"data.{name}.share", *what) for name, *what in none]
            raise TopologyError(plan.topology_file, mistakes)
        algorithm |= {"batch_size": batch_size, **scaled(_options(plan), plan.algorithm, batch_size)}
        learning = replace(learning, batch_size=batch_size)
        measured["batch_size"] = {**_choice(curves.batch_sizes), "ended": curves.ended}
        measured["scaling"] = scaling_of(plan, batch_size)
    for role in [role for role, key in THREADS.items() if key in plan.to_measure]:
        components[role] = replace(components[role], threads=knee(curves.threads))
        measured["threads"] = _choice(curves.threads)
    return replace(
        plan, algorithm=algorithm, learning=learning, components=components, to_measure=(), measured=measured
    )


def scaling_of(plan: Plan, batch_size: int) -> dict[str, Any]:
    """The options that follow a batch size, before and after: ``options`` {name: {rule, stated, scaled}}."""
    kind, options = _options(plan), stated(plan)
    reference = options["reference_batch_size"]
    rules = following(kind)
    return {
        "reference_batch_size": reference,
        "kappa": batch_size / reference,
        "options": {
            name: {"rule": rules[name], "stated": options[name], "scaled": value}
            for name, value in scaled(kind, options, batch_size).items()
        },
    }


def stated(plan: Plan) -> dict[str, Any]:
    """The algorithm's options as the topology states them, before a measured batch has scaled any."""
    before = plan.measured.get("scaling", {}).get("options", {})
    return {**plan.algorithm, **{name: option["stated"] for name, option in before.items()}}


def _options(plan: Plan) -> type[Any]:
    return algorithms.get(plan.run.algorithm).Options


def _choice(curve: Mapping[int, float]) -> dict[str, Any]:
    chosen = knee(curve)
    pairs = [[size, round(rate, 1)] for size, rate in sorted(curve.items())]
    return {"chosen": chosen, "reaches": round(curve[chosen] / max(curve.values()), 3), "curve": pairs}


def lines(measured: Mapping[str, Any]) -> list[str]:
    """The choices and their reasons, for a log."""
    text: list[str] = []
    for name in ("batch_size", "threads"):
        if name in measured:
            choice = measured[name]
            curve = ", ".join(f"{size:,}: {rate:,.0f}" for size, rate in choice["curve"])
            ended = f"; {ENDS[choice['ended']]}" if "ended" in choice else ""
            text.append(
                f"{name} {choice['chosen']:,} trains {100 * choice['reaches']:.0f} % of the most transitions "
                f"a second ({curve}{ended}), {measured['source']}"
            )
    if "scaling" in measured:
        text.append(scaling_line(measured["scaling"]))
    return text


def scaling_line(scaling: Mapping[str, Any]) -> str:
    """The scaling rules of the options with their figures, in one line."""
    kappa = scaling["kappa"]
    parts = [f"{name} {_scaled_in_words(option, kappa)}" for name, option in scaling["options"].items()]
    return f"for {kappa:g} times the batch of {scaling['reference_batch_size']}: {', '.join(parts)}"


def _scaled_in_words(option: Mapping[str, Any], kappa: float) -> str:
    """An option before and after: by its rule, if it is one number."""
    if isinstance(option["stated"], Mapping):
        return f"{in_words(option['stated'])} scaled to {in_words(option['scaled'], '.4g')}"
    return WORDS[option["rule"]].format(kappa=kappa, **option)


def subject_of(plan: Plan) -> dict[str, Any]:
    """Everything that the curves depend on."""
    learner = plan.components[CRITIC_LEARNER]
    without = {*WITHOUT_EFFECT, *following(_options(plan))}
    environment = plan.environment.to_dict()
    device = learner.options.get("device", "cpu")
    chosen = gpus.chosen_gpus() if device != "cpu" else {}
    own_code = plan.own_code.get("algorithm")
    shapes = ("obs_shape", "obs_dtype", "obs_parts", "action_kind", "action_shape", "action_sizes")
    return {
        "what": "updates by batch size and threads",
        "machine": provenance.properties(),
        "measured": plan.to_measure,
        "environment": {name: environment[name] for name in shapes if name in environment},
        "algorithm": {name: value for name, value in plan.algorithm.items() if name not in without},
        "device": device,
        "threads": learner.threads,
        **({"chosen_gpus": chosen} if chosen else {}),
        **({"own_code": own_code} if own_code else {}),
        **({"native": native.expected()} if device == "cpu" else {}),
    }
