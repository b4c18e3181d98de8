"""What the code of environments sets for the whole of its process: it has effect while that code runs, and
nothing else there goes by it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P, _T = ParamSpec("_P"), TypeVar("_T")

#: How NumPy handles floating-point errors in the code of this process's environments, where that has set it.
_THEIRS: dict[str, Any] = {}
_HERE = threading.local()
#: What processes with environments log by.
_LOGS = tuple(map(logging.getLogger, ("spreeze", "spreeze.envs")))


@contextmanager
def theirs() -> Iterator[None]:
    """Run code of environments by what such code has set: by ``np.seterr(all="raise")`` the process would end
    at the first number of a policy that rounds to 0. Loggers of this package that it has disabled are enabled
    again.
    """
    if getattr(_HERE, "inside", False):
        yield
        return
    ours, level = np.geterr(), logging.root.manager.disable
    enabled = [log for log in _LOGS if not log.disabled]
    _HERE.inside = True
    np.seterr(**{**ours, **_THEIRS})
    try:
        yield
    finally:
        found: dict[str, Any] = {**np.geterr()}
        _THEIRS.clear()
        _THEIRS.update(found if found != ours else {})
        np.seterr(**ours)
        if logging.root.manager.disable != level:
            logging.disable(level)
        for log in enabled:
            log.disabled = False
        _HERE.inside = False


def called(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of a function that calls code of environments, under :func:`theirs` if that is of use."""
    if not _THEIRS:
        return function(*args, **kwargs)
    with theirs():
        return function(*args, **kwargs)
