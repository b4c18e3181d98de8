"""The page's server and its end."""

import json
import queue
import signal
import subprocess
import sys
from contextlib import closing

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from spreeze_zmq.screen.page import address
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
            assert list(feed) == []


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


@pytest.fixture
def served():
    """A server's address, and what its browsers have asked for."""
    listener, asked = address.open_port(0), queue.Queue()
    server = Server(listener, "token", list, None, ask=asked.put)
    server.start()
    with closing(server):
        yield address.url(listener, "token").replace("http", "ws", 1), asked


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
