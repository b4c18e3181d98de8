"""Guards a recording by the Python values that it was made with: one that has changed since makes it void."""

from __future__ import annotations

import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
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
from torch.utils.hooks import RemovableHandle

from spreeze_zmq.device.reads import PLAIN, Reads
from spreeze_zmq.native.places import AUTHOR, INTERNAL, STANDARD, origin

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
#: Immutable values that are the same if they are equal.
EQUAL = (bool, int, float, complex, str, bytes, np.generic)
#: The dicts of a module that hold its parts.
PARTS = ("_parameters", "_buffers", "_modules")
#: Where a dataclass keeps its fields, which its objects have themselves, and whether it is frozen.
FIELDS, PARAMS = "__dataclass_fields__", "__dataclass_params__"
MISSING = object()

#: Parts that have been given to modules so far, of whichever module: torch counts them for all guards.
_parts_set: list[int] = []
internals: Any = torch._C
is_grad_enabled, get_default_dtype = torch.is_grad_enabled, torch.get_default_dtype
has_autocast, num_function_modes = internals._is_any_autocast_enabled, internals._len_torch_function_stack


def _count_parts() -> None:
    """Have torch count, from the first guard on, each parameter, buffer and submodule that a module gets."""
    if not _parts_set:
        _parts_set.append(0)

        def counted(*_: object) -> None:
            _parts_set[0] += 1

        torch.nn.modules.module.register_module_parameter_registration_hook(counted)
        torch.nn.modules.module.register_module_buffer_registration_hook(counted)
        torch.nn.modules.module.register_module_module_registration_hook(counted)


class Guard:
    """The values that code has read, compared at each call of :meth:`holds`.

    Objects are the same while they are identical; numbers and texts also where they are equal and of one
    type. Contents of containers and attributes that the code names are compared one by one.

    Args:
        reads: what the code has read.
        objects: those of ``reads.objects`` that outlive the call.

    Attributes:
        refusal: what cannot be compared, in words; empty if everything can.
        tensors: all tensors among the values.
        assigned: attributes and global variables that the code assigns and does not read: where they are
            kept, their names, and the names for messages.
        left: the same with their values.
    """

    def __init__(self, reads: Reads, objects: Iterable[tuple[object, str]]) -> None:
        _count_parts()
        self.refusal = ""
        self.tensors: list[torch.Tensor] = []
        self._loose: list[torch.Tensor] = []  # all but parameters, whose memory the optimiser owns
        self.assigned: list[tuple[dict[str, Any], str, str]] = []
        self._reads, self._stored = reads, reads.stored() - reads.names
        self._items: list[tuple[Any, Any, Any]] = []
        self._paths: list[str] = []
        self._sizes: list[tuple[Any, int, str]] = []
        self._absent: list[tuple[Any, str, str]] = []
        self._others: list[tuple[Callable[[], Any], Any, str]] = []
        self._parts: list[tuple[Any, Any, Any, str]] = []
        self._arrays: list[tuple[Any, str]] = []
        self._hooks: list[dict[Any, Any]] = _global_hooks()
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
        self._containers = [container for container, *_ in self._sizes]
        self._lengths = [size for _, size, _ in self._sizes]
        self._contents = [array.tobytes() for array, _ in self._arrays]
        self._requires_grad, self._addresses, self._num_hooks = self._of_tensors().values()
        self._counts: tuple[int, ...] = (RemovableHandle.next_id, *_parts_set)
        self._modes = (is_grad_enabled(), get_default_dtype(), has_autocast(), num_function_modes())
        self.left = [(kept, name, path, kept[name]) for kept, name, path in self.assigned]

    # --- comparison

    def holds(self) -> bool:
        """Whether no value has changed; cheap, and strict: an equal number that is another object has."""
        try:
            for container, key, value in self._items:
                if container[key] is not value:
                    return False
        except (KeyError, IndexError):
            return False
        for container, key, _ in self._absent:
            if key in container:
                return False
        for read, value, _ in self._others:
            if differ(read(), value):
                return False
        return (
            [*map(len, self._containers)] == self._lengths
            and [tensor.requires_grad for tensor in self.tensors] == self._requires_grad
            and [tensor.data_ptr() for tensor in self._loose] == self._addresses
            and [array.tobytes() for array, _ in self._arrays] == self._contents
            and (RemovableHandle.next_id, *_parts_set) == self._counts
            and (is_grad_enabled(), get_default_dtype(), has_autocast(), num_function_modes()) == self._modes
        )

    def changed(self) -> str:
        """The name of the first value that has changed; empty, and equal numbers adopted, if none has."""
        for index, (container, key, value) in enumerate(self._items):
            now = _item(container, key)
            if differ(now, value):
                return self._paths[index]
            self._items[index] = container, key, now
        for container, key, value, path in self._parts:
            if _item(container, key) is not value:
                return path
        for container, size, path in self._sizes:
            if len(container) != size:
                return path
        for container, key, path in self._absent:
            if key in container:
                return path
        for read, value, path in self._others:
            if differ(read(), value):
                return path
        for (array, path), then in zip(self._arrays, self._contents, strict=True):
            if array.tobytes() != then:
                return path
        lists = {"requires_grad": self._requires_grad, "data": self._addresses, "hooks": self._num_hooks}
        for name, now in self._of_tensors().items():
            if now != lists[name]:
                return name
        if self._modes != (is_grad_enabled(), get_default_dtype(), has_autocast(), num_function_modes()):
            return "torch's modes"
        self._counts = (RemovableHandle.next_id, *_parts_set)
        return ""

    def keep(self, container: dict[str, Any], key: str, path: str) -> None:
        """Compare one value more, as it is now."""
        self._items.append((container, key, container[key]))
        self._paths.append(path)

    def _of_tensors(self) -> dict[str, list[Any]]:
        """What of tensors and modules is compared besides their identity."""
        tensors: Any = self.tensors
        hooked = [*map(len, self._hooks), *(len(tensor._backward_hooks or ()) for tensor in tensors)]
        return {
            "requires_grad": [tensor.requires_grad for tensor in tensors],
            "data": [tensor.data_ptr() for tensor in self._loose],
            "hooks": hooked,
        }

    # --- what there is to compare

    def _see_variables(self) -> None:
        for variables, read, assigned in self._reads.modules.values():
            module = variables.get("__name__", "")
            for name in read & variables.keys():
                if not isinstance(variables[name], ModuleType) or _origin_of(variables[name]) == AUTHOR:
                    self._add(variables, name, f"{module}.{name}")
            self.assigned += (
                (variables, name, f"{module}.{name}") for name in assigned - read if name in variables
            )

    def _add(self, container: Any, key: Any, path: str) -> None:
        value = container[key]
        self._items.append((container, key, value))
        self._paths.append(path)
        self._waiting.append((value, path))

    def _look_into(self, value: Any, path: str) -> None:
        """Add the contents of a value of any class."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            if not isinstance(value, torch.nn.Parameter):
                self._loose.append(value)
        elif isinstance(value, type):
            self._look_into_class(value, path)
        elif isinstance(value, ModuleType):
            if _origin_of(value) == AUTHOR:
                self._look_into_variables(vars(value), path)
        elif isinstance(value, FUNCTIONS):
            self._look_into_function(value, path)
        elif _is_buffer(value):
            self._look_into_buffer(value, path)
        elif _is_moving(value):
            self._refuse(f"reads {path}, {_article(value)}, which gives another value each time", path)
        else:
            self._look_into_container(value, path)
            self._look_into_object(value, path)

    def _look_into_class(self, kind: type, path: str) -> None:
        """The attributes of a class and of its bases, as far as these are an author's."""
        above: list[Any] = []
        for base in kind.__mro__:
            if _origin_of(base) == AUTHOR:
                attributes = base.__dict__
                for name in self._reads.names & attributes.keys() - getattr(base, FIELDS, {}).keys():
                    if name.startswith("__") and not callable(attributes[name]):
                        continue
                    self._absent += ((each, name, f"{path}.{name}") for each in above if name not in each)
                    self._add(attributes, name, f"{base.__qualname__}.{name}")
                above.append(attributes)

    def _look_into_variables(self, variables: dict[str, Any], path: str, every: bool = False) -> None:
        for name in list(variables) if every else self._reads.names & variables.keys():
            if not _is_part(name, variables[name]):
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
        elif _origin_of(function) == AUTHOR:
            self._look_into_variables(function.__dict__, path, id(function) in self._reads.computed)
        if isinstance(function, FunctionType) and function.__code__ in self._reads.authors:
            for name in ("__defaults__", "__kwdefaults__"):
                read = partial(getattr, function, name)
                self._others.append((read, read(), f"{path}.{name}"))
                self._waiting.append((read(), f"the defaults of {path}"))
            names = function.__code__.co_freevars
            for name, cell in zip(names, function.__closure__ or (), strict=True):
                read = partial(getattr, cell, "cell_contents", MISSING)
                self._others.append((read, read(), f"{name} of {path}"))
                self._waiting.append((read(), f"{name} of {path}"))

    def _look_into_buffer(self, value: Any, path: str) -> None:
        size = memoryview(value).nbytes
        if size > MOST_BYTES or getattr(value, "dtype", None) is np.dtype(object):
            self._refuse(
                f"reads {path}, {_article(value)} of {size} bytes; a tensor is read at each replay", path
            )
        else:
            self._arrays.append((value if hasattr(value, "tobytes") else _Bytes(value), path))

    def _look_into_container(self, value: Any, path: str) -> None:
        if isinstance(value, (Mapping, list, deque)) and hasattr(value, "__len__"):
            if isinstance(value, Mapping) and not isinstance(value, (dict, MappingProxyType)):
                return
            self._sizes.append((value, len(value), path))
            if len(value) > MOST_VALUES:
                self._refuse(f"reads {path}, {_article(value)} of {len(value)} values", path)
                return
            for key in list(value) if isinstance(value, Mapping) else range(len(value)):
                self._add(value, key, f"{path}[{key!r}]")
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += ((each, f"{path}[{index}]") for index, each in enumerate(value))
        elif isinstance(value, set):
            self._others.append((partial(frozenset, value), frozenset(value), path))

    def _look_into_object(self, value: Any, path: str) -> None:
        kind = type(value)
        home = _origin_of(kind)
        if isinstance(value, torch.nn.Module):
            self._look_into_module(value, path)
        elif home == INTERNAL or kind.__module__.startswith("spreeze_zmq.nn"):
            return
        variables = _variables_of(value)
        if variables is not None and getattr(getattr(kind, PARAMS, None), "frozen", False):
            names = self._reads.names & variables.keys()
            self._waiting += ((variables[name], f"{path}.{name}") for name in names)
        elif variables is not None:
            self._look_into_variables(variables, path, id(value) in self._reads.computed)
            self._watch_for_shadows(kind, variables, path)
        slots = [name for base in kind.__mro__ for name in _slots_of(base)]
        for name in slots if id(value) in self._reads.computed else self._reads.names.intersection(slots):
            read = partial(getattr, value, name, MISSING)
            self._others.append((read, read(), f"{path}.{name}"))
            self._waiting.append((read(), f"{path}.{name}"))
        self._waiting.append((kind, kind.__qualname__))
        if isinstance(value, weakref.ref):
            self._others.append((value, value(), path))
            self._waiting.append((value(), path))
        hidden = variables is None and not slots and kind.__basicsize__ > object.__basicsize__
        if home == AUTHOR and hidden and not isinstance(value, (dict, list, tuple, set)):
            self._refuse(f"reads {path}, {_article(value)}, whose contents Python cannot see", path)

    def _watch_for_shadows(self, kind: type, variables: dict[str, Any], path: str) -> None:
        """Attributes of an author's class that an attribute of the object of that name would replace."""
        for base in kind.__mro__:
            if _origin_of(base) == AUTHOR:
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
            elif _is_part(name, value):
                self._hooks.append(value)
                if value:
                    self._waiting.append((value, f"{path}.{name}"))

    def _refuse(self, why: str, path: str) -> None:
        name = path.split("[")[0].split(" of ")[0].rsplit(".", 1)[-1]
        self.refusal = self.refusal or why + self._reads.place_of(name)


def differ(now: Any, then: Any) -> bool:
    """Whether a value is not the one that it was; not-a-number is itself, and 0.0 is not -0.0."""
    if now is then:
        return False
    if type(now) is not type(then):
        return True
    return not isinstance(now, (*EQUAL, frozenset, MethodType, list)) or repr(now) != repr(then)


def _item(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except (KeyError, IndexError):
        return MISSING


def _global_hooks() -> list[dict[Any, Any]]:
    """Those of all modules."""
    found = vars(torch.nn.modules.module).items()
    return [value for name, value in found if name.startswith("_global_") and isinstance(value, dict)]


def _origin_of(value: Any) -> str:
    """Whose code a class, function or module is."""
    module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        name = module.__name__ if isinstance(module, ModuleType) else ""
        return STANDARD if name.split(".")[0] in sys.stdlib_module_names and name != "__main__" else AUTHOR
    return origin(file)


def _variables_of(value: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_part(name: str, value: object) -> bool:
    """Whether an attribute is one of a module's own dicts, which it never replaces."""
    return name in PARTS or (name.startswith("_") and "hook" in name and isinstance(value, dict))


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return isinstance(value, np.ndarray)
    return True


class _Bytes:
    """The contents of an object with a buffer, read as numpy's arrays are."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def tobytes(self) -> bytes:
        return bytes(memoryview(self._value))


def _is_moving(value: object) -> bool:
    """Whether reading a value changes it, as that of iterators, files and random generators."""
    kind = type(value)
    return (
        hasattr(kind, "__next__")
        or isinstance(value, random.Random)
        or kind.__module__.startswith("numpy.random")
    )


def _article(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"
