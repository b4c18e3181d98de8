"""What is done to a learner: a script that brings it where its clauses can be seen."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from spreeze_zmq.conform import garbage, life
from spreeze_zmq.conform.clauses import Stalled
from spreeze_zmq.conform.life import end, hello_of
from spreeze_zmq.conform.peers import Life, Peers
from spreeze_zmq.conform.players import ENVS, STEPS, STREAM, Other, Sampler, newest_policy
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CONTROL, CRITIC_LEARNER

#: Rollouts that are offered to a learner that takes none.
OFFERED = 1000
#: The checkpoint that it is asked for.
FOLDER = "000000000001-000000000001"


def learn(peers: Peers) -> None:
    """It is fed, rests, hears what is broken, saves itself, is killed, joins again, and is told to stop."""
    peers.open()
    first = peers.start(0)
    peers.mark("begun")
    hello_of(peers)
    sampler, other = Sampler(peers), Other(peers)
    if peers.role == CRITIC_LEARNER and other.voice is not None:
        peers.meanwhile = lambda: sampler.push(OFFERED - sampler.num_pushed)
        peers.wait(1.0)
        peers.notes["untaken"] = sampler.num_pushed
    else:
        peers.until("T2", "a policy", lambda: peers.between("begun", None, "policy"))

    def feed() -> None:
        sampler.push()
        other.follow()

    other.say()
    peers.meanwhile = feed
    peers.wait(0.7)  # critics that follow at once would be the first that it meets
    other.say()
    works = "T1" if peers.role == CRITIC_LEARNER else "T6"
    peers.until(works, "an update", lambda: updates(peers) > 0)
    peers.mark("training")
    peers.wait(1.5)
    peers.mark("fed")
    peers.meanwhile = other.follow
    rest(peers, sampler, works)
    goes_on(peers, sampler, other, works)
    hear_garbage(peers, sampler, other)
    save(peers)
    rejoin(peers, first, sampler, other)


def report(peers: Peers, mark: str = "begun") -> dict[str, Any]:
    """The fields of the last report after a mark; empty before the first."""
    found = peers.between(mark, None, "report")
    return dict(found[-1].fields) if found else {}


def updates(peers: Peers) -> int:
    """How many it has made."""
    name = "critic_updates" if peers.role == CRITIC_LEARNER else "actor_updates"
    return int(report(peers).get("counters", {}).get(name, 0))


def account(peers: Peers, mark: str = "begun") -> dict[str, int]:
    """What it says of the stream that is played."""
    empty = dict.fromkeys(("first", "last", "received", "refused", "lost"), 0)
    return {**empty, **report(peers, mark).get("taken", {}).get(STREAM, {})}


def rest(peers: Peers, sampler: Sampler, works: str) -> None:
    """Push no more, and wait until all is taken and no update follows."""
    is_taken(peers, sampler, "T3", "after all was pushed")

    def rests() -> bool:
        counts = [message.fields["counters"] for message in peers.between("fed", None, "report")[-3:]]
        return len(counts) == 3 and counts[0] == counts[-1]

    peers.until(works, "an end of updates without samples or critics", rests, 3 * peers.patience_s)
    peers.mark("rested")
    peers.wait(1.2)
    peers.wait(3.0, lambda: report(peers, "rested").get("waiting_for"))
    peers.mark("waited")


def is_taken(peers: Peers, sampler: Sampler, clause: str, what: str) -> None:
    """Wait until it accounts for all that was pushed."""
    due = sampler.num_pushed * STEPS * ENVS
    slow_s = 3 * peers.patience_s  # the updates that these ask for come first
    what = f"an account up to position {due} {what}"
    peers.until(clause, what, lambda: account(peers)["last"] == due, slow_s)


def goes_on(peers: Peers, sampler: Sampler, other: Other, works: str) -> None:
    """New samples, or critics, also of another life of the other learner."""
    if peers.role == ACTOR_LEARNER and peers.plan.learning.on_policy:
        peers.meanwhile = lambda: sampler.push(1)
        peers.wait(1.0)
        peers.notes["ahead"] = newest_policy(peers) - other.followed
    before = updates(peers)

    def feed() -> None:
        sampler.push(1)
        other.follow()

    other.say()
    peers.meanwhile = feed
    peers.until(works, "a further update", lambda: updates(peers) > before)
    peers.meanwhile = other.follow
    if peers.role != CRITIC_LEARNER:
        other.restart()
        other.say(env_steps=77)
        peers.wait(0.5)
        other.say(env_steps=78)
        if peers.plan.learning.on_policy:  # its policies say which of its own samples made them
            before, peers.meanwhile = updates(peers), feed
            peers.until("C6", "an update with critics of another life", lambda: updates(peers) > before)
            peers.meanwhile = other.follow
            peers.mark("restarted")
            return

        def follows() -> bool:
            extras = peers.between("waited", None, "policy")[-1].fields["extras"]
            return bool(extras.get("env_steps") == 78)

        peers.until("C6", "a policy that follows critics of another incarnation", follows)
    peers.mark("restarted")


def hear_garbage(peers: Peers, sampler: Sampler, other: Other) -> None:
    """A rollout with NaN, one of another environment, what breaks a rule on each channel; a newer sender."""
    arrays = sampler.rollout.arrays
    odd = {name: np.full_like(arrays[name], np.nan) for name in ("obs", "reward") if name in arrays}
    large = {"obs": np.zeros((STEPS + 1, ENVS, 1234)), "final_obs": np.zeros((0, 1234))}
    large = {name: array.astype(arrays[name].dtype) for name, array in large.items() if name in arrays}
    for bad in (odd, large):
        push_one(peers, sampler, garbage.frames_of(sampler.next(**bad)))
    for frames in [*garbage.refused(()).values(), *garbage.mutations(garbage.ROLLOUT, 40)]:
        peers.until("M4", "a place for garbage", functools.partial(sampler.end.forward, frames))
        if other.voice is not None:
            other.voice.raw(frames)
    push_one(peers, sampler, garbage.frames_of(sampler.next()))
    is_taken(peers, sampler, "M4", "after garbage")
    peers.mark("fuzzed")
    before = account(peers)["refused"]
    newer = sampler.next(moods=np.zeros(3, np.float32))
    newer = newer._replace(fields={**newer.fields, "mood": "calm"})
    push_one(peers, sampler, garbage.with_key(newer))
    is_taken(peers, sampler, "M5", "with a key, a field and an array more")
    if account(peers)["refused"] > before:
        raise Stalled("M5", "a rollout with a key, a field and an array more was refused")
    peers.mark("newer")


def push_one(peers: Peers, sampler: Sampler, frames: list[bytes]) -> None:
    """Push one rollout as these frames, which counts as produced."""
    before = sampler.num_pushed

    def pushed() -> bool:
        sampler.push(1, frames)
        return sampler.num_pushed > before

    peers.until("M4", "a place for a rollout, after garbage", pushed)


def save(peers: Peers) -> None:
    """A checkpoint."""
    peers.say(CONTROL, "checkpoint", folder=FOLDER, env_steps=1)
    peers.notes["part"] = peers.until("T4", "a part", lambda: peers.between("fuzzed", None, "part"))[0]
    peers.mark("saved")


def rejoin(peers: Peers, first: Life, sampler: Sampler, other: Other) -> None:
    """It is killed, and its next life taught; the samplers go on while it is told to stop."""
    first.kill()
    lives = [peers.notes["incarnation"]]
    peers.mark("second")
    second = peers.start(0)
    peers.notes["lives"] = (*lives, hello_of(peers, "second", "L9").incarnation)
    other.say()

    def feed() -> None:
        sampler.push(1)
        other.follow()

    peers.meanwhile = feed
    peers.until("L9", "an account of the next life", lambda: account(peers, "second")["last"] > 0)
    if peers.role == ACTOR_LEARNER:
        peers.until("T2", "a policy of the next life", lambda: peers.between("second", None, "policy"))
    most = sampler.num_pushed + 20  # after these it has drained its channel
    peers.meanwhile = lambda: sampler.push(min(1, most - sampler.num_pushed))
    end(peers, second, "L6", by_message=True)
    peers.mark("stopped")


ACTS = {**life.ACTS, "learn": learn}
