"""How fast this core is now: a test that bounds a cost meets machines that differ by a factor of four."""

import json
import time

REFERENCE_S = 0.0015
"""CPU seconds of :func:`_work` on one core of a desktop of 2024."""


def _work() -> None:
    """What a program of Python does: attributes, dictionaries, strings, numbers."""
    rows = [
        {"name": f"sampler-{number}", "rate": number / 7, "busy": number % 3 == 0} for number in range(400)
    ]
    for row in rows:
        row["text"] = f"{row['name']:>12} {row['rate']:8.1f}".strip().upper()
    assert len(json.loads(json.dumps(sorted(rows, key=lambda row: row["text"])))) == len(rows)


def slowness() -> float:
    """How many times longer this core takes now than the one that costs are stated for; 1 at the least."""
    least_s = min(_cpu_s() for _ in range(20))
    return max(least_s / REFERENCE_S, 1.0)


def _cpu_s() -> float:
    """Of one time; what others make it wait is not counted."""
    began_s = time.thread_time()
    _work()
    return time.thread_time() - began_s
