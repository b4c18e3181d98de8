"""The act of every role: start, name, reports, invalid messages, stop; and the steps of every act."""

from __future__ import annotations

import json
import signal
import time

import psutil

from spreeze_zmq.peers import garbage
from spreeze_zmq.peers.peers import LAST_WORDS_S, SLICE_S, Peers, Stalled
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan.roles import CONTROL
from spreeze_zmq.wire import Message, decode

#: Index of the process in the act ``birth``.
INDEX = 3
#: Longest time until a peer is found again: 200 ms, and patience.
FOUND_S = 1.0
#: Longest time from a process's bye to its end: a LINGER of 1 s, and patience.
LINGER_S = 3.0
#: Longest time until a message is repeated for a new subscriber.
REPEATED_S = 3.0


# --- steps of every act


def begin(peers: Peers, index: int) -> Life:
    """Start the program after the mark ``begun``, and wait for its hello."""
    peers.mark("begun")
    life = peers.start(index)
    hello_of(peers, "begun")
    return life


def begin_again(peers: Peers, first: Life, index: int, mark: str) -> Life:
    """Kill a life, start the next one of the same name after a mark, and wait for its hello. What the first
    one said and comes late stands before the mark.
    """
    children = first.children()
    first.kill_alone()
    note_children(peers, children)
    before = peers.notes["incarnation"]
    peers.mark(mark)
    second = peers.start(index)
    peers.notes["lives"] = before, hello_of(peers, mark, "L9").incarnation
    if before != peers.notes["incarnation"]:
        begin = peers.marks[mark]
        late = [heard for heard in peers.heard[begin:] if heard.message.incarnation == before]
        rest = [heard for heard in peers.heard[begin:] if heard.message.incarnation != before]
        peers.heard[begin:], peers.marks[mark] = [*late, *rest], begin + len(late)
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
    # So many looks, not seconds: neighbours may starve the judge.
    for _ in range(round(LAST_WORDS_S / SLICE_S)):
        if peers.between("asked to stop", None, "bye"):
            break
        peers.pump(SLICE_S)
    peers.notes["exit"] = (life.process.poll(), ended_s - began_s, life)
    byes = peers.times("asked to stop", None, "bye")
    if byes:
        said_s = byes[-1].at_s
        peers.notes["lingered"] = max(0.0, ended_s - said_s - peers.paused_s(said_s, ended_s))
    else:
        peers.notes["lingered"] = None
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
    start_with_another_format(peers)


def start_with_another_format(peers: Peers) -> None:
    """It is started once more, with a run file of another format."""
    file = peers.folder.run_file
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    before, life = len(peers.heard), peers.start(INDEX)
    peers.wait(peers.about.start_timeout_s, lambda: life.ended or peers.heard[before:])
    peers.notes["format"] = life, life.process.poll()
    life.kill()
    del peers.heard[before:]


def repeated_to_who_comes_late(peers: Peers, channel: str, kind: str) -> list[Message]:
    """What it repeats on a channel of its own for a new subscriber, up to the first message of a kind."""
    late, found = peers.opened(channel, "sub", "late", 2), list[Message]()

    def came() -> bool:
        while late.socket.poll(0):
            found.append(decode(late.socket.recv_multipart()))
        return any(message.repeat and message.kind == kind for message in found)

    try:
        peers.wait(REPEATED_S, came)
    finally:
        late.close()
    return [message for message in found if message.repeat]


def bind_late(peers: Peers) -> None:
    """Bind the broker's channel, to which it has tried to connect since it began, and note when it comes."""
    peers.open()
    began_s = time.monotonic()
    peers.wait(3 * FOUND_S, lambda: peers.ends[CONTROL].subscriptions)
    found_s = time.monotonic()
    peers.notes["found_s"] = found_s - began_s - peers.paused_s(began_s, found_s)


def rival_of(peers: Peers) -> int | None:
    """The exit code of a second process of the same name, whose messages are then forgotten; None if it does
    not exit.
    """
    known = {heard.message.incarnation for heard in peers.heard}
    rival = peers.start(INDEX)
    peers.lives.remove(rival)
    peers.wait(peers.about.start_timeout_s, lambda: rival.ended)
    code = rival.process.poll()
    rival.kill()
    hear_out(peers)
    peers.heard = [heard for heard in peers.heard if heard.message.incarnation in known]
    return code


def hear_out(peers: Peers) -> None:
    """Receive what a process has said that is gone. So many looks, not seconds: neighbours may starve the
    judge.
    """
    for _ in range(round(LAST_WORDS_S / SLICE_S)):
        peers.pump(SLICE_S)


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


ACTS = {"birth": birth}
