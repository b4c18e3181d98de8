"""The acts of a broker: all others tell it of a run, and it decides; once without a launcher, once with."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spreeze_zmq.peers import garbage
from spreeze_zmq.peers.cast import LIFE, Cast, work_done
from spreeze_zmq.peers.every_role import (
    INDEX,
    end,
    hear_out,
    repeated_to_who_comes_late,
    rival_of,
    start_with_another_format,
)
from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CONTROL, EVALUATOR, REPORT, SAMPLER
from spreeze_zmq.wire import Message

#: Transitions at which the run of the act ``govern`` is to stop, and minutes between its checkpoints.
ENOUGH, CHECKPOINT_MINUTES = 4096, 0.1
#: What the samplers of that act have pushed, and the critic-learner received; and what it has at the end.
PUSHED, RECEIVED, RECEIVED_AT_THE_END = {"sampler-0": 1152, "sampler-1": 96}, 960, ENOUGH + 64
#: How long it is watched that something does not happen, and that a broker has kept what it heard.
WATCHED_S, KEPT_S = 0.7, 1.8
#: A score that somebody reports.
SCORE = {"version": 1, "env_steps": 960, "mean_return": -5.0, "std_return": 1.0, "min": -6.0, "max": -4.0}
SCORE |= {"mean_length": 20.0, "num_episodes": 2, "wall_s": 0.5, "best": True}


def shaped(plan: Plan) -> Plan:
    """A run that stops after ``ENOUGH`` transitions and often writes checkpoints."""
    stop = replace(plan.run.stop, env_steps=ENOUGH, mean_return=None, trained_transitions=None)
    return replace(plan, run=replace(plan.run, stop=stop, checkpoint_minutes=CHECKPOINT_MINUTES))


def statuses(peers: Peers, mark: str | None = None) -> list[dict[str, Any]]:
    """The fields of each status after a mark, without those that were repeated."""
    found = peers.between(mark, None, "status", CONTROL)
    return [dict(message.fields) for message in found if not message.repeat]


# --- the act "birth"


def birth(peers: Peers) -> None:
    """It is alone with its peers, gets invalid messages, is asked to stop where there is no launcher, meets a
    second broker, and is stopped.
    """
    life = peers.start(INDEX)
    peers.open()
    begins(peers, None)
    peers.mark("hello")
    peers.notes["lock"] = life.lock_state()
    peers.notes["rival"] = rival_of(peers)
    peers.mark("watched")
    peers.wait(2.0)
    peers.mark("starved")
    get_garbage(peers, life)
    cast = Cast(peers)
    ask = partial(cast.launcher.say, "stop_request", reason="enough")
    peers.notes["stop"] = told(peers, "B4", "stop", "after a stop_request", ask)
    peers.notes["late"] = repeated_to_who_comes_late(peers, CONTROL, "stop")
    peers.notes["usurper"] = code_of_a_usurper(peers)
    end(peers, life, "L5")
    start_with_another_format(peers)


def begins(peers: Peers, mark: str | None, clause: str = "B1") -> None:
    """Wait for the first status after a mark."""
    timeout_s = peers.about.start_timeout_s
    peers.until(clause, "a status", lambda: statuses(peers, mark), timeout_s)


def get_garbage(peers: Peers, life: Life) -> None:
    """It gets invalid messages, and a hello of a newer program."""
    cast = Cast(peers)
    report = cast.join("sampler-0").report()
    for frames in [*garbage.refused(()).values(), *garbage.mutations(report, 100)]:
        peers.until("M4", "a place for garbage", partial(peers.ends[REPORT].forward, frames))
    peers.mark("fed")
    peers.until("M4", "a status", lambda: statuses(peers, "fed")[2:])
    peers.mark("garbage")
    named = {"role": SAMPLER, "name": "sampler-1", "pid": 7, "protocol": 1, "host": "here", "mood": "calm"}
    newer = Message("hello", named, {}, "sampler-1", 6)
    peers.ends[REPORT].forward(garbage.with_key(newer))
    peers.until("M5", "a row of a newer program", lambda: "sampler-1" in statuses(peers)[-1]["processes"])
    peers.mark("newer")


def told(peers: Peers, clause: str, kind: str, when: str, ask: Any) -> Message:
    """Say something, and wait for the message on control that must follow."""
    peers.mark(when)
    ask()
    found = peers.until(clause, f"a {kind} {when}", lambda: peers.between(when, None, kind, CONTROL))
    return found[0]  # type: ignore[no-any-return]


def code_of_a_usurper(peers: Peers) -> int | None:
    """The exit code of a broker of another name that would bind the same endpoints; None if it goes on."""
    usurper = peers.start(INDEX + 1)
    peers.lives.remove(usurper)
    peers.wait(peers.about.start_timeout_s, lambda: usurper.ended)
    code = usurper.process.poll()
    usurper.kill()
    hear_out(peers)
    peers.heard = [h for h in peers.heard if h.message.sender != f"{BROKER}-{INDEX + 1}"]
    return code


# --- the act "govern"


def govern(peers: Peers) -> None:
    """A run trains, is saved, asked for things and lied to; its broker is killed, and the next one ends it at
    its limit.
    """
    peers.open()
    peers.mark("begun")
    first = peers.start(0)
    begins(peers, "begun")
    cast = begin_run(peers)
    lie(peers, cast)
    ask(peers, cast)
    save(peers, cast)
    second = begin_again(peers, first)
    work_done(cast, RECEIVED_AT_THE_END, samplers={"sampler-0": RECEIVED_AT_THE_END})
    end_run(peers, cast)
    end(peers, second, "L5")
    summary = peers.folder.summary
    peers.notes["summary"] = json.loads(summary.read_text()) if summary.exists() else {}


def begin_run(peers: Peers) -> Cast:
    """Its processes come, and one leaves."""
    cast = Cast(peers)
    cast.tell_workers(SAMPLER, 2)
    for name in (*PUSHED, f"{EVALUATOR}-0", *(f"{role}-0" for role in peers.plan.learning.learners)):
        cast.join(name)
    work_done(cast, RECEIVED, samplers=PUSHED)
    peers.wait(WATCHED_S)
    cast.leave("sampler-1")
    cast.voices[f"{EVALUATOR}-0"].say("evaluation", **SCORE)
    peers.wait(peers.patience_s, lambda: statuses(peers, "begun")[-1].get("env_steps") == RECEIVED)
    peers.mark("told")
    peers.until("B1", "a status", lambda: statuses(peers, "told")[2:])
    peers.mark("counted")
    peers.notes["pids"] = {name: voice.pid for name, voice in cast.voices.items()}
    return cast


def lie(peers: Peers, cast: Cast) -> None:
    """A sampler says what is not for it to say, and it and the critic-learner what cannot be true."""
    liar, learner = cast.voices["sampler-0"], cast.voices["critic_learner-0"]
    liar.say("exited", name="critic_learner-0", how="was killed", restarting=False)
    liar.say("evaluation", **{**SCORE, "mean_return": 1e9})
    liar.report(pushed=dict.fromkeys(peers.plan.learning.learners, 2**53 - 1))
    row = {"first": 7, "last": 10**9, "received": 10**9 - 7, "refused": 0, "lost": 0}  # it began at 0 before
    truth = learner.about["taken"]
    learner.about["taken"] = {f"sampler-0/{LIFE}": row}
    peers.mark("lied")
    peers.until("B1", "a status", lambda: statuses(peers, "lied")[3:])
    peers.mark("unmoved")
    learner.about["taken"] = truth


def ask(peers: Peers, cast: Cast) -> None:
    """An observer asks for another number, and for what does not exist."""
    options = peers.plan.learning.movable
    if peers.tier != "should" or not options or peers.plan.balance.in_order:
        return
    option = next(iter(options))
    value = peers.plan.algorithm[option]
    peers.notes["asked"] = option, value
    liar = cast.voices["sampler-0"]
    liar.say("request", who="me", what="set", option="no_such_option", value=1.0)
    wish = partial(liar.say, "request", who="me", what="set", option=option, value=value)
    peers.notes["set"] = told(peers, "B12", "set", "after a request", wish)
    peers.wait(WATCHED_S)


def save(peers: Peers, cast: Cast) -> None:
    """It asks for a checkpoint, whose parts come: first one alone, then another of which a file is torn; once
    more if it has asked for the next one meanwhile.
    """

    def asked() -> list[str]:
        found = peers.between("begun", None, "checkpoint", CONTROL)
        return [message.fields["folder"] for message in found if not message.repeat]

    peers.until("B6", "a request for a checkpoint", asked, 60 * CHECKPOINT_MINUTES + peers.patience_s)
    peers.mark("saving")
    peers.notes["early"] = []
    for _ in range(3):
        folder = asked()[-1]
        answer_in_parts(peers, cast, peers.folder.checkpoints / folder)
        if asked()[-1] == folder:
            manifest = peers.folder.checkpoints / folder / "MANIFEST.json"
            peers.until("B5", "a manifest", manifest.exists)
            peers.notes["manifest"] = json.loads(manifest.read_text())
            break
    peers.notes["folders"] = asked()


def answer_in_parts(peers: Peers, cast: Cast, place: Path) -> None:
    """The learners write their parts one by one, the last one at first torn; notes early manifests."""
    *others, last = peers.plan.learning.learners
    for role in others:
        answer(cast, place, role)
    for what, cut in (("one part", 0), ("a torn part", 3)):
        if cut:
            answer(cast, place, last, cut=cut)
        peers.wait(WATCHED_S)
        if (place / "MANIFEST.json").exists():
            peers.notes["early"].append(what)
    answer(cast, place, last)


def answer(cast: Cast, place: Path, role: str, cut: int = 0) -> None:
    """A learner writes its part, all but the last ``cut`` bytes, and says so."""
    content, name = role.encode() * 10, f"{role}.bin"
    about = {"name": name, "bytes": len(content), "crc32": zlib.crc32(content)}
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content[: len(content) - cut])
    cast.voices[f"{role}-0"].say("part", folder=place.name, part={name: about})


def begin_again(peers: Peers, first: Life) -> Life:
    """It is killed when it has had the time to keep what it knows; the next one begins."""
    peers.wait(KEPT_S)
    peers.notes["before"] = statuses(peers, "begun")[-1]
    incarnation = peers.heard[-1].message.incarnation
    first.kill_alone()
    peers.wait(0.2)
    peers.mark("second")
    second = peers.start(0)
    begins(peers, "second", "L9")
    peers.until("B1", "a status", lambda: statuses(peers, "second")[1:])
    newest = peers.between("second", None, "status", CONTROL)[-1]
    peers.notes["lives"] = incarnation, newest.incarnation
    peers.notes["after"] = dict(newest.fields)
    return second


def end_run(peers: Peers, cast: Cast) -> None:
    """The limit is reached: a last checkpoint comes, then the stop; the launcher stops the samplers."""
    peers.mark("limit")

    def last() -> list[Message]:
        found = peers.between("limit", None, "checkpoint", CONTROL)
        return [m for m in found if m.fields.get("env_steps", 0) >= ENOUGH and not m.repeat]

    found = peers.until("B4", f"a checkpoint at the limit of {ENOUGH} env steps", last)[-1]
    peers.wait(WATCHED_S)
    stops = peers.between("limit", None, "stop", CONTROL)
    peers.notes["too soon"] = bool(stops)
    for role in peers.plan.learning.learners:
        answer(cast, peers.folder.checkpoints / found.fields["folder"], role)
    stops = peers.until("B4", "a stop", lambda: peers.between("limit", None, "stop", CONTROL))
    peers.notes["stopped"] = stops[0]
    for turn, role in enumerate((SAMPLER, EVALUATOR), 1):
        stopping = partial(cast.launcher.say, "stopping", roles=[role])
        peers.notes[f"passed on {turn}"] = told(peers, "B8", "stop", f"after stopping {turn}", stopping)


ACTS = {"birth": birth, "govern": govern}
