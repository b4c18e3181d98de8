"""Serves the page: its files, the feed and the agent's pictures, below a secret token on a local port.

``answers`` keeps strangers out. All that a browser may ask for is the curves of another run that was found
beside this one, and another value of a setting, which the broker grants or refuses as it does those of
observers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import socket
import threading
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from websockets.asyncio.server import Server as WebSocketServer
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.broker.requests import SET
from spreeze_zmq.screen.page.agent import PolicyPlayer
from spreeze_zmq.screen.page.answers import add_headers, below_token, moved, own_files, refusal, response
from spreeze_zmq.screen.page.delivery import deliver
from spreeze_zmq.screen.page.neighbours import Neighbours

log = logging.getLogger("spreeze")

#: Entries queued for one slow browser; beyond that its connection is closed, and it connects again.
MAX_WAITING = 2000
#: Longest time in which a client says what it wants, or closes its end.
ASKS_WITHIN_S = 5.0
#: Time between two pings, and in which they are answered: a machine that sleeps closes no connection.
PINGS_EVERY_S, ANSWERS_WITHIN_S = 20.0, 40.0
#: Longest time without a word on the feed: the page knows its connection from one that leads nowhere by it.
SPEAKS_WITHIN_S = 5.0
#: Bytes of what a browser asks for, and how it calls itself in the journal.
MAX_ASKED, WHO = 1000, "page"


class Server:
    """The page of one run, served by a thread of its own.

    Args:
        listener: the open port.
        token: the first part of every path.
        story: returns the entries for a new browser, oldest first; may be slow, runs in another thread.
        agent: shows the agent at work.
        neighbours: other runs whose curves may be drawn beside; None for none.
        ask: takes the fields of a ``request`` that a browser makes, in the server's thread; None where
            nothing may be asked for.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        story: Callable[[], Iterable[Mapping[str, Any]]],
        agent: PolicyPlayer,
        neighbours: Neighbours | None = None,
        ask: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._neighbours, self._ask = neighbours, ask
        self._listener, self._token, self._story, self._agent = listener, token, story, agent
        self._files = own_files()
        self._visitors: set[asyncio.Queue[str | None]] = set()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def num_visitors(self) -> int:
        """Number of browsers that show the run."""
        return len(self._visitors)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def send(self, entry: Mapping[str, Any]) -> None:
        """Send one entry to every browser; costs nothing without a browser."""
        if self._visitors:
            text = json.dumps(entry)
            self._loop.call_soon_threadsafe(self._spread, text)

    def close(self) -> None:
        """Send what is queued, close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(1.0)

    # --- in the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        if left := asyncio.all_tasks(self._loop):  # as of a client that has asked for nothing yet
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=0.2))

    async def _serve(self) -> None:
        server: WebSocketServer = await serve(
            self._visit,
            sock=self._listener,
            process_request=self._answer,
            process_response=add_headers,
            compression=None,
            ping_interval=PINGS_EVERY_S,
            ping_timeout=ANSWERS_WITHIN_S,
            open_timeout=ASKS_WITHIN_S,
            close_timeout=ASKS_WITHIN_S,
            max_size=2**20,
            logger=_quiet(),
        )
        self._started.set()
        await self._stopping.wait()
        self._spread(None)
        for _ in range(30):
            if not self._visitors:
                break
            await asyncio.sleep(0.01)
        server.close()
        await asyncio.wait([asyncio.ensure_future(server.wait_closed())], timeout=0.4)

    def _spread(self, text: str | None) -> None:
        for queue in list(self._visitors):
            if queue.qsize() < MAX_WAITING:
                queue.put_nowait(text)
            else:
                self._visitors.discard(queue)
                queue.put_nowait(None)

    async def _answer(self, visitor: ServerConnection, request: Request) -> Response | None:
        """Refuse strangers and answer requests for files; None lets a WebSocket begin."""
        if (why := refusal(request.path, request.headers, self._token)) is not None:
            return response(*why)
        path = below_token(request.path, self._token)
        if request.path == f"/{self._token}":  # the page's files are named below it
            return moved(f"/{self._token}/")
        wants_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        if wants_socket and (path in ("feed", "agent") or path.startswith("viewer/")):
            return None
        if path.startswith("viewer/"):
            query = urlsplit(request.path).query
            below = path.removeprefix("viewer/") + (f"?{query}" if query else "")
            return await self._agent.fetch(below) or response(HTTPStatus.NOT_FOUND)
        if not wants_socket and path.partition("/")[0] == "runs":
            return await self._answer_runs(unquote(path.partition("/")[2]))
        kind_and_content = self._files.get(path or "index.html")
        if wants_socket or kind_and_content is None:
            return response(HTTPStatus.NOT_FOUND, "there is no such page\n")
        kind, content = kind_and_content
        return response(HTTPStatus.OK, content, kind)

    async def _answer_runs(self, name: str) -> Response:
        """The other runs, or the curves of the one of this name; both are read by another thread."""
        content = None
        if self._neighbours is not None:
            read = functools.partial(self._neighbours.entries, name) if name else self._neighbours.listing
            content = await asyncio.to_thread(read)
        if content is None:
            return response(HTTPStatus.NOT_FOUND, "there is no such run\n")
        return response(HTTPStatus.OK, content, "application/json")

    async def _visit(self, visitor: ServerConnection) -> None:
        assert visitor.request is not None
        path = below_token(visitor.request.path, self._token)
        try:
            if path == "feed":
                await self._send_feed(visitor)
            elif path == "agent":
                await self._agent.show(visitor)
            else:
                await self._agent.connect(visitor.request.path.partition("/viewer/")[2], visitor)
        except ConnectionClosed:
            pass
        except TimeoutError:  # it takes nothing
            visitor.transport.abort()

    async def _send_feed(self, visitor: ServerConnection) -> None:
        """Send the entries so far, then every new one, and none where there is none for a while or the story
        takes its time.
        """
        waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._visitors.add(waiting)
        gone = asyncio.ensure_future(self._hear(visitor))
        over = asyncio.ensure_future(self._stopping.wait())
        told = self._tell()
        try:
            ends = (gone, over, told)
            while not (await asyncio.wait(ends, timeout=SPEAKS_WITHIN_S, return_when=FIRST_COMPLETED))[0]:
                await deliver(visitor, "[]")
            if not told.done():
                return
            await deliver(visitor, told.result())
            while True:
                following = asyncio.ensure_future(waiting.get())
                await asyncio.wait((gone, following), timeout=SPEAKS_WITHIN_S, return_when=FIRST_COMPLETED)
                text = following.result() if following.done() else ""
                following.cancel()
                if gone.done() or text is None:
                    return
                await deliver(visitor, f"[{text}]")
        finally:
            gone.cancel()
            over.cancel()
            told.cancel()
            self._visitors.discard(waiting)

    async def _hear(self, visitor: ServerConnection) -> None:
        """Pass on what a browser asks for, until it has gone."""
        with contextlib.suppress(ConnectionClosed):
            async for text in visitor:
                if self._ask is not None and (request := wish(text)) is not None:
                    self._ask(request)

    def _tell(self) -> asyncio.Future[str]:
        """The story as one text, to come from a thread that ends with the process, however long it takes."""
        told: asyncio.Future[str] = self._loop.create_future()

        def tell() -> None:
            try:
                text = "[" + ",".join(json.dumps(entry) for entry in self._story()) + "]"
                answer = functools.partial(told.set_result, text)
            except Exception as error:
                answer = functools.partial(told.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                self._loop.call_soon_threadsafe(lambda: told.cancelled() or answer())

        threading.Thread(target=tell, name="story", daemon=True).start()
        return told


def wish(text: str | bytes) -> dict[str, Any] | None:
    """The fields of a ``request`` for another value of a setting; None of what is no such thing."""
    if len(text) > MAX_ASKED:
        return None
    try:
        option, value = (json.loads(text)[name] for name in ("option", "value"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    if not isinstance(option, str) or not is_number:
        return None
    return {"who": WHO, "what": SET, "option": option, "value": float(value)}


def _quiet() -> logging.Logger:
    """A silent log for the library: browsers may leave at any time."""
    quiet = logging.getLogger("spreeze.page")
    quiet.setLevel(logging.CRITICAL)
    return quiet
