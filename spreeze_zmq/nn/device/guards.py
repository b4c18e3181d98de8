"""Guards a recording by the Python values that it was made with: one that has changed since makes it void."""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from spreeze_zmq.nn.device.reads import Reads
from spreeze_zmq.nn.device.values import MISSING, Values

#: Immutable values that are the same if they are equal.
EQUAL = (bool, int, float, complex, str, bytes, np.generic)

internals: Any = torch._C
is_grad_enabled, get_default_dtype = torch.is_grad_enabled, torch.get_default_dtype
has_autocast = getattr(internals, "_is_any_autocast_enabled", torch.is_autocast_enabled)
num_function_modes = internals._len_torch_function_stack


#: Parts that have been given to modules so far, of whichever module: torch counts them.
_parts_set: list[int] = []


def set_parts() -> list[int]:
    """How many parameters, buffers and submodules modules have got since the first call: a list that always
    holds the newest number.
    """
    if not _parts_set:
        _parts_set.append(0)

        def counted(*_: object) -> None:
            _parts_set[0] += 1

        torch.nn.modules.module.register_module_parameter_registration_hook(counted)
        torch.nn.modules.module.register_module_buffer_registration_hook(counted)
        torch.nn.modules.module.register_module_module_registration_hook(counted)
    return _parts_set


class GuardedValues(Values):
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
        set_parts()
        super().__init__(reads, objects)
        self._containers = [container for container, *_ in self._sizes]
        self._lengths = [size for _, size, _ in self._sizes]
        self._contents = [array.tobytes() for array, _ in self._arrays]
        self._requires_grad, self._addresses, self._num_hooks = self._of_tensors().values()
        self._counts: tuple[int, ...] = (RemovableHandle.next_id, *_parts_set)
        self._modes = (is_grad_enabled(), get_default_dtype(), has_autocast(), num_function_modes())
        self.left = [(kept, name, path, kept[name]) for kept, name, path in self.assigned]

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
