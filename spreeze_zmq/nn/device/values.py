"""Finds the Python values that code has read, and keeps each with the place where it is read again."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache, partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch

from spreeze_zmq.nn.device.contents import (
    PARTS,
    Bytes,
    global_hooks,
    is_buffer,
    is_moving,
    is_part,
    is_strided,
    origin_of,
    slots_of,
    variables_of,
    with_article,
)
from spreeze_zmq.nn.device.reads import PLAIN, Reads
from spreeze_zmq.nn.native.recording import AUTHOR, INTERNAL

#: Most values that are compared before each replay, and most bytes of one array among them.
MOST_VALUES, MOST_BYTES = 2000, 1 << 14
#: What has no contents, or contents that cannot change.
FIXED = (*PLAIN, range, slice, frozenset, Enum, np.generic, np.dtype, np.ufunc)
#: What calls or wraps something else.
FUNCTIONS = (
    FunctionType,
    MethodType,
    partial,
    staticmethod,
    classmethod,
    property,
    BuiltinFunctionType,
    MethodWrapperType,
)
#: Where a dataclass keeps its fields, which its objects have themselves, and whether it is frozen.
FIELDS, PARAMS = "__dataclass_fields__", "__dataclass_params__"
MISSING = object()
#: The class of a function that ``functools.lru_cache`` made.
CACHE: Any = type(lru_cache(int))


class Values:
    """All values that code has read: contents of containers, and attributes that the code names.

    Args:
        reads: what the code has read.
        objects: those of ``reads.objects`` that outlive the call.

    Attributes:
        refusal: what cannot be compared, in words; empty if everything can.
        tensors: all tensors among the values.
        assigned: attributes and global variables that the code assigns and does not read: where they are
            kept, their names, and the names for messages.
    """

    def __init__(self, reads: Reads, objects: Iterable[tuple[object, str]]) -> None:
        self.refusal = ""
        self.tensors: list[torch.Tensor] = []
        self._loose: list[torch.Tensor] = []  # all that may get other memory
        self.assigned: list[tuple[dict[str, Any], str, str]] = []
        self._reads, self._stored = reads, reads.stored() - reads.names
        self._items: list[tuple[Any, Any, Any]] = []
        self._paths: list[str] = []
        self._sizes: list[tuple[Any, int, str]] = []
        self._absent: list[tuple[Any, str, str]] = []
        self._others: list[tuple[Callable[[], Any], Any, str]] = []
        self._parts: list[tuple[Any, Any, Any, str]] = []
        self._arrays: list[tuple[Any, str]] = []
        self._hooks: list[dict[Any, Any]] = global_hooks()
        self._seen: dict[int, object] = {}
        self._waiting = deque(objects)
        self._called = {id(each) for each, _ in self._waiting}
        self._see_variables()
        while self._waiting:
            value, path = self._waiting.popleft()
            fixed = isinstance(value, FIXED) and not isinstance(value, torch.Tensor)
            if not fixed and id(value) not in self._seen:
                self._seen[id(value)] = value
                self._look_into(value, path)
            if len(self._items) + len(self._parts) > MOST_VALUES:
                self._refuse(f"reads more than {MOST_VALUES} values, of {path} among others", path)
                break

    def _see_variables(self) -> None:
        for variables, read, assigned in self._reads.modules.values():
            module = variables.get("__name__", "")
            for name in read & variables.keys():
                if not isinstance(variables[name], ModuleType) or origin_of(variables[name]) == AUTHOR:
                    self._add(variables, name, f"{module}.{name}")
            self.assigned += (
                (variables, name, f"{module}.{name}") for name in assigned - read if name in variables
            )

    def _add(self, container: Any, key: Any, path: str) -> None:
        value = container[key]
        self._items.append((container, key, value))
        self._paths.append(path)
        self._waiting.append((value, path))

    def _add_read(self, read: Callable[[], Any], path: str) -> None:
        self._others.append((read, read(), path))
        self._waiting.append((read(), path))

    def _look_into(self, value: Any, path: str) -> None:
        """Add the contents of a value of any class."""
        if isinstance(value, torch.Tensor) and not is_strided(value):
            self._refuse(f"reads {path}, a tensor that is not strided, as a sparse one", path)
        elif isinstance(value, torch.Tensor):
            self.tensors.append(value)
            if not isinstance(value, torch.nn.Parameter) or _is_alone(value):
                self._loose.append(value)
        elif isinstance(value, type):
            self._look_into_class(value, path)
        elif isinstance(value, ModuleType):
            if origin_of(value) == AUTHOR:
                self._look_into_variables(vars(value), path)
        elif isinstance(value, FUNCTIONS):
            self._look_into_function(value, path)
        elif is_buffer(value):
            self._look_into_buffer(value, path)
        elif is_moving(value):
            self._refuse(f"reads {path}, {with_article(value)}, which gives another value each time", path)
        else:
            self._look_into_container(value, path)
            self._look_into_object(value, path)

    def _look_into_class(self, kind: type, path: str) -> None:
        """The attributes of a class and of its bases, as far as these are an author's."""
        above: list[Any] = []
        for base in kind.__mro__:
            if origin_of(base) == AUTHOR:
                attributes = base.__dict__
                for name in self._reads.names & attributes.keys() - getattr(base, FIELDS, {}).keys():
                    if name.startswith("__") and not callable(attributes[name]):
                        continue
                    self._absent += ((each, name, f"{path}.{name}") for each in above if name not in each)
                    self._add(attributes, name, f"{base.__qualname__}.{name}")
                above.append(attributes)

    def _look_into_variables(self, variables: dict[str, Any], path: str, every: bool = False) -> None:
        for name in list(variables) if every else self._reads.names & variables.keys():
            if not is_part(name, variables[name]):
                self._add(variables, name, f"{path}.{name}")
        if every:
            self._sizes.append((variables, len(variables), path))
        else:
            names = self._stored & variables.keys()
            self.assigned += ((variables, name, f"{path}.{name}") for name in names)

    def _look_into_function(self, function: Any, path: str) -> None:
        """The defaults, the closure and the attributes of a function that was called."""
        if isinstance(function, partial):
            self._waiting += [(function.func, path), (function.args, path), (function.keywords, path)]
        elif isinstance(function, MethodType):
            self._waiting += [(function.__self__, path), (function.__func__, path)]
        elif isinstance(function, property):
            self._waiting.append((function.fget, path))
        elif isinstance(function, (BuiltinFunctionType, MethodWrapperType)):
            self._waiting.append((function.__self__, path))
        elif not isinstance(function, FunctionType):
            self._waiting.append((function.__func__, path))
        elif origin_of(function) == AUTHOR:
            self._look_into_variables(function.__dict__, path, id(function) in self._reads.computed)
        if isinstance(function, FunctionType) and function.__code__ in self._reads.authors:
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                self._add_read(partial(getattr, function, name), f"{path}.{name}")
            names = function.__code__.co_freevars
            for name, cell in zip(names, function.__closure__ or (), strict=True):
                self._add_read(partial(getattr, cell, "cell_contents", MISSING), f"{name} of {path}")

    def _look_into_buffer(self, value: Any, path: str) -> None:
        size = memoryview(value).nbytes
        if size > MOST_BYTES or getattr(value, "dtype", None) is np.dtype(object):
            self._refuse(
                f"reads {path}, {with_article(value)} of {size} bytes; a tensor is read at each replay", path
            )
        else:
            self._arrays.append((value if hasattr(value, "tobytes") else Bytes(value), path))

    def _look_into_container(self, value: Any, path: str) -> None:
        if isinstance(value, (Mapping, list, deque)) and hasattr(value, "__len__"):
            if isinstance(value, Mapping) and not isinstance(value, (dict, MappingProxyType)):
                return
            self._sizes.append((value, len(value), path))
            if len(value) > MOST_VALUES:
                self._refuse(f"reads {path}, {with_article(value)} of {len(value)} values", path)
                return
            for key in list(value) if isinstance(value, Mapping) else range(len(value)):
                self._add(value, key, f"{path}[{key!r}]")
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += ((each, f"{path}[{index}]") for index, each in enumerate(value))
        elif isinstance(value, set):
            self._others.append((partial(frozenset, value), frozenset(value), path))

    def _look_into_object(self, value: Any, path: str) -> None:
        kind = type(value)
        home = origin_of(kind)
        if isinstance(value, torch.nn.Module):
            self._look_into_module(value, path)
        elif home == INTERNAL or kind.__module__.startswith("spreeze_zmq.nn"):
            return
        variables = variables_of(value)
        frozen = getattr(getattr(kind, PARAMS, None), "frozen", False) and home != AUTHOR
        if variables is not None and frozen:
            names = self._reads.names & variables.keys()
            self._waiting += ((variables[name], f"{path}.{name}") for name in names)
        elif variables is not None:
            self._look_into_variables(variables, path, id(value) in self._reads.computed)
            self._watch_for_shadows(kind, variables, path)
        slots = [name for base in kind.__mro__ for name in slots_of(base)]
        for name in slots if id(value) in self._reads.computed else self._reads.names.intersection(slots):
            self._add_read(partial(getattr, value, name, MISSING), f"{path}.{name}")
        self._waiting.append((kind, kind.__qualname__))
        if isinstance(value, weakref.ref):
            self._add_read(value, path)
        elif isinstance(value, ContextVar):
            self._add_read(partial(value.get, MISSING), path)
        elif isinstance(value, CACHE) and origin_of(value) == AUTHOR:
            self._refuse(f"reads {path}, whose results functools keeps where Python cannot see them", path)
        hidden = variables is None and not slots and kind.__basicsize__ > object.__basicsize__
        if home == AUTHOR and hidden and not isinstance(value, (dict, list, tuple, set)):
            self._refuse(f"reads {path}, {with_article(value)}, whose contents Python cannot see", path)

    def _watch_for_shadows(self, kind: type, variables: dict[str, Any], path: str) -> None:
        """Attributes of an author's class that an attribute of the object of that name would replace."""
        for base in kind.__mro__:
            if origin_of(base) == AUTHOR:
                for name in (self._reads.names & base.__dict__.keys()) - variables.keys():
                    if not name.startswith("__") and not hasattr(base.__dict__[name], "__set__"):
                        self._absent.append((variables, name, f"{path}.{name}"))

    def _look_into_module(self, module: torch.nn.Module, path: str) -> None:
        """Its parts, hooks and forward; attributes are those of any object."""
        if id(module) in self._called and "forward" not in vars(module):
            self._absent.append((vars(module), "forward", f"{path}.forward"))
        for name, value in vars(module).items():
            if name in PARTS:
                self._seen[id(value)] = value
                if value:
                    self._sizes.append((value, len(value), path))
                for key, part in value.items():
                    self._parts.append((value, key, part, f"{path}.{key}"))
                    self._waiting.append((part, f"{path}.{key}"))
            elif is_part(name, value):
                self._hooks.append(value)
                if value:
                    self._waiting.append((value, f"{path}.{name}"))

    def _refuse(self, why: str, path: str) -> None:
        name = path.split("[")[0].split(" of ")[0].rsplit(".", 1)[-1]
        self.refusal = self.refusal or why + self._reads.place_of(name)


def _is_alone(parameter: torch.Tensor) -> bool:
    """Whether a parameter has memory for itself, unlike those in a flat buffer, which are kept there."""
    return parameter.untyped_storage().nbytes() == parameter.nbytes
