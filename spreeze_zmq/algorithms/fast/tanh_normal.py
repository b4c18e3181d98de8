"""The squashed Gaussian that SAC's policy draws from, with its density and gradient.

Notation: ``u = mean + std * noise`` before squashing, ``action = tanh(u)`` in [-1, 1]. Densities are those of
this scaled action, before it is stretched to the environment's bounds.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import softplus

from spreeze_zmq.algorithms.fast.scratch import LAYOUTS_KEPT, Numbers, ViewOf

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Draw:
    """Actions drawn from ``B`` distributions, and what their gradient needs: the distribution's own buffers,
    which hold until its next draw of as many.

    Each action's numbers lie together, ``[A, B]``: a core takes them 16 at a time, which it cannot where the
    halves of ``[B, 2 A]`` lie apart.
    """

    def __init__(self, num_actions: int, num_rows: int, dtype: torch.dtype, device: torch.device):
        def buffer(num_numbers: int) -> torch.Tensor:
            return torch.empty(num_numbers, num_rows, dtype=dtype, device=device)

        #: The policy's output, and later its gradient, where either does not lie so itself.
        self.output = buffer(2 * num_actions)
        self.bounded, self.spare = buffer(num_actions), buffer(num_actions)
        std_and_noise, numbers = buffer(2 * num_actions), buffer(5 * num_actions + 1)
        self.std, self.noise = torch.split(std_and_noise, num_actions)
        #: Noise times the standard deviation, and its square; and what they are the products of it with.
        self.scaled, *parts, ones = torch.split(numbers, num_actions)
        self.noise_squared, self.unbounded, self.softplus, self.squashed = parts
        shape = (2, num_actions, num_rows)
        self.products, self.factors = numbers[: 2 * num_actions].view(shape), std_and_noise.view(shape)
        #: Of which the log density is a weighted sum; see ``TanhNormal``.
        self.terms = numbers[num_actions:]
        self.ones = ones.fill_(1.0).T
        #: ``[B, A]``, in [-1, 1].
        self.action = self.bounded.T
        self.log_prob_row = buffer(1)
        #: ``[B]``, of the density of ``action``.
        self.log_prob = self.log_prob_row[0]


class TanhNormal:
    """A distribution over actions from ``[mean, raw log std]`` rows.

    ``log_std = low + (high - low) / 2 * (tanh(raw) + 1)``: smooth, so its gradient never dies as a clamp's
    does.

    Args:
        num_actions: ``A``.
        log_std_min: ``low``.
        log_std_max: ``high``.
        device: of the rows.
        dtype: of what is drawn.
    """

    def __init__(
        self,
        num_actions: int,
        log_std_min: float,
        log_std_max: float,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ):
        self.num_actions = num_actions
        self._dtype, self._device = dtype, device
        self._half = 0.5 * (log_std_max - log_std_min)
        numbers = Numbers(device)
        centre = log_std_min + self._half
        self._half_range, self._centre = numbers(self._half), numbers(centre)
        # Of each action: -noise^2/2 - log std - log sqrt(2 pi) - 2 (log 2 - u - softplus(-2 u)), where the
        # softplus of sharpness -2 is -softplus(-2 u) / 2.
        constant = -num_actions * (centre + 2.0 * math.log(2.0) + LOG_SQRT_2PI)
        weights = [weight for weight in (-0.5, 2.0, -4.0, -self._half) for _ in range(num_actions)]
        self._weights = torch.tensor([[*weights, constant]], dtype=dtype, device=device)
        self._draws: dict[int, Draw] = {}
        self._turned = ViewOf(lambda output: output.T)
        self._parts = ViewOf(lambda rows: torch.split(rows, num_actions))

    def draw(self, output: torch.Tensor, generator: torch.Generator) -> Draw:
        """Sample once from each row of ``output`` ``[B, 2 A]``, quickest where it lies as ``[2 A, B]``.

        The log density is that of arXiv 1812.05905, appendix C, equation 26, with log(1 - tanh(u)^2) in the
        form 2 (log 2 - u - softplus(-2 u)), which does not round to minus infinity for large u.
        """
        num_rows = output.shape[0]
        draw = self._draws.get(num_rows)
        if draw is None:
            if len(self._draws) == LAYOUTS_KEPT:
                del self._draws[next(iter(self._draws))]
            draw = self._draws[num_rows] = Draw(self.num_actions, num_rows, self._dtype, self._device)
        rows = self._turned(output)
        if rows.dtype != self._dtype or not rows.is_contiguous():
            rows = draw.output.copy_(rows)
        mean, raw = self._parts(rows)
        torch.tanh(raw, out=draw.squashed)
        torch.add(self._centre, draw.squashed, alpha=self._half, out=draw.std)
        torch.exp(draw.std, out=draw.std)
        draw.noise.normal_(generator=generator)
        torch.mul(draw.factors, draw.noise, out=draw.products)
        torch.add(mean, draw.scaled, out=draw.unbounded)
        torch.tanh(draw.unbounded, out=draw.bounded)
        softplus(draw.unbounded, -2.0, 20.0, out=draw.softplus)  # type: ignore[call-arg]
        self._add_up(draw)
        return draw

    def _add_up(self, draw: Draw) -> None:
        if self._device.type == "cpu":
            torch.mm(self._weights, draw.terms, out=draw.log_prob_row)
        else:  # whose products may be in a shorter format
            torch.sum(draw.terms * self._weights.T, 0, keepdim=True, out=draw.log_prob_row)

    def add_entropy(self, draw: Draw, share: float, start: torch.Tensor, total: torch.Tensor) -> None:
        """Fill ``total`` ``[1, 1]`` with ``start``, the same, less ``share`` times the sum of the log
        densities.
        """
        if self._device.type == "cpu":
            torch.addmm(start, draw.log_prob_row, draw.ones, alpha=-share, out=total)
        else:
            torch.sub(start, draw.log_prob_row.sum(1, keepdim=True), alpha=share, out=total)

    def backward(
        self,
        draw: Draw,
        action_gradient: torch.Tensor,
        entropy_gradient: torch.Tensor,
        gradient: torch.Tensor,
    ) -> None:
        """Fill the gradient by the output ``[B, 2 A]``, through the reparametrised draw.

        Args:
            draw: what ``draw`` returned.
            action_gradient: ``[B, A]``, the loss by the action.
            entropy_gradient: broadcasts to ``[A, B]``, the loss by minus the log density.
            gradient: quickest where it lies as ``[2 A, B]``.
        """
        rows = self._turned(gradient)
        in_place = rows.dtype == self._dtype and rows.is_contiguous()
        u, raw = self._parts(rows if in_place else draw.output)
        # d action / d u = 1 - action^2, and d log_prob / d u = 2 action.
        self._through_tanh(self._turned(action_gradient), draw.bounded, draw.spare, u)
        torch.addcmul(u, draw.bounded, entropy_gradient, value=-2.0, out=u)
        # d u / d log_std = std noise, and d log_prob / d log_std = -1 beside it.
        log_std = torch.addcmul(entropy_gradient, u, draw.scaled, out=draw.spare)
        self._through_tanh(log_std, draw.squashed, raw, raw)
        torch.mul(raw, self._half_range, out=raw)
        if not in_place:
            rows.copy_(draw.output)

    def _through_tanh(
        self, gradient: torch.Tensor, tanh: torch.Tensor, spare: torch.Tensor, result: torch.Tensor
    ) -> None:
        """``gradient (1 - tanh^2)``."""
        torch.mul(gradient, tanh, out=spare)
        torch.addcmul(gradient, spare, tanh, value=-1.0, out=result)
