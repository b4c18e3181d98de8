"""Closes environments, whatever their ``close()`` raises: the end of the process frees what they hold."""

from __future__ import annotations

from typing import Any

from spreeze_zmq.errors import in_one_line, let_interrupts_pass, place_of


def close(env: Any) -> str:
    """Close an environment, or a batch of them; returns what it raised, in one line, or ""."""
    try:
        env.close()
    except BaseException as error:
        let_interrupts_pass(error)
        return f"close() raised {in_one_line(error)} [{place_of(error)}]"
    return ""
