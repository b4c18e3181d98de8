"""A machine is turned out for one of its processes; what the others did meanwhile is no fault of the run."""

from types import SimpleNamespace

import pytest

from spreeze_zmq.launcher.ends import Ends
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.lending import Lending
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.nodes.node import Node, RemoteProcess
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.supervisor import ProcessSpec, Supervisor


class World:
    """A run with machines on which the test starts and ends processes."""

    def __init__(self, folder):
        self.folder, self.told, self.notes = folder, [], []
        self.nodes = nodes = Nodes.__new__(Nodes)
        nodes._places, nodes.lent, nodes._exchange, nodes._guests = {}, {}, None, folder
        nodes._send = lambda node, message: None
        self.supervisor = Supervisor(self)
        deadlines = SimpleNamespace(begin=lambda name: None)
        crew = SimpleNamespace(
            supervisor=self.supervisor, deadlines=deadlines, miss=lambda gone: None, ports=None
        )
        lending = Lending.__new__(Lending)
        lending.nodes, lending._crew, lending._gone = nodes, crew, []
        lending._tell = lambda kind, **fields: self.told.append((kind, fields))
        lending._note = self.notes.append
        self.outcome = Outcome(RunFolder(folder), topology.load("pendulum"))
        self.ends = Ends(self.outcome, crew, lending, Interrupts(), lending._tell, self.notes.append)

    def spawn(self, spec):
        """A process of the machine where it has its place."""
        node = self.nodes.place_of(spec.name)
        process = node.processes[spec.name] = RemoteProcess(spec, 0, lambda message: None)
        return process

    def attend(self):
        """Nothing to do."""

    def joined(self, host, max_restarts):
        """A machine joins, and runs these processes from now on."""
        node = self.nodes.lent[host] = Node(host, host, 8, 8, b"peer", 0.0, has_beaten=True)
        for name, restarts in max_restarts.items():
            self.nodes.place(name, node)
            node.wanted.append(name)
            self.supervisor.start(
                ProcessSpec(name, ("x",), self.folder / f"{name}.log", max_restarts=restarts)
            )
        return node

    def look(self, node, codes):
        """These processes of a machine have ended when the launcher looks."""
        for name, code in codes.items():
            node.processes[name].end(code, f"{name}: no mesh here\n")
        self.ends.on_look(self.supervisor.poll())

    @property
    def verdict(self):
        """What the ends mean for the run."""
        return self.outcome.gave_up, self.outcome.stop_reason, self.outcome.input_fault


@pytest.mark.parametrize("codes", [(2, 2), (2, 1), (1, 2)])
def test_processes_of_one_machine_that_fail_in_one_look_do_not_end_the_run(tmp_path, codes):
    """Where its environment cannot be made they end together: the first one's end turns it out."""
    world, names = World(tmp_path), ("sampler-8", "sampler-9")
    restarts = (0 if code == 2 else 3 for code in codes)  # whose input is at fault is not started again
    node = world.joined("desk3", dict(zip(names, restarts, strict=True)))
    world.look(node, dict(zip(names, codes, strict=True)))
    assert world.verdict == (False, "", None)
    assert world.nodes.lent == {}
    assert any("desk3" in note for note in world.notes)
    exits = {fields["name"]: fields["restarting"] for kind, fields in world.told if kind == "exited"}
    assert exits == dict.fromkeys(names, False)


def test_a_name_fails_on_its_next_machine_as_on_any(tmp_path):
    """A sampler's name is leased again, and a learner moves, once their machine was turned out."""
    world = World(tmp_path)
    node = world.joined("desk3", {"sampler-8": 0, "actor_learner-0": 3})
    world.look(node, {"sampler-8": 2, "actor_learner-0": 1})
    assert (world.nodes.lent, world.verdict) == ({}, (False, "", None))
    world.look(world.joined("desk4", {"sampler-8": 0}), {"sampler-8": 2})
    assert (world.nodes.lent, world.verdict) == ({}, (False, "", None))
    assert any("desk4" in note for note in world.notes)
    world.look(world.joined("desk5", {"actor_learner-0": 0}), {"actor_learner-0": 2})
    assert world.outcome.gave_up
    assert world.outcome.stop_reason.startswith("actor_learner-0 ")
    assert world.outcome.input_fault[0] == "actor_learner-0"


@pytest.mark.parametrize("way", ["on_stuck", "on_late"])
def test_a_machine_is_turned_out_whose_sampler_gets_nothing_through(tmp_path, way):
    """Its other processes are gone with it, and late no more; a learner's own such messages end the run."""
    world = World(tmp_path)
    world.joined("desk3", {"sampler-8": 3, "sampler-9": 3})
    world.joined("desk4", {"actor_learner-0": 3})
    ends = world.ends
    ends._crew.deadlines.missed = lambda name, process: "has not reported for 20 s"
    row = {"taker": "critic_learner-0", "kind": "rollout", "word": "wrong_dtype", "count": 9, "stuck": True}
    rows = [
        {**row, "sender": name, "line": f"{name}: critic_learner-0 refused 9 rollouts"}
        for name in ("sampler-8", "sampler-9")
    ]
    for stuck in rows:
        if way == "on_stuck":
            ends.on_stuck(stuck)
        else:
            ends.on_late(stuck["sender"], {}, {"refusals": rows})
    assert (world.verdict, list(world.nodes.lent)) == ((False, "", None), ["desk4"])
    assert [name for name, _ in world.outcome.failures] == ["sampler-8"]
    assert any("desk3" in note for note in world.notes)
    ends.on_stuck({**rows[0], "sender": "actor_learner-0", "line": "actor_learner-0: refused"})
    assert world.verdict == (True, "actor_learner-0: refused", None)
    assert list(world.nodes.lent) == ["desk4"]
