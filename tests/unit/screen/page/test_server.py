"""The page's server and its end."""

import contextlib
import gc
import http.client
import json
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import closing
from urllib.parse import urlsplit

import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from spreeze_zmq.screen.page import address, delivery
from spreeze_zmq.screen.page import server as module
from spreeze_zmq.screen.page.agent import PolicyPlayer
from spreeze_zmq.screen.page.server import MAX_ASKED, Server, wish

SERVED = """
import signal, threading
from spreeze_zmq.screen.page import address
from spreeze_zmq.screen.page.server import Server

def story():
    print("told", flush=True)
    threading.Event().wait()

listener, over = address.open_port(0), threading.Event()
server = Server(listener, "token", story, None)
signal.signal(signal.SIGTERM, lambda *_: over.set())
server.start()
print(address.url(listener, "token"), flush=True)
over.wait()
server.close()
"""


def test_a_story_that_is_still_being_told_holds_up_no_end():
    """A browser waits for the story of a long run: SIGTERM ends the server, as without one."""
    process = subprocess.Popen([sys.executable, "-c", SERVED], stdout=subprocess.PIPE, text=True)
    with process:
        url = process.stdout.readline().strip()
        with connect(url.replace("http", "ws", 1) + "feed", open_timeout=20) as feed:
            assert process.stdout.readline() == "told\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert {*feed} <= {"[]"}


def asking(option="tau", value=0.01, **more):
    """What the page sends when somebody sets a value."""
    return json.dumps({"option": option, "value": value, **more})


def test_a_wish_is_an_option_and_a_number():
    """All else that a browser sends is passed over."""
    wished = {"who": "page", "what": "set", "option": "tau", "value": 0.01}
    assert wish(asking()) == wish(asking(what="stop", who="root")) == wished
    for text in (
        *(
            "",
            "{",
            "[]",
            "3",
            "null",
            "[" * 900,
            b"\xff",
            asking(option=3),
            asking(value="1"),
            '{"option": "a"}',
        ),
        *(asking(value=True), asking(value=float("nan")), asking(value=float("inf")), asking(value=1e300)),
        asking(option="x" * MAX_ASKED),
    ):
        assert wish(text) is None, text


@contextlib.contextmanager
def started(agent=None, story=list, **about):
    """A server's address, and itself."""
    listener = address.open_port(0)
    server = Server(listener, "token", story, agent, **about)
    server.start()
    with closing(server):
        yield address.url(listener, "token").replace("http", "ws", 1), server


@pytest.fixture
def served():
    """A server's address, and what its browsers have asked for."""
    asked = queue.Queue()
    with started(ask=asked.put) as (url, _):
        yield url, asked


def test_what_a_browser_asks_for_comes_to_whoever_runs_the_server(served):
    """Whatever else it sends before; and its feed goes on."""
    url, asked = served
    with connect(url + "feed", open_timeout=20) as feed:
        assert feed.recv(20) == "[]"
        for text in ("nonsense", b"\x00\x01", asking(value=0.5)):
            feed.send(text)
        assert asked.get(timeout=20)["value"] == 0.5
    assert asked.empty()


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null"])
def test_other_pages_and_those_without_the_token_ask_for_nothing(served, origin):
    """They get no connection."""
    url, asked = served
    with pytest.raises(InvalidStatus, match="403"):
        connect(url + "feed", open_timeout=20, origin=origin)
    with pytest.raises(InvalidStatus, match="403"):
        connect(url.replace("token", "tokem") + "feed", open_timeout=20)
    assert asked.empty()


def raw(url, text=b""):
    """A plain connection to the page's port, over which something was sent."""
    parts = urlsplit(url)
    client = socket.create_connection((parts.hostname, parts.port), 20)
    client.sendall(text)
    return client


def test_who_has_asked_for_nothing_when_the_server_ends_leaves_nothing_behind(caplog):
    """What waits for ever is destroyed later, and says so then, in the middle of whatever runs."""
    with started() as (url, server), raw(url):
        with connect(url + "feed", open_timeout=20):  # a later connection
            pass
        server.close()
        server._thread.join(20)
        del server
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def upgraded(url, name):
    """A plain connection over which a WebSocket has begun, in which nobody answers a ping."""
    host, path = urlsplit(url).netloc.encode(), urlsplit(url).path.encode() + name.encode()
    key = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + b64encode(bytes(16))
    version = b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
    client = raw(url, b"GET %s HTTP/1.1\r\nHost: %s\r\n" % (path, host) + key + version)
    assert client.recv(4096).startswith(b"HTTP/1.1 101")
    return client


def pour(client, piece, num_bytes=64 << 20):
    """Send what does not end, unless the server has hung up."""
    with contextlib.suppress(ConnectionError):
        for _ in range(num_bytes // len(piece)):
            client.sendall(piece)


FRAME = b"\x81\xff" + struct.pack(">Q", 1 << 40) + bytes(4)
FRAGMENTS = b"\x01\xfe\xff\xff" + bytes(4 + 0xFFFF), b"\x00\xfe\xff\xff" + bytes(4 + 0xFFFF)


@pytest.mark.parametrize("what", ["line", "headers", "body", "frame", "fragments", "many"])
def test_no_client_takes_memory_or_holds_up_others(served, what):
    """A line, headers or a body without end before the token is known; a frame of 2^40 bytes and a message of
    endless fragments of a browser that has it; five hundred that say nothing.
    """
    url, _ = served
    before = psutil.Process().memory_info().rss
    with contextlib.ExitStack() as ends:
        if what == "many":
            for _ in range(500):
                ends.enter_context(raw(url))
        elif what in ("frame", "fragments"):
            client = ends.enter_context(upgraded(url, "feed"))
            first, piece = (FRAME, bytes(65536)) if what == "frame" else FRAGMENTS
            client.sendall(first)
            pour(client, piece)
        else:
            begin = b"GET / HTTP/1.1\r\nHost: x\r\n"
            begin = {"line": b"GET /", "body": begin + b"Content-Length: 99999999999\r\n\r\n"}.get(
                what, begin
            )
            client = ends.enter_context(raw(url, begin))
            pour(client, b"a: b\r\n" * 8192 if what == "headers" else b"x" * 65536)
        with connect(url + "feed", open_timeout=20) as feed:
            assert feed.recv(20) == "[]"
    assert psutil.Process().memory_info().rss - before < 32 << 20


def test_who_says_nothing_or_reads_nothing_is_hung_up_on(monkeypatch):
    """In time; what waits for a browser that reads nothing has a bound, and others get all of it."""
    with monkeypatch.context() as impatient:
        impatient.setattr(module, "ASKS_WITHIN_S", 0.3)
        with started() as (url, _), raw(url, b"GET /to") as slow:
            slow.settimeout(20)
            assert slow.recv(100) == b""
    monkeypatch.setattr(delivery, "TAKES_WITHIN_S", 0.3)
    with started() as (url, server):
        deaf = connect(url + "feed", open_timeout=20, close_timeout=0, max_queue=1)
        with deaf, connect(url + "feed", open_timeout=20, max_queue=None) as feed:
            assert feed.recv(20) == "[]"
            until_s = time.monotonic() + 20
            while server.num_visitors > 1 and time.monotonic() < until_s:
                server.send({"text": "x" * 100_000})
                assert feed.recv(20)
            assert server.num_visitors == 1


def left(visitors):
    """Whether nobody is served any more, within a while."""
    until_s = time.monotonic() + 20
    while visitors() and time.monotonic() < until_s:
        time.sleep(0.01)
    return not visitors()


@pytest.fixture
def player(tmp_path):
    """Shows no agent, and says so."""
    return PolicyPlayer(None, None, lambda: (tmp_path, tmp_path), why_not="there is none")


@pytest.mark.parametrize("name", ["feed", "agent"])
def test_who_answers_no_ping_is_left(monkeypatch, player, name):
    """A machine that sleeps closes no connection: for it an environment would be played for ever."""
    monkeypatch.setattr(module, "PINGS_EVERY_S", 0.1)
    monkeypatch.setattr(module, "ANSWERS_WITHIN_S", 0.2)
    monkeypatch.setattr(module, "ASKS_WITHIN_S", 2.0)
    with started(player) as (url, server), upgraded(url, name) as asleep:
        asleep.settimeout(20)
        while asleep.recv(4096):
            pass
        assert left(lambda: server.num_visitors + len(player._visitors))


def test_who_takes_no_pictures_is_left(monkeypatch, player):
    """Their connection is full, and no ping goes over it."""
    monkeypatch.setattr(delivery, "TAKES_WITHIN_S", 0.3)
    with started(player) as (url, _):
        deaf = connect(url + "agent", open_timeout=20, close_timeout=0, max_queue=1)
        with deaf:
            assert json.loads(deaf.recv(20))["why"]

            def visitors():
                player._say(why="x" * 100_000)
                return player._visitors

            assert left(visitors)


def test_a_feed_without_news_says_that_it_holds(monkeypatch):
    """Nothing comes over a connection that leads nowhere; what is new still comes, in its order."""
    monkeypatch.setattr(module, "SPEAKS_WITHIN_S", 0.05)
    with started() as (url, server), connect(url + "feed", open_timeout=20) as feed:
        assert [feed.recv(20) for _ in range(3)] == ["[]"] * 3
        for number in range(20):
            server.send({"number": number})
            time.sleep(0.01)
        told = []
        while len(told) < 20:
            told += json.loads(feed.recv(20))
        assert [entry["number"] for entry in told] == list(range(20))


def test_a_story_that_takes_long_is_one_whose_connection_holds(monkeypatch):
    """As from a slow disk: the page would leave, and have it read once more. It comes once, whole."""
    monkeypatch.setattr(module, "SPEAKS_WITHIN_S", 0.05)
    may_end = threading.Event()

    def slow():
        may_end.wait(60)
        yield {"number": 0}

    with started(story=slow) as (url, _), connect(url + "feed", open_timeout=20) as feed:
        assert [feed.recv(20) for _ in range(3)] == ["[]"] * 3
        may_end.set()
        while (said := feed.recv(20)) == "[]":
            pass
        assert json.loads(said) == [{"number": 0}]


def test_the_address_without_its_last_slash_leads_to_the_page(served):
    """Its files are named below it."""
    parts = urlsplit(served[0])
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)) as client:
        client.request("GET", parts.path.rstrip("/"))
        answer = client.getresponse()
        assert (answer.status, answer.headers["Location"]) == (308, parts.path)
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{parts.netloc}/tokenfeed", open_timeout=20)
