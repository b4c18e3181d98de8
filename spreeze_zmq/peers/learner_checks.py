"""The clauses of a learner: replay ratio, versions, account of transitions, checkpoints, refusals."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np

from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.peers import clauses
from spreeze_zmq.peers.clauses import Broken, Clause, expect
from spreeze_zmq.peers.learner_acts import FOLDER, weights_of
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.players import ENVS, STEPS, STREAM, UPDATES, Sampler
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, CRITIC_LEARNER, POLICY, ROLES, experience_of
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message

#: Bytes of waiting rollouts that the kernel may hold, besides the high-water marks.
KERNEL_BYTES = 500_000


def _keeps_the_ratio(peers: Peers) -> str:
    ratio, algorithm = peers.plan.balance.replay_ratio, peers.plan.algorithm
    starts, slack = algorithm.get("learning_starts", 0), peers.plan.balance.slack_rollouts + 8
    for fields in (m.fields for m in peers.between("begun", "waited", "report")):
        received, trained = (fields["counters"].get(name, 0) for name in ("env_steps", "trained_transitions"))
        seen = f"{trained:.0f} trained on of {received:.0f}, the first {starts} do not count"
        expect(trained <= ratio * max(0, received - starts), f"{seen}, the ratio is {ratio:g}")
        most = trained / ratio + starts + slack * STEPS * ENVS
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
    more = max(1, peers.note("critics") - 1)  # publications after the first, at which it met them
    most = (more * UPDATES + slack) // delay
    return expect(made[-1] <= most, f"{made[-1]} updates, at most {most} with these critics")


def _stops_its_samplers(peers: Peers) -> str:
    if not peers.plays(POLICY):
        raise NotSeen("a learner that waits for no other takes rollouts at once")
    about, rollout = peers.plan.channels[experience_of(peers.role)], Sampler(peers).next()
    num_bytes = sum(array.nbytes for array in rollout.arrays.values())
    most, pushed = 2 * about.high_water_mark + 2 + KERNEL_BYTES // num_bytes, peers.note("untaken")
    return expect(pushed <= most, f"{pushed} rollouts of {num_bytes} bytes have a place before it takes any")


def _gives_each_version_once(peers: Peers) -> str:
    if peers.plays(POLICY):
        raise NotSeen("another learner publishes the policy")
    lives: dict[int, list[Message]] = {}
    for message in peers.between("begun", None, "policy"):
        try:
            Policy.from_message(message.fields, message.arrays)
        except SpreezeError as error:
            raise Broken(f"version {message.fields['version']} cannot be used: {error}") from None
        lives.setdefault(message.incarnation, []).append(message)
    if not lives:
        raise NotSeen("no policy came")
    first, *later = [[message.fields["version"] for message in found] for found in lives.values()]
    expect(first[0] == 0 or peers.plan.learning.on_policy, f"the first version is {first[0]}")
    for versions in (first, *later):
        expect(versions == sorted(versions), f"versions go back: {versions[:8]}")
    for versions in later:
        again = f"version {versions[0]} is given again by the next life"
        expect(versions[0] > first[-1] or not first[-1], again)
    weights: dict[int, Any] = {}
    for message in itertools.chain(*lives.values()):
        version, given = message.fields["version"], message.arrays["parameters"]
        same = np.array_equal(weights.setdefault(version, given), given)
        expect(same or version == 0, f"version {version} is given twice, with other parameters")
    return f"versions {first[0]} to {first[-1]}, then from {[versions[0] for versions in later]}"


def _accounts_for_all(peers: Peers) -> str:
    rows = [row for m in peers.between("begun", None, "report") for row in m.fields.get("taken", {}).items()]
    for name, row in rows:
        parts = row["received"] + row["refused"] + row["lost"]
        expect(row["last"] - row["first"] == parts, f"{name}: {row}")
    last = peers.between("begun", "rested", "report")[-1].fields.get("taken", {}).get(STREAM)
    expect(last and not last["refused"] + last["lost"], f"{STREAM}: {last}")
    return f"{last['received']} received of {last['last']}"


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
    said = "; ".join(f"{row['count']} {row['kind']} for {row['word']} ({row['first']})" for row in rows)
    expect(refused == due, f"{refused} transitions of its stream are refused, not {due}: {said}")
    words = {row["word"] for row in rows}
    return expect({"not_finite", "misfit"} <= words, f"refused for {', '.join(sorted(words))}")


def _refuses_another_layout(peers: Peers) -> str:
    other = CRITIC if peers.role == ACTOR_LEARNER else POLICY
    if not peers.plays(other):
        raise NotSeen("a learner that trains alone takes no weights of another")
    own = peers.between("begun", "waited", CRITIC if other == POLICY else POLICY)
    if not any("layout" in message.fields for message in own):
        raise NotSeen("its own weights name no layout")
    said = peers.note("scrambled")
    expect(said, "weights of another layout are not refused as bad_parameters")
    return expect(peers.note("unscrambled"), "updates follow weights of another layout") and said[0]


def _goes_on_from_its_part(peers: Peers) -> str:
    peers.reached("saved")
    found = peers.between("second", None, "report")
    if not found:
        raise NotSeen("no report of the next life came")
    name = "critic_updates" if peers.role == CRITIC_LEARNER else "actor_updates"
    saved, came = peers.note("saved"), found[0].fields["counters"].get(name, 0)
    return expect(came >= saved, f"{saved} updates in the checkpoint, {came:.0f} after a restart")


BOTH = (
    Clause("L6", "learn", clauses.exits_with_0),
    Clause("L9", "learn", clauses.another_incarnation),
    Clause("L14", "learn", clauses.leaves_no_child),
    Clause("C10", "learn", lambda peers: clauses.repeats_its_latest(peers, weights_of(peers))),
    Clause("M4", "learn", "fuzzed"),
    Clause("M5", "learn", "newer"),
    Clause("T2", "learn", _gives_each_version_once),
    Clause("T3", "learn", _accounts_for_all),
    Clause("T4", "learn", _writes_its_part),
    Clause("T5", "learn", _refuses_what_is_broken),
    Clause("T7", "learn", _refuses_another_layout),
    Clause("T8", "learn", _goes_on_from_its_part),
    Clause("H3", "learn", lambda peers: clauses.no_gap(peers, "training", "waited")),
    Clause("H6", "learn", lambda peers: clauses.names_its_peer(peers, "rested", "waited", ROLES)),
)
CLAUSES = {
    CRITIC_LEARNER: (
        *BOTH,
        Clause("T1", "learn", _keeps_the_ratio),
        Clause("C3", "learn", _stops_its_samplers),
    ),
    ACTOR_LEARNER: (
        *BOTH,
        Clause("T6", "learn", _follows_the_critics),
        Clause("C6", "learn", "restarted"),
    ),
}
