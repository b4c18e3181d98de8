"""How the output of an acting network becomes actions: the torch side of ``spreeze_zmq.policy``."""

from spreeze_zmq.algorithms.distributions.boxes import (
    Deterministic,
    Distribution,
    Normal,
    TanhNormal,
    described,
)
from spreeze_zmq.algorithms.distributions.choices import (
    Categorical,
    EpsilonGreedy,
    expected_values,
    legal,
)

__all__ = [
    "Categorical",
    "Deterministic",
    "Distribution",
    "EpsilonGreedy",
    "Normal",
    "TanhNormal",
    "described",
    "expected_values",
    "legal",
]
