"""What is done to a learner, and its clauses: the ratio, versions, the account, checkpoints, refusals."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np

from spreeze_zmq.conform import garbage, life
from spreeze_zmq.conform.clauses import Clause, NotSeen, Stalled, expect
from spreeze_zmq.conform.life import another_incarnation, end, hello_of, left, no_gap
from spreeze_zmq.conform.peers import Life, Peers
from spreeze_zmq.conform.players import ENVS, STEPS, STREAM, UPDATES, Other, Sampler, newest_policy
from spreeze_zmq.plan.roles import (
    ACTOR_LEARNER,
    CONTROL,
    CRITIC_LEARNER,
    POLICY,
    ROLES,
    experience_of,
)
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message

#: Rollouts that are offered to a learner that takes none.
OFFERED = 1000
#: What the queues and the kernel hold of rollouts that nobody takes, beside the high-water marks.
KERNEL_BYTES = 500_000
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


def _keeps_the_ratio(peers: Peers) -> str:
    ratio, algorithm = peers.plan.balance.replay_ratio, peers.plan.algorithm
    ahead = algorithm.get("learning_starts", 0) + (peers.plan.balance.slack_rollouts + 8) * STEPS * ENVS
    for fields in (m.fields for m in peers.between("begun", "waited", "report")):
        received, trained = (fields["counters"].get(name, 0) for name in ("env_steps", "trained_transitions"))
        expect(
            trained <= ratio * received, f"{trained:.0f} trained on of {received:.0f}, the ratio is {ratio:g}"
        )
        most = trained / ratio + ahead
        expect(
            received <= most, f"{received:.0f} taken while {trained:.0f} are trained on, at most {most:.0f}"
        )
    return f"{trained:.0f} trained on of {received:.0f}"


def _follows_the_critics(peers: Peers) -> str:
    if peers.plan.learning.on_policy:
        # Critics of one policy's rollouts allow rounds of the next one's, of which some may be under way.
        ahead, most = peers.note("ahead"), 2 + (peers.plan.balance.max_policy_lag or 0)
        return expect(ahead <= most, f"{ahead} policies after the one that the critics know, at most {most}")
    slack, delay = peers.about.options.get("slack_updates", 0), peers.plan.algorithm.get("policy_delay", 1)
    made = [int(m.fields["counters"]["actor_updates"]) for m in peers.between("begun", "waited", "report")]
    most = (UPDATES + slack) // delay  # it met them at the first of two publications
    return expect(made[-1] <= most, f"{made[-1]} updates, at most {most} with these critics")


def _stops_its_samplers(peers: Peers) -> str:
    if POLICY not in peers.voices:
        raise NotSeen("a learner that waits for no other takes rollouts at once")
    about, rollout = peers.plan.channels[experience_of(peers.role)], Sampler(peers).next()
    num_bytes = sum(array.nbytes for array in rollout.arrays.values())
    most, pushed = 2 * about.high_water_mark + 2 + KERNEL_BYTES // num_bytes, peers.note("untaken")
    return expect(pushed <= most, f"{pushed} rollouts of {num_bytes} bytes have a place before it takes any")


def _gives_each_version_once(peers: Peers) -> str:
    lives: dict[int, list[Message]] = {}
    for message in peers.between("begun", None, "policy"):
        Policy.from_message(message.fields, message.arrays)
        lives.setdefault(message.incarnation, []).append(message)
    first, *later = [[message.fields["version"] for message in found] for found in lives.values()]
    expect(first[0] == 0 or peers.plan.learning.on_policy, f"the first version is {first[0]}")
    for versions in (first, *later):
        expect(versions == sorted(versions), f"versions go back: {versions[:8]}")
    for versions in later:
        again = f"version {versions[0]} is given again by the next life"
        expect(versions[0] > first[-1] or not first[-1], again)
    weights: dict[int, Any] = {}
    for message in (message for found in lives.values() for message in found):
        version, given = message.fields["version"], message.arrays["parameters"]
        same = np.array_equal(weights.setdefault(version, given), given)
        expect(same or version == 0, f"version {version} is given twice, with other parameters")
    return f"versions {first[0]} to {first[-1]}, then from {[versions[0] for versions in later]}"


def _accounts_for_all(peers: Peers) -> str:
    rows = [row for m in peers.between("begun", None, "report") for row in m.fields.get("taken", {}).items()]
    for name, row in rows:
        parts = row["received"] + row["refused"] + row["lost"]
        expect(row["last"] - row["first"] == parts, f"{name}: {row}")
    found = [
        m.fields["taken"].get(STREAM)
        for m in peers.between("begun", "rested", "report")
        if "taken" in m.fields
    ]
    expect(found and found[-1] and not found[-1]["refused"] + found[-1]["lost"], f"{STREAM}: {found[-1:]}")
    return f"{found[-1]['received']} received of {found[-1]['last']}"


def _writes_its_part(peers: Peers) -> str:
    part = peers.note("part").fields
    expect(part["folder"] == FOLDER, f"the part is of {part['folder']}, asked for {FOLDER}")
    for name, about in part["part"].items():
        path = peers.folder.checkpoints / FOLDER / name
        content = path.read_bytes() if path.is_file() else b""
        true = {"bytes": len(content), "crc32": zlib.crc32(content)}
        said = {key: about.get(key) for key in true}
        expect(path.is_file() and said == true, f"{name}: it says {said}, there is {true}")
    return f"{len(part['part'])} files"


def _refuses_what_is_broken(peers: Peers) -> str:
    peers.reached("fuzzed")
    found = [m.fields for m in peers.between("restarted", "fuzzed", "report")][-1]
    rows = [row for row in found.get("refused", ()) if row["sender"] == STREAM.partition("/")[0]]
    refused, due = found["taken"][STREAM]["refused"], 2 * STEPS * ENVS
    expect(refused == due, f"{refused} transitions of its stream are refused, not {due}")
    words = {row["word"] for row in rows}
    return expect({"not_finite", "misfit"} <= words, f"refused for {', '.join(sorted(words))}")


def _names_whom_it_waits_for(peers: Peers) -> str:
    said = [m.fields.get("waiting_for", "") for m in peers.between("rested", "waited", "report")]
    if not said:
        raise NotSeen("no report came")
    return expect(any(role in said[-1] for role in ROLES), f"waiting_for is {said[-1]!r}")


def _reports_while_it_trains(peers: Peers) -> str:
    return no_gap(peers, "training", "waited")


ACTS = {**life.ACTS, "learn": learn}
BOTH = (
    Clause("L6", "learn", left),
    Clause("L9", "learn", another_incarnation),
    Clause("M4", "learn", "fuzzed"),
    Clause("M5", "learn", "newer"),
    Clause("T3", "learn", _accounts_for_all),
    Clause("T4", "learn", _writes_its_part),
    Clause("T5", "learn", _refuses_what_is_broken),
    Clause("H3", "learn", _reports_while_it_trains),
    Clause("H6", "learn", _names_whom_it_waits_for),
)
CLAUSES = {
    CRITIC_LEARNER: (
        *BOTH,
        Clause("T1", "learn", _keeps_the_ratio),
        Clause("C3", "learn", _stops_its_samplers),
    ),
    ACTOR_LEARNER: (
        *BOTH,
        Clause("T2", "learn", _gives_each_version_once),
        Clause("T6", "learn", _follows_the_critics),
        Clause("C6", "learn", "restarted"),
    ),
}
