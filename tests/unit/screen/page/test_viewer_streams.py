"""The page's connections that end: no fault is left for the event loop to complain of."""

import asyncio
import gc

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosedError

from spreeze_zmq.screen.page.delivery import exchange


async def complaints_once_both_ends_have_gone():
    """What the event loop says of faults that nobody has taken."""
    said = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: said.append(about["message"]))
    async with serve(lambda each: each.wait_closed(), "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        ends = [await connect(f"ws://{host}:{port}", open_timeout=20) for _ in range(2)]
        for end in ends:
            loop.call_later(0.05, end.transport.abort)
        with pytest.raises(ConnectionClosedError):
            await exchange(*ends)
    gc.collect()
    await asyncio.sleep(0)
    return said


def test_both_ends_of_a_stream_may_go_at_once():
    """As where a browser and the viewer end together: one fault is passed on, the other is taken too."""
    assert asyncio.run(complaints_once_both_ends_have_gone()) == []
