"""Sends to browsers, and waits for none that takes nothing."""

from __future__ import annotations

import asyncio

from websockets.asyncio.connection import Connection

#: Longest time in which a browser takes what it is sent.
TAKES_WITHIN_S = 30.0


async def deliver(target: Connection, content: str | bytes) -> None:
    """Send one message.

    Raises:
        ConnectionClosed: the browser has gone.
        TimeoutError: it does not take it in time.
    """
    async with asyncio.timeout(TAKES_WITHIN_S):
        await target.send(content)
