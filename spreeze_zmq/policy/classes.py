"""Policies whose description names a class, which a registered loader makes, and not a table of layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.policy.actor import ClassActor

#: Takes the description ``{"class": "module:Name", "options": {...}, "environment": {...}}`` and the policy's
#: arrays; returns the actor.
ClassLoader = Callable[[Mapping[str, Any], Mapping[str, NDArray[np.float32]]], ClassActor]

#: Modules that the user has declared trustworthy in this process, by :meth:`Policy.load`.
trusted: set[str] = set()

#: The package of the shipped algorithms.
SHIPPED = "spreeze_zmq.algorithms."

_loaders: list[ClassLoader] = []


def register_class_loader(loader: ClassLoader) -> None:
    """Let ``loader`` make the policies that name a class; it replaces the previous loader.

    It is called for messages too, which anybody may have sent: it must refuse, with a ValueError, every class
    that the user does not trust, before it imports anything.
    """
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
