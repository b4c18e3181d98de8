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


@pytest.mark.parametrize("codes", [(2, 2), (2, 1), (1, 2)])
def test_processes_of_one_machine_that_fail_in_one_look_do_not_end_the_run(tmp_path, codes):
    """Where its environment cannot be made they end together: the first one's end turns it out."""
    told, notes = [], []
    nodes = Nodes.__new__(Nodes)
    nodes._places, nodes.lent, nodes._exchange, nodes._guests = {}, {}, None, tmp_path
    nodes._send = lambda node, message: None
    node = nodes.lent["node-1"] = Node("node-1", "desk3", 8, 8, b"peer", 0.0, has_beaten=True)

    class Remote:
        """Starts processes on that machine."""

        def spawn(self, spec):
            """One of its rows."""
            process = node.processes[spec.name] = RemoteProcess(spec, 0, lambda message: None)
            return process

        def attend(self):
            """Nothing to do."""

    supervisor, names = Supervisor(Remote()), ("sampler-8", "sampler-9")
    for name, code in zip(names, codes, strict=True):
        nodes.place(name, node)
        node.wanted.append(name)
        restarts = 0 if code == 2 else 3  # whose input is at fault is not started again
        supervisor.start(ProcessSpec(name, ("x",), tmp_path / f"{name}.log", max_restarts=restarts))
    deadlines = SimpleNamespace(begin=lambda name: None)
    crew = SimpleNamespace(supervisor=supervisor, deadlines=deadlines, miss=lambda gone: None, ports=None)
    lending = Lending.__new__(Lending)
    lending.nodes, lending._crew, lending._gone = nodes, crew, []
    lending._tell, lending._note = (lambda kind, **fields: told.append((kind, fields))), notes.append
    outcome = Outcome(RunFolder(tmp_path), topology.load("pendulum"))
    ends = Ends(outcome, crew, lending, Interrupts(), lending._tell, notes.append)
    for name, code in zip(names, codes, strict=True):
        node.processes[name].end(code, "sampler: no mesh here\n")
    for event in supervisor.poll():
        ends.on_event(event)
    assert (outcome.gave_up, outcome.stop_reason, outcome.input_fault) == (False, "", None)
    assert nodes.lent == {}
    assert any("desk3" in note for note in notes)
    exits = {fields["name"]: fields["restarting"] for kind, fields in told if kind == "exited"}
    assert exits == dict.fromkeys(names, False)
