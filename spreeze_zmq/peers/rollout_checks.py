"""The clauses of what a sampler's rollouts hold, and in which order they come."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.masks import allows
from spreeze_zmq.base.rollout import odd_number
from spreeze_zmq.peers import physics
from spreeze_zmq.peers.clauses import Clause, expect
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.physics import (
    CROSSING,
    FIRST,
    LAST,
    OBSERVATION,
    REWARD,
    STEPS,
    TERMINATED,
    few_wrong,
)
from spreeze_zmq.peers.rollouts import flat, rollouts, transitions
from spreeze_zmq.plan.roles import CRITIC_LEARNER, experience_of

#: Where first observations are alike, so many episodes for each of them are begun here. If one of S equally
#: likely states begins each, a right program is blamed with a chance of E^2/2S, and of exp(-(1000 E)^2 / 2S)
#: that these differ: together below 4e-7, whatever S is.
BEGUN = 1000


def learners(peers: Peers) -> dict[str, str]:
    """Learner -> the channel of its rollouts."""
    return {learner: experience_of(learner) for learner in peers.plan.learning.learners}


def _none_before_a_policy(peers: Peers) -> str:
    found = peers.between(None, "starved", "rollout")
    return expect(not found, f"{len(found) or 'no'} rollouts came in 2 s before any policy")


def _only_what_is_asked(peers: Peers) -> str:
    for learner, channel in learners(peers).items():
        asked = sorted(peers.plan.channels[channel].fields)
        for message in peers.between(None, "random", "rollout", channel):
            came = sorted(message.arrays.keys() - {"state"} if learner == CRITIC_LEARNER else message.arrays)
            expect(came == asked, f"{learner} got {came}, not {asked}")
    return "as asked"


def _same_for_all(peers: Peers) -> str:
    first, *others = [
        peers.between(None, "moved", "rollout", channel) for channel in learners(peers).values()
    ]
    for other in others:
        expect(len(other) == len(first), f"one got {len(first)} rollouts, another {len(other)}")
        for one, two in zip(first, other, strict=True):
            for name in one.arrays.keys() & two.arrays.keys():
                same = np.array_equal(one.arrays[name], two.arrays[name], equal_nan=True)
                expect(same, f"{name} differs between learners")
    return f"{len(first)} rollouts to {1 + len(others)}"


def _of_the_size_asked(peers: Peers) -> str:
    options, fields = peers.about.options, rollouts(peers, None, "random")[0].fields
    came = fields["num_steps"], fields["num_envs"]
    asked = options.get("rollout_steps"), options.get("envs")
    if None in asked:
        raise NotSeen("it has no such options")
    return expect(came == asked, f"{came[0]} steps of {came[1]} environments, asked for {asked}")


def _goes_on(peers: Peers) -> str:
    found = physics.whole(peers, "moved")
    for number, (before, after) in enumerate(pairwise(found), 1):
        same = np.array_equal(before.arrays["obs"][-1], after.arrays["obs"][0])
        expect(same, f"rollout {number} does not begin where rollout {number - 1} ended")
    return f"{len(found)} rollouts"


def _keeps_the_account(peers: Peers) -> str:
    position = 0
    for learner, channel in learners(peers).items():
        position = 0
        for number, message in enumerate(peers.between(None, "moved", "rollout", channel)):
            position += transitions(message)
            came, due = (message.fields["produced"], message.sequence), (position, number)
            expect(came == due, f"to {learner}: produced and sequence are {came}, not {due}")
    return f"up to {position}"


def _true_ends(peers: Peers) -> str:
    limit, lengths, last = peers.plan.environment.max_episode_steps, np.zeros(0, int), None
    for arrays, number, t, ended in physics.steps(peers):
        if t == 0 and last is not None and not np.array_equal(last, arrays["obs"][0]):
            raise NotSeen(f"rollout {number} does not go on where the one before ended, see X6")
        lengths = np.zeros(len(ended), int) + 1 if last is None else lengths + 1
        last = arrays["obs"][-1]
        early = arrays["truncated"][t] & (lengths < (limit or 0))
        beyond = (lengths >= (np.inf if limit is None else limit)) & ~ended
        if (early | beyond).any() and physics.ends_elsewhere(peers.plan.environment):
            raise NotSeen("the environment itself ends episodes before the time limit, or goes on beyond it")
        expect(not early.any(), f"truncated after {lengths[early]} steps, the time limit is {limit}")
        expect(not beyond.any(), f"it goes on beyond {limit} steps")
        lengths[ended] = 0
    return f"{few_wrong(peers, LAST, TERMINATED, 0.0)}, time limit {limit}"


def _no_hole(peers: Peers) -> str:
    found = rollouts(peers, "fuzzed", "released")
    for before, after in pairwise(found):
        hole = after.fields["produced"] - before.fields["produced"] - transitions(after)
        expect(not hole, f"{hole} transitions are missing before position {after.fields['produced']}")
    return f"{len(found)} rollouts without a hole"


def _newest_policy(peers: Peers) -> str:
    versions = [message.fields["policy_version"] for message in rollouts(peers, None, "moved")]
    expect(versions == sorted(versions), "the version goes back while one publisher lives")
    return expect(set(versions) == {0, 1, 2, 3}, f"versions {sorted(set(versions))}; published were 0 to 3")


def _different_episodes(peers: Peers) -> str:
    first = physics.whole(peers)[0].arrays["obs"][0]
    return _begin_apart(peers, first)


def _begin_apart(peers: Peers, first: NDArray[Any]) -> str:
    """That first observations ``[E, *obs]`` differ, unless the environment itself begins episodes alike."""
    others = len(np.unique(first, axis=0))
    if others < len(first) and physics.begins_alike(peers.plan.environment, BEGUN * len(first)):
        raise NotSeen("the environment itself begins episodes alike")
    return expect(others == len(first), f"{others} different first observations of {len(first)}")


def _other_episodes_than_another(peers: Peers) -> str:
    first: dict[str, NDArray[Any]] = {}
    for message in physics.whole(peers, None):
        first.setdefault(message.sender, message.arrays["obs"][0])
    if len(first) < 2:
        raise NotSeen("no rollout of another sampler came")
    return f"{_begin_apart(peers, np.concatenate([*first.values()]))} of {len(first)} samplers"


def _the_same_seeds_again(peers: Peers) -> str:
    begun = []
    for incarnation in peers.note("lives"):
        found = [message for message in physics.whole(peers, None) if message.incarnation == incarnation]
        if not found:
            raise NotSeen("a life has pushed no rollout")
        begun.append(found[0].arrays["obs"][0])
    same = np.array_equal(*begun)
    return expect(same, "the next life begins other episodes" if not same else "as in the life before")


def _finite(peers: Peers) -> str:
    found = [m for channel in learners(peers).values() for m in peers.between(None, None, "rollout", channel)]
    for message in flat(peers.plan.environment, found):
        for name, array in message.arrays.items():
            odd = odd_number(array)
            expect(not odd, f"{name} of the rollout up to {message.fields['produced']} holds {odd}")
    return f"{len(found)} rollouts"


def _legal(peers: Peers) -> str:
    sizes, found = peers.plan.environment.action_sizes, rollouts(peers, None, "moved")
    if not peers.plan.environment.action_mask:
        raise NotSeen("the environment gives no action masks")
    if not found or any({"action", "action_mask"} - m.arrays.keys() for m in found):
        raise NotSeen("no rollout with masks came, see X2 and X3")
    starts = np.cumsum((0, *sizes[:-1]))
    for before, after in pairwise(found):
        same = np.array_equal(before.arrays["action_mask"][-1], after.arrays["action_mask"][0])
        expect(same, "the masks of a rollout do not begin with the last row of the one before")
    for message in found:
        masks, action = message.arrays["action_mask"], message.arrays["action"]
        empty = int((~allows(masks, sizes)).sum())
        expect(not empty, f"{empty} rows of action_mask allow no action")
        places = action.reshape(*masks[:-1].shape[:2], -1) + starts
        illegal = int((~np.take_along_axis(masks[:-1], places, 2)).any(2).sum())
        expect(not illegal, f"{illegal} of {transitions(message)} actions are illegal by their masks")
        if (finals := message.arrays.get("final_action_mask")) is not None:
            goes_on = ~message.arrays["terminated"][tuple(message.arrays["final_index"].T)]
            empty = int((~allows(finals[goes_on], sizes)).sum())
            expect(not empty, f"{empty} rows of final_action_mask allow no action, after truncations")
    return f"{len(found)} rollouts"


def _true_last_observations(peers: Peers) -> str:
    """By repeating the last steps; where this is not possible, none may be the next episode's first one."""
    try:
        return few_wrong(peers, LAST, OBSERVATION)
    except NotSeen as reason:
        _unlike_the_next(peers)
        raise NotSeen(f"{reason}; none is the first observation of the next episode") from None


def _unlike_the_next(peers: Peers) -> None:
    same = []
    for arrays, _, t, ended in physics.steps(peers):
        rows = {tuple(place): row for row, place in enumerate(arrays["final_index"].tolist())}
        ends = np.flatnonzero(ended)
        same += [np.array_equal(arrays["final_obs"][rows[t, n]], arrays["obs"][t + 1, n]) for n in ends]
    expect(not same or not all(same), f"each of {len(same)} is the first observation of the next episode")


CLAUSES = (
    Clause("X1", "birth", _none_before_a_policy),
    Clause("X2", "main", "random"),
    Clause("X3", "main", _only_what_is_asked),
    Clause("X4", "main", _same_for_all),
    Clause("X5", "main", _of_the_size_asked),
    Clause("X6", "main", _goes_on),
    Clause("X7", "main", _keeps_the_account),
    Clause("X8", "main", lambda peers: few_wrong(peers, STEPS, OBSERVATION)),
    Clause("X8", "main", lambda peers: few_wrong(peers, CROSSING, OBSERVATION)),
    # half of the rewards may differ: some count contact forces, which rounding changes
    Clause("X9", "main", lambda peers: few_wrong(peers, STEPS, REWARD, 0.5)),
    Clause("X10", "main", _true_last_observations),
    Clause("X11", "main", _true_ends),
    Clause("X12", "main", "released"),
    Clause("X12", "main", _no_hole),
    Clause("X13", "main", _newest_policy),
    Clause("X14", "main", _different_episodes),
    Clause("X14", "order", _the_same_seeds_again),
    Clause("X14", "order", _other_episodes_than_another),
    Clause("X15", "main", lambda peers: few_wrong(peers, FIRST, OBSERVATION)),
    Clause("X16", "main", _finite),
    Clause("X17", "main", _legal),
)
