"""The processes of a run on machines that come and go."""

from itertools import pairwise
from types import SimpleNamespace

from spreeze_zmq.broker.account import SampleAccount
from spreeze_zmq.broker.receipts import Receipts
from spreeze_zmq.launcher.crew import Crew
from spreeze_zmq.launcher.pinning import Pinning
from spreeze_zmq.nodes.leases import REST_S
from spreeze_zmq.run.folder import RunFolder
from tests.unit.broker.test_account import rollout
from tests.unit.nodes.test_nodes import Head

#: Machines that a run has one after the other, the samplers of each, and the streams that an account keeps.
TURNS, EACH, MOST = 25, 4, 60


def test_machines_come_and_go_for_as_long_as_a_run_takes(tmp_path, monkeypatch):
    """A name is leased again once its process has ended for a while: learner and broker hear each life."""
    for module in ("receipts", "account"):
        monkeypatch.setattr(f"spreeze_zmq.broker.{module}.MOST_STREAMS", MOST)
    head, receipts, account = Head(tmp_path), Receipts(), SampleAccount()
    folder = RunFolder(tmp_path)
    folder.logs.mkdir(exist_ok=True)
    crew = Crew(head.plan, folder, Pinning({}, ""), head.nodes, threads=True)
    runs = []
    for turn in range(TURNS):
        head.machine(samplers=EACH)
        [joined] = head.events()
        crew.lend(joined.node, EACH)
        runs.append(list(joined.node.wanted))
        for name in runs[-1]:
            came = rollout(10, sampler=name, incarnation=turn + 1)
            assert receipts.disorder(came) == ""
            receipts.take(came)
            account.report_pushed(came.stream, 10)
        account.report_taken("c/1", receipts.to_dict())
        crew.supervisor.forget(head.nodes.give_up(runs[-1][0], "it is taken back").names)
        head.time_s += REST_S / 2
    crew.close()
    head.close()
    assert account.totals().received == TURNS * EACH * 10
    assert not any(set(before) & set(after) for before, after in pairwise(runs))


def test_a_pause_counts_neither_for_who_starts_nor_for_who_ends():
    """Both have their deadlines moved."""
    moved = []
    crew = SimpleNamespace(
        **dict.fromkeys(("deadlines", "supervisor"), SimpleNamespace(postpone=moved.append))
    )
    Crew.postpone(crew, 60.0)
    assert moved == [60.0, 60.0]


def test_machines_get_no_more_samplers_than_a_run_has_room_for(tmp_path, monkeypatch):
    """The broker hears no more processes than that; who joins later has what the others leave."""
    head, folder = Head(tmp_path), RunFolder(tmp_path)
    here = sum(component.count.maximum for component in head.plan.components.values())
    monkeypatch.setattr("spreeze_zmq.launcher.crew.MOST_PROCESSES", here + EACH + 1)
    folder.logs.mkdir(exist_ok=True)
    crew = Crew(head.plan, folder, Pinning({}, ""), head.nodes, threads=True)
    nodes = []
    for _ in range(2):
        head.machine(samplers=EACH)
        nodes.append(head.events()[0].node)
        crew.lend(nodes[-1], 2 * EACH)
    counts = [len(node.wanted) for node in nodes]
    crew.lend(nodes[0], 0)
    most = crew.most_of(nodes[1])
    crew.close()
    head.close()
    assert counts == [EACH, 1]
    assert most == EACH
