"""Frame stacking: images with channels first, the last few of an episode stacked, the newest last.

At the start of an episode its first frame is repeated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def has_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether an environment's images are ``[height, width, channels]``."""
    return len(shape) == 3 and shape[2] < shape[0]


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """``[..., height, width, channels]`` as ``[..., channels, height, width]``; a view."""
    return np.moveaxis(images, -1, -3)


def stacked_shape(shape: tuple[int, ...], stack: int) -> tuple[int, ...]:
    """The shape of a network's input of ``stack`` observations, from the shape of one.

    Images ``[height, width]`` become ``(stack, height, width)``, those with channels ``(stack * channels,
    height, width)``, vectors ``(stack * size,)``.
    """
    if len(shape) == 2:
        shape = (1, *shape)
    if has_channels_last(shape):
        shape = (shape[2], *shape[:2])
    return (stack * shape[0], *shape[1:])


def stack_times(ended: NDArray[np.bool_], stack: int) -> NDArray[np.intp]:
    """The indices of the frames in the stack of each observation of a rollout.

    Args:
        ended: ``[T, N]`` bool; an episode ended with that step.
        stack: ``k``, the number of frames in a stack.

    Returns:
        ``[T + 1, N, k]``, oldest first: indices in time into the ``k - 1`` frames before the rollout followed
        by its ``T + 1`` observations.
    """
    num_steps, num_envs = ended.shape
    now = np.arange(num_steps + 1) + stack - 1
    began = np.zeros((num_steps + 1, num_envs), np.intp)
    began[1:] = np.where(ended, now[1:, None], 0)
    np.maximum.accumulate(began, 0, out=began)
    times: NDArray[np.intp] = np.maximum(now[:, None, None] - np.arange(stack)[::-1], began[..., None])
    return times
