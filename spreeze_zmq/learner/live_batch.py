"""The batch of a learner, which the broker may move while the run lives where the topology leaves it open."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.component.component import Component

log = logging.getLogger("spreeze")


class LiveBatch:
    """How many transitions an update takes, and the rates that follow from it.

    Args:
        component: the learner.
        half: whose rates follow; ``learning_rate`` and ``tau`` are scaled from what the topology states.

    Attributes:
        size: of the batches now.
        wanted: what the broker has requested last; the learner adopts it between two updates.
        learning_rate: that of the present size.
    """

    def __init__(self, component: Component, half: AutogradHalf) -> None:
        self.plan = component.plan
        self.half = half
        self.role = component.role
        self.most = self.plan.learning.batch_size
        self.size = self.wanted = self.plan.learning.batch_size
        self.learning_rate = float(self.plan.algorithm["learning_rate"])
        if "batch_size" in self.plan.measured:
            component.on("set", self._on_set)

    def _on_set(self, fields: Mapping[str, Any]) -> None:
        value = fields["value"]
        if (
            (fields["role"], fields["option"]) == (self.role, "batch_size")
            and type(value) is int
            and 0 < value <= self.most
        ):
            self.wanted = value

    def adopt(self, size: int) -> bool:
        """Go on with batches of ``size``; whether they were of another size before."""
        if size == self.size:
            return False
        scaling = sizing.scaling_of(self.plan, size)
        rates = {name: option["scaled"] for name, option in scaling["options"].items()}
        self.half.set_rates(rates)
        log.info("batch size %d -> %d; %s", self.size, size, sizing.scaling_line(scaling))
        self.size, self.learning_rate = size, rates["learning_rate"]
        return True
