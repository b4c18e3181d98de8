"""Watches the calls that are recorded, and says whether a replay still does what the call would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from spreeze_zmq.nn.device.contents import is_strided
from spreeze_zmq.nn.device.guards import GuardedValues, differ
from spreeze_zmq.nn.device.reads import PLAIN, Reads
from spreeze_zmq.nn.device.values import MISSING

ResultT = TypeVar("ResultT")

#: A recording that is replayed as often has paid for itself.
STEADY = 100
#: Recordings in turn that may be replayed less often; then calls that are not recorded before another try.
MOST_CHANGES, REST = 5, 1000


class Watch:
    """What the code of a recorded function reads and assigns, over two calls in turn.

    Attributes:
        ready: whether a replay may take the place of a call.
        refusal: why none ever may; empty if nothing is known against it.
        assigned: where a call assigns what it does not read, under which name, and what makes the value.
        resting: whether the refusal holds for the next ``REST`` calls alone.
    """

    def __init__(self) -> None:
        self.ready, self.refusal, self.resting = False, "", False
        self._earlier: tuple[Reads, GuardedValues] | None = None
        self._guard: GuardedValues | None = None
        self._reads = Reads()
        self.assigned: list[tuple[dict[str, Any], str, Callable[[], Any]]] = []
        self._replays = self._changes = 0

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those that the code finds in Python's objects."""
        return [] if self._guard is None else self._guard.tensors

    def holds(self) -> bool:
        """Whether all values are those of the recording; else it starts over."""
        assert self._guard is not None
        if not self._guard.holds() and (path := self._guard.changed()):
            self._start_over(path)
            return False
        self._replays += 1
        return True

    def assign(self) -> None:
        """Assign what the call would assign, after a replay."""
        for container, name, made in self.assigned:
            container[name] = made()

    def call(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function``, and compare what it reads with the call before."""
        earlier, self.ready = self._earlier, False
        moved = earlier[1].changed() if earlier is not None else ""
        if earlier is not None and moved:
            self._reads = earlier[0]
            self._start_over(moved)
            earlier = earlier[0], GuardedValues(earlier[0], earlier[0].objects.values())
        before = {} if earlier is None else _values(earlier[1])
        reads = Reads()
        with reads.watching():
            result = function()
        self._reads = reads
        self.refusal = self.refusal or reads.refusal
        if earlier is not None and (path := earlier[1].changed()):
            read = self._reads.place_of(_name_of(path))
            changed = f"changes {self._named(path, stored=True)}, which it also reads{read}"
            self.refusal, self.resting = f"{changed}, or another object's of that name", False
        if self.refusal:
            return result
        if earlier is None or moved or earlier[0].authors.keys() != reads.authors.keys():
            self._changes += earlier is not None and not moved
            self._earlier = reads, GuardedValues(reads, reads.objects.values())
        else:
            self._compare(earlier[0], reads, before)
        return result

    def _start_over(self, path: str) -> None:
        """Forget the recording because a value has changed; refuse the next ones where that is frequent."""
        self._changes = self._changes + 1 if self._replays < STEADY else 0
        self.ready, self._earlier, self._guard, self._replays = False, None, None, 0
        if self._changes > MOST_CHANGES:
            hint = "a 0-d tensor that is moved in place is read at each replay"
            self.refusal = f"reads {self._named(path)}, which changes every few updates; {hint}"
            self.resting = True

    def _compare(self, earlier: Reads, reads: Reads, before: dict[tuple[int, str], tuple[Any, Any]]) -> None:
        objects = [found for key, found in reads.objects.items() if key in earlier.objects]
        guard = GuardedValues(reads, objects)
        self.refusal, self.assigned = guard.refusal, []
        memory = {tensor.untyped_storage().data_ptr() for tensor in guard.tensors}
        for container, name, path in guard.assigned:
            then, start = before.get((id(container), name), (MISSING, MISSING))
            if container[name] is start:
                guard.keep(container, name, path)
            elif (made := _maker(container[name], then, memory)) is not None:
                self.assigned.append((container, name, made))
            else:
                why = "to another value at each call; a tensor is assigned at each replay, too"
                self.refusal = self.refusal or f"sets {self._named(path, stored=True)} {why}"
        reads.objects.clear()
        self._guard, self._earlier, self.ready = guard, None, not self.refusal

    def _named(self, path: str, stored: bool = False) -> str:
        return path + self._reads.place_of(_name_of(path), stored)


def _name_of(path: str) -> str:
    return path.split("[")[0].split(" of ")[0].rsplit(".", 1)[-1]


def _values(guard: GuardedValues) -> dict[tuple[int, str], tuple[Any, Any]]:
    """What the call before has left of the values that it assigned, and what they are now."""
    return {(id(kept), name): (then, kept.get(name, MISSING)) for kept, name, _, then in guard.left}


def _maker(value: Any, earlier: Any, memory: set[int]) -> Callable[[], Any] | None:
    """A function that makes the value which a call would have assigned: its tensors anew, as copies of those
    that the replay has filled, unless they share ``memory`` with others. None where that is not known.
    """
    (leaves, tree), (others, other_tree) = tree_flatten(value), tree_flatten(earlier)
    if tree != other_tree:
        return None
    makers: list[Callable[[], Any]] = []
    for leaf, other in zip(leaves, others, strict=True):
        if isinstance(leaf, torch.Tensor) and not is_strided(leaf):
            return None
        if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in memory:
            makers.append(leaf.detach().clone)
        elif isinstance(leaf, torch.Tensor) or (isinstance(leaf, PLAIN) and not differ(leaf, other)):
            makers.append(lambda leaf=leaf: leaf)  # type: ignore[misc]
        else:
            return None
    return lambda: tree_unflatten([made() for made in makers], tree)
