"""The clauses of a sampler's actions: those of the policy's network, with the noise of its distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.peers import physics, policies
from spreeze_zmq.peers.apart import INTERVALS, expect_apart, intervals, normal_shares
from spreeze_zmq.peers.clauses import Clause, expect
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.rollouts import flat, rollouts, transitions
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message

#: Largest error of a mean, in standard errors: a right program has a greater one once in 500 million. And the
#: share of actions that may differ (ties of rounding).
ERRORS, MAY_DIFFER = 6.0, 0.005
#: The share of steps that may be others than those of clipped actions (contacts).
MAY_CLIP = 0.2
Floats = NDArray[np.float64]


def _uniform(peers: Peers) -> str:
    spec, found = peers.plan.environment, under(peers, None, "random", 0)
    actions = actions_of(found)
    if spec.action_kind != "box":
        return frequencies(found, [policies.shares(part) for part in legal_of(spec, found)])
    if not spec.has_bounds:
        raise NotSeen("a box without bounds has no uniform distribution")
    unit = unit_of(spec, actions)
    expect(np.abs(unit).max() <= 1 + 1e-5, "an action is outside the bounds")
    for power, moment, variance in ((1, 0.0, 1 / 3), (2, 1 / 3, 4 / 45)):
        off = abs(float((unit**power).mean()) - moment) / math.sqrt(variance / unit.size)
        expect(off < ERRORS, f"moment {power} of {unit.size} actions is {off:.0f} standard errors off")
    expect_apart(found, intervals((unit + 1) / 2), 1 / INTERVALS)
    return f"{unit.size} numbers"


def _exact(peers: Peers) -> str:
    return agreement(peers.plan.environment, peers.note("exact"), under(peers, "random", "exact", 1))


def _drawn(peers: Peers) -> str:
    spec = peers.plan.environment
    return draws(spec, policies.heads(spec)[0], under(peers, "exact", "drawn", 2))


def _log_prob(peers: Peers) -> str:
    spec, found = peers.plan.environment, under(peers, "exact", "drawn", 2)
    if "log_prob" not in found[0].arrays:
        raise NotSeen("no learner asks for it")
    came = np.concatenate([message.arrays["log_prob"].ravel() for message in found])
    off = np.abs(came - densities(spec, policies.heads(spec)[0], found))
    return expect(np.quantile(off, 0.99) < 0.02, f"{off.size} are off by {np.median(off):.2g} in the median")


def _clips(peers: Peers) -> str:
    """The rollout has actions beyond the bounds; the environment was given none, where that can be seen."""
    spec = peers.plan.environment
    if not spec.has_bounds:
        raise NotSeen("there are no bounds to clip to")
    if not rollouts(peers, None, "beyond"):
        raise NotSeen("it does not take the distribution normal, whose actions may be outside the bounds")
    found = under(peers, None, "beyond", 1)
    outside = float((np.abs(unit_of(spec, actions_of(found))) > 1 + 1e-5).mean())
    expect(
        outside > 0.2,
        f"{outside:.0%} of the actions of its rollouts are outside the bounds, half were drawn so",
    )
    matters, wrong = physics.unclipped(peers, "beyond")
    if not matters:
        raise NotSeen(f"{outside:.0%} are outside the bounds; the environment itself clips what it is given")
    return expect(wrong <= MAY_CLIP * matters, f"{wrong} of {matters} steps are not those of clipped actions")


def of_head(head: str) -> Callable[[Peers], str]:
    """The check of one distribution in the act ``heads``."""

    def check(peers: Peers) -> str:
        spec, played, seen = peers.plan.environment, peers.note("played"), []
        if (head, policies.rich_policy) not in played:
            raise NotSeen(f"not of {spec.action_kind} actions")
        for make in (policies.rich_policy, policies.constant_policy):
            version, policy = played[head, make]
            found = [m for m in rollouts(peers) if m.fields["policy_version"] == version]
            expect(found, f"version {version}, {make.__name__}, was not used: {peers.lives[-1].ending()}")
            rich = make is policies.rich_policy
            seen.append(agreement(spec, policy, found) if rich else draws(spec, head, found))
        return f"{head}: {'; '.join(seen)}"

    return check


def under(peers: Peers, start: str | None, stop: str, version: int) -> list[Message]:
    """The rollouts under a version between two marks. Raises NotSeen if there are none."""
    found = [m for m in rollouts(peers, start, stop) if m.fields["policy_version"] == version]
    if not found or not {"obs", "action"} <= set(found[0].arrays):
        raise NotSeen(f"no whole rollout came under version {version}")
    return found


def actions_of(found: list[Message]) -> NDArray[Any]:
    """The actions ``[steps, A]`` of rollouts."""
    return np.concatenate([m.arrays["action"].reshape(transitions(m), -1) for m in found])


def legal_of(spec: EnvironmentSpec, found: list[Message]) -> list[NDArray[np.bool_]]:
    """For each discrete action, which choices were legal at each step of rollouts, ``[steps, n]``; all where
    the environment gives no masks.
    """
    num = sum(spec.action_sizes)
    if spec.action_mask and any("action_mask" not in m.arrays for m in found):
        raise NotSeen("no action_mask came, see X3")
    masks = [
        m.arrays["action_mask"][:-1].reshape(-1, num)
        if spec.action_mask
        else np.ones((transitions(m), num), np.bool_)
        for m in found
    ]
    return np.split(np.concatenate(masks), np.cumsum(spec.action_sizes)[:-1], axis=1)


def agreement(spec: EnvironmentSpec, policy: Message, found: list[Message]) -> str:
    """Compares the actions of rollouts with those of a policy without noise; returns what was seen."""
    acting = Policy.from_message({**policy.fields, "version": 1}, policy.arrays)
    seen = [message.arrays["obs"][:-1] for message in flat(spec, found)]
    obs = np.concatenate([each.reshape(-1, *spec.obs_shape) for each in seen])
    masks = np.concatenate(legal_of(spec, found), 1) if acting.takes_masks else None
    place = np.zeros(len(obs), np.float32)
    right, _ = acting.act(obs, np.random.default_rng(0), place=place, action_mask=masks)
    came = actions_of(found)
    off = np.abs(came - right.reshape(came.shape)).max(1)
    wrong = int((off > 1e-4 * (1 + np.abs(right).max())).sum())
    return expect(
        wrong <= MAY_DIFFER * len(off), f"{wrong} of {len(off)} actions differ, by up to {off.max():.2g}"
    )


def unit_of(spec: EnvironmentSpec, actions: NDArray[Any]) -> Floats:
    """Actions in units of half the range: -1 to 1 within the bounds; unscaled without bounds."""
    if spec.action_low is None or spec.action_high is None:
        return actions.astype(np.float64)
    low, high = spec.action_low.astype(np.float64), spec.action_high.astype(np.float64)
    return np.asarray((2 * actions - low - high) / (high - low))


def noise_of(spec: EnvironmentSpec, head: str, actions: NDArray[Any]) -> Floats:
    """The standard normal numbers from which a constant policy drew these actions of a box."""
    u = unit_of(spec, actions)
    u = np.arctanh(np.clip(u, -1 + 1e-6, 1 - 1e-6)) if head == "tanh_normal" else u
    return np.asarray((u - policies.MEAN) / math.exp(policies.NOISY))


def draws(spec: EnvironmentSpec, head: str, found: list[Message]) -> str:
    """Compares the actions of rollouts with a constant policy's mean and spread; returns what was seen."""
    if spec.action_kind != "box":
        return frequencies(found, policies.probabilities(spec, head, legal_of(spec, found)))
    actions = actions_of(found)
    if head == "deterministic":  # the noise differs from place to place
        unit = unit_of(spec, actions)
        off = np.abs(unit - policies.MEAN).mean()
        expect_apart(found, (unit > policies.MEAN).astype(np.int64), 0.5)
        return expect(0.03 < off < 0.4 and np.abs(unit).max() <= 1 + 1e-5, f"noise of {off:.2g} on average")
    noise = noise_of(spec, head, actions)
    off, spread = abs(noise.mean()) * math.sqrt(noise.size), noise.std()
    expect(off < ERRORS, f"the mean of {noise.size} numbers is {off:.0f} standard errors off")
    near = abs(spread - 1) < ERRORS / math.sqrt(2 * noise.size)
    expect(near, f"{noise.size} draws of {spread:.2f} times the policy's spread")
    expect_apart(found, intervals(normal_shares(noise)), 1 / INTERVALS)
    return f"{noise.size} draws of {spread:.2f} times the policy's spread"


def frequencies(found: list[Message], probabilities: list[Floats]) -> str:
    """Compares the frequencies of the discrete actions of rollouts with the probabilities ``[steps, n]`` of
    each one's choices; returns what was seen.
    """
    actions = actions_of(found)
    for chosen, rows in zip(actions.T, probabilities, strict=True):
        num, due = rows.shape[1], rows.mean(0)
        expect(chosen.min() >= 0 and chosen.max() < num, "an action is outside its choices")
        share = np.bincount(chosen, minlength=num) / len(chosen)
        off = np.abs(share - due) / np.sqrt((rows * (1 - rows)).mean(0) / len(chosen) + 1e-12)
        expect(off.max() < ERRORS, f"drawn with {share.round(2).tolist()}, not {due.round(2).tolist()}")
    most = max(rows.shape[1] for rows in probabilities)
    widened = [np.pad(rows, ((0, 0), (0, most - rows.shape[1]))) for rows in probabilities]
    expect_apart(found, actions, np.stack(widened, 1))
    return f"{actions.size} draws"


def densities(spec: EnvironmentSpec, head: str, found: list[Message]) -> Floats:
    """The log density ``[steps]`` of the actions of rollouts under a constant policy."""
    actions = actions_of(found)
    if spec.action_kind != "box":
        due = policies.probabilities(spec, head, legal_of(spec, found))
        parts = zip(actions.T, due, strict=True)
        steps = np.arange(len(actions))
        return np.asarray(sum(np.log(rows[steps, chosen]) for chosen, rows in parts))
    noise = noise_of(spec, head, actions)
    terms = -0.5 * noise**2 - policies.NOISY - 0.5 * math.log(2 * math.pi)
    if head == "tanh_normal":
        terms -= np.log(1 - np.clip(unit_of(spec, actions), -1 + 1e-6, 1 - 1e-6) ** 2)
    return np.asarray(terms.sum(1))


CLAUSES = (
    Clause("A1", "main", _uniform),
    Clause("A2", "main", _exact),
    Clause("A3", "main", _drawn),
    Clause("A4", "main", _log_prob),
    Clause("A10", "beyond", _clips),
    *(Clause(f"A{n}", "heads", of_head(head)) for n, head in enumerate(policies.HEADS, 11)),
)
