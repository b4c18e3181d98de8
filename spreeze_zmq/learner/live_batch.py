"""The batch size of a learner, which the broker may change during the run where the topology says "auto"."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.component import Component

log = logging.getLogger("spreeze")


class LiveBatch:
    """The number of transitions in an update, and the learning rates that follow from it.

    Args:
        component: the learner.
        half: its ``learning_rate`` and ``tau`` are scaled from the values in the topology.

    Attributes:
        size: the batch size in use.
        wanted: the size that the broker requested last; the learner adopts it between two updates.
        learning_rate: the learning rate at ``size``.
    """

    def __init__(self, component: Component, half: AutogradHalf) -> None:
        self.plan = component.plan
        self.half = half
        self.role = component.role
        self.size = self.wanted = self.most = self.plan.learning.batch_size
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

    def adopt(self) -> bool:
        """Use the wanted size and scale the rates to it; returns whether the size has changed."""
        if self.wanted == self.size:
            return False
        scaling = sizing.scaling_of(self.plan, self.wanted)
        rates = {name: option["scaled"] for name, option in scaling["options"].items()}
        self.half.set_rates(rates)
        log.info("batch size %d -> %d; %s", self.size, self.wanted, sizing.scaling_line(scaling))
        self.size, self.learning_rate = self.wanted, rates["learning_rate"]
        return True
