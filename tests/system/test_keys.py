"""A whole run over tcp with keys, and a stranger at its door."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import zmq

from spreeze_zmq.base.endpoints import read_keys, write_keys
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.channels import make_keys
from tests.ports import free_ports
from tests.system.conftest import NAPPING, adds_up, said_in

CHANNELS = ("experience.critic_learner", "policy", "report", "control")  #: of a run with one learner


def endpoints():
    """Channel -> an endpoint of loopback that nobody has."""
    ports = free_ports(len(CHANNELS))
    return {name: f"tcp://127.0.0.1:{port}" for name, port in zip(CHANNELS, ports, strict=True)}


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """The user's."""
    monkeypatch.setenv("SPREEZE_KEYS", str(tmp_path / "keys.json"))
    write_keys(make_keys())
    return read_keys()


@pytest.fixture
def friend(component, tmp_path, monkeypatch):
    """Starts a sampler of a run with other keys; returns these and it."""

    def start(run):
        other = write_keys(make_keys(), tmp_path / "other.json")
        with monkeypatch.context() as its:
            its.setenv("SPREEZE_KEYS", str(other))
            return other, component("sampler", run.folder / "run.json", "7")

    return start


def assert_a_friend_with_other_keys_ends_and_says_why(other, life):
    """It would else wait in silence."""
    assert life.process.wait(60) == 2, life.words()
    last = life.words()[-1]
    assert last.startswith("sampler: tcp://127.0.0.1:"), life.words()
    assert f"does not accept our keys ({other}), so nothing is sent or received" in last


def handshakes(rows):
    """Taker -> how many handshakes it says have failed, of the rows of a summary."""
    return {row["taker"]: row["count"] for row in rows if row["word"] == "bad_keys"}


def assert_strangers_are_counted_everywhere(run):
    """In the summary, on the screen at once and at its end, in the journal, like every refused message."""
    summary, screen = run.summary(), run.output.read_text()
    failed = handshakes(summary["refusals"])
    assert failed["broker-0"] >= 11, summary["refusals"]  # the stranger's, and ten of the friend's
    assert "critic_learner-0" in failed
    for row in summary["refusals"]:
        assert row["line"].startswith(f"{row['taker']}: {row['count']:,} handshakes failed: bad_keys: tcp://")
    first = r"note broker-0: \d+ handshakes? failed: bad_keys: \S+ refused somebody who does not hold"
    assert re.search(first, screen), screen
    end = screen[screen.index("ended after") :]
    assert f"refused {sum(failed.values()):,} in all; {summary['refusals'][0]['line']}" in end
    lines = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    assert {line["word"] for line in lines if line["kind"] == "refused"} == {"bad_keys"}


@pytest.mark.long("a stranger tries ten handshakes")
def test_a_run_with_keys_trains_and_lets_no_stranger_in(launch, keys, friend):
    """Its messages travel as ever; a forged request to stop does nothing and is told; no file holds a key."""
    places, words = endpoints(), []
    for name, endpoint in places.items():
        words += ["--set", f'channels.{name}.endpoint="{endpoint}"', "--set", f"channels.{name}.curve=true"]
    words += ["--set", "run.stop.return=1000", "--set", "components.sampler.count=1"]
    run = launch(*words, *NAPPING["cartpole_dqn"], topology="cartpole_dqn")
    run.until_training()
    context = zmq.Context()
    stranger = context.socket(zmq.PUSH)
    stranger.linger = 0
    stranger.connect(places["report"])
    stop = Message("stop_request", {"reason": "a stranger said so"}, {}, "launcher", 1, 0)
    stranger.send_multipart(encode(stop))
    run.until(lambda: "refused somebody who does not hold our keys" in run.said(), "refusal of the stranger")
    run.until(lambda: handshakes(run.summary().get("refusals", ())), "refusal in the summary")
    assert set(handshakes(run.summary()["refusals"])) == {"broker-0"}
    assert_a_friend_with_other_keys_ends_and_says_why(*friend(run))
    before = run.summary()["env_steps"]
    run.until(lambda: run.summary()["env_steps"] > before, "more samples")
    context.destroy()
    run.interrupt()
    assert run.end() == 0, run.said()
    assert_strangers_are_counted_everywhere(run)
    assert adds_up(run.summary()["samples"])
    for path in run.folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert keys.secret.encode() not in data, path
            assert keys.public.encode() not in data, path


ANOTHER_USER = """
import json, os, socket, sys
import zmq
from spreeze_zmq.wire import Message, encode

keys, door, endpoint = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)

def may(do, path):
    try:
        do(path).close()
    except PermissionError:
        return False
    return True

def connected(path):
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
    return one

print(json.dumps({"reads the keys": may(open, keys), "connects to ipc": may(connected, door)}))
with zmq.Context() as context, context.socket(zmq.PUSH) as peer:
    peer.linger = 3000
    peer.connect(endpoint)
    message = Message("stop_request", {"reason": "another user said so"}, {}, "sampler-7", 1, 0)
    peer.send_multipart(encode(message))
"""


@pytest.mark.thorough
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_is_kept_out_by_keys_alone(launch, monkeypatch):
    """Files and ipc sockets are the user's own. To a tcp port of loopback everybody connects: without keys
    that may end the run, as PROTOCOL.md warns; with them it does nothing, as the test above shows.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("SPREEZE_KEYS", f"{folder}/keys.json")
        write_keys(make_keys())
        endpoint = endpoints()["report"]
        words = ("--set", f'channels.report.endpoint="{endpoint}"', "--set", "run.stop.return=1000")
        run = launch(*words, *NAPPING["cartpole_dqn"], topology="cartpole_dqn")
        run.until_training()
        door = run.plan()["channels"]["policy"]["endpoint"].removeprefix("ipc://")
        command = [sys.executable, "-c", ANOTHER_USER, f"{folder}/keys.json", door, endpoint]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(done.stdout) == {"reads the keys": False, "connects to ipc": False}
        assert run.end() == 0, run.said()
        assert run.summary()["exit_reason"] == "another user said so"


def test_a_run_that_needs_keys_says_where_they_are_missing(tmp_path, monkeypatch):
    """Before any process starts, for an endpoint beyond this machine."""
    monkeypatch.setenv("SPREEZE_KEYS", str(tmp_path / "none.json"))
    words = ["pendulum", "--check", "--set", 'channels.policy.endpoint="tcp://192.0.2.1:5555"']
    code, _, errors = said_in(tmp_path, *words)
    assert code == 2
    assert (
        f"CURVE keys are needed: {tmp_path}/none.json: no keys there; make them with `spreeze keys`" in errors
    )
    write_keys(make_keys(), tmp_path / "none.json")
    code, _, errors = said_in(tmp_path, *words)
    assert code == 0, errors
