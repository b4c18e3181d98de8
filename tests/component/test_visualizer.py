"""The visualizer as a real process: a stranger and a browser ask, the test plays broker and learner."""

import http.client
import io
import itertools
import json
import time
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from PIL import Image
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.peers import policies

DEADLINE_S = 60.0


def status_of(peers, t_s):
    """A status as the broker makes it."""
    record = RunRecord(peers.plan)
    record.take_hello("sampler-0", 7, {"role": "sampler", "pid": 1}, t_s)
    record.episodes.take(np.array([-3.0, -5.0], np.float32), np.array([200, 200], np.int32))
    return record.status("training", Balancer(peers.plan).status(), t_s)


@pytest.fixture
def page(peers):
    """The address of a page that is served and follows the run: the journal holds one second of it."""
    Journal(peers.folder.metrics).write("status", 1.0, status_of(peers, 1.0))
    peers.play("visualizer")
    process = peers.start()
    peers.next("hello")
    peers.until("", "its subscription to the feed", lambda: peers.ends["feed"].subscriptions)
    yield peers.folder.page_address.read_text().strip()
    process.terminate()
    assert process.wait(30) == 0


def ask(address, path=None, **headers):
    """Status and body of one request."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)
    connection.request("GET", parts.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace")


def stream(address, name, **options):
    """One of the page's WebSockets."""
    return connect(address.replace("http", "ws", 1) + name, open_timeout=DEADLINE_S, **options)


def following(feed):
    """The entries that follow; now and then there are none, which says that the connection holds."""
    while True:
        yield from json.loads(feed.recv(DEADLINE_S))


def test_a_browser_is_told_the_story_so_far_and_then_each_entry(peers, page):
    """The plan, the journal's points, the last status; then what the broker publishes, as far as it shows."""
    with stream(page, "feed") as feed:
        story = json.loads(feed.recv(DEADLINE_S))
        assert [entry["topic"] for entry in story] == ["run", "point", "status"]
        assert story[0]["about"]["run"]["env"] == "Pendulum-v1"
        assert story[1]["about"]["training_return"] == -4.0
        assert story[2]["about"]["processes"]["sampler-0"]["ready"] is True
        about = {"name": "sampler-0", "how": "was killed by SIGKILL", "restarting": True}
        unseen = {"count": 2, "mean_return": -4.0}
        entries = [("episodes", unseen), ("exited", about), ("status", status_of(peers, 2.0))]
        for topic, fields in entries:
            peers.publish("feed", "entry", topic=topic, t_s=2.0, about=fields)
        exited, status = itertools.islice(following(feed), 2)
        assert exited["about"] == about
        assert status["point"]["t_s"] == 2.0
        assert status["point"]["training_return_std"] == 1.0


def test_an_open_page_gets_what_the_evaluator_says_last(peers, page):
    """The score that is delivered comes through the broker, which may be a moment behind."""
    with stream(page, "feed") as feed:
        json.loads(feed.recv(DEADLINE_S))
        peers.lives[0].process.terminate()
        time.sleep(0.3)
        score = {"mean_return": -150.0, "best": True, "final": 30}
        gone = {"name": "evaluator-0", "how": "exited with code 0", "restarting": False}
        for topic, about in (("evaluation", score), ("exited", gone)):
            peers.publish("feed", "entry", topic=topic, t_s=9.0, about=about)
        last = list(itertools.islice(following(feed), 3))
    assert [entry["topic"] for entry in last] == ["evaluation", "exited", "over"]
    assert last[0]["about"] == score


def test_the_agent_plays_by_the_newest_policy(peers, page):
    """Pictures that change, and beside them whose actions are seen."""
    spec = peers.plan.environment
    policy = policies.random_policy(spec, policies.heads(spec)[0], seed=1)
    fields = {**policy.fields, "version": 7, "extras": {"env_steps": 512}}
    peers.publish("policy", "policy", policy.arrays, **fields)
    said, pictures, until_s = {}, [], time.monotonic() + DEADLINE_S
    with stream(page, "agent") as agent:
        while (len(pictures) < 5 or "version" not in said) and time.monotonic() < until_s:
            peers.pump(0.0)
            try:
                message = agent.recv(0.2)
            except TimeoutError:  # its subscription may come later than the first answer
                continue
            if isinstance(message, str):
                said = json.loads(message)
            else:
                pictures.append(message)
    first, *_, last = (np.asarray(Image.open(io.BytesIO(picture))) for picture in pictures)
    assert first.shape == (500, 500, 3)
    assert (first != last).any()
    assert said["mode"] == "picture"
    assert said["version"] == 7
    assert said["env_steps"] == 512


def test_nothing_heavy_is_loaded_before_somebody_looks(peers, page):
    """Neither torch nor MuJoCo nor a game's window is in its memory, and the policy channel is not joined."""
    maps = open(f"/proc/{peers.lives[0].process.pid}/maps").read()  # noqa: SIM115
    for library in ("libtorch", "libmujoco", "pygame"):
        assert library not in maps, library
    peers.later_report()
    assert peers.ends["policy"].subscriptions == 0


STRANGERS = [
    ({"Host": "evil.example"}, None),
    ({"Host": "127.0.0.1.evil.example:80"}, None),
    ({"Origin": "http://evil.example"}, None),
    ({"Origin": "null"}, None),
    ({}, "/"),
    ({}, "/wrong-token/"),
    ({}, "//"),
]


def test_strangers_are_refused(page):
    """A foreign Host or Origin, or no token: nothing but a refusal; streams likewise."""
    for headers, path in STRANGERS:
        status, body = ask(page, path, **headers)
        assert status == 403, (headers, path)
        assert "<html" not in body
        address = page if path is None else page.replace(urlsplit(page).path, path + "/")
        with pytest.raises(InvalidStatus), stream(address, "feed", additional_headers=headers):
            pass


def test_only_the_pages_own_files_are_served(peers, page):
    """No path of a request leads to the disk: neither the run's files nor the system's."""
    token = urlsplit(page).path
    assert ask(page)[0] == 200
    for path in (
        *("../run.json", "run.json", "%2e%2e/run.json", "..%2f..%2fetc/passwd", "/etc/passwd"),
        *("static/../../page.url", "viewer/../../../etc/passwd", "viewer/index.html", "feed", "agent"),
    ):
        status, body = ask(page, token + path)
        assert status in (403, 404), path
        assert "root:" not in body


def test_it_listens_on_loopback_alone(peers, page):
    """Nobody else's machine can reach the port."""
    port = urlsplit(page).port
    ends = [
        end for end in psutil.net_connections("inet") if end.laddr.port == port and end.status == "LISTEN"
    ]
    assert {end.laddr.ip for end in ends} == {"127.0.0.1"}


def test_the_address_is_the_users_own_secret(peers, page):
    """The file that holds the token is readable by nobody else."""
    assert peers.folder.page_address.stat().st_mode & 0o777 == 0o600
