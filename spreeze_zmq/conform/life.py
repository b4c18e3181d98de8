"""What every role does: it begins, takes its name, reports, passes garbage over, leaves when told."""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from typing import Any

from spreeze_zmq.conform import garbage
from spreeze_zmq.conform.clauses import Clause, NotSeen, Stalled, expect
from spreeze_zmq.conform.peers import Life, Peers
from spreeze_zmq.plan.roles import CONTROL, REPORT
from spreeze_zmq.wire import Message

#: Index of the process that is only born.
INDEX = 3
#: Two reports are at most this far apart; about half a second is asked for.
REPORT_S = 1.6


def hello_of(peers: Peers, start: str | None = None, number: str = "H1") -> Message:
    """The hello of the life that was started last, after a mark."""
    hellos = lambda: peers.between(start, None, "hello")  # noqa: E731
    found = peers.until(number, "a hello", hellos, peers.about.start_timeout_s)
    peers.notes["incarnation"] = found[-1].incarnation
    return found[-1]  # type: ignore[no-any-return]


def birth(peers: Peers) -> None:
    """It is started before anybody binds, waits for its peers, hears garbage, and is told to stop."""
    life = peers.start(INDEX)
    until_s = time.monotonic() + min(10.0, peers.about.start_timeout_s)
    while time.monotonic() < until_s and not peers.lock_of(life)[0] and not life.ended:
        time.sleep(0.05)
    time.sleep(0.8)
    if life.ended:
        raise Stalled("C1", f"nobody had bound yet when {life.ending()}")
    peers.open()
    hello_of(peers)
    peers.mark("hello")
    peers.notes["lock"] = peers.lock_of(life)
    peers.notes["rival"] = rival_of(peers)
    peers.wait(1.5)
    life.look()
    peers.mark("starved")
    say_to_others(peers, life)
    hear_garbage(peers, life)
    end(peers, life, "L5")
    peers.mark("ended")


def rival_of(peers: Peers) -> int | None:
    """The exit code of a second process of the same name; its messages are left out."""
    rival = peers.start(INDEX)
    peers.lives.remove(rival)
    peers.wait(peers.about.start_timeout_s, lambda: rival.ended)
    code = rival.process.poll()
    rival.kill()
    hellos = [m for m in peers.between("hello", None, "hello") if m.fields["pid"] == rival.process.pid]
    others = {m.incarnation for m in hellos}
    peers.heard = [h for h in peers.heard if h.message is None or h.message.incarnation not in others]
    return code


def say_to_others(peers: Peers, life: Life) -> None:
    """What is not meant for it: a stop of other roles, and a status."""
    peers.say(CONTROL, "stop", roles=["nobody_of_this_role"], reason="of somebody else")
    peers.say(CONTROL, "status")
    peers.voices[CONTROL].latest.clear()
    if leaves(peers, life):
        raise Stalled("L7", f"a stop of other roles was followed by this: {life.ending()}")
    peers.mark("passed over")


def hear_garbage(peers: Peers, life: Life) -> None:
    """Messages on control that break a rule; in the tier ``should`` they would stop it."""
    for frames in [*garbage.refused(()).values(), *garbage.mutations(garbage.STOP, 100)]:
        peers.voices[CONTROL].raw(frames)
    if leaves(peers, life):
        raise Stalled("M4", f"garbage on control was followed by this: {life.ending()}")
    peers.mark("garbage")
    for word, frames in garbage.refused(("*",)).items() if peers.tier == "should" else ():
        peers.voices[CONTROL].raw(frames)
        if leaves(peers, life, 0.03):
            raise Stalled("M6", f"it obeyed a stop that is to be refused, for {word} or the word before")
    if leaves(peers, life):
        raise Stalled("M6", "it obeyed a stop that is to be refused")
    peers.mark("strict")


def leaves(peers: Peers, life: Life, seconds: float = 0.6) -> bool:
    """Listen for so long; whether it ends, or says that it does."""
    return bool(peers.wait(seconds, lambda: life.ended or peers.between(None, None, "bye")))


def end(peers: Peers, life: Life, number: str, *, by_message: bool = False) -> None:
    """Tell it to stop, and note how long that takes and the exit code."""
    grace_s, began_s = peers.about.stop_grace_s, time.monotonic()
    if by_message:
        peers.say(CONTROL, "stop", roles=[peers.role], reason="enough")
    else:
        life.process.send_signal(signal.SIGTERM)
    if not peers.wait(grace_s, lambda: life.ended):
        how = "the message stop" if by_message else "SIGTERM"
        raise Stalled(number, f"it had not ended {grace_s:.0f} s after {how}")
    took_s = time.monotonic() - began_s
    peers.wait(0.1)
    peers.notes["exit"] = (life.process.poll(), took_s, life)


def left(peers: Peers) -> str:
    """What was seen of the end of an act: exit code 0 is expected."""
    code, took_s, life = peers.note("exit")
    expect(code == 0, life.ending())
    return f"exit code 0 after {took_s:.1f} s"


def another_incarnation(peers: Peers) -> str:
    """What was seen of a name that was taken again after SIGKILL."""
    first, second = peers.note("lives")
    return expect(first != second, f"the incarnations are {first} and {second}")


def no_gap(peers: Peers, start: str, stop: str) -> str:
    """What was seen of the reports between two marks."""
    peers.reached(stop)
    times = [heard.at_s for heard in peers.times(start, stop, "report")]
    expect(len(times) >= 2, f"{len(times)} reports")
    longest_s = max(after - before for before, after in pairwise(times))
    return expect(longest_s <= REPORT_S, f"{len(times)} reports, at most {longest_s:.1f} s apart")


def _takes_its_name(peers: Peers) -> str:
    peers.reached("hello")
    names = {heard.message.sender for heard in peers.heard if heard.message}
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
    return expect(text == str(pid), f"there stands {text!r}, the process id is {pid}")


def _has_an_incarnation(peers: Peers) -> str:
    peers.reached("hello")
    lives = {heard.message.incarnation for heard in peers.heard if heard.message}
    expect(len(lives) == 1, f"{len(lives)} incarnations in one life")
    return expect(2**20 < max(lives) < 2**53, f"incarnation {max(lives)}")


def _counts_its_messages(peers: Peers) -> str:
    peers.reached("starved")
    found = [heard.message.sequence for heard in peers.heard if heard.message and heard.channel == REPORT]
    return expect(found == list(range(len(found))), f"on report it runs {str(found[:8])[1:-1]} ...")


def _keeps_the_format(peers: Peers) -> str:
    refused = peers.refusals
    expect(not refused, "; ".join(f"on {heard.channel}: {heard.refusal}" for heard in refused[:3]))
    return f"{len(peers.heard)} messages, none refused"


def _says_hello(peers: Peers) -> str:
    peers.reached("hello")
    heard = peers.times(None, None, "hello")
    expect(len(heard) == 1 and heard[0].message, f"{len(heard)} hellos in one life")
    is_true(peers, peers.between(None, None, "hello")[0].fields, protocol=1)
    first = next(heard.message.kind for heard in peers.heard if heard.message and heard.channel == REPORT)
    expect(first == "hello", f"a {first} came before it")
    return f"{heard[0].at_s - peers.lives[0].began_s:.1f} s after the start"


def _reports_while_starved(peers: Peers) -> str:
    return no_gap(peers, "hello", "starved")


def _reports_truly(peers: Peers) -> str:
    found = [message.fields for message in peers.between("hello", None, "report")]
    if len(found) < 2:
        raise NotSeen(f"{len(found)} reports came")
    is_true(peers, found[0])
    for before, after in pairwise(found):
        for table in ("clock_s", "counters"):
            fallen = [k for k, value in before[table].items() if after[table].get(k, 0.0) < value]
            expect(not fallen, f"{table}: {', '.join(fallen)} falls")
        expect(after["cpu_s"] >= before["cpu_s"], "cpu_s falls")
        expect(after["uptime_s"] > before["uptime_s"], "uptime_s does not grow")
    return f"{len(found)} reports"


def is_true(peers: Peers, fields: Any, **more: object) -> None:
    """Raise Broken unless these fields of a process of the first act are as they should be."""
    pid = peers.lives[0].process.pid
    true = {"role": peers.role, "name": f"{peers.role}-{INDEX}", "pid": pid, **more}
    wrong = [
        f"{key} is {fields[key]!r}, not {value!r}" for key, value in true.items() if fields[key] != value
    ]
    expect(not wrong, ", ".join(wrong))


def _knows_its_usage(peers: Peers) -> str:
    found, life = peers.times("hello", "starved", "report"), peers.lives[0]
    if not found or found[-1].message is None:
        raise NotSeen("no report came")
    said, true = found[-1].message.fields, life.usage
    lived_s = found[-1].at_s - life.began_s
    expect(0.5 < said["rss_bytes"] / true["rss"] < 2.0, f"rss_bytes {said['rss_bytes']}, not {true['rss']}")
    near = abs(said["cpu_s"] - true["cpu_s"]) < 0.5 + 0.2 * true["cpu_s"]
    expect(near, f"cpu_s {said['cpu_s']:.2f}, not {true['cpu_s']:.2f}")
    expect(abs(said["uptime_s"] - lived_s) < 3.0, f"uptime_s {said['uptime_s']:.1f}, not {lived_s:.1f}")
    return f"{said['rss_bytes'] / 1e6:.0f} MB, {said['cpu_s']:.2f} CPU s"


def _says_bye(peers: Peers) -> str:
    peers.note("exit")
    found = peers.between(None, None, "bye")
    expect(len(found) == 1, f"{len(found)} bye")
    last = [heard.message.kind for heard in peers.heard if heard.message][-1]
    expect(last == "bye", f"a {last} came after it")
    return expect(found[0].fields["reason"], str(found[0].fields["reason"]) or "its reason is empty")


CLAUSES = (
    Clause("L1", "birth", _takes_its_name),
    Clause("L2", "birth", _holds_its_lock),
    Clause("L3", "birth", _leaves_a_taken_name),
    Clause("L4", "birth", _writes_its_pid),
    Clause("L5", "birth", left),
    Clause("L7", "birth", "passed over"),
    Clause("L8", "birth", _has_an_incarnation),
    Clause("C1", "birth", "hello"),
    Clause("M2", "birth", _counts_its_messages),
    Clause("M3", "birth", _keeps_the_format),
    Clause("M4", "birth", "garbage"),
    Clause("M6", "birth", "strict"),
    Clause("H1", "birth", _says_hello),
    Clause("H2", "birth", _reports_while_starved),
    Clause("H4", "birth", _reports_truly),
    Clause("H7", "birth", _knows_its_usage),
    Clause("H8", "birth", _says_bye),
)
ACTS = {"birth": birth}
