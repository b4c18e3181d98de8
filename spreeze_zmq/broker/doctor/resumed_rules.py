"""Whether a resumed run trains at all: without the replay of the run before, its first update waits."""

from __future__ import annotations

from spreeze_zmq.balance.refill import refill
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.option_rules import first_update_at, rows_each
from spreeze_zmq.broker.doctor.trend import numbers
from spreeze_zmq.broker.doctor.vitals import Vitals


def first_update_again(vitals: Vitals, steps_before: int) -> int:
    """Transitions after which a run without the replay of the one that it goes on from, which had sampled
    ``steps_before``, takes its first update. In order it refills nothing: it counts from 0.
    """
    if vitals.table("balance").get("in_order"):
        return first_update_at(vitals)
    starts, capacity = int(vitals.number("learning_starts", 0)), int(vitals.number("replay_capacity", 0))
    return first_update_at(vitals) + refill(starts, steps_before, capacity, rows_each(vitals)) - starts


def never_trains_again(vitals: Vitals) -> Finding | None:
    """A run that ends before the transitions have come again that its first update waits for."""
    before, run = vitals.steps_before, vitals.table("run")
    limit = int(numbers(run.get("stop")).get("env_steps", 0))
    waits = vitals.is_resumed and not vitals.on_policy and not run.get("save_replay")
    if not (waits and before and limit and vitals.env_steps) or vitals.first_update_s is not None:
        return None
    return ends_first(first_update_again(vitals, before), before, limit)


def ends_first(first: int, steps_before: int, limit: int) -> Finding | None:
    """That a run whose first update waits for ``first`` transitions ends before it: it goes on from one that
    had sampled ``steps_before``, and ends at ``limit``.
    """
    if first <= limit - steps_before:
        return None
    return Finding(
        f"training begins after {first:,} transitions of this run, which ends after {limit - steps_before:,}",
        "no update is taken",
        f"run.stop.env_steps = {steps_before + 2 * first:_}",
        rank=0,
    )
