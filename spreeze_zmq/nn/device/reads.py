"""Finds what a call's Python code reads besides tensors: which code runs, on which objects, by which names.

A recording holds the numbers that Python gave to torch. They are the numbers of the next call only while
everything that the code has read is as it was, which ``guards.py`` checks.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import gc
import random
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from spreeze_zmq.nn.native.recording import AUTHOR, INTERNAL, LIBRARY, STANDARD, author_frame, origin

#: Modules whose functions give another result, or do another thing outside, at each call.
MOVING = {
    *("time", "random", "_random", "secrets", "uuid", "logging", "os", "posix", "nt", "datetime", "_io"),
    *("socket", "_socket", "subprocess", "sqlite3", "numpy.random", "torch.random"),
}
#: Values without contents that could change, and tensors, which a replay reads itself.
PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.Tensor,
    torch.dtype,
    torch.device,
    torch.Size,
)
#: Functions of Python that do; and those that find attributes by a computed name.
OUTSIDE, COMPUTED = {"print", "input", "open"}, {"getattr", "hasattr", "setattr", "delattr", "vars", "dir"}


class Names(NamedTuple):
    """The names that one function's code uses.

    Attributes:
        loaded: attributes and texts, which may be attributes' names.
        stored: attributes that it assigns or deletes.
        variables: global variables that it reads.
        assigned: global variables that it assigns.
    """

    loaded: frozenset[str]
    stored: frozenset[str]
    variables: frozenset[str]
    assigned: frozenset[str]


@cache
def names_of(code: CodeType) -> Names:
    """The names in a function's bytecode, without those of functions inside it."""
    found: dict[str, set[str]] = {name: set() for name in Names._fields}
    for step in dis.get_instructions(code):
        if step.opcode not in dis.hasname:
            continue
        is_global = step.opname.endswith(("_GLOBAL", "_NAME")) and not step.opname.startswith("IMPORT")
        if step.opname.startswith(("STORE_", "DELETE_")):
            found["assigned" if is_global else "stored"].add(step.argval)
        else:
            found["variables" if is_global else "loaded"].add(step.argval)
    texts = (text for text in code.co_consts if isinstance(text, str) and text.isidentifier())
    found["loaded"].update(texts)
    return Names(*map(frozenset, found.values()))


class Reads:
    """What the calls inside :meth:`watching` have run.

    Attributes:
        codes: the functions' code, of authors and of the libraries that hold their objects.
        authors: that of authors.
        objects: those that the code had in its variables, by ``id``, with their names.
        modules: the global variables of authors' code, by ``id``: all of a module, and the names of those
            that are read and of those that are assigned.
        names: attributes that the code loads.
        computed: ``id`` of objects whose attributes it may find by a computed name.
        refusal: why its results may be others at the next call; empty if nothing is known.
    """

    def __init__(self) -> None:
        self.codes: dict[CodeType, None] = {}
        self.authors: dict[CodeType, None] = {}
        self.objects: dict[int, tuple[object, str]] = {}
        self.modules: dict[int, tuple[dict[str, Any], set[str], set[str]]] = {}
        self.names: set[str] = set()
        self.computed: set[int] = set()
        self.refusal = ""
        self._imports = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, all Python code of this thread is watched; backward passes on a GPU run in it, too."""
        if sys.getprofile() is not None:
            self.refusal = "is watched by a profiler"
            yield
            return
        before = _states_of_generators()
        multithreading: Any = torch.autograd.set_multithreading_enabled
        with multithreading(False), _without_collection():
            sys.setprofile(self._see)
            try:
                yield
            finally:
                sys.setprofile(None)
        if _states_of_generators() != before:
            self._refuse("draws random numbers that are not torch's", None)

    def stored(self) -> set[str]:
        """The attributes that its code assigns."""
        return {name for code in self.codes for name in names_of(code).stored}

    def place_of(self, name: str, stored: bool = False) -> str:
        """``" (file:line)"`` where authors' code, or else a library's, reads a name first, or has ``stored``
        it; else where it does the other; or empty.
        """
        kinds, otherwise = {AUTHOR: 0, LIBRARY: 1, STANDARD: 2}, ""
        for code in sorted(self.codes, key=lambda code: kinds[origin(code.co_filename)]):
            line = code.co_firstlineno
            for step in dis.get_instructions(code):
                line = getattr(step, "line_number", step.starts_line) or line  # a flag since Python 3.13
                if step.argval == name and step.opcode not in dis.haslocal:
                    place = f" ({code.co_filename}:{line})"
                    if step.opname.startswith(("STORE", "DELETE")) is stored:
                        return place
                    otherwise = otherwise or place
        return otherwise

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        kind = origin(frame.f_code.co_filename)
        if kind == STANDARD and frame.f_code.co_name == "_find_and_load":  # of the import system
            self._imports += {"call": 1, "return": -1}.get(event, 0)
        if self._imports:
            return
        if kind == INTERNAL:
            if event == "call" and frame.f_globals.get("__name__") in MOVING:
                self._called_moving(frame)
        elif event == "c_call":
            self._see_builtin(frame, kind, argument)
        elif event in ("call", "return"):
            if event == "call":
                self._see_code(frame, kind)
            if kind == AUTHOR:
                self._keep(frame.f_locals)
            elif kind == LIBRARY and "self" in frame.f_locals:
                self._keep({"self": frame.f_locals["self"]})

    def _see_code(self, frame: FrameType, kind: str) -> None:
        code, is_inner = frame.f_code, _runs_for(frame.f_back) == INTERNAL
        if kind == STANDARD and is_inner:
            return
        if code not in self.codes:
            self.codes[code] = None
            self.names |= names_of(code).loaded
        if kind == AUTHOR or not is_inner:  # by that name it was found; internal code has found it before
            self.names.add(code.co_name)
        if kind == AUTHOR and frame.f_globals.get("__name__") in sys.modules:
            self.authors[code] = None
            _, read, assigned = self.modules.setdefault(id(frame.f_globals), (frame.f_globals, set(), set()))
            read |= names_of(code).variables
            assigned |= names_of(code).assigned
            if "__dict__" in names_of(code).loaded:
                self.computed.update(map(id, frame.f_locals.values()))
        if code.co_name in ("__getattr__", "__getattribute__") and code.co_argcount == 2:
            self.names.add(str(frame.f_locals[code.co_varnames[1]]))
        if kind == STANDARD and frame.f_globals.get("__name__") in MOVING:
            self._called_moving(frame)

    def _called_moving(self, frame: FrameType) -> None:
        """Refuse a call of a Python function of ``MOVING`` by an author's code."""
        caller, home = frame.f_back, frame.f_globals["__name__"]
        while home.startswith("torch") and caller is not None:  # through torch's own wrappers
            if origin(caller.f_code.co_filename) != INTERNAL:
                break
            caller = caller.f_back
        if caller is not None and origin(caller.f_code.co_filename) == AUTHOR:
            self._refuse(f"calls {home}.{frame.f_code.co_name}", caller)

    def _see_builtin(self, frame: FrameType, kind: str, function: Any) -> None:
        if kind == LIBRARY:
            return
        owner, name = getattr(function, "__self__", None), function.__name__
        if owner is builtins:
            if name in COMPUTED:
                self.computed.update(map(id, frame.f_locals.values()))
            if name in OUTSIDE and _is_authors(frame):
                self._refuse(f"calls {name}", frame)
            return
        if owner is None or isinstance(owner, ModuleType):
            home = function.__module__
        else:
            home = (owner if isinstance(owner, type) else type(owner)).__module__
        if home in MOVING and _is_authors(frame):
            self._refuse(f"calls {home}.{name}", frame)

    def _keep(self, variables: Mapping[str, Any]) -> None:
        for name, value in variables.items():
            if not isinstance(value, PLAIN) and not name.startswith("."):  # the iterator of a comprehension
                label = type(value).__qualname__ if name == "self" else name
                self.objects.setdefault(id(value), (value, label))

    def _refuse(self, why: str, frame: FrameType | None) -> None:
        frame = author_frame(frame)
        code = frame.f_code if frame is not None else next(iter(self.authors), None)
        line = frame.f_lineno if frame is not None else getattr(code, "co_firstlineno", 0)
        where = f" ({code.co_filename}:{line})" if code is not None else ""
        self.refusal = self.refusal or f"{why}{where}"


def _runs_for(frame: FrameType | None) -> str:
    """Whose code runs: where it is Python's own library, whose code has called that."""
    while frame is not None and origin(frame.f_code.co_filename) == STANDARD:
        frame = frame.f_back
    return STANDARD if frame is None else origin(frame.f_code.co_filename)


def _is_authors(frame: FrameType | None) -> bool:
    """Whether an author's code runs, or Python's library for it."""
    return _runs_for(frame) == AUTHOR


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Inside, the garbage collector runs no finalizers and callbacks in the midst of the watched code."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _states_of_generators() -> tuple[object, list[object]]:
    """Of Python's and numpy's global random generators."""
    state: Any = np.random.get_state(legacy=False)
    inner = state["state"].values()
    return random.getstate(), [each.tobytes() if hasattr(each, "tobytes") else each for each in inner]
