"""Whatever a peer says, the launcher, the evaluator, machines and groups take it or refuse it with a word."""

import itertools
import json
import re
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from extreme_messages import REPORTS, SENDERS, extremes
from golden_messages import MESSAGES
from hostile_values import THOROUGH, changed, costing_little, travelled
from hypothesis import given
from hypothesis import strategies as st

from components.evaluator.__main__ import Evaluator
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.provenance import installed
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.nodes.errands import KINDS as ERRANDS
from spreeze_zmq.nodes.errands import Errands
from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.place import odd_start
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.view import View
from spreeze_zmq.wire import KINDS, Message
from tests.unit.learner.test_fusing import World


@pytest.fixture(scope="module")
def status(broker):
    """The broker's status after all that it may be told, in JSON: large, and made once."""
    for message in itertools.chain.from_iterable(map(extremes, REPORTS)):
        sender = SENDERS.get(message.kind, message.fields.get("name", "sampler-0"))
        if (heard := travelled(message._replace(sender=sender, incarnation=1))) is not None:
            broker.hear(heard)
    return json.dumps(broker.helm.status(broker.now_s))


@pytest.fixture(scope="module")
def evaluator(house):
    """A whole evaluator."""
    made = Evaluator(house.component("evaluator"))
    yield made
    made.arena.close()


@THOROUGH
@given(st.data())
def test_the_evaluator_takes_any_status(evaluator, status, data):
    """Of another broker it may hold anything, or nothing."""
    heard = travelled(Message("status", changed(data, json.loads(status)), {}, "b", 1))
    if heard is not None:
        evaluator.on_status(heard.fields)


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """A launcher that has started nothing."""
    folder = RunFolder.create("pendulum", str(tmp_path_factory.mktemp("launch") / "run"))
    made = Launch(topology.load("pendulum", ["components.sampler.count=1"]), folder, View())
    yield made
    made.supervisor.close()
    made.line.close()
    made.sockets.remove()


@THOROUGH
@given(st.sampled_from(["status", "scale", "set", "stop"]), st.data())
def test_the_launcher_takes_any_control(launch, status, kind, data):
    """It carries out what it understands."""
    fields = json.loads(status) if kind == "status" else MESSAGES[kind].fields
    heard = travelled(Message(kind, changed(data, fields), {}, "broker-0", 1))
    if heard is not None:
        say_to_launcher(launch, heard)


def say_to_launcher(launch, heard):
    """Have the launcher hear a message of the broker, and do what it does each time."""
    scale, launch.scale = launch.scale, lambda *_: None
    waiting, control = [heard], launch.line.control
    receive, control.receive = control.receive, lambda: waiting.pop() if waiting else None
    try:
        launch.pump(0.0)
        launch.watch()
    finally:
        launch.scale, control.receive = scale, receive


@pytest.fixture(scope="module")
def nodes(house, tmp_path_factory):
    """The head's half, which one machine has joined."""
    folder = tmp_path_factory.mktemp("head")
    plan = Listening.at("127.0.0.1", house.plan_as_read).plan.placed(folder / "run", house.sockets.path)
    keys, guests = make_key_files(house.sockets.path, folder / "join.key")
    made = Nodes(plan, "tcp://127.0.0.1:*", b"", keys, guests, incarnation=1)
    made._on_join(b"here", {**MESSAGES["join"].fields, "packages": installed()})
    made.place("evaluator-0", made.lent["node-1"])
    yield made
    made.router.close()


def say_to_head(nodes, heard):
    """Have the head hear a message of a machine."""
    waiting = [(b"here" if heard.kind in ERRANDS else b"there", heard)]
    receive, nodes.router.receive = nodes.router.receive, lambda: waiting.pop() if waiting else None
    try:
        nodes.serve()
    finally:
        nodes.router.receive = receive


@THOROUGH
@given(st.sampled_from(["join", "beat", "ended", "leave", *ERRANDS]), st.data())
def test_the_head_takes_anything_from_a_machine(nodes, kind, data):
    """A machine that says something odd is heard, turned away or gone; the others stay. It writes no file but
    those of a process that has its place there.
    """
    sent = MESSAGES[kind]
    heard = travelled(Message(kind, changed(data, sent.fields), sent.arrays, "desk2", 1))
    if heard is None:
        return
    say_to_head(nodes, heard)
    assert "node-1" in nodes.lent
    found = [path for path in Path(nodes._plan.run_dir).rglob("*") if path.is_file()]
    assert {path.name.removeprefix(".writing-in-") for path in found} <= {"policy.safetensors"}


@THOROUGH
@given(st.sampled_from(["given", "piece", "taken"]), st.data())
def test_a_machine_takes_any_file_for_its_processes(tmp_path_factory, kind, data):
    """Those that a process may ask for, below the run's folder; whatever else is refused."""
    folder = RunFolder(tmp_path_factory.mktemp("node") / "run")
    folder.outbox.mkdir(parents=True)
    heard = travelled(Message(kind, changed(data, MESSAGES[kind].fields), MESSAGES[kind].arrays))
    if heard is not None:
        with closing(Errands(folder, lambda message: None)) as errands, suppress(WireError):
            errands.hear(heard)
    assert {path.name for path in folder.path.parent.rglob("*") if path.is_file()} <= {"policy.safetensors"}


@THOROUGH
@given(st.data())
def test_a_machine_starts_only_what_it_can(data):
    """A name of a role that stays at the head, and numbers out of bounds, are refused."""
    heard = travelled(Message("start", changed(data, MESSAGES["start"].fields), {}, "launcher", 1))
    if heard is not None and not odd_start(heard.fields, ["sampler", "evaluator"]):
        assert re.fullmatch(r"(sampler|evaluator)-[0-9]{1,6}", heard.fields["name"])
        assert heard.fields["nice"] <= 19


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """A fuser and the learners of two groups, which share a model."""
    with closing(World(tmp_path_factory.mktemp("groups") / "run")) as world:
        world.until(lambda: all(group.fusion._base is not None for group in world.groups))
        torch.set_flush_denormal(False)
        yield world


@THOROUGH
@given(st.sampled_from(["model", "fused"]), st.data())
def test_groups_take_any_model(groups, kind, data):
    """One that does not fit is refused; what is fused stays finite and of its size."""
    fields = changed(data, MESSAGES[kind].fields)
    arrays = dict(MESSAGES[kind].arrays)
    fuser, learner = groups.fuser, groups.groups[1]
    if data.draw(st.booleans()):
        own = learner.fusion._model
        fields |= {"part": "critic", "layout": own.layout}
        number = data.draw(st.sampled_from([0.0, 1.0, np.nan, 3e38]))
        arrays = {{"model": "change", "fused": "parameters"}[kind]: np.full(own.size, number, np.float32)}
    heard = travelled(Message(kind, fields, arrays, "peer-0", 1))
    if heard is not None:
        with suppress(WireError):
            fuser.take(heard) if kind == "model" else learner.fusion._take(heard)
    fuser.close_rounds()
    shared = fuser.parts["critic"].parameters
    assert np.isfinite(shared).all()
    assert np.isfinite(learner.weights).all()
    assert shared.size == learner.weights.size


#: Kinds that neither the broker nor a learner alone hears, by who does.
HEARD = {
    **dict.fromkeys(("status", "scale", "stop"), "launch"),
    **dict.fromkeys(("join", "beat", "ended", "leave", *ERRANDS), "nodes"),
}


@pytest.mark.parametrize("kind", HEARD)
def test_no_number_of_a_message_sizes_what_its_receiver_does(request, kind):
    """The launcher and the head, with each field at its extremes."""
    receiver = request.getfixturevalue(HEARD[kind])
    for message in extremes(kind):
        if (heard := travelled(message._replace(sender="peer-0", incarnation=1))) is None:
            continue
        with costing_little(message), suppress(WireError):
            if HEARD[kind] == "launch":
                say_to_launcher(receiver, heard)
            else:
                say_to_head(receiver, heard)


def test_every_kind_is_tried():
    """None is forgotten."""
    tried = {"join", "beat", "ended", "leave", "start", "signal", "welcome", *ERRANDS, "model", "fused"}
    tried |= {*REPORTS, "policy", "critic", "set", "checkpoint", "stop", "status", "scale", "rollout"}
    assert set(KINDS) - tried == {"stop_request", "stopping", "entry"}
