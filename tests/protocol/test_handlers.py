"""Whatever a peer says, the real handlers of every component take it or refuse it with a word."""

import copy
import json
import re
import signal
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from extreme_messages import extremes
from golden_messages import MESSAGES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.broker.__main__ import Broker
from components.evaluator.__main__ import Evaluator
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.component import Component
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.nodes.errands import KINDS as ERRANDS
from spreeze_zmq.nodes.errands import Errands
from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.packages import installed
from spreeze_zmq.nodes.place import odd_start
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import CHANNELS
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.screen.terminal.view import View
from spreeze_zmq.screen.terminal.words import plain_line
from spreeze_zmq.wire import KINDS, Message, decode, encode
from tests.unit.learner.test_fusing import World

THOROUGH = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
REPORTS = [kind for kind in CHANNELS["report"].kinds if kind not in ("stop_request", "stopping")]
SENDERS = {
    "evaluation": "evaluator-0",
    "part": "critic_learner-0",
    "fusion": "fuser-0",
    **dict.fromkeys(("exited", "workers", "machine", "turned_away"), "launcher"),
}
MANY = {str(number): float(number) for number in range(4000)}
EXTREME = st.sampled_from(
    [
        *(
            float("nan"),
            float("inf"),
            -float("inf"),
            3e38,
            -1e308,
            5e-324,
            -1,
            0,
            2**31,
            2**53 - 1,
            2**53,
            2**63,
        ),
        *("", "x" * 60_000, "\x1b[2J", "../../../etc", "sampler-0", None, True, [], {}, [{}], {"": {}}),
    ]
)
PLAIN = st.recursive(
    EXTREME | st.builds(lambda: MANY) | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


def changed(data, fields):
    """The fields with one somewhere left out, another value in its place, or an unknown one beside it."""
    fields = copy.deepcopy(dict(fields))
    place = fields
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        what = data.draw(st.sampled_from(["replace", "leave out", "add"]))
        if what == "add" or not keys:
            if isinstance(place, dict):
                place[data.draw(st.text(min_size=1, max_size=8))] = data.draw(PLAIN)
            else:
                place.append(data.draw(PLAIN))
            return fields
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
        elif what == "replace":
            place[key] = data.draw(PLAIN)
            return fields
        else:
            del place[key]
            return fields


def travelled(message):
    """The message as a receiver has it; None where the sender finds out or the decoder refuses."""
    try:
        return decode([bytes(frame) for frame in encode(message)])
    except WireError:
        return None


class House:
    """A run's folder and components in this process, without their peers."""

    def __init__(self, path, topology_name, *overrides):
        plan = self.plan_as_read = topology.load(topology_name, ["components.sampler.count=1", *overrides])
        self.plan, self.sockets = write_plan(plan, RunFolder.create(plan.name, str(path)))
        self.components = []

    def component(self, role):
        """One of them."""
        self.components.append(Component(role, self.plan, 0))
        return self.components[-1]

    def close(self):
        """Leave nothing behind."""
        for component in self.components:
            for channel in component._channels.values():
                channel.close()
        self.sockets.remove()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Pendulum by SAC with small networks."""
    options = ("algorithm.hidden_sizes=[8]", "algorithm.learning_starts=64", "algorithm.batch_size=16")
    made = House(tmp_path_factory.mktemp("house") / "run", "pendulum", *options)
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(house):
    """A whole broker."""
    made = Broker(house.component("broker"))
    yield made
    made.notes.journal.close()


@THOROUGH
@given(st.sampled_from(REPORTS), st.data())
def test_the_broker_takes_any_report(broker, kind, data):
    """Its record can still be published, written and read again."""
    golden = MESSAGES[kind]
    sender = SENDERS.get(kind, "sampler-0")
    if kind in ("hello", "report", "bye"):
        sender = golden.fields["name"]
    fields = changed(data, golden.fields)
    arrays = {name: np.array(array) for name, array in golden.arrays.items()}
    if arrays and data.draw(st.booleans()):
        arrays["returns"][0] = data.draw(st.sampled_from([np.nan, np.inf, -3e38]))
    message = Message(kind, fields, arrays, sender, data.draw(st.integers(1, 5)), 0)
    if (heard := travelled(message)) is not None:
        broker.hear(heard)
    broker.notes.note_episodes(broker.now_s)
    broker.helm.show(broker.now_s)
    broker.record.stop_condition(1.0)
    broker.helm.balance(broker.now_s)
    summary = broker.record.summary("", 1.0, final=True)
    for samples in (summary["samples"], *summary["samples_by_channel"].values()):
        assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    assert plain_line(broker.helm.status(broker.now_s), {})


#: CPU time and memory that one message may cost whoever hears it.
MOST_CPU_S, MOST_BYTES = 2.0, 100_000_000


@contextmanager
def costing_little(message):
    """Fail if what is done takes too much time or memory."""
    what = f"{message.kind} {message.fields!r:.300}"

    def interrupt(*_):
        raise AssertionError(f"{what} takes more than {MOST_CPU_S} s")

    before, process = signal.signal(signal.SIGVTALRM, interrupt), psutil.Process()
    held = process.memory_info().rss
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
    grown = process.memory_info().rss - held
    assert grown < MOST_BYTES, f"{what} takes {grown / 1e6:.0f} MB"


@pytest.mark.parametrize("kind", REPORTS)
def test_no_number_of_a_report_sizes_what_the_broker_does(broker, kind):
    """Each field at its extremes, and what the broker does with it later: status, files, balance."""
    for message in extremes(kind):
        sender = SENDERS.get(kind, message.fields.get("name", "sampler-0"))
        if (heard := travelled(message._replace(sender=sender, incarnation=1))) is None:
            continue
        with costing_little(message):
            broker.hear(heard)
            broker.helm.show(broker.now_s)
            samplers, machines = broker.record.num_workers("sampler"), broker.record.machines.present
            for training in (False, True):
                for later_s in (60.0, 120.0):
                    now_s = broker.now_s + later_s
                    broker.balancer.step(samplers, now_s, training=training, machines=machines)


def test_a_forged_report_keeps_no_learner_from_its_checkpoints(broker):
    """One report in a learner's name, of another life, would make it one that has not said hello."""
    names = [f"{role}-0" for role in broker.plan.learning.learners]
    for name in names:
        about = {"role": name.removesuffix("-0"), "name": name}
        hello = {**MESSAGES["hello"].fields, **about}
        report = {**MESSAGES["report"].fields, **about, "taken": {}}
        broker.record.lose(name, "was killed by SIGKILL")  # a life of another test
        for kind, fields, life in (("hello", hello, 91), ("report", report, 91), ("report", report, 92)):
            broker.hear(Message(kind, fields, {}, name, life))
    assert broker.record.learners_are_ready
    assert [broker.record.processes[name].incarnation for name in names] == [91, 91]


def test_thousands_of_reports_leave_a_small_record(broker):
    """Failures of 60 KB, evaluations, lives and names without end."""
    rng = np.random.default_rng(1)
    base = {**MESSAGES["report"].fields, "role": "sampler", "taken": {}}
    for number in range(2500):
        failure = {"name": "sampler-0", "summary": "x" * 1000, "traceback": "y" * 60_000}
        broker.hear(Message("failure", failure, {}, "launcher", 1))
        name = f"sampler-{number}"
        gauges = {f"g{number} {index}": 1.0 for index in range(60)}
        fields = {**base, "name": name, "pushed": {"critic_learner": number}, "gauges": gauges}
        broker.hear(Message("report", fields, {}, name, int(rng.integers(1, 2**53))))
        broker.record.lose("sampler-0", "was killed by SIGKILL")
        broker.hear(Message("report", {**fields, "name": "sampler-0"}, {}, "sampler-0", number + 1))
        workers = {"role": "sampler", "count": number, "reason": "z" * 5000}
        broker.hear(Message("workers", workers, {}, "launcher", 1))
    broker.helm.show(broker.now_s)
    assert len(encode(Message("status", broker.helm.status(broker.now_s)))[0]) < 64 * 1024
    broker.write()
    assert (broker.component.folder.summary).stat().st_size < 20_000_000
    assert broker.record.failures.count >= 2500
    assert len(broker.record.failures.first) == 100


def test_a_long_record_is_written_less_often(broker):
    """Thousands of evaluations take longer to write: the share of time that this costs stays small."""
    fields = MESSAGES["evaluation"].fields
    for number in range(10_000):
        broker.record.evaluations.take(fields, float(number))
    began_s = time.process_time()
    broker.write()
    spent_s = time.process_time() - began_s
    assert broker.next_write_s - broker.now_s > 10 * spent_s
    broker.record.evaluations.all.clear()


def test_parts_are_taken_from_learners_for_the_folder_that_was_asked_for(broker, tmp_path, monkeypatch):
    """Nothing is written elsewhere, and a part that is not on the disk is refused."""
    reasons = []
    monkeypatch.setattr(broker.reports, "refuse", lambda error, *_: reasons.append(error.reason))
    asked = broker.helm.checkpoint(broker.now_s)
    outside = tmp_path / "outside"
    outside.mkdir()
    for sender, folder, part in (
        ("sampler-0", asked, {}),
        ("critic_learner-0", f"../../{outside}", {}),
        ("critic_learner-0", "elsewhere", {}),
        ("critic_learner-0", asked, {"a": {"name": "a", "bytes": 1, "crc32": 1}}),
        ("actor_learner-0", asked, {"b": {}}),
        ("actor_learner-0", asked, {"b": {"name": "../b", "bytes": "x", "crc32": 1}}),
        ("actor_learner-0", asked, {"b": {"name": "b", "bytes": 1, "crc32": 1}}),
    ):
        living = broker.record.processes.get(sender)
        incarnation = 1 if living is None else living.incarnation
        broker.hear(Message("part", {"folder": folder, "part": part}, {}, sender, incarnation))
    assert list(outside.iterdir()) == []
    assert not list(broker.component.folder.checkpoints.rglob("MANIFEST.json"))
    assert reasons.count("wrong_sender") >= 1
    assert reasons.count("bad_part") >= 3


@pytest.fixture(scope="module")
def learners(house, tmp_path_factory):
    """The critic-learner and actor-learner of SAC, and both of PPO."""
    other = House(tmp_path_factory.mktemp("rounds") / "run", "cartpole", "algorithm.hidden_sizes=[8]")
    houses = (house, other)
    made = [Learner(each.component(role)) for each in houses for role in each.plan.learning.learners]
    torch.set_flush_denormal(False)  # which learners ask for, and hypothesis cannot bear
    yield made
    other.close()


def rollout_of(learner, num_steps=4, num_envs=2, sequence=0, produced=8):
    """A good one, of random numbers, with the arrays that the learner asks for."""
    env, rng = learner.component.environment, np.random.default_rng(2)
    steps = (num_steps, num_envs)
    box = env.action_kind == "box"
    arrays = {
        "obs": rng.normal(size=(num_steps + 1, num_envs, *env.obs_shape)).astype(np.float32),
        "action": rng.normal(size=(*steps, *env.action_shape)).astype(np.float32)
        if box
        else rng.integers(0, env.action_sizes[0], steps),
        "reward": rng.normal(size=steps).astype(np.float32),
        "terminated": np.zeros(steps, np.bool_),
        "truncated": np.zeros(steps, np.bool_),
        "final_obs": np.zeros((0, *env.obs_shape), np.float32),
        "final_index": np.zeros((0, 2), np.int32),
        "log_prob": -np.ones(steps, np.float32),
    }
    fields = {"produced": produced, "policy_version": 0, "num_steps": num_steps, "num_envs": num_envs}
    arrays = {name: arrays[name] for name in arrays if name in learner.experience.intake.fields}
    return Message("rollout", fields, arrays, "sampler-0", 1, sequence)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gamma", 0.5),
        ("learning_rate", "x"),
        ("learning_rate", float("nan")),
        ("learning_rate", -1),
        ("", {}),
    ],
)
def test_a_learner_follows_what_may_move_and_nothing_else(learners, option, value):
    """Of its own role; a value that it does not take it names, and goes on as before."""
    for learner in learners:
        role, said = learner.component.role, []
        learner.on_set({"role": role, "option": "learning_rate", "value": 0.125})
        assert learner.half.learning_rate == 0.125
        learner.on_set({"role": "sampler", "option": "learning_rate", "value": 0.5})
        learner.component.report_failure = lambda summary, _, said=said: said.append(summary)
        learner.on_set({"role": role, "option": option, "value": value})
        del learner.component.report_failure
        expected = [] if option != "learning_rate" else ["learning_rate is not followed: set learning_rate"]
        assert [line.partition(": expected")[0] for line in said] == expected
        assert learner.half.learning_rate == learner.gauges().get("learning_rate", 0.125) == 0.125
    critic = learners[0]
    critic.on_set({"role": "critic_learner", "option": "replay_ratio", "value": 4})
    assert critic.experience.gate.replay_ratio == 4.0


def take(learner, message):
    """Give a learner's intake one message as its channel would; returns the rollout if it was taken."""
    intake = learner.experience.intake
    channel = intake.puller
    frames = [bytes(frame) for frame in encode(message)] if isinstance(message, Message) else message
    waiting = [frames]
    receive = channel._receive_frames
    channel._receive_frames = lambda: waiting.pop() if waiting else None
    try:
        return intake.take()
    finally:
        channel._receive_frames = receive


@THOROUGH
@given(st.integers(0, 3), st.data())
def test_learners_take_any_rollout(learners, which, data):
    """What is taken is finite, of the right shapes, and in the account; a batch can be drawn of it."""
    learner = learners[which % len(learners)]
    sequence = learner.experience.intake.receipts._sequences.get("sampler-0/1", -1) + 1
    stream = learner.experience.intake.receipts.streams.get("sampler-0/1")
    message = rollout_of(learner, sequence=sequence, produced=(stream.last if stream else 0) + 8)
    fields = changed(data, message.fields) if data.draw(st.booleans()) else message.fields
    arrays = {name: np.array(array) for name, array in message.arrays.items()}
    name = data.draw(st.sampled_from(sorted(arrays)))
    what = data.draw(st.sampled_from(["fine", "number", "left out", "dtype", "cut", "wider"]))
    if what == "number" and arrays[name].size:
        odd = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -1e16, 1e15, -7, 255]))
        with np.errstate(all="ignore"):
            arrays[name].flat[-1] = np.array(odd).astype(arrays[name].dtype)
    elif what == "left out":
        del arrays[name]
    elif what == "dtype":
        arrays[name] = arrays[name].astype(data.draw(st.sampled_from(["float64", "int64", "uint8", "bool"])))
    elif what == "cut":
        arrays[name] = arrays[name][:-1]
    elif what == "wider":
        arrays[name] = np.concatenate([arrays[name], arrays[name]], axis=-1)
    try:
        frames = [bytes(frame) for frame in encode(message._replace(fields=fields, arrays=arrays))]
    except WireError:
        return
    rollout = take(learner, frames)
    if rollout is not None:
        for given_array in rollout.arrays().values():
            assert given_array.dtype.kind != "f" or (np.abs(given_array) <= 1e15).all()
        if learner.experience.wants:
            learner.experience.add(rollout)
    for receipt in learner.experience.intake.receipts.streams.values():
        assert receipt.received + receipt.refused + receipt.lost == receipt.last - receipt.first
        assert min(receipt.lost, receipt.refused, receipt.received, receipt.first) >= 0
    encode(Message("report", learner.component.own_report(), {}, learner.component.name, 1))


@THOROUGH
@given(st.sampled_from(["policy", "critic", "set", "checkpoint", "stop", "status", "scale"]), st.data())
def test_learners_take_any_weights_and_control(learners, kind, data):
    """Weights that do not fit are refused, and what is not understood is passed over."""
    critic, actor = learners[:2]
    fields = changed(data, MESSAGES[kind].fields)
    arrays = {name: np.array(array) for name, array in MESSAGES[kind].arrays.items()}
    if kind == "policy" and data.draw(st.booleans()):
        arrays = {**actor.half.policy_arrays()}
        arrays["parameters"] = arrays["parameters"].copy()
        arrays["parameters"][0] = data.draw(st.sampled_from([0.0, np.nan, np.inf, 3e38]))
    if kind == "critic" and data.draw(st.booleans()):
        arrays = {"parameters": critic.half.weights.numpy().copy()}
        arrays["parameters"][-1] = data.draw(st.sampled_from([0.0, np.nan, np.inf, 3e38]))
    if (heard := travelled(Message(kind, fields, arrays, "peer-0", 1))) is not None:
        say_to_learners(critic, actor, heard)


def say_to_learners(critic, actor, heard):
    """Have the learners of SAC hear a message of the broker, or each other's weights."""
    kind = heard.kind
    if kind in ("policy", "critic"):
        reader, weights = (critic, critic.others) if kind == "policy" else (actor, actor.others)
        weights.subscriber.newest = lambda: heard
        reader.take_weights()
        assert np.isfinite(reader.half.weights.numpy()).all()
    elif (handler := critic.component._handlers.get(kind)) and kind != "stop":
        handler(heard.fields)
    critic.component.stop_reason = ""


@THOROUGH
@given(st.data())
def test_a_checkpoint_is_asked_for_by_a_plain_name(learners, data):
    """Another writes nothing."""
    component = learners[0].component
    vault = Vault(component, learners[0].state, learners[0].experience.replay, lambda: True)
    folder = data.draw(st.sampled_from(["../x", "/tmp/x", "a/b", "", ".", "..", "x\0y"]))
    vault._on_request({"folder": folder})
    vault.serve()
    assert list(component.folder.checkpoints.iterdir()) == []


@pytest.fixture(scope="module")
def status(broker):
    """The broker's status after all that it has been told, in JSON: large, and made once."""
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
    made.control.close()
    made.reports.close()
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
    waiting = [heard]
    receive, launch.control.receive = launch.control.receive, lambda: waiting.pop() if waiting else None
    try:
        launch.pump(0.0)
        launch.watch()
    finally:
        launch.scale, launch.control.receive = scale, receive


@THOROUGH
@given(st.data())
def test_a_policy_is_acted_with_or_refused(learners, data):
    """What a sampler and an evaluator make of a message: a policy, or a refusal that names the reason."""
    actor = learners[1].half
    fields = {**MESSAGES["policy"].fields, "description": actor.description(), "extras": {}}
    heard = travelled(Message("policy", changed(data, fields), actor.policy_arrays(), "actor_learner-0", 1))
    if heard is None:
        return
    with suppress(WireError), np.errstate(all="ignore"):
        policy = Policy.from_message(heard.fields, heard.arrays)
        policy.act(np.zeros((2, 3), np.float32), np.random.default_rng(0))


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
        with suppress(WireError):
            Errands(folder, lambda message: None).hear(heard)
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


#: Kinds that others than the broker hear, by how they do.
HEARD = {
    **dict.fromkeys(("policy", "critic", "set", "checkpoint"), "learners"),
    **dict.fromkeys(("status", "scale", "stop"), "launch"),
    **dict.fromkeys(("join", "beat", "ended", "leave", *ERRANDS), "nodes"),
}


@pytest.mark.parametrize("kind", HEARD)
def test_no_number_of_a_message_sizes_what_its_receiver_does(request, kind):
    """Learners, the launcher and the head, with each field at its extremes."""
    receiver = request.getfixturevalue(HEARD[kind])
    for message in extremes(kind):
        if (heard := travelled(message._replace(sender="peer-0", incarnation=1))) is None:
            continue
        with costing_little(message), suppress(WireError):
            if HEARD[kind] == "learners":
                say_to_learners(*receiver[:2], heard)
            elif HEARD[kind] == "launch":
                say_to_launcher(receiver, heard)
            else:
                say_to_head(receiver, heard)


def test_every_kind_is_tried():
    """None is forgotten."""
    tried = {"join", "beat", "ended", "leave", "start", "signal", "welcome", *ERRANDS, "model", "fused"}
    tried |= {*REPORTS, "policy", "critic", "set", "checkpoint", "stop", "status", "scale", "rollout"}
    assert set(KINDS) - tried == {"stop_request", "stopping", "entry"}
