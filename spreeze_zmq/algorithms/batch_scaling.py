"""How options that were stated for one batch size become those of another.

A batch ``kappa`` times as large makes ``kappa`` times fewer updates of the same samples: each goes further.
An option says by its ``follows`` which rule it keeps to:

- ``"sqrt"``: ``value * sqrt(kappa)``, the square root scaling rule of adaptive optimisers (Malladi et al.
  2022, arXiv 2205.10287). There Adam's memory becomes shorter as well; here its betas stay as stated, since
  the first one, 0.9, would turn negative beyond ``kappa = 10``.
- ``"average"``: ``1 - (1 - value)**kappa``: a moving average that keeps ``1 - value`` of itself in an update
  keeps as much over the same samples (the EMA scaling rule, Busbridge et al. 2023, arXiv 2307.13813).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.schema import options_of

RULES: dict[str, Callable[[float, float], float]] = {
    "sqrt": lambda value, kappa: value * math.sqrt(kappa),
    "average": lambda value, kappa: 1.0 - (1.0 - value) ** kappa,
}
#: The rules as a log says them.
WORDS = {
    "sqrt": "{stated:g} x sqrt({kappa:g}) = {scaled:.4g} (arXiv 2205.10287)",
    "average": "1 - (1 - {stated:g})^{kappa:g} = {scaled:.4g} (arXiv 2307.13813)",
}


def following(kind: type[Any]) -> dict[str, str]:
    """The options of an algorithm's dataclass that follow the batch size, and the rule of each."""
    return {option.name: option.follows for option in options_of(kind) if option.follows}


def scaled(kind: type[Any], options: Mapping[str, Any], batch_size: int) -> dict[str, float]:
    """The options that follow, for updates of ``batch_size`` transitions.

    Args:
        kind: the algorithm's ``Options``, which inherit ``ReplayOptions``.
        options: their values as they are stated, for batches of ``reference_batch_size``.
        batch_size: transitions of one update.
    """
    kappa = batch_size / options["reference_batch_size"]
    return {name: RULES[rule](options[name], kappa) for name, rule in following(kind).items()}
