"""The act of a learner: a script of rollouts, weights and checkpoints that makes its clauses visible."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.peers import garbage
from spreeze_zmq.peers.every_role import begin, begin_again, end, repeated_to_who_comes_late
from spreeze_zmq.peers.peers import Peers, Stalled
from spreeze_zmq.peers.players import AT_ONCE, ENVS, STEPS, STREAM, OtherLearner, Sampler, newest_policy
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CONTROL, CRITIC, CRITIC_LEARNER, POLICY
from spreeze_zmq.run.checkpoint import Part, complete

#: Rollouts offered to a learner that may take none yet.
OFFERED = 1000
#: The ``env_steps`` of critics after the first ones of another life.
AGAIN = (78, 79, 80)
#: Folder of the checkpoint that it is asked for.
FOLDER = "000000000001-000000000001"


def learn(peers: Peers) -> None:
    """It trains, waits, gets invalid messages, writes a checkpoint, is killed, started again, and stopped."""
    peers.open()
    first = begin(peers, 0)
    sampler, other = Sampler(peers), OtherLearner(peers)
    if peers.role == CRITIC_LEARNER and other.plays:
        peers.meanwhile = lambda: sampler.push(OFFERED - sampler.num_pushed)
        peers.wait(1.0)
        peers.notes["untaken"] = sampler.num_pushed
    else:
        peers.until("T2", "a policy", lambda: peers.between("begun", None, "policy"))
    other.publish()
    peers.meanwhile = feeding(sampler, other, AT_ONCE)
    peers.wait(0.7)  # if the second critics came at once, it might never see the first
    works = "T1" if peers.role == CRITIC_LEARNER else "T6"
    peers.until(works, "an update", following(peers, other, lambda: updates(peers) > 0))
    peers.mark("training")
    peers.wait(1.5)
    peers.mark("fed")
    peers.meanwhile = other.follow
    rest(peers, sampler, other, works)
    peers.notes["late"] = repeated_to_who_comes_late(peers, weights_of(peers), weights_of(peers))
    publish_scrambled(peers, other)
    goes_on(peers, sampler, other, works)
    send_garbage(peers, sampler, other)
    save(peers)
    rejoin(peers, first, sampler, other)


def feeding(sampler: Sampler, other: OtherLearner, most: int) -> Callable[[], None]:
    """Pushes at most ``most`` rollouts and publishes what the other learner would; called at each poll."""

    def feed() -> None:
        sampler.push(most)
        other.follow()

    return feed


def following(
    peers: Peers, other: OtherLearner, came: Callable[[], bool], env_steps: Iterable[int] = (0, 0, 0)
) -> Callable[[], bool]:
    """Whether something has come that follows weights of the other learner, which publishes further ones as
    time passes: the first that a busy learner met may not have been the first.

    Args:
        peers: the run.
        other: publishes now, and again after a third of the patience each.
        came: whether it has come.
        env_steps: of each publication.
    """
    due_s, left = time.monotonic(), iter(env_steps)

    def has_come() -> bool:
        nonlocal due_s
        if time.monotonic() >= due_s and (steps := next(left, None)) is not None:
            other.publish(env_steps=steps)
            due_s = time.monotonic() + peers.patience_s / 3
        return came()

    return has_come


def weights_of(peers: Peers) -> str:
    """The kind of the weights that it publishes, which is its channel's name."""
    return CRITIC if peers.role == CRITIC_LEARNER and len(peers.plan.learning.learners) > 1 else POLICY


def report(peers: Peers, mark: str = "begun") -> dict[str, Any]:
    """The fields of the last report after a mark; empty if there is none."""
    found = peers.between(mark, None, "report")
    return dict(found[-1].fields) if found else {}


def updates(peers: Peers) -> int:
    """The number of updates that it reports."""
    name = "critic_updates" if peers.role == CRITIC_LEARNER else "actor_updates"
    return int(report(peers).get("counters", {}).get(name, 0))


def account(peers: Peers, mark: str = "begun") -> dict[str, int]:
    """The row of the played sampler's stream in its last report after a mark; zeros if there is none."""
    empty = dict.fromkeys(("first", "last", "received", "refused", "lost"), 0)
    return {**empty, **report(peers, mark).get("taken", {}).get(STREAM, {})}


def rest(peers: Peers, sampler: Sampler, other: OtherLearner, works: str) -> None:
    """Push nothing more, and wait until it has taken everything and makes no more updates."""
    is_taken(peers, sampler, "T3", "after all was pushed")

    def rests() -> bool:
        counts = [message.fields["counters"] for message in peers.between("fed", None, "report")[-3:]]
        return len(counts) == 3 and counts[0] == counts[-1]

    peers.until(works, "an end of updates without samples or critics", rests, 3 * peers.patience_s)
    peers.mark("rested")
    peers.notes["critics"] = other.version
    peers.wait(1.2)
    peers.wait(3.0, lambda: report(peers, "rested").get("waiting_for"))
    peers.mark("waited")


def is_taken(peers: Peers, sampler: Sampler, clause: str, what: str) -> None:
    """Wait until it accounts for everything that was pushed."""
    due = sampler.num_pushed * STEPS * ENVS
    slow_s = 3 * peers.patience_s  # it first makes the updates that these rollouts allow
    what = f"an account up to position {due} {what}"
    peers.until(clause, what, lambda: account(peers)["last"] == due, slow_s)


def publish_scrambled(peers: Peers, other: OtherLearner) -> None:
    """Publish weights of the right size whose layout is another one, and wait until they are refused."""
    if not other.plays:
        return
    before = updates(peers)
    other.publish(layout="0123456789abcdef")

    def refused() -> list[str]:
        rows = report(peers, "waited").get("refused", ())
        return [row["first"] for row in rows if row["word"] == "bad_parameters"]

    peers.notes["scrambled"] = peers.wait(peers.patience_s, refused)
    peers.notes["unscrambled"] = updates(peers) == before


def goes_on(peers: Peers, sampler: Sampler, other: OtherLearner, works: str) -> None:
    """New samples or critics, also of another incarnation of the other learner, allow further updates."""
    if peers.role == ACTOR_LEARNER and peers.plan.learning.on_policy:
        peers.meanwhile = lambda: sampler.push(1)
        peers.wait(1.0)
        peers.notes["ahead"] = newest_policy(peers) - other.followed
    before = updates(peers)
    other.publish()
    peers.meanwhile = feeding(sampler, other, 1)
    peers.until(works, "a further update", lambda: updates(peers) > before)
    if peers.role == ACTOR_LEARNER and peers.plan.learning.on_policy:
        goes_on_with_its_rounds(peers, sampler, other, works)
    elif peers.role != CRITIC_LEARNER:
        peers.meanwhile = other.follow
        other.restart()
        other.publish(env_steps=77)
        peers.wait(0.5)

        def follows() -> bool:
            extras = peers.between("waited", None, "policy")[-1].fields["extras"]
            return bool(extras.get("env_steps") in AGAIN)

        what = "a policy that follows critics of another incarnation"
        peers.until("C6", what, following(peers, other, follows, AGAIN))
    peers.meanwhile = other.follow
    peers.mark("restarted")


def goes_on_with_its_rounds(peers: Peers, sampler: Sampler, other: OtherLearner, works: str) -> None:
    """The critic-learner dies with rollouts that this learner holds: its next life, from a checkpoint, never
    trains on them, and names an early policy.
    """
    peers.meanwhile = lambda: sampler.push(1)
    made = updates(peers)

    def rests() -> bool:
        nonlocal made
        peers.wait(1.2)  # two reports at least
        before, made = made, updates(peers)
        return before == made

    peers.until(works, "an end of updates without critics", rests)
    other.restart()
    other.publish(env_steps=77, follows=False)
    peers.until("C6", "an update after critics of another life", lambda: updates(peers) > made)


def send_garbage(peers: Peers, sampler: Sampler, other: OtherLearner) -> None:
    """A rollout with NaN, one of another environment, invalid messages on each channel, a newer sender."""
    arrays = sampler.rollout.arrays
    odd = {name: np.full_like(arrays[name], np.nan) for name in ("obs", "reward") if name in arrays}
    large = {"obs": np.zeros((STEPS + 1, ENVS, 1234)), "final_obs": np.zeros((0, 1234))}
    large = {name: array.astype(arrays[name].dtype) for name, array in large.items() if name in arrays}
    for bad in (odd, large):
        push_one(peers, sampler, garbage.frames_of(sampler.next(**bad)))
    for frames in [*garbage.refused(()).values(), *garbage.mutations(garbage.ROLLOUT, 40)]:
        peers.until("M4", "a place for garbage", functools.partial(sampler.end.forward, frames))
        if other.plays:
            peers.ends[other.channel].forward(frames)
    push_one(peers, sampler, garbage.frames_of(sampler.next()))
    is_taken(peers, sampler, "M4", "after garbage")
    peers.mark("fuzzed")
    before = account(peers)["refused"]
    newer = sampler.next(moods=np.arange(3))
    newer = newer._replace(fields={**newer.fields, "mood": "calm"})
    push_one(peers, sampler, garbage.with_key(newer))
    is_taken(peers, sampler, "M5", "with a key, a field and an array more")
    if account(peers)["refused"] > before:
        raise Stalled("M5", "a rollout with a key, a field and an array more was refused")
    peers.mark("newer")


def push_one(peers: Peers, sampler: Sampler, frames: list[bytes]) -> None:
    """Push one rollout as these frames; its position counts as produced."""
    before = sampler.num_pushed

    def pushed() -> bool:
        sampler.push(1, frames)
        return sampler.num_pushed > before

    peers.until("M4", "a place for a rollout, after garbage", pushed)


def save(peers: Peers) -> None:
    """Ask for a checkpoint, wait for its part, and complete it if that is true."""
    peers.notes["saved"] = updates(peers)
    peers.publish(CONTROL, "checkpoint", folder=FOLDER, env_steps=1)
    peers.notes["part"] = peers.until("T4", "a part", lambda: peers.between("fuzzed", None, "part"))[0]
    with contextlib.suppress(CheckpointError, KeyError, TypeError, ValueError):
        parts = [Part.from_dict(about) for about in peers.notes["part"].fields["part"].values()]
        state = {"t_s": 1.0, "counts": {"env_steps": 1}}
        complete(peers.folder.checkpoints / FOLDER, parts, state)
        peers.mark("saved")


def rejoin(peers: Peers, first: Life, sampler: Sampler, other: OtherLearner) -> None:
    """It is killed, its next life trains, and is stopped while the sampler still pushes."""
    second = begin_again(peers, first, 0, "second")
    other.publish()
    peers.meanwhile = feeding(sampler, other, 1)
    peers.until("L9", "an account of the next life", lambda: account(peers, "second")["last"] > 0)
    if not peers.plays(POLICY):
        peers.until("T2", "a policy of the next life", lambda: peers.between("second", None, "policy"))
    most = sampler.num_pushed + 20  # after these it has drained its channel
    peers.meanwhile = lambda: sampler.push(min(1, most - sampler.num_pushed))
    end(peers, second, "L6", stops="*")
    peers.mark("stopped")


ACTS = {"learn": learn}
