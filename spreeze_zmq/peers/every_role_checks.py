"""The clauses of every role: its name, its place, its messages and reports, its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from spreeze_zmq.peers.clauses import Clause, exits_with_0, exits_with_2, expect, leaves_no_child, no_gap
from spreeze_zmq.peers.every_role import FOUND_S, INDEX, LINGER_S
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.plan.roles import REPORT

#: A start that takes longer may have reports before its end, which come about twice a second.
LONG_S = 0.4


def _finds_its_peer_soon(peers: Peers) -> str:
    found_s = peers.note("found_s")
    return expect(found_s <= FOUND_S, f"a peer that binds late is found after {found_s:.1f} s")


def lingers_little(peers: Peers) -> str:
    """C7: it ends soon after its last message, whatever waits in its queues."""
    if (lingered_s := peers.note("lingered")) is None:
        raise NotSeen("no bye came, see H8")
    return expect(lingered_s <= LINGER_S, f"it ended {lingered_s:.1f} s after its bye")


def takes_its_name(peers: Peers) -> str:
    peers.reached("hello")
    names = {heard.message.sender for heard in peers.heard}
    return expect(names == {f"{peers.role}-{INDEX}"}, f"sender is {', '.join(sorted(names))}")


def holds_its_lock(peers: Peers) -> str:
    held, text = peers.note("lock")
    return expect(held, f"{peers.role}-{INDEX}.lock is {'' if held else 'not '}locked ({text or 'empty'})")


def leaves_a_taken_name(peers: Peers) -> str:
    if not peers.note("lock")[0]:
        raise NotSeen("the name is not locked")
    code = peers.note("rival")
    return expect(code == 1, "it goes on beside the first" if code is None else f"exit code {code}")


def writes_its_pid(peers: Peers) -> str:
    text, pid = peers.note("lock")[1], peers.lives[0].process.pid
    due = str(pid), *(f"{pid} {life}" for life in {heard.message.incarnation for heard in peers.heard})
    return expect(text in due, f"the file holds {text!r}, not {' or '.join(map(repr, due))}")


def has_an_incarnation(peers: Peers) -> str:
    peers.reached("hello")
    incarnations = {heard.message.incarnation for heard in peers.heard}
    expect(len(incarnations) == 1, f"{len(incarnations)} incarnations in one life")
    return expect(2**20 < max(incarnations) < 2**53, f"incarnation {max(incarnations)}")


def _counts_its_messages(peers: Peers) -> str:
    peers.reached("starved")
    numbers = [heard.message.sequence for heard in peers.heard if heard.channel == REPORT]
    expected = list(range(len(numbers)))
    return expect(numbers == expected, f"on report it runs {str(numbers[:8])[1:-1]} ...")


def keeps_the_format(peers: Peers) -> str:
    expect(not peers.refusals, "; ".join(peers.refusals[:3]))
    return f"{len(peers.heard)} messages, none refused"


def _says_hello(peers: Peers) -> str:
    peers.reached("hello")
    hellos = peers.times(None, None, "hello")
    expect(len(hellos) == 1, f"{len(hellos)} hellos in one life")
    _expect_identity(peers, hellos[0].message.fields, protocol=1)
    before = [heard for heard in peers.heard if heard.channel == REPORT]
    before = before[: before.index(hellos[0])]
    kinds = {heard.message.kind for heard in before}
    expect(kinds <= {"report"}, f"{', '.join(sorted(kinds))} came before it")
    if before:
        since_s = hellos[0].at_s - before[-1].at_s
        took_s = before[-1].message.fields["uptime_s"] + since_s
        expect(took_s >= LONG_S, f"a report came before it, in a start of {took_s:.1f} s")
    return f"{hellos[0].at_s - peers.lives[0].began_s:.1f} s after the start"


def _reports_truly(peers: Peers) -> str:
    reports = [message.fields for message in peers.between("hello", None, "report")]
    if len(reports) < 2:
        raise NotSeen(f"{len(reports)} reports came")
    _expect_identity(peers, reports[0])
    for before, after in pairwise(reports):
        for table in ("clock_s", "counters"):
            fallen = [k for k, value in before[table].items() if after[table].get(k, 0.0) < value]
            expect(not fallen, f"{table}: {', '.join(fallen)} falls")
        expect(after["cpu_s"] >= before["cpu_s"], "cpu_s falls")
        expect(after["uptime_s"] > before["uptime_s"], "uptime_s does not grow")
    return f"{len(reports)} reports"


def _expect_identity(peers: Peers, fields: Any, **more: object) -> None:
    """Raise Broken unless a message names the process of the act ``birth`` truly."""
    pid = peers.lives[0].process.pid
    true = {"role": peers.role, "name": f"{peers.role}-{INDEX}", "pid": pid, **more}
    wrong = [
        f"{key} is {fields[key]!r}, not {value!r}" for key, value in true.items() if fields[key] != value
    ]
    expect(not wrong, ", ".join(wrong))


def _knows_its_usage(peers: Peers) -> str:
    reports, life = peers.times("hello", "starved", "report"), peers.lives[0]
    if not reports or not life.usage:
        raise NotSeen("it had ended" if reports else "no report came")
    said, true = reports[-1].message.fields, life.usage
    lived_s = reports[-1].at_s - life.began_s
    expect(0.5 < said["rss_bytes"] / true["rss"] < 2.0, f"rss_bytes {said['rss_bytes']}, not {true['rss']}")
    near = abs(said["cpu_s"] - true["cpu_s"]) < 0.5 + 0.2 * true["cpu_s"]
    expect(near, f"cpu_s {said['cpu_s']:.2f}, not {true['cpu_s']:.2f}")
    expect(abs(said["uptime_s"] - lived_s) < 3.0, f"uptime_s {said['uptime_s']:.1f}, not {lived_s:.1f}")
    return f"{said['rss_bytes'] / 1e6:.0f} MB, {said['cpu_s']:.2f} CPU s"


def _says_bye(peers: Peers) -> str:
    peers.note("exit")
    byes = peers.between(None, None, "bye")
    expect(len(byes) == 1, f"{len(byes)} bye")
    last = peers.heard[-1].message.kind
    expect(last == "bye", f"a {last} came after it")
    return expect(byes[0].fields["reason"], str(byes[0].fields["reason"]) or "its reason is empty")


CLAUSES = (
    Clause("L1", "birth", takes_its_name),
    Clause("L2", "birth", holds_its_lock),
    Clause("L3", "birth", leaves_a_taken_name),
    Clause("L4", "birth", writes_its_pid),
    Clause("L5", "birth", exits_with_0),
    Clause("L7", "birth", "passed over"),
    Clause("L8", "birth", has_an_incarnation),
    Clause("L10", "birth", lambda peers: exits_with_2(peers, "format")),
    Clause("L14", "birth", leaves_no_child),
    Clause("C7", "birth", lingers_little),
    Clause("C1", "birth", "hello"),
    Clause("C1", "birth", _finds_its_peer_soon),
    Clause("M2", "birth", _counts_its_messages),
    Clause("M3", "birth", keeps_the_format),
    Clause("M4", "birth", "garbage"),
    Clause("M6", "birth", "strict"),
    Clause("H1", "birth", _says_hello),
    Clause("H2", "birth", lambda peers: no_gap(peers, "hello", "starved")),
    Clause("H4", "birth", _reports_truly),
    Clause("H7", "birth", _knows_its_usage),
    Clause("H8", "birth", _says_bye),
)
