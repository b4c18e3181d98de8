"""A sampler's part of a checkpoint of a run in order: what it was in the middle of, as bytes and back.

The learner that keeps these bytes does not read them: MessagePack with arrays as maps, and no classes.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from spreeze_zmq.base.errors import StateNotKept

FORMAT = 1
#: The largest state of one sampler.
MOST_BYTES = 1 << 30
#: The key of a state that is none, but the reason why there is none.
WHY_NOT = "why_not"
_ARRAY = {"dtype", "shape", "bytes"}
_KINDS = "biuf"


def state_file(sampler: str) -> str:
    """The name of a sampler's part of a checkpoint."""
    return f"{sampler}.state"


def packed(state: dict[str, Any]) -> bytes:
    """The bytes of a state: None, flags, numbers, texts, arrays, and lists and maps of them.

    Raises:
        StateNotKept: it holds something else.
    """
    try:
        content: bytes = msgpack.packb({"format": FORMAT, **state}, default=_plain, strict_types=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise StateNotKept(f"{type(error).__name__}: {error}"[:200]) from error
    return content


def unpacked(content: bytes) -> dict[str, Any]:
    """The state of some bytes, which may be anybody's.

    Raises:
        StateNotKept: they are none of :func:`packed`.
    """
    try:
        state = msgpack.unpackb(content, object_hook=_array_or_map, max_ext_len=0)
    except Exception as error:  # untrusted bytes can make the parser raise anything
        raise StateNotKept(f"torn, or not a sampler's: {type(error).__name__}: {error}"[:200]) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise StateNotKept(f"its format is {str(found)[:20]}, this version reads {FORMAT}")
    return state


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _KINDS:
        raise TypeError(f"a {type(value).__name__} is no plain value")
    return {"dtype": value.dtype.str, "shape": list(value.shape), "bytes": value.tobytes()}


def _array_or_map(found: dict[str, Any]) -> Any:
    if found.keys() != _ARRAY:
        return found
    dtype = np.dtype(found["dtype"])
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(found["bytes"], dtype).reshape(found["shape"]).copy()
