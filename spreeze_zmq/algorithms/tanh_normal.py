"""The squashed Gaussian that SAC's policy draws from, with its density and gradient.

Notation: ``u = mean + std * noise`` before squashing, ``action = tanh(u)`` in [-1, 1]. Densities are those of
this scaled action, before it is stretched to the environment's bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from spreeze_zmq.algorithms.scratch import Numbers

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Draw:
    """Actions drawn from ``B`` distributions, and what their gradient needs.

    ``action`` ``[B, A]``, ``log_prob`` ``[B]``; the rest ``[B, A]``. All float32.
    """

    action: torch.Tensor
    log_prob: torch.Tensor
    noise: torch.Tensor
    std: torch.Tensor
    squashed: torch.Tensor


class TanhNormal:
    """A distribution over actions from ``[mean, raw log std]`` rows.

    ``log_std = low + (high - low) / 2 * (tanh(raw) + 1)``: smooth, so its gradient never dies as a clamp's
    does.

    Args:
        num_actions: ``A``.
        log_std_min: ``low``.
        log_std_max: ``high``.
        device: of the rows.
    """

    def __init__(self, num_actions: int, log_std_min: float, log_std_max: float, device: torch.device):
        self.num_actions = num_actions
        self._half = 0.5 * (log_std_max - log_std_min)
        numbers = Numbers(device)
        self._half_range, self._centre = numbers(self._half), numbers(log_std_min + self._half)
        self._constant = numbers(-num_actions * (2.0 * math.log(2.0) + LOG_SQRT_2PI))

    def draw(self, output: torch.Tensor, generator: torch.Generator) -> Draw:
        """Sample once from each row of ``output`` ``[B, 2 A]`` float32.

        The log density is that of arXiv 1812.05905, appendix C, equation 26, with log(1 - tanh(u)^2) in the
        form 2 (log 2 - u - softplus(-2 u)), which does not round to minus infinity for large u.
        """
        # Of the means too: tanh takes rows that lie apart one number at a time.
        squashed = output.tanh()[:, self.num_actions :]
        log_std = torch.add(self._centre, squashed, alpha=self._half)
        std = log_std.exp()
        noise = torch.empty_like(std).normal_(generator=generator)
        u = torch.addcmul(output[:, : self.num_actions], std, noise)
        # Summed over the actions at the end: half of -noise^2/2 - log std - log sqrt(2 pi) - 2 (log 2 - u -
        # softplus(-2 u)), where the softplus of sharpness -2 is -softplus(-2 u) / 2.
        halves = torch.sub(u, torch.nn.functional.softplus(u, -2.0), alpha=2.0)
        halves.addcmul_(noise, noise, value=-0.25).sub_(log_std, alpha=0.5)
        return Draw(u.tanh(), torch.add(self._constant, halves.sum(1), alpha=2.0), noise, std, squashed)

    def backward(
        self, draw: Draw, action_gradient: torch.Tensor, log_prob_gradient: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of ``output`` ``[B, 2 A]`` through the reparametrised draw.

        Args:
            draw: what ``draw`` returned.
            action_gradient: ``[B, A]``, the loss by the action.
            log_prob_gradient: broadcasts to ``[B, A]``, the loss by the log density.
        """
        # d action / d u = 1 - action^2, and d log_prob / d u = 2 action.
        u = torch.ops.aten.tanh_backward(action_gradient, draw.action)
        u.addcmul_(draw.action, log_prob_gradient, value=2.0)
        # d u / d log_std = std noise, and d log_prob / d log_std = -1 beside it.
        log_std = (u * draw.std).mul_(draw.noise).sub_(log_prob_gradient)
        raw = torch.ops.aten.tanh_backward(log_std, draw.squashed).mul_(self._half_range)
        return torch.cat((u, raw), dim=1)
