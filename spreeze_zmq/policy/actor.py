"""The interface of everything that draws actions, and the bounds of a box of actions. An actor is made of a
table of layers, or by a registered loader of the class that a description names.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
#: The arrays of a policy by name.
Arrays = Mapping[str, Floats]
#: ``[N, *action_shape]`` float32 in the environment's own units, or int64.
Actions = NDArray[Any]
#: Actions and, on request, their log densities ``[N]``.
Drawn = tuple[Actions, Floats | None]

#: Modules that the user has declared trustworthy in this process, by :meth:`Policy.load`.
trusted: set[str] = set()
#: The package of the shipped algorithms.
SHIPPED = "spreeze_zmq.algorithms."
#: Multiples of it, modulo 1, are spread evenly over [0, 1) however many there are.
GOLDEN = (5**0.5 - 1) / 2

_loaders: list[ClassLoader] = []


class Actor(Protocol):
    """Draws actions from inputs of one row per environment; a head's input is the network's output."""

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn | None:
        """``num`` uniformly distributed actions, for version 0, and their log densities; None where the
        action space has no uniform distribution.
        """

    def draw(
        self, output: NDArray[Any], rng: np.random.Generator, place: Floats | None, log_prob: bool
    ) -> Drawn:
        """Sample an action for each row.

        Args:
            output: ``[N, ...]``.
            rng: source of the noise.
            place: ``[N]`` in [0, 1], the position of each environment among all of the run's; None spreads
                them evenly.
            log_prob: return log densities too.

        Raises:
            ValueError: log densities are requested, and the distribution has none.
        """

    def mode(self, output: NDArray[Any]) -> Actions:
        """The deterministic action for each row."""

    def env_action(self, action: Actions) -> Actions:
        """The actions to pass to the environment for actions of ``draw``."""

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """One that draws legal actions only, once.

        Args:
            legal: ``[N, A]``, a flag for each choice of each discrete action.

        Raises:
            ValueError: its actions are not discrete, or the flags are not of that shape.
        """


class ClassActor(Actor, Protocol):
    """The actor of an algorithm's own policy class.

    Attributes:
        memory_size: numbers of recurrent state per environment; 0 for none.
    """

    memory_size: int

    def output(self, obs: NDArray[Any], memory: Floats | None) -> NDArray[Any]:
        """The input of ``draw`` and ``mode`` for unscaled observations ``[N, *obs_shape]``; overwrites
        ``memory`` ``[N, memory_size]`` with the next recurrent state.
        """

    def tell_env_steps(self, env_steps: int) -> None:
        """Let it know how many transitions the run had sampled when it was published, in a further group
        those of group 0 if they are more; may be left out.
        """


#: Takes the description ``{"class": "module:Name", "options": {...}, "environment": {...}}`` and the policy's
#: arrays; returns the actor.
ClassLoader = Callable[[Mapping[str, Any], Mapping[str, NDArray[np.float32]]], ClassActor]


class ActionDistribution(Actor):
    """Base of the distributions that a description can name.

    Attributes:
        num_outputs: numbers per row of the network's output.
    """

    num_outputs: int

    def env_action(self, action: Actions) -> Actions:
        """The same actions: they are within the bounds already."""
        return action

    def among(self, legal: NDArray[np.bool_]) -> Actor:
        """See :class:`Actor`; a box has no choices to forbid."""
        raise ValueError("an action_mask is for discrete actions, the policy's are a box")


class Box:
    """A box of actions with finite bounds.

    Args:
        low: lower bounds float32, in the shape of one action.
        high: upper bounds, likewise.

    Attributes:
        shape: of one action.
        num: numbers in one action, ``A``.
        low: ``[A]``.
        high: ``[A]``.
        half: half the width, ``[A]``.
        centre: ``[A]``.
    """

    def __init__(self, low: Floats, high: Floats) -> None:
        if low.shape != high.shape or low.size == 0 or not (low < high).all():
            raise ValueError(f"action bounds {low.tolist()} to {high.tolist()} are not a box")
        self.shape, self.num = low.shape, low.size
        self.low, self.high = low.reshape(-1), high.reshape(-1)
        # Halve before subtracting: bounds near the largest float would overflow.
        self.half, self.centre = self.high / 2 - self.low / 2, self.high / 2 + self.low / 2

    def stretch(self, unit: Floats) -> Floats:
        """Map ``unit`` ``[N, A]`` in [-1, 1] to actions ``[N, *shape]`` in place; rounding never leaves the
        bounds.
        """
        unit *= self.half
        unit += self.centre
        np.maximum(unit, self.low, out=unit)
        np.minimum(unit, self.high, out=unit)
        return unit.reshape(len(unit), *self.shape)

    def clip(self, action: Floats) -> Floats:
        """Actions ``[N, *shape]`` clipped to the bounds; a copy."""
        rows = action.reshape(len(action), self.num)
        return np.minimum(np.maximum(rows, self.low), self.high).reshape(action.shape)

    def uniform(self, num: int, rng: np.random.Generator) -> Drawn:
        """``num`` uniformly distributed actions, and their log densities in [-1, 1]^A."""
        unit = rng.random((num, self.num), np.float32) * np.float32(2.0) - np.float32(1.0)
        return self.stretch(unit), np.full(num, -self.num * math.log(2.0), np.float32)


def places(num: int, index: int = 0) -> Floats:
    """``[num]`` within [0, 1]: the place of each environment of sampler ``index`` among all of the run's.

    Each of ``num`` equal parts of [0, 1] has one, shifted within it by ``index`` times the golden ratio:
    those of samplers 0 to k are spread evenly for each k, as samplers come and go.
    """
    shift = (0.5 + index * GOLDEN) % 1.0
    return ((np.arange(num) + shift) / num).astype(np.float32)


def register_class_loader(loader: ClassLoader, *, unless_there: bool = False) -> None:
    """Let ``loader`` make the policies that name a class; it replaces the previous loader, or with
    ``unless_there`` leaves it.

    It is called for messages too, which anybody may have sent: it must refuse, with a ValueError, every class
    that the user does not trust, before it imports anything.
    """
    if not (unless_there and _loaders):
        _loaders[:] = [loader]


def module_of(description: Mapping[str, Any]) -> str | None:
    """The module of the class that a description names; None where it names none.

    Raises:
        ValueError: the name is not of the form ``module:Name``.
    """
    if "class" not in description:
        return None
    named = description["class"]
    module, _, name = named.partition(":") if isinstance(named, str) else ("", "", "")
    if not module or not name:
        raise ValueError(f"class is {named!r:.60}, expected 'module:Name'")
    return module


def is_trusted(module: str | None, trust: Collection[str]) -> bool:
    """Whether classes of a module may be loaded: ``trust`` names it, or it is a shipped algorithm's."""
    return module is not None and (module in trust or module.startswith(SHIPPED))


def load_class(description: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]) -> ClassActor:
    """The actor that the loader makes of a description and its arrays.

    Raises:
        ValueError: there is no loader, or it refused the class or could not import it.
    """
    if not _loaders:
        raise ValueError(f"it is of the class {description['class']!r}, and this program loads no classes")
    try:
        return _loaders[-1](description, arrays)
    except ImportError as error:
        raise ValueError(f"its class {description['class']!r} cannot be imported: {error}") from error


def remade(kind: Callable[..., Any], fields: Mapping[str, Any], *given: Any) -> Any:
    """A policy of ``kind`` that was copied or pickled. Whoever unpickles lets the pickle run anything: the
    module of its class is trusted.
    """
    if (module := module_of(fields["description"])) is not None:
        trusted.add(module)
        importlib.import_module("spreeze_zmq").Policy  # noqa: B018 - registers the loader of classes
    return kind(fields, *given)
