"""Makes what acts of the description and the arrays of a policy, and refuses what makes no policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.rollout import odd_number, within_limits
from spreeze_zmq.policy.actor import Actions, Actor, Arrays, Floats, load_class, module_of
from spreeze_zmq.policy.description import Layer, load_weights, read_layers
from spreeze_zmq.policy.heads import CHOICES, make_head
from spreeze_zmq.policy.network import Network
from spreeze_zmq.policy.observations import ObservationScaling


class Made(NamedTuple):
    """What a policy acts with.

    Attributes:
        actor: turns the output, or for a class the observations, into actions.
        output: of observations ``[N, *obs_shape]`` and the memory ``[N, memory_size]`` or None.
        memory_size: numbers of recurrent state per environment; 0 for none.
        load: takes the numbers of a later message of the same shapes; None where such a policy is made anew.
    """

    actor: Actor
    output: Callable[[NDArray[Any], Floats | None], NDArray[Any]]
    memory_size: int = 0
    load: Callable[[Arrays], None] | None = None


def made_of(fields: Mapping[str, Any], arrays: Arrays) -> Made:
    """What a policy's fields and its arrays make; raises whatever :func:`refused` turns into a WireError."""
    description = fields["description"]
    if module_of(description) is not None:
        loaded = load_class(description, arrays)
        if (tell := getattr(loaded, "tell_env_steps", None)) is not None:
            extras = fields["extras"]
            tell(int(max(extras.get(name, 0) for name in ("env_steps", "run_env_steps"))))
        return Made(loaded, loaded.output, loaded.memory_size)
    scaling = ObservationScaling(description["observation"], arrays)
    layers = read_layers(description["layers"], arrays["parameters"], scaling.size)
    network = _network(layers)
    actor = make_head(description["distribution"], arrays, network.num_outputs)
    in_place = isinstance(network, Network)  # in torch the weights are copied once more
    load = partial(_load, scaling, layers) if in_place else None
    return Made(actor, lambda obs, _: network(scaling(obs)), load=load)


def takes_masks(distribution: Mapping[str, Any]) -> bool:
    """Whether a table ``description.distribution`` asks for action masks. Raises ValueError for a box."""
    takes = distribution.get("action_mask", False)
    if takes is not False and (takes is not True or distribution["kind"] not in CHOICES):
        raise ValueError(f"action_mask is {takes!r:.60} of a {distribution['kind']!r:.60}")
    return takes is True


def check_memory(memory: Any, shape: tuple[int, int]) -> None:
    """Raise InputError unless a recurrent policy can read its memory of this shape, and write the next one
    there.
    """
    given = (memory.shape, memory.dtype) if isinstance(memory, np.ndarray) else None
    if given != (shape, np.float32):
        got = f"{given[0]} {given[1]}" if given else "none" if memory is None else type(memory).__name__
        raise InputError(
            f"the policy is recurrent: it takes a memory of shape {shape}, float32, zeros where an episode "
            f"begins, and writes the next one there; got {got}"
        )


@contextmanager
def refused() -> Iterator[None]:
    """Inside, whatever does not make a policy raises WireError ``bad_policy``."""
    try:
        yield
    except KeyError as error:
        raise WireError("bad_policy", f"{error.args[0]!r} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WireError("bad_policy", str(error)) from error


def alike(name: str, before: Floats, now: Floats) -> bool:
    """Whether an array has the shape that it had; the bounds of actions, which the head keeps, are equal."""
    return np.array_equal(before, now) if name.startswith("action_") else before.shape == now.shape


def _load(scaling: ObservationScaling, layers: list[Layer], arrays: Arrays) -> None:
    scaling.adopt(arrays)
    load_weights(layers, arrays["parameters"])


def _network(layers: list[Layer]) -> Any:
    """The layers in NumPy, or in torch where there is a convolution."""
    if all(layer.kind != "conv2d" for layer in layers):
        return Network(layers)
    from spreeze_zmq.policy.torch_network import TorchNetwork

    return TorchNetwork(layers)


def floats(name: str, array: NDArray[Any]) -> Floats:
    """An array of a policy, aligned. Raises ValueError unless it is of finite float32."""
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}, expected float32")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    # A view into a received frame may be unaligned; every product would then copy it again.
    return np.require(array, requirements=["C", "A"])


def finite(action: Actions, output: Floats) -> Actions:
    """The same actions. Raises WireError for NaN, which no environment and no motor may be given, and among
    which there is no choice.
    """
    if action.dtype.kind != "f":
        if output.dtype.kind == "f" and np.isnan(output).any():
            raise WireError("bad_policy", "its action is a choice among NaN")
    elif not within_limits(action) and not np.isfinite(action).all():
        raise WireError("bad_policy", f"its action holds {odd_number(action)}")
    return action
