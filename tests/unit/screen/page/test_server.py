"""The page's server and its end."""

import signal
import subprocess
import sys

from websockets.sync.client import connect

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
            assert process.wait(20) == 0
            assert list(feed) == []
