"""The optimiser of one learner's networks: Adam with rates that move along the run, and with numbers of its
own for each network that an option names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spreeze_zmq import nn
from spreeze_zmq.algorithms.moving import of_network, tables_by_network
from spreeze_zmq.algorithms.options import LEAST_RATE, MOST_RATE
from spreeze_zmq.base.schema import Scheduled

#: The options that are Adam's numbers; those that may move, and those that may not.
MOVING, FIXED = ("learning_rate", "weight_decay", "max_gradient_norm"), ("adam_beta1", "adam_beta2")


class Stretch(NamedTuple):
    """Consecutive parameters that one Adam steps.

    Attributes:
        network: the network whose numbers hold; "" for those of the part.
        size: number of parameters.
        num_weights: number of them that decay and whose gradient is shortened, the first ones.
    """

    network: str
    size: int
    num_weights: int


class Optimiser:
    """Steps all networks of a part along their gradients. The gradient of a network that an option names is
    shortened by itself, that of all others of the part as one; never that of a single number, such as SAC's
    temperature, which other implementations step by an optimiser of its own.

    Args:
        parameters: float32 ``[P]``.
        gradient: float32 ``[P]``, zero after each step.
        stretches: of the parameters, in order.
        options: of the algorithm, as stated.
        part: ``"critic"`` or ``"policy"``.
        value: the value of a schedule where the run is.

    Attributes:
        multiplied: whether a loss has moved the learning rate.
    """

    def __init__(
        self,
        parameters: Tensor,
        gradient: Tensor,
        stretches: Sequence[Stretch],
        options: Any,
        part: str,
        value: Callable[[Scheduled], float],
    ) -> None:
        self._part, self._value = part, value
        self.multiplied = False
        self._loss_moves: bool | None = None  # until the first step says so
        self._passed_over: Tensor | None = None
        self._groups = [_Group(each, []) for each in dict.fromkeys(stretch.network for stretch in stretches)]
        by_network = {group.network: group for group in self._groups}
        begin = 0
        self._adams: list[nn.Adam] = []
        for stretch in stretches:
            fixed = {name: of_network(options, name, part, stretch.network) for name in FIXED}
            place = slice(begin, begin + stretch.size)
            adam = nn.Adam(
                parameters[place],
                gradient[place],
                0.0,
                beta1=fixed["adam_beta1"],
                beta2=fixed["adam_beta2"],
                num_weights=stretch.num_weights,
            )
            self._adams.append(adam)
            by_network[stretch.network].adams.append(adam)
            by_network[stretch.network].gradients.append(gradient[place][: stretch.num_weights])
            begin = place.stop
        self.restate(options)

    def restate(self, options: Any) -> None:
        """Take over the rates of other options."""
        for group in self._groups:
            values = {name: of_network(options, name, self._part, group.network) for name in MOVING}
            group.schedules = {name: Scheduled.of(value) for name, value in values.items()}
            group.numbers = {name: value for name, value in values.items() if not group.schedules[name]}
            for adam in group.adams:
                adam.moving = adam.moving or any(group.schedules.values())
        self.follow()

    def follow(self) -> None:
        """Move the rates to where the run is."""
        for group in self._groups:
            for name, scheduled in group.schedules.items():
                if scheduled is not None:
                    group.numbers[name] = self._value(scheduled)
            group.set()

    @property
    def moved_rates(self) -> Tensor | None:
        """What a loss has made of the learning rates, float64, one for each stretch; None without one."""
        rates = [adam.numbers[0].double().cpu() for adam in self._adams] if self.multiplied else None
        return None if rates is None else torch.stack(rates)

    @property
    def stated_rates(self) -> Tensor:
        """The learning rates that are stated, float64, one for each stretch."""
        return torch.tensor([adam.stated_rate for adam in self._adams], dtype=torch.float64)

    @property
    def kept_rates(self) -> Tensor | None:
        """The moved rates; where those of a state were passed over, since others are stated, those."""
        return self.moved_rates if self._passed_over is None else self._passed_over

    def go_on_from(self, rates: Tensor | None, stated: Tensor | None = None) -> None:
        """Have a loss go on from its :attr:`moved_rates`; without them, where they are of other stretches, or
        where it has moved them from others than are stated now, from the learning rates that are stated.

        Args:
            rates: float64, one for each stretch.
            stated: the :attr:`stated_rates` from which they were moved; those of now by default.
        """
        self.multiplied = self.multiplied or rates is not None
        self._passed_over = None
        if not self.multiplied:
            return
        now = self.stated_rates
        if rates is None or len(rates) != len(now):
            rates, stated = now, None
        stated = now if stated is None else stated
        if not torch.equal(stated, now):
            self._passed_over = rates
        for adam, rate, before in zip(self._adams, rates.tolist(), stated.tolist(), strict=True):
            adam.restore_rate(rate, before)
        for group in self._groups:
            if group.schedules["learning_rate"] is None:  # a schedule is where the run is: follow() sets it
                group.set()

    def multiply_rate(self, factor: Tensor | None) -> None:
        """Multiply every learning rate by a factor, 0-d, from ``LEAST_RATE`` to ``MOST_RATE``. None at the
        first step, of a loss that moves none, gives up what another loss has made of them.
        """
        if factor is not None:
            self.multiplied = self._loss_moves = True
            for adam in self._adams:
                adam.multiply_rate(factor, LEAST_RATE, MOST_RATE)
        elif self._loss_moves is None:
            self.go_on_from(None)
            self.multiplied = self._loss_moves = False

    def step(self) -> None:
        """Move the parameters by the gradient."""
        for group in self._groups:
            group.shorten()
        for adam in self._adams:
            adam.step()

    # --- what it shows and keeps

    def rates(self) -> dict[str, float]:
        """The learning rates as they are, by network; "" for that of the part."""
        return {group.network: group.adams[0].learning_rate for group in self._groups}

    @property
    def memory(self) -> dict[str, Tensor]:
        """The memory that steps write to, by name."""
        alone = len(self._adams) == 1
        found: dict[str, Tensor] = {}
        for count, adam in enumerate(self._adams):
            named = {**adam.moments, "rates": adam.numbers}
            found |= {name if alone else f"{name} {count}": tensor for name, tensor in named.items()}
        return found

    def state_dict(self) -> dict[str, Any]:
        """Copies of both moments ``[P]`` and the number of steps, 0-d; and the rates that a loss moves,
        with those that it moves them from.
        """
        states = [adam.state_dict() for adam in self._adams]
        moments = {name: torch.cat([state[name] for state in states]) for name in ("mean", "square")}
        moved, stated = self.moved_rates, self.stated_rates
        rates = {} if moved is None else {"rates": moved, "stated_rates": stated}
        return {**moments, "steps": states[0]["steps"], **rates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`, whichever networks have numbers of their own."""
        sizes = [adam.moments["mean"].numel() for adam in self._adams]
        means, squares = state["mean"].split(sizes), state["square"].split(sizes)
        for adam, mean, square in zip(self._adams, means, squares, strict=True):
            adam.load_state_dict({"mean": mean, "square": square, "steps": state["steps"]})
        if self._loss_moves is not False:  # earlier releases kept the first of these alone
            self.go_on_from(state.get("rates"), state.get("stated_rates"))


class _Group:
    """The parameters with the same numbers, whose gradient has one norm.

    Args:
        network: see :class:`Stretch`.
        adams: one for each stretch.
    """

    def __init__(self, network: str, adams: list[nn.Adam]) -> None:
        self.network, self.adams = network, adams
        self.gradients: list[Tensor] = []
        self.schedules: dict[str, Scheduled | None] = {}
        self.numbers: dict[str, float] = {}
        self._longest: Tensor | None = None

    def set(self) -> None:
        """Give the numbers to Adam; of several stretches the norm is not Adam's affair."""
        alone = len(self.adams) == 1
        longest = self.numbers["max_gradient_norm"]
        for adam in self.adams:
            adam.set(self.numbers["learning_rate"], self.numbers["weight_decay"], longest if alone else 0.0)
        if not alone and (longest or self.schedules["max_gradient_norm"]):
            if self._longest is None:
                self._longest = torch.zeros((), device=self.gradients[0].device)
            self._longest.fill_(longest)

    def shorten(self) -> None:
        """Scale a gradient of several stretches down to the largest norm."""
        if self._longest is not None:
            norm = torch.stack([gradient.norm() for gradient in self.gradients]).norm()
            scale = (self._longest / (norm + 1e-6)).clamp_(max=1.0)
            scale = torch.where(self._longest > 0.0, scale, 1.0)
            for gradient in self.gradients:
                gradient.mul_(scale)


def networks_apart(options: Any) -> frozenset[str]:
    """The networks, and parts, that an option names."""
    return frozenset(name for table in tables_by_network(options).values() for name in table)
