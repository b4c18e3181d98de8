"""Networks on observations, as options choose them: perceptrons for vectors, convolutions for images, an
encoder for each part of a Dict or Tuple.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.frames import has_channels_last, stacked_shape
from spreeze_zmq.base.schema import option
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Sequential

    from spreeze_zmq.nn import Convolutions, PartForm, Parts

#: Why a memory is refused.
MEMORY_OF_VECTORS = "memory_size is for vectors; frame_stack shows several images at once"
#: The networks for images, and the smallest height and width that each can take.
LEAST_PIXELS = {"nature_cnn": 36, "small_cnn": 20, "fine_cnn": 36}
#: Least height and width of an image among the parts of an observation; a smaller one is taken for a vector.
LEAST_PART = 20
#: Of an image's side, the largest random shift where it is ``auto``: 4 of 84 pixels, as in DrQ.
PARTS_OF_SIDE = 20
#: From this height and width on, ``auto`` is ``nature_cnn``, which then leaves 4 x 4 places or more.
NATURE_PIXELS = 64


@dataclass(frozen=True)
class EncoderOptions:
    """Options of each network on observations."""

    network: str = option(
        "auto",
        "nature_cnn (Mnih et al. 2015), small_cnn (1312.5602) and fine_cnn (strides 3 and 2) take images "
        "[channels, height, width]; auto is the first for those of 64 pixels each way or more, fine_cnn from "
        "36 on; parts, an encoder for each part, for a Dict or Tuple with an image; else mlp",
        choices=("auto", "mlp", *LEAST_PIXELS, "parts"),
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
    """Raise InvalidEnvironment if the network needs images and the observations are none, or too small; or if
    it has a memory and convolutions.
    """
    if getattr(options, "memory_size", 0) and convolves(env, options):
        raise InvalidEnvironment(MEMORY_OF_VECTORS)
    if takes_parts(env, options) and options.frame_stack > 1:
        raise InvalidEnvironment(
            f"frame_stack = {options.frame_stack} is for an image by itself, observations here are a Dict or "
            "Tuple with an encoder for each part; return the image alone, or stack within the environment, "
            'or write network = "mlp"'
        )
    if options.network == "parts" and not env.obs_parts:
        raise InvalidEnvironment(
            'network = "parts" has an encoder for each part of a Dict or Tuple; observations here are one '
            f'{env.obs_dtype} array {list(env.obs_shape)}, for which there is network = "auto"'
        )
    least = LEAST_PIXELS.get(options.network)
    if least and not _are_images(env.obs_shape, least):
        raise InvalidEnvironment(
            f'network = "{options.network}" takes images [channels, height, width] of at least {least} '
            f"pixels each way, this environment's observations are {list(env.obs_shape)}; resize or "
            'transpose them, or use network = "mlp"'
        )


def check_stack(env: EnvironmentSpec, options: Any) -> None:
    """Raise InvalidEnvironment if ``auto`` would take a stack of images ``[stack, height, width, channels]``
    for a vector.
    """
    shape, sides = tuple(env.obs_shape), sorted(env.obs_shape)[-2:]
    is_stack = env.obs_dtype == "uint8" and len(shape) == 4 and shape[0] < min(sides)
    if is_stack and sides[0] >= LEAST_PIXELS["fine_cnn"] and getattr(options, "network", None) == "auto":
        raise InvalidEnvironment(
            f"this environment's observations {list(shape)} are {shape[0]} images at once, and networks take "
            f"[channels, height, width]; return the last one, {list(shape[1:])}, with "
            f'algorithm.frame_stack = {shape[0]}, or write algorithm.network = "mlp" for one long vector'
        )


def takes_images(env: EnvironmentSpec, options: Any) -> bool:
    """Whether the options choose a network for images for these observations."""
    if options.network == "auto":
        return env.obs_dtype == "uint8" and _are_images(env.obs_shape, LEAST_PIXELS["fine_cnn"])
    return options.network in LEAST_PIXELS


def takes_parts(env: EnvironmentSpec, options: Any) -> bool:
    """Whether the options choose an encoder for each part of these observations: ``auto`` does where a part,
    or the only one, is an image.
    """
    if options.network == "auto":
        return any(map(_is_image, env.obs_parts))
    return str(options.network) == "parts"


def convolves(env: EnvironmentSpec, options: Any) -> bool:
    """Whether the network is no plain perceptron."""
    return takes_images(env, options) or takes_parts(env, options)


def of_mlp_alone(env: EnvironmentSpec, options: Any) -> tuple[str, ...]:
    """The options of :class:`EncoderOptions`, if these are such, that :func:`encoder` does not read for these
    observations.
    """
    idle = isinstance(options, EncoderOptions) and takes_images(seen(env, options), options)
    return ("hidden_sizes", "activation") if idle else ()


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
    if takes_parts(env, options):
        parts = part_encoders(env, options)
        sizes = (parts.num_outputs, *options.hidden_sizes, num_outputs)
        head = nn.mlp(sizes, options.activation, options.layer_norm, output_scale)
        return torch.nn.Sequential(parts, *head)
    if not takes_images(env, options):
        sizes = (math.prod(env.obs_shape) + num_beside, *options.hidden_sizes, num_outputs)
        return nn.mlp(sizes, options.activation, options.layer_norm, output_scale)
    image, layers = _convolutions(env, options)
    return nn.cnn(image, num_outputs, layers, options.layer_norm, output_scale)


def features(env: EnvironmentSpec, options: Any) -> tuple[Module, int]:
    """A fresh encoder that several networks share, from rows ``[B, size]`` to features, and their number:
    the convolutions of an image, or an encoder for each part.
    """
    if takes_parts(env, options):
        parts = part_encoders(env, options)
        return parts, parts.num_outputs
    convolutions, size = nn.convolutions(*_convolutions(env, options))
    return torch.nn.Sequential(*convolutions), size


def _convolutions(env: EnvironmentSpec, options: Any) -> tuple[tuple[int, int, int], Convolutions]:
    """The shape of an image, and the layers that the options choose for it."""
    channels, height, width = env.obs_shape
    fitting = "nature_cnn" if min(height, width) >= NATURE_PIXELS else "fine_cnn"
    return (channels, height, width), nn.CONVOLUTIONS[
        fitting if options.network == "auto" else options.network
    ]


def check_shift(env: EnvironmentSpec, options: Any) -> None:
    """Raise InvalidEnvironment if ``random_shift`` is stated and the observations have no image, or networks
    with a memory take them as they are.
    """
    pixels, stated = options.random_shift, options.random_shift not in (0, "auto")
    memory_size: int = getattr(options, "memory_size", 0)
    if stated and memory_size:
        raise InvalidEnvironment(
            f"random_shift = {pixels} moves each image by itself, and networks with memory_size = "
            f"{memory_size} take whole sequences as they are; leave one of them out"
        )
    is_image = env.obs_dtype == "uint8" and len(env.obs_shape) == 3
    if stated and not is_image and not any(map(_is_image, env.obs_parts)):
        raise InvalidEnvironment(
            f"random_shift = {pixels} moves images, this environment's observations are {env.obs_dtype} of "
            f"shape {list(env.obs_shape)}"
        )


def shifted(env: EnvironmentSpec, obs: Tensor, pixels: int | str) -> Tensor:
    """Observations ``[B, size]`` whose images, also those among their parts, are randomly shifted by up to
    ``pixels``; by up to a twentieth of their side for ``"auto"``.
    """
    if pixels == 0:
        return obs
    if not env.obs_parts:
        return _moved(obs, tuple(env.obs_shape), pixels)
    forms = [_form(part, scaled=True) for part in env.obs_parts]
    pieces = torch.split(obs, [form.width for form in forms], 1)
    return torch.cat([_moved_part(piece, form, pixels) for piece, form in zip(pieces, forms, strict=True)], 1)


def _moved(rows: Tensor, image: tuple[int, ...], pixels: int | str) -> Tensor:
    most = min(image[1:]) // PARTS_OF_SIDE if isinstance(pixels, str) else pixels
    return nn.random_shift(rows, image, most)


def _moved_part(rows: Tensor, form: PartForm, pixels: int | str) -> Tensor:
    if form.image is None:
        return rows
    if not form.channels_last:
        return _moved(rows, form.image, pixels)
    channels, height, width = form.image
    first = rows.reshape(-1, height, width, channels).permute(0, 3, 1, 2).flatten(1)
    moved = _moved(first, form.image, pixels).view(-1, channels, height, width)
    return moved.permute(0, 2, 3, 1).flatten(1)


def part_encoders(env: EnvironmentSpec, options: Any) -> Parts:
    """A fresh encoder for each of ``env.obs_parts``: rows ``[B, size]`` to features ``[B, num_outputs]``.

    Images of at least ``LEAST_PART`` pixels each way get convolutions, discrete parts an embedding, all
    others a linear layer.
    """
    scaled = options.normalize_observations or env.obs_dtype == "uint8"
    forms = [_form(part, scaled) for part in env.obs_parts]
    return nn.Parts([form for form in forms if form.width], options.activation)


def _form(part: Mapping[str, Any], scaled: bool) -> Any:
    """What ``nn.Parts`` needs to know of an entry of ``obs_parts``, ``scaled`` before it gets there or not:
    by statistics, or since all of the observation is uint8.
    """
    shape = tuple(part["shape"])
    if "sizes" in part:
        return nn.PartForm(choices=tuple(part["sizes"]))
    if not _is_image(part):
        return nn.PartForm(size=math.prod(shape))
    last = has_channels_last(shape)
    height, width = shape[:2] if last else shape[1:]
    least = min(height, width)
    named = next(name for name, limit in (*_BY_SIDE, ("small_cnn", 0)) if least >= limit)
    divisor = float(part.get("max") or BYTE_MAX) if part.get("pixels") and not scaled else 1.0
    image = (shape[2] if last else shape[0], height, width)
    return nn.PartForm(image=image, channels_last=last, divisor=divisor, layers=named)


#: The convolutions of an image of this height and width or more.
_BY_SIDE = (("nature_cnn", NATURE_PIXELS), ("fine_cnn", LEAST_PIXELS["fine_cnn"]))


def _is_image(part: Mapping[str, Any]) -> bool:
    """Whether an entry of ``obs_parts`` is an image of ``LEAST_PART`` pixels each way or more."""
    shape = tuple(part["shape"])
    if "sizes" in part or len(shape) != 3 or 0 in shape:
        return False
    sides = shape[:2] if has_channels_last(shape) else shape[1:]
    return bool(min(sides) >= LEAST_PART)


def _are_images(shape: tuple[int, ...], least: int) -> bool:
    """Whether observations are images of at least ``least`` pixels in height and width."""
    return len(shape) == 3 and min(shape[1:]) >= least


def seen(env: EnvironmentSpec, options: Any) -> EnvironmentSpec:
    """The environment as networks see it: images channels first, ``frame_stack`` of them at once.

    Raises:
        InvalidEnvironment: ``frame_stack`` is above 1 and observations are not images.
    """
    if env.obs_dtype != "uint8":
        if options.frame_stack > 1:
            raise InvalidEnvironment(
                f"frame_stack = {options.frame_stack} is for images of uint8, this environment's "
                f"observations are {env.obs_dtype} of shape {list(env.obs_shape)}"
            )
        return env
    shape = stacked_shape(env.obs_shape, options.frame_stack)
    return env if shape == tuple(env.obs_shape) else replace(env, obs_shape=shape)
