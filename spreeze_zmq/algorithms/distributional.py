"""Options of algorithms whose critics may learn distributions over returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spreeze_zmq.algorithms.options import LARGEST_RETURN, ReplayOptions, check_below
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import option


@dataclass(frozen=True)
class DistributionalOptions(ReplayOptions):
    """Options of an off-policy algorithm whose critics may learn distributions over returns."""

    num_atoms: int = option(
        1,
        "above 1, learn a distribution over this many returns (C51, 1707.06887)",
        minimum=1,
        fixed=True,
    )
    v_min: float | Literal["auto"] = option(
        "auto",
        "lowest return of the distribution; auto is -5, of divided rewards",
        words=("auto",),
        only_with="num_atoms",
        idle_at=(1,),
        fixed=True,
    )
    v_max: float | Literal["auto"] = option(
        "auto",
        "highest return of the distribution; auto is 5, of divided rewards",
        words=("auto",),
        only_with="num_atoms",
        idle_at=(1,),
        fixed=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = [name for name in ("v_min", "v_max") if getattr(self, name) != "auto"]
        if len(stated) == 1:
            other = "v_max" if stated == ["v_min"] else "v_min"
            raise InputError(f"{stated[0]} is stated, {other} is not: state both, or none")
        if stated:
            check_below(self, "v_min", "v_max")
            if self.normalize_rewards is True and max(map(abs, self.support)) > 2.0 * LARGEST_RETURN:
                hint = f"divided, returns reach {LARGEST_RETURN:g}; leave it out, or v_min and v_max"
                raise InputError(f"normalize_rewards = true with v_min, v_max = {self.support}: {hint}")
        elif self.num_atoms > 1 and self.normalize_rewards is False:
            raise InputError(
                f"num_atoms = {self.num_atoms} with normalize_rewards = false: state v_min and v_max, the "
                "range of the returns, or leave normalize_rewards out"
            )

    @property
    def largest_return(self) -> float | None:
        """Size of the largest discounted return that losses see; None where rewards are not divided."""
        unstated = self.normalize_rewards == "auto" and self.num_atoms > 1 and self.v_max == "auto"
        return LARGEST_RETURN if unstated else super().largest_return

    @property
    def support(self) -> tuple[float, float]:
        """The lowest and the highest return of the distribution, in the units of the losses."""
        if isinstance(self.v_min, str) or isinstance(self.v_max, str):
            return -LARGEST_RETURN, LARGEST_RETURN
        return self.v_min, self.v_max
