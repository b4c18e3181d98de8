"""Names in an algorithm's file that are the library's: ones that nothing reads, because they almost are ones
that the library does, and ones that it sets itself.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import FunctionType
from typing import Any

from spreeze_zmq.algorithms.algorithm import SET_BY_LIBRARY, Algorithm
from spreeze_zmq.base.schema import nearest, own_fields

#: Likeness, as difflib measures it, from which a name is a misspelt one: below it are names such as
#: ``policy_logits``, which algorithms have for themselves.
NEAR = 0.85
#: Hooks of rollouts, which a replay has no use for.
ROLLOUT_HOOKS = ("targets_of", "memory_size")

_LIBRARY = __package__.partition(".")[0]


@dataclass
class _Written:
    """The names in one source file.

    Attributes:
        read: each name that is read, with the names of the functions around it.
        assigned: by class, the attributes of ``self`` that are assigned, and the line of each.
    """

    read: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    assigned: dict[str, dict[str, int]] = field(default_factory=dict)


def misspelt(kind: type[Algorithm]) -> list[str]:
    """A line for each method, class attribute, attribute of ``self`` and option that the user's classes
    define, that nothing in their files reads, and whose name is nearly one that they inherit; and for each
    hook that the library does not call in an algorithm of this kind.
    """
    own = [base for base in kind.__mro__ if issubclass(base, Algorithm) and not is_library(base)]
    files = [found for base in own if (found := _written(inspect.getmodule(base))) is not None]
    if not own or len(files) < len(own):
        return []  # a class without a source, as in an interpreter: nobody knows what reads its names
    lines = [line for base in own for line in _of_class(base, files)]
    lines += _of_self(kind, own, files)
    options = [base for base in kind.Options.__mro__ if not is_library(base) and base is not object]
    lines += [line for base in options for line in _of_options(base, files)]
    return [*dict.fromkeys(lines), *_never_called(kind, own)]


def overwritten(kind: type[Algorithm]) -> Iterator[str]:
    """A line for each name in the user's classes, of the class or of ``self``, that the library sets in every
    instance: whatever it means there would be lost.
    """
    for base in (base for base in kind.__mro__ if not is_library(base)):
        written = _written(inspect.getmodule(base))
        assigned = {} if written is None else written.assigned.get(base.__name__, {})
        for name in SET_BY_LIBRARY:
            if name in vars(base):
                place = _place(vars(base)[name], base)
            elif name in assigned:
                place = f"{inspect.getsourcefile(base)}:{assigned[name]}: "
            else:
                continue
            yield f"{place}the library sets {name} itself; give yours another name"


def is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == _LIBRARY


def _of_class(base: type[Algorithm], files: Iterable[_Written]) -> Iterator[str]:
    """Names in the body of one class that it does not inherit and that nothing reads."""
    above = base.__mro__[1:]
    known = {name for other in above if issubclass(other, Algorithm) for name in vars(other)}
    hooks = {name for name in known if not name.startswith("_")} - vars(base).keys()
    if not issubclass(getattr(base, "Options", object), _on_policy_options()):
        hooks -= set(ROLLOUT_HOOKS)
    for name, value in vars(base).items():
        if name.startswith("_") or name in known or _is_read(name, files):
            continue
        if near := _near(name, hooks):
            called = "calls" if isinstance(value, (FunctionType, classmethod, staticmethod)) else "reads"
            place = _place(value, base)
            yield f'{place}the library never {called} {name}; did you mean "{near}"?'


def _of_self(kind: type[Algorithm], own: Iterable[type], files: Iterable[_Written]) -> Iterator[str]:
    """Attributes that are assigned to ``self``, almost as those of the library's classes, and never read."""
    library = [base for base in kind.__mro__ if issubclass(base, Algorithm) and is_library(base)]
    known: set[str] = set()
    for base in library:
        known.update(vars(base))
        if (written := _written(inspect.getmodule(base))) is not None:
            known.update(written.assigned.get(base.__name__, {}))
    for base, file in zip(own, files, strict=True):
        for name, line in file.assigned.get(base.__name__, {}).items():
            if name.startswith("_") or name in known or hasattr(kind, name) or _is_read(name, files):
                continue
            if near := _near(name, {each for each in known if not each.startswith("_")}):
                place = f"{inspect.getsourcefile(base)}:{line}: "
                yield f'{place}nothing reads self.{name}; did you mean "{near}"?'


def _of_options(base: type, files: Iterable[_Written]) -> Iterator[str]:
    """Options almost as inherited ones that nothing reads, and defaults that change no option."""
    above = [other for other in base.__mro__[1:] if is_dataclass(other)]
    inherited = {item.name for other in above for item in fields(other)}
    declared = own_fields(base)
    for name in vars(base).keys() & inherited.difference(declared):
        example = f'{name}: float = option(..., "what it is")'
        yield f"its {name} in class {base.__name__} changes no default: write {example}"
    for name in declared:
        if name in inherited or name.startswith("_") or _is_read(name, files):
            continue
        if near := _near(name, inherited):
            yield f'nothing reads its option {name}; did you mean "{near}"?'


def _never_called(kind: type[Algorithm], own: Iterable[type]) -> Iterator[str]:
    """Hooks that the user's classes define in vain."""
    written = {name for base in own for name in vars(base)}
    if not kind.on_policy() and "targets_of" in written:
        yield "the library never calls targets_of without rounds; let Options inherit RolloutOptions"
    if kind.on_policy() and "relabel" in written:
        yield "the library never calls relabel without a replay; let Options inherit ReplayOptions"
    if not kind.has_policy_loss() and "after_policy_step" in written:
        yield "the library never calls after_policy_step without a policy_loss; use after_critic_step"


def _near(name: str, known: Collection[str]) -> str:
    """The known name that ``name`` is nearly; empty if there is none."""
    words = name.split("_")
    for other in sorted(known):
        theirs = other.split("_")
        if len(words) == len(theirs) >= 3 and sum(a != b for a, b in zip(words, theirs, strict=True)) == 1:
            return other  # as after_critic_update
    return nearest(name, known, NEAR)


def _is_read(name: str, files: Iterable[_Written]) -> bool:
    """Whether a file reads a name anywhere but in a function of that name."""
    return any(name == read and name not in around for file in files for read, around in file.read)


def _place(value: Any, base: type) -> str:
    """``file:line: `` of a method, or of the class."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    try:
        thing = function if isinstance(function, FunctionType) else base
        return f"{inspect.getsourcefile(thing)}:{inspect.getsourcelines(thing)[1]}: "
    except (OSError, TypeError):
        return ""


def _on_policy_options() -> type:
    from spreeze_zmq.algorithms.options import RolloutOptions

    return RolloutOptions


@cache
def _written(module: Any) -> _Written | None:
    """What the file of a module reads and assigns; None where there is no file."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return None
    found = _Written()
    _walk(tree, "", (), found)
    return found


def _walk(node: ast.AST, inside: str, around: tuple[str, ...], found: _Written) -> None:
    """Enter the names below ``node``, which is in the class ``inside`` and the functions ``around`` it."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            found.read.append((name, around))
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found.assigned.setdefault(inside, {}).setdefault(name, node.lineno)
        case ast.Constant(value=str(name)):
            found.read.append((name, around))
        case ast.FunctionDef(name=name):
            around = (*around, name)
        case ast.ClassDef(name=name):
            inside = name
    for child in ast.iter_child_nodes(node):
        _walk(child, inside, around, found)
