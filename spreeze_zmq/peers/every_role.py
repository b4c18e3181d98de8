"""The act and the clauses of every role: start, name, reports, invalid messages, stop."""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from typing import Any

import psutil

from spreeze_zmq.peers import garbage
from spreeze_zmq.peers.clauses import Clause, exits_with_0, expect, leaves_no_child, no_gap
from spreeze_zmq.peers.peers import Life, NotSeen, Peers, Stalled
from spreeze_zmq.plan.roles import CONTROL, REPORT
from spreeze_zmq.wire import Message

#: Index of the process in the act ``birth``.
INDEX = 3
#: Longest time until a peer is found again: 200 ms, and patience.
FOUND_S = 1.0
#: Longest time from a process's bye to its end: a LINGER of 1 s, and patience.
LINGER_S = 3.0


# --- steps of every act


def begin(peers: Peers, index: int) -> Life:
    """Start the program after the mark ``begun``, and wait for its hello."""
    peers.mark("begun")
    life = peers.start(index)
    hello_of(peers, "begun")
    return life


def begin_again(peers: Peers, first: Life, index: int, mark: str) -> Life:
    """Kill a life, start the next one of the same name after a mark, and wait for its hello."""
    children = first.children()
    first.kill_alone()
    note_children(peers, children)
    before = peers.notes["incarnation"]
    peers.mark(mark)
    second = peers.start(index)
    peers.notes["lives"] = before, hello_of(peers, mark, "L9").incarnation
    return second


def note_children(peers: Peers, children: list[psutil.Process]) -> None:
    """Note which of a process's children have not ended with it, after some time, and kill these."""

    def left() -> list[psutil.Process]:
        return [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    peers.wait(2.0, lambda: not left())
    named = []
    for child in left():
        named.append(f"{child.name()} ({child.pid})")
        child.kill()
    peers.notes["children"] = peers.notes.get("children", 0) + len(children)
    peers.notes["left"] = peers.notes.get("left", []) + named


def hello_of(peers: Peers, start: str | None = None, clause: str = "H1") -> Message:
    """Wait for the first hello after a mark; ``clause`` is broken if none comes."""
    hellos = peers.until(
        clause, "a hello", lambda: peers.between(start, None, "hello"), peers.about.start_timeout_s
    )
    hello: Message = hellos[-1]
    peers.notes["incarnation"] = hello.incarnation
    return hello


def end(peers: Peers, life: Life, clause: str, *, stops: str = "") -> None:
    """Ask it to stop, by SIGTERM or by a message that ``stops`` a role or ``*``; note its exit code, how long
    it took, and how long after its bye.
    """
    grace_s, began_s, children = peers.about.stop_grace_s, time.monotonic(), life.children()
    peers.mark("asked to stop")
    if stops:
        peers.publish(CONTROL, "stop", roles=[stops], reason="enough")
    else:
        life.process.send_signal(signal.SIGTERM)
    if not peers.wait(grace_s, lambda: life.ended):
        if peers.between("asked to stop", None, "bye"):
            raise Stalled("C7", f"it had said bye, and not ended {grace_s:.0f} s later")
        how = f"a stop of {stops}" if stops else "SIGTERM"
        raise Stalled(clause, f"it had not ended {grace_s:.0f} s after {how}")
    ended_s = time.monotonic()
    peers.wait(0.1)
    peers.notes["exit"] = (life.process.poll(), ended_s - began_s, life)
    byes = peers.times("asked to stop", None, "bye")
    peers.notes["lingered"] = ended_s - byes[-1].at_s if byes else None
    note_children(peers, children)


# --- the act "birth"


def birth(peers: Peers) -> None:
    """It is started before any peer binds, waits for its peers, receives invalid messages, and is stopped."""
    life = peers.start(INDEX)
    until_s = time.monotonic() + min(10.0, peers.about.start_timeout_s)
    while time.monotonic() < until_s and not life.lock_state()[0] and not life.ended:
        time.sleep(0.05)
    time.sleep(0.8)
    if life.ended:
        raise Stalled("C1", f"nobody had bound yet when {life.ending()}")
    peers.open(later=CONTROL)
    hello_of(peers)
    peers.mark("hello")
    peers.notes["lock"] = life.lock_state()
    peers.notes["rival"] = rival_of(peers)
    peers.wait(1.5)
    life.measure()
    peers.mark("starved")
    bind_late(peers)
    address_others(peers, life)
    send_garbage(peers, life)
    end(peers, life, "L5")
    peers.mark("ended")


def bind_late(peers: Peers) -> None:
    """Bind the broker's channel, to which it has tried to connect since it began, and note when it comes."""
    peers.open()
    began_s = time.monotonic()
    peers.wait(3 * FOUND_S, lambda: peers.ends[CONTROL].subscriptions)
    peers.notes["found_s"] = time.monotonic() - began_s


def rival_of(peers: Peers) -> int | None:
    """The exit code of a second process of the same name, whose messages are then forgotten; None if it does
    not exit.
    """
    rival = peers.start(INDEX)
    peers.lives.remove(rival)
    peers.wait(peers.about.start_timeout_s, lambda: rival.ended)
    code = rival.process.poll()
    rival.kill()
    hellos = [m for m in peers.between("hello", None, "hello") if m.fields["pid"] == rival.process.pid]
    others = {m.incarnation for m in hellos}
    peers.heard = [heard for heard in peers.heard if heard.message.incarnation not in others]
    return code


def address_others(peers: Peers, life: Life) -> None:
    """Publish what does not concern it: a stop of other roles, and a status."""
    peers.publish(CONTROL, "stop", roles=["nobody_of_this_role"], reason="of somebody else")
    peers.publish(CONTROL, "status")
    peers.ends[CONTROL].latest.clear()
    if leaves(peers, life):
        raise Stalled("L7", f"a stop of other roles was followed by this: {life.ending()}")
    peers.mark("passed over")


def send_garbage(peers: Peers, life: Life) -> None:
    """Publish invalid messages on control; in the tier ``should`` also such as would stop it if obeyed."""
    for frames in [*garbage.refused(()).values(), *garbage.mutations(garbage.STOP, 100)]:
        peers.ends[CONTROL].forward(frames)
    if leaves(peers, life):
        raise Stalled("M4", f"garbage on control was followed by this: {life.ending()}")
    peers.mark("garbage")
    for word, frames in garbage.refused(("*",)).items() if peers.tier == "should" else ():
        peers.ends[CONTROL].forward(frames)
        if leaves(peers, life, 0.03):
            raise _left_at_a_stop(life, f", for {word} or the word before")
    if leaves(peers, life):
        raise _left_at_a_stop(life, "")
    peers.mark("strict")


def _left_at_a_stop(life: Life, which: str) -> Stalled:
    """Who fails has not obeyed, but died late of the garbage before."""
    if life.process.poll():
        return Stalled("M4", f"garbage on control was followed by this: {life.ending()}")
    return Stalled("M6", f"it obeyed a stop that must be refused{which}")


def leaves(peers: Peers, life: Life, seconds: float = 0.6) -> bool:
    """Whether it ends, or says bye, within some seconds."""
    return bool(peers.wait(seconds, lambda: life.ended or peers.between(None, None, "bye")))


# --- checks of the act "birth"


def _finds_its_peer_soon(peers: Peers) -> str:
    found_s = peers.note("found_s")
    return expect(found_s <= FOUND_S, f"a peer that binds late is found after {found_s:.1f} s")


def lingers_little(peers: Peers) -> str:
    """C7: it ends soon after its last message, whatever waits in its queues."""
    if (lingered_s := peers.note("lingered")) is None:
        raise NotSeen("no bye came, see H8")
    return expect(lingered_s <= LINGER_S, f"it ended {lingered_s:.1f} s after its bye")


def _takes_its_name(peers: Peers) -> str:
    peers.reached("hello")
    names = {heard.message.sender for heard in peers.heard}
    return expect(names == {f"{peers.role}-{INDEX}"}, f"sender is {', '.join(sorted(names))}")


def _holds_its_lock(peers: Peers) -> str:
    held, text = peers.note("lock")
    return expect(held, f"{peers.role}-{INDEX}.lock is {'' if held else 'not '}locked ({text or 'empty'})")


def _leaves_a_taken_name(peers: Peers) -> str:
    if not peers.note("lock")[0]:
        raise NotSeen("the name is not locked")
    code = peers.note("rival")
    return expect(code == 1, "it goes on beside the first" if code is None else f"exit code {code}")


def _writes_its_pid(peers: Peers) -> str:
    text, pid = peers.note("lock")[1], peers.lives[0].process.pid
    return expect(text == str(pid), f"the file holds {text!r}, the process id is {pid}")


def _has_an_incarnation(peers: Peers) -> str:
    peers.reached("hello")
    incarnations = {heard.message.incarnation for heard in peers.heard}
    expect(len(incarnations) == 1, f"{len(incarnations)} incarnations in one life")
    return expect(2**20 < max(incarnations) < 2**53, f"incarnation {max(incarnations)}")


def _counts_its_messages(peers: Peers) -> str:
    peers.reached("starved")
    numbers = [heard.message.sequence for heard in peers.heard if heard.channel == REPORT]
    expected = list(range(len(numbers)))
    return expect(numbers == expected, f"on report it runs {str(numbers[:8])[1:-1]} ...")


def _keeps_the_format(peers: Peers) -> str:
    expect(not peers.refusals, "; ".join(peers.refusals[:3]))
    return f"{len(peers.heard)} messages, none refused"


def _says_hello(peers: Peers) -> str:
    peers.reached("hello")
    hellos = peers.times(None, None, "hello")
    expect(len(hellos) == 1, f"{len(hellos)} hellos in one life")
    _expect_identity(peers, hellos[0].message.fields, protocol=1)
    first = next(heard.message.kind for heard in peers.heard if heard.channel == REPORT)
    expect(first == "hello", f"a {first} came before it")
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


ACTS = {"birth": birth}
CLAUSES = (
    Clause("L1", "birth", _takes_its_name),
    Clause("L2", "birth", _holds_its_lock),
    Clause("L3", "birth", _leaves_a_taken_name),
    Clause("L4", "birth", _writes_its_pid),
    Clause("L5", "birth", exits_with_0),
    Clause("L7", "birth", "passed over"),
    Clause("L8", "birth", _has_an_incarnation),
    Clause("L14", "birth", leaves_no_child),
    Clause("C7", "birth", lingers_little),
    Clause("C1", "birth", "hello"),
    Clause("C1", "birth", _finds_its_peer_soon),
    Clause("M2", "birth", _counts_its_messages),
    Clause("M3", "birth", _keeps_the_format),
    Clause("M4", "birth", "garbage"),
    Clause("M6", "birth", "strict"),
    Clause("H1", "birth", _says_hello),
    Clause("H2", "birth", lambda peers: no_gap(peers, "hello", "starved")),
    Clause("H4", "birth", _reports_truly),
    Clause("H7", "birth", _knows_its_usage),
    Clause("H8", "birth", _says_bye),
)
