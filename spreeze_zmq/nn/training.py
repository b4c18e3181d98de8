"""What algorithms do around an update: targets that follow slowly, images that are moved a little."""

from __future__ import annotations

import torch


class PeriodicCopy(torch.nn.Module):
    """Moves a target by ``tau`` at every ``period``-th call of ``update``, and not in between.

    The count is a parameter, so that it is saved with the targets; it is never read on the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    @torch.no_grad()
    def update(self, target: torch.nn.Module, source: torch.nn.Module, tau: float, period: int) -> None:
        """Count this call; move ``target`` towards ``source`` where it is a ``period``-th one."""
        self.count.add_(1.0).remainder_(period)
        share = (self.count == 0.0) * tau
        for follower, leader in zip(target.parameters(), source.parameters(), strict=True):
            follower.lerp_(leader, share.to(follower.dtype))


def random_shift(rows: torch.Tensor, shape: tuple[int, ...], pixels: int) -> torch.Tensor:
    """Each image moved by up to ``pixels`` each way, its border repeated to fill the gap (DrQ, Kostrikov
    et al. 2020, arXiv 2004.13649, section 3.1).

    Args:
        rows: ``[B, channels * height * width]``; all channels of an image move together.
        shape: ``(channels, height, width)``.
        pixels: the farthest; 4 in the paper, for images of 84 x 84.

    Returns:
        ``[B, channels * height * width]``, drawn with torch's default generator.
    """
    num, (channels, height, width) = len(rows), shape
    down, right = torch.randint(-pixels, pixels + 1, (2, num, 1), device=rows.device)
    row = (torch.arange(height, device=rows.device) + down).clamp_(0, height - 1)
    column = (torch.arange(width, device=rows.device) + right).clamp_(0, width - 1)
    place = (row.unsqueeze(2) * width + column.unsqueeze(1)).view(num, 1, height * width)
    images = rows.reshape(num, channels, height * width)
    return images.gather(2, place.expand(-1, channels, -1)).view(num, -1)
