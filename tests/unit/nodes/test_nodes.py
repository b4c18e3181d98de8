"""The head's half with real machines' halves at its channel: who may join, under which names, until when."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from spreeze_zmq.base.endpoints import read_keys
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.provenance import installed, release
from spreeze_zmq.commands.launch import main as launch
from spreeze_zmq.nodes.head import HEAD_LOST, LOST_S, MOMENT_S, OVER, PREPARES_S, Nodes
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.node import Gone, Joined, Prepares
from spreeze_zmq.nodes.placers import read_nodes
from spreeze_zmq.nodes.slurm import script
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.checkpoint import MANIFEST
from spreeze_zmq.supervisor import ProcessSpec
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Dealer, SocketFolder, poll

DEADLINE_S = 30.0


class Head:
    """A head, and machines that say what the test has them say."""

    def __init__(self, folder):
        self.sockets = SocketFolder.create("nodes")
        plan = Listening.at("127.0.0.1", topology.load("pendulum")).plan
        self.plan = plan.placed(folder, self.sockets.path)
        keys, self.guests = make_key_files(self.sockets.path, folder / "join.key")
        self.time_s = 0.0
        self.nodes = Nodes(
            self.plan, "tcp://127.0.0.1:*", b"", keys, self.guests, incarnation=1, clock=lambda: self.time_s
        )
        self.invitation = read_keys(folder / "join.key")
        self.peers = []

    def machine(self, *, is_prepared=True, **about):
        """A machine that joins, prepared at once or not yet."""
        kinds = self.nodes.router.kinds
        peer = Dealer(self.nodes.router.endpoint, incarnation=2, kinds=kinds, keys=self.invitation)
        self.peers.append(peer)
        fields = {"host": "desk", "cores": 8, "samplers": 2, "packages": installed(), "before": "", **about}
        assert peer.send(Message("join", fields))
        if is_prepared:
            assert peer.send(Message("beat", {"processes": {}, "owes": about.get("owes", False)}))
        return peer

    def events(self, wanted=1):
        """What the head finds, as many as are wanted."""
        found, until_s = [], time.monotonic() + DEADLINE_S
        while len(found) < wanted and time.monotonic() < until_s:
            poll([self.nodes.router], timeout_s=0.1)
            found += self.nodes.serve()
        assert len(found) == wanted
        return found

    def heard(self, peer, kind=""):
        """The next message to a machine, of one kind, or of any but the answer to a beat."""
        while True:
            assert poll([peer], timeout_s=DEADLINE_S)
            message = peer.receive()
            if message is not None and (message.kind == kind or (not kind and message.kind != "beat")):
                return message

    def heard_while_served(self, peer, kind=""):
        """The next message to a machine that has said something, of which nothing comes but that."""
        while not poll([peer], timeout_s=0.02):
            assert self.nodes.serve() == []
        return self.heard(peer, kind)

    def close(self):
        """Leave nothing behind."""
        for peer in self.peers:
            peer.close()
        self.nodes.router.close()
        self.sockets.remove()


@pytest.fixture
def head(tmp_path):
    """A run of pendulum without processes."""
    made = Head(tmp_path)
    yield made
    made.close()


def spec(folder, name):
    """A process that would run ``true``."""
    return ProcessSpec(name, ("true",), folder / f"{name}.log")


def test_each_machine_gets_a_name_and_keys_of_its_own(head):
    """And the plan of the run with an address for each channel, none of which holds a secret."""
    first, second = head.machine(), head.machine()
    assert {event.node.name for event in head.events(2)} == {"node-1", "node-2"}
    welcomes = [head.heard(peer) for peer in (first, second)]
    secrets = {welcome.fields["secret"] for welcome in welcomes}
    assert len(secrets) == 2
    assert {path.read_text() for path in head.guests.iterdir()} == {w.fields["public"] for w in welcomes}
    text = welcomes[0].arrays["plan"].tobytes().decode()
    assert all(
        channel.remote.startswith("tcp://127.0.0.1:") for channel in Plan.from_json(text).channels.values()
    )
    assert not any(secret in text for secret in (*secrets, head.invitation.secret))


@pytest.mark.parametrize(
    ("packages", "why"),
    [
        ({"spreeze-zmq": "0.0.9"}, "has spreeze-zmq 0.0.9, the run"),
        ({"spreeze-zmq": f"{release().partition('+')[0]}+0f1e2d3c4b5a"}, "has another spreeze-zmq 0."),
        ({"mujoco": "3.1.0"}, "has mujoco 3.1.0, the run"),
        ({"numpy": "1.26.4"}, "has numpy 1, the run 2"),
        ({"spreeze-zmq": None}, "has no spreeze-zmq"),
    ],
)
def test_a_machine_with_another_release_is_turned_away(head, packages, why):
    """In one line that says what to install, at either end; the refusal is counted, no key was given."""
    theirs = {name: version for name, version in {**installed(), **packages}.items() if version}
    peer = head.machine(packages=theirs)
    while not (rows := head.nodes.router.refusals.rows()):
        assert poll([head.nodes.router], timeout_s=DEADLINE_S)
        assert head.nodes.serve() == []
    [row] = rows
    assert (row["sender"], row["kind"], row["word"], row["count"]) == ("desk", "join", "other_release", 1)
    assert why in row["first"]
    assert "pip install" in row["first"]
    answer = head.heard(peer)
    assert (answer.kind, answer.fields["code"]) == ("leave", 2)
    assert why in answer.fields["reason"]
    assert not list(head.guests.iterdir())


def test_a_build_of_torch_is_no_other_release(head):
    """The head may have a GPU and the machine none."""
    head.machine(packages={**installed(), "torch": f"{installed()['torch'].partition('+')[0]}+cu128"})
    assert isinstance(head.events()[0], Joined)


def test_a_process_there_is_supervised_as_one_here(head, tmp_path):
    """Started, known by its process id, signalled, ended with the last lines of its log."""
    peer = head.machine()
    [joined] = head.events()
    head.nodes.place("sampler-8", joined.node)
    process = head.nodes.spawn(spec(tmp_path, "sampler-8"))
    assert head.heard(peer).kind == "welcome"
    assert head.heard(peer).fields["name"] == "sampler-8"
    peer.send(Message("beat", {"processes": {"sampler-8": {"pid": 77, "printed": True}}}))
    while process.pid == 0:
        head.nodes.serve()
    assert process.has_printed
    assert head.heard(peer, "beat").fields == {}
    process.signal(15)
    assert head.heard(peer).fields == {"name": "sampler-8", "number": 15}
    assert process.poll() is None
    peer.send(Message("ended", {"name": "sampler-8", "signal": 9, "log": "last words\n"}))
    while process.poll() is None:
        head.nodes.serve()
    assert process.poll() == -9
    assert (tmp_path / "sampler-8.log").read_text().endswith("last words\n")


@pytest.mark.parametrize("how", ["silent", "leaves", "comes back"])
def test_a_machine_that_is_gone_takes_its_processes_along(head, tmp_path, how):
    """Its key opens nothing any more, and what it says later is not heard."""
    peer = head.machine()
    [joined] = head.events()
    head.nodes.place("sampler-8", joined.node)
    head.nodes.spawn(spec(tmp_path, "sampler-8"))
    head.nodes.place("sampler-9", joined.node)  # it has crashed, and waits for its restart
    if how == "silent":
        head.time_s = LOST_S + 0.1
    elif how == "leaves":
        peer.send(Message("leave", {"code": 0, "reason": "SIGTERM"}))
    else:
        head.machine(before="node-1")
    gone = next(event for event in head.events(1 + (how == "comes back")) if isinstance(event, Gone))
    assert gone.names == ("sampler-8", "sampler-9")
    assert gone.code == (OVER if how == "leaves" else HEAD_LOST)
    assert not head.nodes.holds("sampler-8")
    assert {path.name for path in head.guests.iterdir()} == ({"node-2"} if how == "comes back" else set())
    peer.send(Message("beat", {"processes": {}}))
    while (message := head.heard(peer)).kind != "leave":
        head.nodes.serve()
    assert message.fields["code"] == 3


def test_what_ends_as_its_machine_leaves_has_not_failed(head, tmp_path):
    """The supervisor would start it again; it is gone once the machine is, and its log is kept."""
    peer = head.machine()
    [joined] = head.events()
    head.nodes.place("sampler-8", joined.node)
    process = head.nodes.spawn(spec(tmp_path, "sampler-8"))
    peer.send(Message("beat", {"processes": {}, "leaving": True}))
    peer.send(Message("ended", {"name": "sampler-8", "signal": 15, "log": "last words\n"}))
    while not (tmp_path / "sampler-8.log").read_text().endswith("last words\n"):
        assert head.nodes.serve() == []
    assert process.poll() is None
    peer.send(Message("leave", {"code": OVER, "reason": "SIGINT"}))
    [gone] = head.events()
    assert (gone.names, gone.code) == (("sampler-8",), OVER)


def test_a_machine_that_comes_back_says_what_it_still_owes(head):
    """As it joins, and with each beat; one that says nothing of it owes nothing."""
    peer = head.machine(owes=True)
    [joined] = head.events()
    assert joined.node.owes
    assert head.heard(peer, "beat")
    for said in ({"owes": True}, {}):
        peer.send(Message("beat", said))
        assert head.heard_while_served(peer, "beat")
        assert joined.node.owes == bool(said)


def test_a_machine_that_prepares_itself_has_longer(head):
    """It builds components, as C++, and is not heard before it has: nothing is started there, whose deadline
    would pass meanwhile.
    """
    peer = head.machine(is_prepared=False)
    assert head.heard_while_served(peer).kind == "welcome"
    [node] = head.nodes.lent.values()
    assert head.nodes.fitting("desk") is None
    head.time_s = MOMENT_S + 0.1
    assert head.nodes.serve() == [Prepares(node)]
    head.time_s = PREPARES_S - 0.1
    assert head.nodes.serve() == []
    peer.send(Message("beat", {"processes": {}}))
    assert head.events() == [Joined(node)]
    assert head.nodes.fitting("desk") is node


def test_a_machine_that_never_gets_ready_is_given_up(head):
    """It may be gone, or its build hangs."""
    head.heard_while_served(head.machine(is_prepared=False))
    head.time_s = PREPARES_S + 0.1
    [gone] = head.nodes.serve()
    assert (gone.how, gone.code) == (f"not heard for {PREPARES_S:.0f} s", HEAD_LOST)


def test_a_machine_that_dies_while_it_prepares_itself_is_given_up_at_once(head):
    """Its connection ends: nobody waits ten minutes for what it may still build."""
    dies, lives = head.machine(is_prepared=False), head.machine(is_prepared=False)
    for peer in (dies, lives):
        head.heard_while_served(peer)
    head.time_s = MOMENT_S + 0.1
    assert [type(event) for event in head.nodes.serve()] == [Prepares, Prepares]
    head.peers.remove(dies)
    dies.close()
    until_s = time.monotonic() + DEADLINE_S
    found = []
    while not found and time.monotonic() < until_s:
        head.time_s += MOMENT_S + 0.1
        found = head.nodes.serve()
        time.sleep(0.05)
        assert head.time_s < PREPARES_S
    [gone] = found
    assert gone.how == "its connection ended while it prepared itself"
    assert [node.is_slow for node in head.nodes.lent.values()] == [True]


def test_a_machine_where_a_process_always_fails_is_turned_out(head, tmp_path):
    """With the reason, and a code with which it does not come back by itself."""
    peer = head.machine()
    [joined] = head.events()
    head.nodes.place("sampler-8", joined.node)
    head.nodes.spawn(spec(tmp_path, "sampler-8"))
    gone = head.nodes.give_up("sampler-8", "sampler-8 is not started again: no meshes/arm.stl")
    assert gone.node is joined.node
    assert not head.nodes.lent
    while (message := head.heard(peer)).kind != "leave":
        head.nodes.serve()
    assert message.fields == {"code": 2, "reason": "sampler-8 is not started again: no meshes/arm.stl"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0", "expected the IPv4 address"),
        ("desk1", "expected the IPv4 address"),
        ("127.0.0.1:0", "expected the IPv4 address"),
        ("127.0.0.1:70000-70001", "0 of its ports are free"),
        ("203.0.113.7", "does not have that address"),
    ],
)
def test_an_address_that_others_cannot_reach_is_said_in_a_line(text, why):
    """Before anything starts."""
    with pytest.raises(InputError, match=why):
        Listening.at(text, topology.load("pendulum"))


def test_a_run_in_order_or_with_addresses_of_its_own_does_not_listen():
    """Each says which of the two to leave out."""
    plan = topology.load("pendulum", ["balance.mode=lockstep"])
    with pytest.raises(InputError, match="a run in order repeats itself"):
        Listening.at("127.0.0.1", plan)
    plan = topology.load("pendulum", ["channels.policy.endpoint=tcp://127.0.0.1:5555"])
    with pytest.raises(InputError, match="the topology gives policy one"):
        Listening.at("127.0.0.1", plan)


def ports_of(listening):
    """The ports that a run listens on."""
    addresses = [listening.address, *(channel.remote for channel in listening.plan.channels.values())]
    return [int(address.rpartition(":")[2]) for address in addresses]


def test_ports_are_taken_from_a_range():
    """One for each channel, and one for the machines; by runs that start at once from one range others each,
    although none is bound yet, and those of a run that has ended by the next one.
    """
    plan = topology.load("pendulum")
    first, second = (Listening.at("127.0.0.1:23100-23199", plan) for _ in range(2))
    every = [*ports_of(first), *ports_of(second)]
    assert len(set(every)) == 2 * (1 + len(plan.channels))
    assert all(23100 <= port <= 23199 for port in every)
    assert Path(first.plan.channels["policy"].keys or "none").name == "none"
    first.close()
    third = Listening.at("127.0.0.1:23100-23199", plan)
    assert {*ports_of(third)} & {*ports_of(first)}
    second.close(), third.close()


@pytest.mark.parametrize(
    ("text", "listen", "why"),
    [
        ("desk2", "10.0.0.1", "expected ssh:HOST"),
        ("ray:desk2", "10.0.0.1", "expected ssh:HOST"),
        ("ssh:", "10.0.0.1", "expected ssh:HOST"),
        ("ssh:-oProxyCommand=true", "10.0.0.1", "expected ssh:HOST"),
        ("ssh:a,a", "10.0.0.1", "a host is named twice"),
        ("ssh:a", "", "give --listen ADDRESS too"),
        ("ray,gpu", "10.0.0.1", "expected ssh:HOST"),
        ("ray", "", "give --listen ADDRESS too"),
        ("slurm", "10.0.0.1", "this is no job of Slurm: with --dry-run it prints the script of one"),
        ("slurm", "", "this is no job of Slurm: with --dry-run"),
    ],
)
def test_a_list_of_machines_is_read_whole_or_not_at_all(text, listen, why):
    """Nothing of it can be an option of ssh."""
    with pytest.raises(InputError, match=why):
        read_nodes(text, listen)
    assert [way.name for way in read_nodes("ssh:desk2, me@desk3", "10.0.0.1")] == [
        "ssh desk2",
        "ssh me@desk3",
    ]


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_line_says_what_to_install():
    """Before anything starts."""
    for text in ("ray", "ray:10.0.0.1:6379", "ray,kind=cpu,ray.io/zone=eu-1"):
        with pytest.raises(InputError, match=r"Ray is not installed here: pip install 'spreeze_zmq\[ray\]'"):
            read_nodes(text, "10.0.0.1")


def test_a_script_for_slurm_is_printed_and_nothing_started(tmp_path, monkeypatch, capsys):
    """A shell reads it, the key is nowhere in it, and other options are refused in a line."""
    monkeypatch.chdir(tmp_path)
    asked = ["pendulum", "--nodes", "slurm", "--dry-run"]
    assert launch(asked) == 0
    text = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert "#SBATCH --job-name=pendulum\n" in text
    assert '--listen "$address" --nodes slurm --run-dir "$folder"' in text
    assert list(tmp_path.iterdir()) == []
    assert launch([*asked, "--listen", "10.0.0.1"]) == 2
    assert "--listen: leave it out" in capsys.readouterr().err
    assert launch(["pendulum", "--dry-run"]) == 2
    assert "write both" in capsys.readouterr().err


def test_a_job_of_slurm_that_is_requeued_goes_on_from_its_newest_checkpoint(tmp_path, monkeypatch):
    """Its number stays, so that each life takes a folder of its own; the tenth is newer than the second."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stubs = {"scontrol": "echo one; echo two", "python": "echo 10.0.0.1", "spreeze-launch": 'echo "$@"'}
    for name, does in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    text = script("arm", ("arm.toml",))
    job = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    job |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    resumed = " --resume runs/arm-7"
    for lives, checkpoints, resumes in ((0, [], ""), (1, [1], resumed), (11, [3, 10], f"{resumed}-10")):
        for life in range(1, lives + 1):
            checkpoint = tmp_path / "runs" / _folder_of(life) / "checkpoints" / "1"
            checkpoint.mkdir(parents=True, exist_ok=True)
            if life in checkpoints:
                (checkpoint / MANIFEST).touch()
        said = subprocess.check_output(["bash"], input=text, env=job, cwd=tmp_path, text=True)
        words = f"arm.toml --listen 10.0.0.1 --nodes slurm --run-dir runs/{_folder_of(lives + 1)}{resumes}"
        assert said.split() == words.split()


def _folder_of(life):
    return "arm-7" if life == 1 else f"arm-7-{life}"


def test_a_script_is_alone_on_its_stream(tmp_path):
    """The user's module prints where it is imported, and the environment where it is made."""
    lines = ["from gymnasium.envs.classic_control import CartPoleEnv", "print('hello')"]
    lines += ["def Cart():", "    print('made')", "    return CartPoleEnv()"]
    (tmp_path / "talks.py").write_text("\n".join(lines))
    asked = ["--env", "talks:Cart", "--nodes", "slurm", "--dry-run"]
    command = [sys.executable, "-m", "spreeze_zmq.commands.begin", *asked]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("#!/bin/bash\n")
    assert {"hello", "made"} <= set(done.stderr.splitlines())
