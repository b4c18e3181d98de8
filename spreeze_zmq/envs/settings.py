"""What the code of environments sets for the whole of its process: it has effect while that code runs, and
nothing else there goes by it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np

from spreeze_zmq.base.importing import loaded

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: What the code of this process's environments has set: of ``_now()`` all, where one differs from ours.
_THEIRS: dict[str, Any] = {}
_HERE = threading.local()
#: What processes with environments log by.
_LOGS = tuple(map(logging.getLogger, ("spreeze", "spreeze.envs")))


@contextmanager
def theirs() -> Iterator[None]:
    """Run code of environments by what such code has set: by ``np.seterr(all="raise")`` the process would end
    at the first number of a policy that rounds to 0, and by ``torch.set_grad_enabled(False)`` no learner
    trains. The number of torch's threads is the run's, and so is whether this package's loggers log.
    """
    if getattr(_HERE, "inside", False):
        yield
        return
    ours, threads, level = _now(), _threads(), logging.root.manager.disable
    enabled = [log for log in _LOGS if not log.disabled]
    _HERE.inside = True
    _set(_THEIRS)
    try:
        yield
    finally:
        found = _now()
        _THEIRS.clear()
        _THEIRS.update(found if found != ours else {})
        _set(ours)
        if threads and threads != _threads():
            loaded("torch").set_num_threads(threads)
        if logging.root.manager.disable != level:
            logging.disable(level)
        for log in enabled:
            log.disabled = False
        _HERE.inside = False


def called(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of a function that calls code of environments, under :func:`theirs` where such code has set
    anything: what this call is the first to set stays, see :func:`watched`.
    """
    return watched(function, *args, **kwargs) if _THEIRS else function(*args, **kwargs)


def watched(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of a function that calls code of environments, always under :func:`theirs`."""
    with theirs():
        return function(*args, **kwargs)


def _now() -> dict[str, Any]:
    """How NumPy handles errors of numbers, whether torch records gradients, the dtype of what it makes, and
    where Python prints.
    """
    found: dict[str, Any] = {"errors": np.geterr(), "gradients": True, "dtype": "float32"}
    found["streams"] = sys.stdout, sys.stderr
    if (torch := loaded("torch")) is not None:
        dtype = str(torch.get_default_dtype()).rpartition(".")[2]
        found |= {"gradients": torch.is_grad_enabled(), "dtype": dtype}
    return found


def _set(settings: Mapping[str, Any]) -> None:
    """Set what ``_now`` has found; nothing where that is empty."""
    if settings:
        np.seterr(**settings["errors"])
        sys.stdout, sys.stderr = settings["streams"]
    if settings and (torch := loaded("torch")) is not None:
        torch.set_grad_enabled(settings["gradients"])
        torch.set_default_dtype(getattr(torch, settings["dtype"]))


def _threads() -> int:
    """Those of torch; 0 where it is not loaded."""
    torch = loaded("torch")
    return 0 if torch is None else int(torch.get_num_threads())
