"""Callbacks by name, ``module:Class``, and the check that an object can be one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from types import CodeType
from typing import Any

from spreeze_zmq.base.errors import InputError, in_one_line, let_interrupts_pass, place_of
from spreeze_zmq.base.importing import hides_yours
from spreeze_zmq.base.schema import did_you_mean, nearest
from spreeze_zmq.base.trust import IS_IT_THERE
from spreeze_zmq.callbacks import loggers
from spreeze_zmq.callbacks.callback import Callback

EXPECTED = 'expected "my_module:MyClass", a class that inherits spreeze_zmq.Callback'


def kind_of(name: str) -> type[Callback]:
    """The class called ``module:Class``.

    Raises:
        InputError: there is none, it is no callback, or a module that it needs is not installed.
    """
    module_name, colon, class_name = name.partition(":")
    if not (module_name and colon and class_name):
        raise InputError(f"callback {name}: {EXPECTED}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"callback {name}: no module is called {error.name!r}; {IS_IT_THERE}") from None
    except BaseException as error:
        let_interrupts_pass(error)
        raise InputError(f"callback {name}: {place_of(error)}: {in_one_line(error)}") from error
    kind = getattr(module, class_name, None)
    if kind is None:
        near = did_you_mean(class_name, vars(module))
        raise InputError(
            f"callback {name}: the module {module_name} has no class {class_name}{near and '; '}{near}"
            f"{hides_yours(module_name)}"
        )
    if not (inspect.isclass(kind) and issubclass(kind, Callback)):
        raise InputError(f"callback {name}: {kind!r:.80} is no class that inherits spreeze_zmq.Callback")
    _check(kind)
    if not hasattr(kind.end_s, "__get__"):  # else its object alone knows
        _check_end(kind.end_s, kind)
    return kind


def made(name: str) -> Callback:
    """An object of the class called ``module:Class``.

    Raises:
        InputError: as :func:`kind_of`, or it cannot be made without arguments.
    """
    kind = kind_of(name)
    try:
        callback = kind()
    except BaseException as error:
        let_interrupts_pass(error)
        where = place_of(error)
        raise InputError(
            f"callback {name}: it cannot be made without arguments: {in_one_line(error)} [{where}]"
        ) from error
    _check_end(callback.end_s, kind)
    return callback


def checked(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks that a caller gives: objects, or names.

    Raises:
        InputError: one of them is none.
    """
    if isinstance(callbacks, str | Callback) or not isinstance(callbacks, Sequence):
        raise InputError(f"callbacks: expected a list, got {callbacks!r:.80}; write callbacks=[...]")
    found = [made(each) if isinstance(each, str) else each for each in callbacks]
    for place, each in enumerate(found):
        if not isinstance(each, Callback):
            hint = "make an object of it: MyClass()" if inspect.isclass(each) else EXPECTED
            raise InputError(f"callbacks[{place}]: {each!r:.80} is no callback; {hint}")
        _check(type(each))
        _check_end(each.end_s, type(each))
    return tuple(found)


def may_stop(kinds: Iterable[type[Callback]]) -> bool:
    """Whether one of these callbacks may end a run: any but the shipped loggers, which only draw."""
    return any(kind.__module__ != loggers.__name__ for kind in kinds)


def _check_end(end_s: Any, kind: type[Callback]) -> None:
    """Raise InputError where the ``end_s`` of a callback is no time that can be waited for."""
    if isinstance(end_s, bool) or not isinstance(end_s, Real) or not 0 <= float(end_s) < math.inf:
        raise InputError(
            f"callback {kind.__name__}: end_s is {end_s!r:.40}: expected seconds, as in end_s = 10.0"
        )


def _check(kind: type[Callback]) -> None:
    """Raise InputError where a module that a callback needs is not installed, or is too old, or nothing calls
    its method.
    """
    for module in kind.needs:
        if importlib.util.find_spec(module) is None:
            shipped = kind.__module__ == loggers.__name__
            package = f"'spreeze_zmq[{module}]'" if shipped else module
            raise InputError(
                f"callback {kind.__name__}: the package {module} is missing: pip install {package}"
            )
    for module, least in kind.oldest.items():
        from importlib import metadata  # with email, which takes as long as zmq

        with contextlib.suppress(
            metadata.PackageNotFoundError
        ):  # one that is beside the script, for instance
            if _release(here := metadata.version(module)) < _release(least):
                raise InputError(
                    f"callback {kind.__name__}: {module} {least} or newer is needed, and here is {here}: "
                    f"pip install -U '{module}>={least}'"
                )
    heard = [name for name in vars(Callback) if name.startswith("on_")]
    own = [(name, value) for base in kind.__mro__ for name, value in vars(base).items()]
    called = {word for _, each in own for word in _names_in(getattr(inspect.unwrap(each), "__code__", None))}
    for name, value in own:
        if callable(value) and name.startswith("on_") and name not in heard and name not in called:
            near = nearest(name, heard, 0.75)
            hint = f'did you mean "{near}"?' if near else f"a run calls {', '.join(heard)}"
            raise InputError(f"callback {kind.__name__}: nothing calls its {name}; {hint}")


def _release(version: str) -> list[int]:
    """The three numbers that a version begins with."""
    return [int(number) for number in re.findall("[0-9]+", version)[:3]]


def _names_in(code: CodeType | None) -> Iterator[str]:
    """The names that a function uses of others, also within its comprehensions and functions."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            yield from _names_in(inner if isinstance(inner, CodeType) else None)
