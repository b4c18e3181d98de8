"""The clauses of a sampler's limits, learners and reports; those of its rollouts among them."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.peers import clauses, physics, rollout_checks
from spreeze_zmq.peers.clauses import Clause, expect
from spreeze_zmq.peers.every_role_checks import lingers_little
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.rollout_checks import learners
from spreeze_zmq.peers.rollouts import rollouts, transitions
from spreeze_zmq.peers.sampler_acts import UNUSABLE
from spreeze_zmq.plan.roles import experience_of


def _beyond_the_limit(peers: Peers) -> list[int]:
    """``produced`` of each rollout that began beyond the limit."""
    limit, found = peers.note("limit"), rollouts(peers, "drawn", "limited")
    return [m.fields["produced"] for m in found if m.fields["produced"] - transitions(m) >= limit]


def _heeds_the_limit(peers: Peers) -> str:
    beyond = _beyond_the_limit(peers)
    return expect(
        not beyond, f"{len(beyond)} rollouts begin beyond {peers.note('limit')} {beyond[-1:] or ''}"
    )


def _counts_as_starved(peers: Peers) -> str:
    if _beyond_the_limit(peers):
        raise NotSeen("it does not wait at the limit, see A5")
    found = peers.between("drawn", None, "report")
    starved_s = found[-1].fields["clock_s"].get("starved", 0.0) if found else 0.0
    return expect(starved_s > 0, f"clock_s.starved is {starved_s:.1f}")


def _each_in_its_turn(peers: Peers) -> str:
    found = [message.fields["policy_version"] for message in rollouts(peers, None, "in order")]
    return expect(found == [0, 1, 1, 2, 2, 3, 3], f"versions {str(found)[1:-1]}")


def _passes_repeats_over(peers: Peers) -> str:
    found = [m for m in rollouts(peers, "moved", "repeated") if m.fields["policy_version"] == 1]
    return expect(not found, f"{len(found)} rollouts under the older policy that was repeated")


def _passes_mistakes_over(peers: Peers) -> str:
    went_on, mistakes = peers.reached("fuzzed"), peers.note("mistakes")
    used = {m.fields["policy_version"] for m in rollouts(peers, "newer", "fuzzed")} & mistakes.keys()
    return expect(not used, f"it used a policy of {mistakes[min(used)]}" if used else went_on)


def _pushes_no_more(peers: Peers) -> str:
    if len(peers.note("pushed")) < 3 or not peers.times("held", "blocked", "report"):
        raise NotSeen("too few reports came, see H3")
    first, last = peers.note("pushed")[-3::2]
    return expect(first == last, f"after {first} transitions it pushes {last - first} more")


def _keeps_the_buffer_small(peers: Peers) -> str:
    about = peers.plan.channels[experience_of(peers.plan.learning.learners[0])]
    arrived = [m for m in rollouts(peers, "fuzzed", "released") if m.fields["policy_version"] == 6]
    if not arrived:
        raise NotSeen("no rollout came")
    unseen = max(peers.note("pushed"), default=0) - arrived[0].fields["produced"]
    waiting = unseen / transitions(arrived[0]) + 1
    num_bytes = sum(array.nbytes for array in arrived[0].arrays.values())
    most = 2 * about.high_water_mark + 2 + 4 * about.socket_buffer_bytes / num_bytes
    return expect(waiting <= most, f"{waiting:.0f} rollouts of {num_bytes} bytes wait, {most:.0f} may")


def _joins_again(peers: Peers) -> str:
    found = rollouts(peers, "begun", "rejoined")
    if not found:
        raise NotSeen("no rollout came")
    came = found[0].fields["policy_version"], found[0].fields["produced"], found[0].sequence
    due = 3, transitions(found[0]), 0
    return expect(came == due, f"version, produced and sequence of its first rollout are {came}, due {due}")


def _reports_what_it_pushed(peers: Peers) -> str:
    found = peers.between("last", "stopped", "bye")
    if not found:
        raise NotSeen("no bye came")
    said = found[-1].fields.get("pushed", {})
    true = peers.note("arrived")
    return expect({name: said.get(name) for name in true} == true, f"pushed is {said}, arrived are {true}")


def _names_whom_it_waits_for(peers: Peers) -> str:
    if len(set(peers.note("pushed")[-3:])) > 1:
        raise NotSeen("it pushes on, see C3")
    return clauses.names_its_peer(peers, "held", "blocked", learners(peers))


def _returns(peers: Peers, stop: str) -> tuple[list[float], NDArray[np.float64]]:
    """The returns of the episodes that ended in the rollouts up to a mark, and those that were reported."""
    found, sums = [], np.zeros(1)
    for arrays, _, t, ended in physics.steps(peers, stop):
        sums = sums + arrays["reward"][t].astype(np.float64)
        found += sums[ended].tolist()
        sums = np.where(ended, 0.0, sums)
    if not found:
        raise NotSeen("no episode has ended")
    said = [m.arrays["returns"] for m in peers.between(None, None, "episodes")]
    return found, np.concatenate([np.zeros(0), *said])


def _keeps_what_finds_no_place(peers: Peers) -> str:
    found, said = _returns(peers, "told")
    told = "no episodes were told at all, see H9"
    if peers.between(None, None, "episodes"):
        told = f"of {len(found)} episodes, most while the broker was away, {len(said)} were told"
        same = len(said) == len(found) and np.allclose(sorted(said), sorted(found), rtol=1e-3, atol=1e-2)
        expect(same, told)
    byes = peers.between(None, None, "bye")
    expect(byes, "no bye came from the queue that had been full")
    dropped = byes[-1].fields["counters"].get("reports_dropped", 0)
    return expect(dropped > 0, f"{told}; reports_dropped is {dropped:.0f}")


def _reports_episodes(peers: Peers) -> str:
    found, said = _returns(peers, "random")
    missing = [one for one in found if not np.isclose(said, one, rtol=1e-3, atol=1e-2).any()]
    return expect(
        not missing, f"{len(missing)} of {len(found)} returns were not reported {missing[:1] or ''}"
    )


CLAUSES = (
    Clause("L5", "main", clauses.exits_with_0),
    Clause("L6", "order", clauses.exits_with_0),
    Clause("L6", "input", "stopped by its role"),
    Clause("L9", "order", clauses.another_incarnation),
    Clause("L14", "order", clauses.leaves_no_child),
    Clause("C2", "main", _passes_repeats_over),
    Clause("C3", "main", _pushes_no_more),
    Clause("C4", "main", _keeps_the_buffer_small),
    Clause("C5", "order", _joins_again),
    Clause("C6", "main", "restarted"),
    Clause("C7", "main", lingers_little),
    Clause("M4", "main", _passes_mistakes_over),
    Clause("M5", "main", "newer"),
    *rollout_checks.CLAUSES,
    Clause("A5", "main", _heeds_the_limit),
    *(Clause("A6", "input", functools.partial(clauses.exits_with_2, name=name)) for name in UNUSABLE),
    Clause("A7", "main", _counts_as_starved),
    Clause("A8", "main", "moved"),
    Clause("A9", "order", _each_in_its_turn),
    Clause("H3", "main", lambda peers: clauses.no_gap(peers, "held", "blocked")),
    Clause("H5", "order", _reports_what_it_pushed),
    Clause("H6", "main", _names_whom_it_waits_for),
    Clause("H9", "main", _reports_episodes),
    Clause("H10", "unheard", _keeps_what_finds_no_place),
)
