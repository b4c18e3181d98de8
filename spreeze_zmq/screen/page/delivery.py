"""Sends to browsers and from them, and waits for nobody who takes nothing."""

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


async def exchange(one: Connection, other: Connection) -> None:
    """Send each what the other sends, until one has gone.

    Raises:
        ConnectionClosed: one has gone without a word.
        TimeoutError: one takes nothing.
    """
    directions = [asyncio.ensure_future(_forward(*ends)) for ends in ((one, other), (other, one))]
    await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    for direction in directions:
        direction.cancel()
    for fault in await asyncio.gather(*directions, return_exceptions=True):  # both may have failed at once
        if isinstance(fault, Exception):
            raise fault


async def _forward(source: Connection, target: Connection) -> None:
    async for message in source:
        await deliver(target, message)
