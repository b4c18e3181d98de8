"""The arguments of ``train`` as words of the launcher's command line."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError

#: The program itself, here and in a process that ``multiprocessing`` has started.
_PROGRAM = ("__main__", "__mp_main__")
#: Keys that may have a table for a value: an option of the algorithm, an argument of the environment.
_OPTION = re.compile(r"algorithm\.|run\.\w+\.")


def env_name(env: str | Callable[..., Any]) -> str:
    """The name by which another process can make an environment.

    Raises:
        InputError: another process cannot import it.
    """
    if isinstance(env, str):
        return env
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", None)
    if not callable(env) or not isinstance(module, str) or not isinstance(name, str):
        raise InputError(
            f"train: expected an environment's id, class or function, got {env!r:.80}; the run's processes"
            " make environments of their own"
        )
    found = "" if module in _PROGRAM else _name_in(module, name, env)
    if not found:
        raise InputError(
            f"train: {name} {_where(module, name)}, where the run's processes cannot import it; write it at "
            "the top level of a file of its own, such as my_env.py, and give 'my_env:NAME'"
        )
    importlib.import_module(module)
    return f"{module}:{found}"


def _name_in(module: str, name: str, env: Any) -> str:
    """The name that a module has for an object which calls itself ``name``; empty for none. One that the
    module has made again since, as a notebook's reload does, is the same to a process that imports it; what
    wraps it calls itself the same, and is another.
    """
    loaded = sys.modules.get(module)
    now: Any = getattr(loaded, name, None)
    if now is env:
        return name
    names = [each for each, value in list(getattr(loaded, "__dict__", {}).items()) if value is env]
    is_made_again = (
        type(now) is type(env)
        and (now.__module__, now.__qualname__) == (module, name)
        and _num_wraps(now) == _num_wraps(env)
    )
    return names[0] if names else name if is_made_again else ""


def _num_wraps(made: Any) -> int:
    """The number of decorators by ``functools.wraps`` of a function or class."""
    wrapped = getattr(made, "__dict__", {}).get("__wrapped__")
    return 0 if wrapped is None else 1 + _num_wraps(wrapped)


def _where(module: str, name: str) -> str:
    """Where an object is that another process cannot import, behind its name."""
    if module in _PROGRAM:
        return "is defined in this script or notebook"
    if "<locals>" in name:
        return f"is defined in another function of {module}"
    if "." in name:
        return f"is a method or an inner class of {module}"
    return f"has no name in {module}"


def settings(table: Mapping[str, Any], prefix: str = "", *, over: bool = False) -> Iterator[str]:
    """``A.B=VALUE``, as ``--set`` takes it, for each key that these tables state. A key's own value is whole:
    nothing of what a topology has there is mixed with it. None stands for a key that is not given, but not
    among an environment's own arguments, where it may mean something.

    Args:
        table: of tables and values.
        prefix: the key of the table; empty for that of all.
        over: whether a topology has keys of its own: there a table without keys overrides none, and elsewhere
            it is stated, since a component or a source may need no key.

    Raises:
        InputError: TOML has no such value, or no such key.
    """
    for key, value in table.items():
        name = _key(key, prefix)
        name = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
        place = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and (value or over) and not _OPTION.match(place):
            yield from settings(value, place, over=over)
        elif value is not None or place.startswith("run.env_kwargs."):
            yield f"{place}={toml(value, place)}"


def _key(key: Any, place: str) -> str:
    """A key of the table ``place``. Raises InputError unless it is a text."""
    if isinstance(key, str):
        return str.__str__(key)  # an Enum's own texts are others
    raise InputError(f'train: {place}: expected keys that are texts, such as "{key!s:.40}", got {key!r:.80}')


def toml(value: Any, place: str) -> str:
    """A value in TOML's syntax; ``place`` is its key.

    Raises:
        InputError: TOML has no such value.
    """
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        value = value.tolist()
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return int.__repr__(value)  # an Enum's own text is another
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item, place) for item in value)}]"
    if isinstance(value, Mapping):
        items = [(json.dumps(_key(key, place)), toml(item, f"{place}.{key}")) for key, item in value.items()]
        return "{" + ", ".join(f"{key} = {item}" for key, item in items) + "}"
    named = "what other processes make themselves is named, as in 'my_module:name'"
    mend = "leave it out where that is its default" if value is None else named
    raise InputError(
        f"train: {place}: expected a number, a text, a list or a table, got {value!r:.80}; {mend}"
    )
