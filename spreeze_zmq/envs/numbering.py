"""The number of each environment of a run, in place of ``{index}`` in its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.errors import InvalidEnvironment

#: ``{index}`` and ``{index:03d}`` are replaced, ``{{index}}`` is the text itself; other braces stay.
_FORM = re.compile(r"\{(\{[A-Za-z_]\w*(?::[^{}]*)?\})\}|\{([A-Za-z_]\w*)(:[^{}]*)?\}")
NAME = "index"


def has_number(value: Any) -> bool:
    """Whether a value has the placeholder in one of its texts."""
    if isinstance(value, str):
        return any(found[2] == NAME for found in _FORM.finditer(value))
    if isinstance(value, Mapping):
        return any(map(has_number, value.values()))
    return isinstance(value, list | tuple) and any(map(has_number, value))


def numbered(value: Any, index: int) -> Any:
    """A value with the number in place of each ``{index}``; a text that is nothing else becomes an integer.

    Raises:
        InvalidEnvironment: there is another placeholder, or its format is none for a number.
    """
    if isinstance(value, str):
        return index if value == f"{{{NAME}}}" else _FORM.sub(lambda found: _filled(found, index), value)
    if isinstance(value, Mapping):
        return {key: numbered(item, index) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [numbered(item, index) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _filled(found: re.Match[str], index: int) -> str:
    text, name, form = found.groups()
    if text is not None:
        return str(text)
    if name != NAME:
        raise InvalidEnvironment(
            f"env_kwargs: '{found[0]}' is no placeholder: {{{NAME}}} is the number of the environment, and"
            f" '{{{found[0]}}}' is written for the text itself"
        )
    try:
        return format(index, (form or ":")[1:])
    except ValueError as error:
        raise InvalidEnvironment(f"env_kwargs: '{found[0]}': {error}") from None
