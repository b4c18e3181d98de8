"""What the last layer of a critic means: one expected return, or a distribution over returns."""

from __future__ import annotations

from typing import Protocol

import torch

from spreeze_zmq.algorithms.scratch import ViewOf


class Value(Protocol):
    """Between ``E`` critics' outputs ``[E, B, outputs]`` and the values that they stand for."""

    @property
    def num_outputs(self) -> int:
        """Of one critic."""

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """The expected returns ``[E, B]``."""

    def expected_gradient(
        self, output: torch.Tensor, weight: torch.Tensor, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """Fill the gradient by ``output`` of the sum of ``weight`` ``[E, B]`` times ``share``, 0-d, times the
        expected returns.
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
    ) -> torch.Tensor:
        """Fill the gradient of the loss by ``output``; the errors ``[E, B]``. ``weight`` is that of each row,
        ``[B]``, or of all, 0-d.
        """

    def loss(self, error: torch.Tensor) -> torch.Tensor:
        """The loss of each error."""


class ScalarValue:
    """One number; the loss is half the squared error.

    Args:
        twins: ``"min"`` bootstraps from the lower critic (arXiv 1802.09477), ``"mean"`` from their average.
    """

    num_outputs = 1

    def __init__(self, twins: str):
        self._lowest = twins == "min"
        self._values = ViewOf(lambda output: output.squeeze(2))
        self._twins = ViewOf(lambda output: output.squeeze(2).unbind())

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """As the protocol says."""
        return self._values(output).float()

    def expected_gradient(
        self, output: torch.Tensor, weight: torch.Tensor, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """As the protocol says."""
        torch.mul(weight, share, out=self._values(gradient))

    def target(
        self,
        output: torch.Tensor,
        log_prob: torch.Tensor,
        minus_temperature: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> torch.Tensor:
        """``[B]``."""
        value = torch.minimum(*self._twins(output)) if self._lowest else self._values(output).float().mean(0)
        return torch.addcmul(reward, discount, torch.addcmul(value, log_prob, minus_temperature))

    def expected_target(self, target: torch.Tensor) -> torch.Tensor:
        """The target itself."""
        return target

    def loss_gradient(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        """The errors are those of the value."""
        error = torch.add(self._values(output), target, alpha=-1.0)
        torch.mul(error, weight, out=self._values(gradient))
        return error

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
        self._low, self._high = v_min, v_max
        self._step = (v_max - v_min) / (num_atoms - 1)
        self._atoms = torch.linspace(v_min, v_max, num_atoms, device=device)

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """As the protocol says."""
        return output.float().softmax(2) @ self._atoms

    def expected_gradient(
        self, output: torch.Tensor, weight: torch.Tensor, share: torch.Tensor, gradient: torch.Tensor
    ) -> None:
        """By the logits: ``p (atom - expected)``."""
        probability = output.float().softmax(2)
        expected = (probability @ self._atoms).unsqueeze(2)
        torch.mul(probability * (self._atoms - expected), (weight * share).unsqueeze(2), out=gradient)

    def target(
        self,
        output: torch.Tensor,
        log_prob: torch.Tensor,
        minus_temperature: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> torch.Tensor:
        """Probabilities ``[B, num_atoms]``."""
        probabilities = output.float().softmax(2)  # [2, B, atoms]
        if self._lowest:
            first = probabilities[0] @ self._atoms <= probabilities[1] @ self._atoms
            probability = torch.where(first.unsqueeze(1), probabilities[0], probabilities[1])
        else:
            probability = probabilities.mean(0)
        bonus = log_prob * minus_temperature
        moved = torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), bonus.unsqueeze(1) + self._atoms)
        place = moved.clamp_(self._low, self._high).sub_(self._low).div_(self._step)
        place.clamp_(max=self.num_outputs - 1)  # the division may have rounded upwards
        below = place.floor()
        above_share = place.sub_(below)
        index = below.to(torch.int64)
        projected = torch.zeros_like(probability)
        projected.scatter_add_(1, index, probability * (1.0 - above_share))
        # Of what lies on the last atom nothing goes above it.
        index.add_(1).clamp_(max=self.num_outputs - 1)
        return projected.scatter_add_(1, index, probability.mul_(above_share))

    def expected_target(self, target: torch.Tensor) -> torch.Tensor:
        """The mean of the distribution."""
        return target @ self._atoms

    def loss_gradient(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        """The errors are the cross entropies in nats, above the target's own entropy: never negative."""
        log_probability = output.float().log_softmax(2)
        error = (torch.xlogy(target, target) - target * log_probability).sum(2)
        row = weight.unsqueeze(1) if weight.dim() else weight
        torch.mul(log_probability.exp_().sub_(target), row, out=gradient)
        return error

    def loss(self, error: torch.Tensor) -> torch.Tensor:
        """The error itself."""
        return error
