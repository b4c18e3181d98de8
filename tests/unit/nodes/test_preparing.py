"""What a machine does after the head's welcome and before its first beat, and as it leaves."""

import resource
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq.nodes import membership
from spreeze_zmq.nodes.head import REFUSED
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.nodes.membership import Left, Membership
from spreeze_zmq.nodes.relay import Relays
from spreeze_zmq.plan import topology
from spreeze_zmq.supervisor import ProcessSpec
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import make_keys


@pytest.fixture
def welcomed(tmp_path, monkeypatch):
    """Makes a machine that has the head's welcome, for a run of pendulum; and what it says."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def machine(*settings):
        plan = Listening.at("127.0.0.1", topology.load("pendulum", settings)).plan
        arrays = {
            "plan": np.frombuffer(plan.placed(tmp_path / "run", tmp_path).to_json().encode(), np.uint8),
            "bundle": np.zeros(0, np.uint8),
        }
        keys, said = make_keys(), []
        welcome = {"node": "node-1", "public": keys.public, "secret": keys.secret, "server": keys.public}
        half = SimpleNamespace(
            head="tcp://127.0.0.1:9",
            invitation=keys,
            node="",
            cores=2,
            free_cores=1,
            most=None,
            relays=Relays(),
        )
        half.say = said.append
        joining = Membership(half)
        monkeypatch.setattr(joining, "_receive", lambda: Message("welcome", welcome, arrays))
        monkeypatch.setattr(joining.dealer, "send", lambda message: None)
        return joining, said

    return machine


@pytest.mark.parametrize(
    ("settings", "compiles"),
    [((), False), (("placement.critic_learner=node",), True)],
    ids=["samplers", "one"],
)
def test_a_machine_that_may_have_a_learner_compiles_its_layers_before_it_starts(
    welcomed, monkeypatch, settings, compiles
):
    """A slow compiler would else take longer than the start timeout of the first one."""
    joining, said = welcomed(*settings)
    monkeypatch.setattr(membership.native, "prepare", lambda say: say("compiling"))
    joining._join()
    assert (said[:-1], said[-1][:6]) == (["compiling"] * compiles, "joined")
    joining._close()


def test_a_learner_has_no_more_threads_than_pay_where_nobody_measures_them(welcomed, monkeypatch):
    """A machine of 64 cores that runs no sampler."""
    joining, _ = welcomed("placement.critic_learner=node")
    joining.half.free_cores = 64
    monkeypatch.setattr(membership.native, "prepare", lambda say: None)
    joining._join()
    assert joining.place.plan.components["critic_learner"].threads == 2
    joining._close()


def test_a_machine_without_room_leaves_with_a_line(welcomed):
    """It names the place where there is none, and leaves nothing there."""
    joining, said = welcomed()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(Left, match=r"^/\S+: File too large: make room there") as left:
            joining.live()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (left.value.code, said) == (REFUSED, [])
    assert not Path(str(left.value).partition(":")[0]).exists()


def test_a_machine_that_waits_for_a_slow_process_says_that_it_leaves(welcomed, monkeypatch, tmp_path):
    """It would else be taken for lost; the end of the process comes last."""
    joining, _ = welcomed()
    joining._join()
    sent, log, enough = [], tmp_path / "log", tmp_path / "enough"

    def send(message):
        sent.append(message)
        if len(sent) == 2:
            enough.touch()

    monkeypatch.setattr(joining.dealer, "send", send)
    script = f"trap '' TERM; echo; until [ -e {enough} ]; do sleep 0.05; done"
    slow = ProcessSpec("sampler-0", ("sh", "-c", script), log)
    joining.processes["sampler-0"], joining.logs["sampler-0"] = joining.spawner.spawn(slow), log
    while not joining.processes["sampler-0"].has_printed:
        pass
    joining._end_processes()
    joining._close()
    *beats, ended = sent
    assert (len(beats) >= 2, {beat.fields["leaving"] for beat in beats}) == (True, {True})
    assert (ended.kind, ended.fields["name"]) == ("ended", "sampler-0")
