"""What the last layer of a critic means: one expected return, or a distribution over returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from spreeze_zmq.algorithms.fast.scratch import Scratch, ViewOf

#: From expected returns ``[E, B]`` the weight of each, which are not derived; the same shape.
Weigh = Callable[[torch.Tensor], torch.Tensor]


class Value(Protocol):
    """Between ``E`` critics' outputs ``[E, B, outputs]`` and the values that they stand for."""

    @property
    def num_outputs(self) -> int:
        """Of one critic."""

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """The expected returns ``[E, B]``."""

    def expected_gradient(
        self, output: torch.Tensor, weigh: Weigh, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """Fill the gradient by ``output`` of the sum of the expected returns times their weights times
        ``share``, 0-d.
        """

    def target(
        self,
        output: torch.Tensor,
        log_prob: torch.Tensor,
        minus_temperature: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> torch.Tensor:
        """What to learn: ``reward + discount * (return of the next state - temperature * log_prob)``.

        Args:
            output: of the target critics at the next states.
            log_prob: ``[B]``, of the next actions.
            minus_temperature: 0-d.
            reward: ``[B]``.
            discount: ``[B]``.
        """

    def expected_target(self, target: torch.Tensor) -> torch.Tensor:
        """The expected return ``[B]`` of a target."""

    def loss_gradient(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """Fill the gradient of the loss by ``output``. ``weight`` is that of each row, ``[B]``, or of all,
        0-d.
        """

    def error(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """How far each output is off, ``[E, B]``."""

    def loss(self, error: torch.Tensor) -> torch.Tensor:
        """The loss of each error."""


class ScalarValue:
    """One number; the loss is half the squared error.

    Args:
        twins: ``"min"`` bootstraps from the lower critic (arXiv 1802.09477), ``"mean"`` from their average.
        device: where the critics are.
    """

    num_outputs = 1

    def __init__(self, twins: str, device: torch.device):
        self._lowest = twins == "min"
        self._values = ViewOf(lambda output: output.squeeze(2))
        self._errors, self._target = Scratch(torch.float32, device), Scratch(torch.float32, device)
        self._twins = ViewOf(lambda output: output.squeeze(2).unbind())

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """As the protocol says."""
        return self._values(output).float()

    def expected_gradient(
        self, output: torch.Tensor, weigh: Weigh, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """As the protocol says."""
        torch.mul(weigh(self.expected(output)), share, out=self._values(gradient))

    def target(
        self,
        output: torch.Tensor,
        log_prob: torch.Tensor,
        minus_temperature: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> torch.Tensor:
        """``[B]``; it holds until the next call."""
        value = self._target(*reward.shape)
        if self._lowest:
            torch.minimum(*self._twins(output), out=value)
        else:
            torch.mean(self._values(output), 0, dtype=value.dtype, out=value)
        torch.addcmul(value, log_prob, minus_temperature, out=value)
        return torch.addcmul(reward, discount, value, out=value)

    def expected_target(self, target: torch.Tensor) -> torch.Tensor:
        """The target itself."""
        return target

    def loss_gradient(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """As the protocol says."""
        values = self._values(output)
        error = torch.add(values, target, alpha=-1.0, out=self._errors(*values.shape))
        torch.mul(error, weight, out=self._values(gradient))

    def error(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """That of the value."""
        return torch.add(self._values(output), target, alpha=-1.0)

    def loss(self, error: torch.Tensor) -> torch.Tensor:
        """Half the square."""
        return error.square().mul_(0.5)


class CategoricalValue:
    """Probabilities of ``num_atoms`` returns (Bellemare et al. 2017, arXiv 1707.06887); the loss is the cross
    entropy to the target's distribution, projected onto the same atoms (algorithm 1).

    Args:
        twins: ``"min"`` bootstraps from the critic of the lower mean, ``"mean"`` from an even mixture.
        num_atoms: at least 2.
        v_min: the lowest return.
        v_max: the highest.
        device: where the critics are.
    """

    def __init__(self, twins: str, num_atoms: int, v_min: float, v_max: float, device: torch.device):
        self.num_outputs = num_atoms
        self._lowest = twins == "min"
        self._low = v_min
        self._density = (num_atoms - 1) / (v_max - v_min)
        self._atoms = torch.linspace(v_min, v_max, num_atoms, device=device)
        self._atoms_in_steps = self._atoms * self._density

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """As the protocol says."""
        return _probabilities(output) @ self._atoms

    def expected_gradient(
        self, output: torch.Tensor, weigh: Weigh, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """By the logits: ``p (atom - expected)``."""
        probability = _probabilities(output)
        expected = probability @ self._atoms
        weight = weigh(expected) * share
        above = (self._atoms - expected.unsqueeze(2)).mul_(weight.unsqueeze(2))
        torch.mul(probability, above, out=gradient)

    def target(
        self,
        output: torch.Tensor,
        log_prob: torch.Tensor,
        minus_temperature: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> torch.Tensor:
        """Probabilities ``[B, num_atoms]``."""
        probabilities = _probabilities(output)
        if self._lowest:
            first, second = probabilities @ self._atoms
            probability = torch.where((first <= second).unsqueeze(1), probabilities[0], probabilities[1])
        else:
            probability = probabilities.mean(0)
        # Where the atoms go, in steps from the lowest: the first term is that of a return of 0.
        origin = torch.addcmul(reward - self._low, discount, log_prob * minus_temperature).mul_(self._density)
        place = torch.addcmul(origin.unsqueeze(1), discount.unsqueeze(1), self._atoms_in_steps)
        place.clamp_(0.0, self.num_outputs - 1)
        below = place.floor()
        to_above = place.sub_(below).mul_(probability)
        index = below.to(torch.int64)
        projected = torch.zeros_like(probability)
        projected.scatter_add_(1, index, probability.sub_(to_above))
        # Of what lies on the last atom nothing goes above it.
        index.add_(1).clamp_(max=self.num_outputs - 1)
        return projected.scatter_add_(1, index, to_above)

    def expected_target(self, target: torch.Tensor) -> torch.Tensor:
        """The mean of the distribution."""
        return target @ self._atoms

    def loss_gradient(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """As the protocol says."""
        row = weight.unsqueeze(1) if weight.dim() else weight
        torch.mul(_probabilities(output).sub_(target), row, out=gradient)

    def error(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The cross entropy in nats, above the target's own entropy: never negative."""
        return (torch.xlogy(target, target) - target * output.float().log_softmax(2)).sum(2)

    def loss(self, error: torch.Tensor) -> torch.Tensor:
        """The error itself."""
        return error


def _probabilities(logits: torch.Tensor) -> torch.Tensor:
    """A fresh float32 tensor of their shape."""
    return logits.float().softmax(2)
