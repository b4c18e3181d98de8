"""Changes of images that leave their meaning as it is."""

from __future__ import annotations

import torch


def random_shift(rows: torch.Tensor, shape: tuple[int, ...], pixels: int) -> torch.Tensor:
    """Each image moved by up to so many pixels each way, its border repeated where it was not (DrQ, Kostrikov
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
