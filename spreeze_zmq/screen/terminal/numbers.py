"""Numbers, and what is counted, as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.rates import rate

#: What the cores' time goes to, as ``cores`` of summary.json names it, and in words.
USES = {
    "products": "products of updates",
    "updates": "the rest of the learners",
    "sampling": "sampling",
    "evaluation": "evaluation",
    "messages": "messages",
    "others": "other programs",
    "idle": "idle",
}


def clock(seconds: float) -> str:
    """``1:05`` for 65 seconds, ``1:00:05`` from an hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def lasted(seconds: float) -> str:
    """``9.3 s``, and from a minute on a ``clock``."""
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)


def decimal(value: float | None) -> str:
    """A return, with one digit after the point, two below 10, and more below 0.1; a power of ten from 1e9 on;
    ``-`` for none.
    """
    if value is None:
        return "-"
    size = abs(value)
    if 1e9 <= size < math.inf:
        return f"{value:.2e}"
    if size >= 10_000:
        return f"{value:,.0f}"
    if size >= 10 or not size > 0:
        return f"{value + 0.0:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def spread(score: Mapping[str, Any]) -> str:
    """``" ± 3.00"`` of the returns of an evaluation; empty for a single episode, which has none."""
    return f" ± {decimal(score['std_return'])}" if score["num_episodes"] != 1 else ""


def compact(count: float) -> str:
    """``2M`` for 2,000,000."""
    for unit, name in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.4g}{name}"
    return f"{count:g}"


def efficiency(found: Mapping[str, float] | None) -> str:
    """``23% of 176 GFLOP/s``: the used share of what the devices could compute; empty below 1 %."""
    if found is None or found["share"] < 0.01:
        return ""
    limit = found["limit_flops_per_s"]
    scale, unit = (1e-12, "TFLOP/s") if limit >= 1e12 else (1e-9, "GFLOP/s")
    return f"{100 * found['share']:.0f}% of {rate(scale * limit)} {unit}"


def core_shares(found: Any) -> str:
    """``31% products of updates, 20% sampling, ...``: where the cores' time went; empty if unknown."""
    shares = found if isinstance(found, Mapping) else {}
    rows = [(shares.get(name), words) for name, words in USES.items()]
    return ", ".join(
        f"{100 * share:.0f}% {words}" for share, words in rows if isinstance(share, float) and share >= 0.005
    )


def memory(size: float) -> str:
    """Bytes in kB, MB or GB; fewer than a thousand as they are."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB" if size >= 1e3 else f"{size:.0f} B"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def plain_name(name: str) -> str:
    """``critic learner`` for ``critic_learner``."""
    return name.replace("_", " ")


def counted(num_failures: int) -> str:
    """``1 failure`` or ``7 failures``."""
    return f"{num_failures:,} failure{'s' * (num_failures != 1)}"
