"""Networks on observations, as options choose them: perceptrons for vectors, convolutions for images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.schema import option
from spreeze_zmq.envs.spec import EnvironmentSpec

if TYPE_CHECKING:
    from torch.nn import Sequential

#: The networks for images, and the smallest height and width that each can take.
LEAST_PIXELS = {"nature_cnn": 36, "small_cnn": 20, "fine_cnn": 36}
#: From this height and width on, ``auto`` is ``nature_cnn``, which then leaves 4 x 4 places or more.
NATURE_PIXELS = 64


@dataclass(frozen=True)
class EncoderOptions:
    """Options of each network on observations."""

    network: str = option(
        "auto",
        "nature_cnn (Mnih et al. 2015), small_cnn (1312.5602) and fine_cnn (strides 3 and 2) take images "
        "[channels, height, width]; auto is the first for those of 64 pixels each way or more, fine_cnn from "
        "36 on, else mlp",
        choices=("auto", "mlp", *LEAST_PIXELS),
        fixed=True,
    )
    hidden_sizes: tuple[int, ...] = option(
        (128, 128), "width of each hidden layer of an mlp", minimum=1, fixed=True
    )
    activation: str = option(
        "relu", "of the hidden layers", choices=("relu", "elu", "silu", "tanh"), fixed=True
    )
    layer_norm: bool = option(False, "normalise each hidden layer", fixed=True)


def check_encoder(env: EnvironmentSpec, options: Any) -> None:
    """Raise InvalidEnvironment if the network needs images and the observations are none, or too small."""
    least = LEAST_PIXELS.get(options.network)
    if least and not _are_images(env.obs_shape, least):
        raise InvalidEnvironment(
            f'network = "{options.network}" takes images [channels, height, width] of at least {least} '
            f"pixels each way, this environment's observations are {list(env.obs_shape)}; resize or "
            'transpose them, or use network = "mlp"'
        )


def takes_images(env: EnvironmentSpec, options: Any) -> bool:
    """Whether the options choose a network for images for these observations."""
    if options.network == "auto":
        return env.obs_dtype == "uint8" and _are_images(env.obs_shape, LEAST_PIXELS["fine_cnn"])
    return str(options.network) != "mlp"


def encoder(
    env: EnvironmentSpec, options: Any, num_outputs: int, output_scale: float = 1.0, num_beside: int = 0
) -> Sequential:
    """A fresh network from observations ``[B, size]`` to ``[B, num_outputs]``.

    Args:
        env: the environment as networks see it.
        options: have the fields of :class:`EncoderOptions`.
        num_outputs: columns of an output row.
        output_scale: factor of the last layer's initial weights.
        num_beside: additional inputs of an mlp, after each observation.
    """
    shape = env.obs_shape
    if not takes_images(env, options):
        sizes = (math.prod(shape) + num_beside, *options.hidden_sizes, num_outputs)
        return nn.mlp(sizes, options.activation, options.layer_norm, output_scale)
    image = (shape[0], shape[1], shape[2])
    fitting = "nature_cnn" if min(image[1:]) >= NATURE_PIXELS else "fine_cnn"
    layers = nn.CONVOLUTIONS[fitting if options.network == "auto" else options.network]
    return nn.cnn(image, num_outputs, layers, options.layer_norm, output_scale)


def _are_images(shape: tuple[int, ...], least: int) -> bool:
    """Whether observations are images of at least ``least`` pixels in height and width."""
    return len(shape) == 3 and min(shape[1:]) >= least
