"""How options that were stated for one batch size become those of another.

A batch ``kappa`` times as large makes ``kappa`` times fewer updates of the same samples: each goes further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def scaled(options: Mapping[str, Any], batch_size: int) -> dict[str, float]:
    """``learning_rate`` and ``tau``, those of them that there are, for updates of ``batch_size`` transitions.

    The rule for ``kappa = batch_size / reference_batch_size``:

    - ``learning_rate * sqrt(kappa)``: the square root scaling rule of adaptive optimisers (Malladi et al.
      2022, arXiv 2205.10287). There Adam's memory becomes shorter as well; here its betas stay as stated,
      since the first one, 0.9, would turn negative beyond ``kappa = 10``.
    - ``1 - (1 - tau)**kappa``: targets that keep ``1 - tau`` of themselves in an update keep as much over the
      same samples (the EMA scaling rule, Busbridge et al. 2023, arXiv 2307.13813).

    Args:
        options: the algorithm's, with ``reference_batch_size``, the batch that they are stated for.
        batch_size: transitions of one update.
    """
    kappa = batch_size / options["reference_batch_size"]
    found = {}
    if "learning_rate" in options:
        found["learning_rate"] = options["learning_rate"] * math.sqrt(kappa)
    if "tau" in options:
        found["tau"] = 1.0 - (1.0 - options["tau"]) ** kappa
    return found
