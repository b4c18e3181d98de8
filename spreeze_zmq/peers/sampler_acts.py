"""The acts of a sampler: scripts of policies, limits and idle learners that make its clauses visible."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping

import numpy as np

from spreeze_zmq.peers import garbage, policies
from spreeze_zmq.peers.every_role import begin, begin_again, end, hello_of
from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.peers.program import Life
from spreeze_zmq.peers.rollouts import arrived, produced, rollouts, transitions
from spreeze_zmq.plan.roles import CONTROL, POLICY, REPORT, SAMPLER
from spreeze_zmq.wire import Message

#: Rollouts within which an episode should end, in an environment without a time limit.
MANY = 60
#: How long to wait for messages that must not come.
STILL_S = 0.4
#: For how long nothing is collected while the broker is away; reports and episodes come twice a second.
AWAY_S = 0.7
#: The first version of policies with a mistake, and for how long one might be used.
BROKEN_VERSION, USED_S = 90, 0.15
#: Policies that cannot be used, by name.
UNUSABLE = {"unknown layer": policies.unusable_policy, "other actions": policies.misfit_policy}
#: How long rollouts may take to come that were sent before the last message.
LAST_S = 3.0
#: Transitions from which the distribution of actions is estimated.
DRAWS = 800


def publish_policy(
    peers: Peers, version: int, policy: Message, until: Mapping[str, int] | None = None
) -> Message:
    """Publish a policy that may be used ``until`` these positions, the ``collect_until`` of PROTOCOL.md."""
    limit = {} if until is None else {"collect_until": dict(until)}
    fields = {**policy.fields, "version": version, **limit}
    return peers.publish(POLICY, "policy", policy.arrays, **fields)


def come_to(peers: Peers, clause: str, what: str, position: int, mark: str) -> int:
    """Wait until the streams have reached a position, set the mark, and return the position. Each step on
    the way may take as long as any other thing.
    """

    def more() -> bool:
        return produced(peers) > before

    while (before := produced(peers)) < position:
        peers.until(clause, f"rollouts up to position {position} {what}", more)
    peers.mark(mark)
    return position


def first_size(peers: Peers, clause: str) -> int:
    """Wait for the first rollout; returns its number of transitions."""
    peers.until(clause, "a rollout under the first policy", lambda: produced(peers) > 0)
    return transitions(rollouts(peers, "begun")[0])


def an_episode(peers: Peers) -> int:
    """The position up to which every environment should have ended an episode; a rollout has come."""
    first, limit = rollouts(peers, "begun")[0], peers.plan.environment.max_episode_steps
    return transitions(first) * (MANY if limit is None else limit // int(first.fields["num_steps"]) + 2)


def main(peers: Peers) -> None:
    """A whole episode under version 0, then exact and drawn actions, limits, a restarted and a newer
    publisher, invalid messages, and learners that take nothing.
    """
    spec = peers.plan.environment
    head = policies.heads(spec)[0]
    exact = peers.notes["exact"] = policies.random_policy(spec, head, seed=1)
    zero = policies.random_policy(spec, head, seed=99)
    peers.open()
    started = begin(peers, 0)
    publish_policy(peers, 0, zero, {"*": 1})
    size = first_size(peers, "X2")
    at = an_episode(peers)
    publish_policy(peers, 0, zero, {"*": at})
    at = come_to(peers, "A8", "under version 0, with a further limit than before", at, "random")
    older = publish_policy(peers, 1, exact, {"*": at + 4 * size})
    at = come_to(peers, "X13", "under version 1", at + 4 * size, "exact")
    draws = -(-DRAWS // size) * size
    publish_policy(peers, 2, policies.constant_policy(spec, head), {"*": at + draws})
    at = come_to(peers, "X13", "under version 2", at + draws, "drawn")
    at = limits(peers, started, exact, at, size)
    at = other_publishers(peers, older, exact, at, size)
    idle_learners(peers, exact, at, size)
    end(peers, started, "L5")
    peers.mark("ended")


def limits(peers: Peers, started: Life, exact: Message, at: int, size: int) -> int:
    """A limit for its own stream, then a further one under the same version; returns its position."""
    stream = f"{started.name}/{peers.notes['incarnation']}"
    limit = peers.notes["limit"] = at + 2 * size
    publish_policy(peers, 3, exact, {"*": at + 1000 * size, stream: limit})
    come_to(peers, "X13", "under version 3", limit, "at the limit")
    peers.wait(STILL_S)
    peers.mark("limited")
    at = max(limit, produced(peers)) + 2 * size
    publish_policy(peers, 3, exact, {stream: at})
    return come_to(peers, "A8", "under version 3, with a further limit than before", at, "moved")


def other_publishers(peers: Peers, older: Message, exact: Message, at: int, size: int) -> int:
    """An old policy is repeated, the publisher restarts, is newer, and sends invalid messages; returns the
    sampler's position.
    """
    far, publisher = {**older.fields, "collect_until": {"*": at + 1000 * size}}, peers.ends[POLICY]
    publisher.forward(garbage.frames_of(older._replace(fields=far, repeat=True)))
    peers.wait(STILL_S)
    peers.mark("repeated")
    peers.restart(POLICY, 77)
    at = max(at, produced(peers)) + 2 * size
    last = publish_policy(peers, 1, exact, {"*": at})
    come_to(peers, "C6", "under an older version of a restarted publisher", at, "restarted")
    at += 2 * size
    fields = {**exact.fields, "version": 4, "collect_until": {"*": at}, "mood": "calm"}
    arrays = {**exact.arrays, "moods": np.arange(3)}
    newer = last._replace(fields=fields, arrays=arrays, sequence=publisher.published)
    publisher.forward(garbage.with_key(newer))
    publisher.published += 1
    come_to(peers, "M5", "under a policy with a key, a field and an array more", at, "newer")
    send_garbage(peers, last, at + 1000 * size)
    publish_policy(peers, 5, exact, {"*": at + 2 * size})
    return come_to(peers, "M4", "under a policy that came after garbage", at + 2 * size, "fuzzed")


def send_garbage(peers: Peers, policy: Message, far: int) -> None:
    """Publish invalid messages, then policies of one mistake each, which may be used up to ``far``."""
    publisher = peers.ends[POLICY]
    for frames in [*garbage.refused(()).values(), *garbage.mutations(policy, 60)]:
        publisher.forward(frames)
        peers.wait(0.01)  # a subscriber's queue is short, and messages that find it full are lost
    for version, mistake in enumerate(garbage.policies(policy), BROKEN_VERSION):
        fields = {**policy.fields, "version": version, "collect_until": {"*": far}}
        broken = policy._replace(fields=fields, sequence=publisher.published)
        publisher.forward(garbage.policies(broken)[mistake])
        publisher.published += 1
        peers.notes["mistakes"] = {**peers.notes.get("mistakes", {}), version: mistake}
        peers.wait(USED_S)


def idle_learners(peers: Peers, exact: Message, at: int, size: int) -> None:
    """The learners take nothing, then everything, then nothing again."""
    peers.holding = experience = {name for name in peers.ends if name.startswith("experience.")}
    publish_policy(peers, 6, exact)
    peers.mark("holding")
    slow_s = 6 * peers.patience_s  # small rollouts fill the kernel's buffer slowly, on busy cores more so
    peers.until("C3", "an end of pushing while no learner takes", lambda: pushes_no_more(peers), slow_s)
    peers.mark("held")
    peers.wait(2.0)
    peers.mark("blocked")
    peers.holding = set()
    peers.notes["pushed"] = pushed(peers)
    at = max(pushed(peers), default=at + 150 * size) + 2 * size
    come_to(peers, "X12", "after a learner that took nothing takes again", at, "released")
    peers.holding = experience
    peers.mark("holding")
    peers.wait(slow_s, lambda: pushes_no_more(peers))  # messages are left in its queues when it is stopped


def pushed(peers: Peers) -> list[int]:
    """From each report since the learners took nothing, the largest ``pushed`` of any learner."""
    reports = peers.between("holding", None, "report")
    return [int(max(m.fields.get("pushed", {}).values(), default=0)) for m in reports]


def pushes_no_more(peers: Peers) -> bool:
    """Whether the last two reports agree, or no report has come for 2 s."""
    found, times = pushed(peers), peers.times(None, None, "report")
    last_s, now_s = times[-1].at_s if times else math.inf, time.monotonic()
    silent = now_s - last_s - peers.paused_s(last_s, now_s) > 2.0
    return silent or (len(found) > 2 and found[-1] == found[-2])


def in_order(peers: Peers) -> None:
    """Several versions at once in a run in order; then it is killed, started again, and stopped."""
    exact = policies.random_policy(peers.plan.environment, policies.heads(peers.plan.environment)[0], seed=1)
    peers.open()
    publish_policy(peers, 0, exact, {"*": 1})
    first = begin(peers, 1)
    size = first_size(peers, "C5")
    for version in (1, 2, 3):
        publish_policy(peers, version, exact, {"*": (2 * version + 1) * size})
    come_to(peers, "A9", "under versions 1 to 3, each in its turn", 7 * size, "in order")
    second = begin_again(peers, first, 1, "begun")
    come_to(peers, "C5", "of the next life, under the policy that it finds", 7 * size, "rejoined")
    publish_policy(peers, 4, exact)
    come_to(peers, "X2", "under version 4", 12 * size, "last")
    end(peers, second, "L6", stops="*")
    peers.wait(LAST_S, lambda: has_come(peers))
    peers.mark("stopped")
    peers.notes["arrived"] = arrived(peers)
    if peers.tier == "should":
        another(peers)


def another(peers: Peers) -> None:
    """A sampler of another index begins its episodes in the same run."""
    peers.ends[CONTROL].latest.clear()
    life = peers.start(2)
    began = functools.partial(rollouts, peers, "stopped")  # by the learner's channel that is judged
    peers.wait(peers.about.start_timeout_s, lambda: life.ended or began())
    life.kill()


def has_come(peers: Peers) -> bool:
    """Whether all rollouts have come that its last message counts: they come on other channels."""
    said = [message.fields.get("pushed", {}) for message in peers.between("last", None, "bye")]
    return bool(said) and said[-1] == arrived(peers)


def unheard(peers: Peers) -> None:
    """The broker, whose queue holds little, is away while episodes end, comes, and hears of further episodes
    and its last words.
    """
    zero = policies.random_policy(peers.plan.environment, policies.heads(peers.plan.environment)[0], seed=1)
    peers.open(later=REPORT)
    publish_policy(peers, 0, zero, {"*": 1})
    peers.mark("begun")
    life, slow_s = peers.start(9), peers.about.start_timeout_s
    peers.until("H10", "a rollout while the broker is away", lambda: produced(peers) > 0, slow_s)
    ends, size = an_episode(peers), transitions(rollouts(peers)[0])
    for more in range(2):  # it may tell of the first ones when it collects again
        at = ends + more * 2 * size
        publish_policy(peers, 0, zero, {"*": at})
        come_to(peers, "H10", "while the broker is away", at, "unheard")
        peers.wait(AWAY_S)
    peers.open()
    hello_of(peers, "begun", "H10")
    publish_policy(peers, 0, zero, {"*": at + ends})
    come_to(peers, "H10", "when the broker is back", at + ends, "heard")
    peers.wait(AWAY_S)
    end(peers, life, "L5")
    peers.mark("told")


def bad_input(peers: Peers) -> None:
    """It is stopped by its role's name while it starves; policies that cannot be used."""
    peers.open()
    end(peers, begin(peers, 8), "L6", stops=SAMPLER)
    peers.mark("stopped by its role")
    peers.ends[CONTROL].latest.clear()
    for index, name in enumerate(UNUSABLE, 6):
        publish_policy(peers, index, UNUSABLE[name](peers.plan.environment))
        gets_unusable(peers, index, name)


def gets_unusable(peers: Peers, index: int, name: str) -> None:
    """A life finds a policy that cannot be used; notes under its name how it ends."""
    life = begin(peers, index)
    peers.wait(min(5.0, peers.patience_s), lambda: life.ended)
    peers.notes[name] = life, life.process.poll()
    life.kill()


ACTS = {
    "main": main,
    "order": in_order,
    "input": bad_input,
    "unheard": unheard,
}
