"""How one half packs its networks into one vector, so that the other half unpacks them as they were."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from spreeze_zmq.base.errors import WireError

#: Tensors that a refusal names; the line has to stay short.
SHOWN = 2


@dataclass(frozen=True)
class Layout:
    """The tensors of a vector of parameters, in their order.

    Attributes:
        tensors: the name, as in ``critics.layers.0.weight``, and the shape of each.
    """

    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def layout(self) -> str:
        """The digest that travels with the vector, as PROTOCOL.md says: of a line ``NAME:DIM,DIM`` for each
        tensor.
        """
        return hashlib.sha256("".join(f"{line}\n" for line in self._lines()).encode()).hexdigest()[:16]

    def check(self, layout: str, what: str) -> None:
        """Compare the digest of a vector from elsewhere; ``what`` names it in the error.

        Raises:
            WireError: ``bad_parameters``, it is packed otherwise.
        """
        if difference := self.difference(layout):
            why = "both halves must pack the same tensors in the same order"
            raise WireError("bad_parameters", f"{what} {difference}: {why}")

    def difference(self, layout: str) -> str:
        """How the digest of a vector from elsewhere differs, in words; empty if it does not."""
        if layout == self.layout:
            return ""
        lines = [*self._lines()]
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        expected = f"expected {self.layout!r} ({' '.join(lines[:SHOWN])}{more})"
        return f"packed as layout {layout[:16]!r}, {expected}"

    def _lines(self) -> tuple[str, ...]:
        return tuple(f"{name}:{','.join(map(str, shape))}" for name, shape in self.tensors)
