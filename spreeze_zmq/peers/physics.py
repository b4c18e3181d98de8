"""Repeats the steps of rollouts in the real environment, whose state is set from an observation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import envs
from spreeze_zmq.base.rollout import odd_number
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.numbering import has_number
from spreeze_zmq.peers.clauses import expect
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.rollouts import flat, rollouts
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.wire import Message

#: Ordinary steps that are repeated, and the share of them that may differ (contacts).
REPEATED, MAY_DIFFER = 150, 0.05
#: Episodes that are played here to see how an environment ends them, how many at once, and for how long.
PLAYED, TOGETHER, PLAYED_S = 20, 4, 10.0
NEEDED = {"obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index"}
STEPS, FIRST, LAST, CROSSING = "steps", "first steps", "last steps", "steps into obs[T]"
OBSERVATION, REWARD, TERMINATED = range(3)


class Physics:
    """One environment of a run whose state can be set from an observation: MuJoCo's and classic control's.

    Raises:
        NotSeen: it cannot be made here, the run's are not all alike, or its observation does not determine
            its state.
    """

    def __init__(self, plan: Plan) -> None:
        spec = plan.environment
        if plan.run.randomize:
            raise NotSeen(f"run.randomize draws other models: {', '.join(plan.run.randomize)}")
        if has_number(spec.kwargs):
            raise NotSeen("each environment is made with a number of its own, by {index} in run.env_kwargs")
        try:
            batch: Any = envs.make(spec.id, 1, backend="gymnasium", step_info=False, env_kwargs=spec.kwargs)
        except Exception as error:  # an environment's own code may raise anything
            raise NotSeen(f"{spec.id} cannot be stepped here: {error}") from None
        self.env = batch.envs[0].unwrapped
        self.env.reset(seed=0)
        self.box, self.low, self.high = spec.action_kind == "box", spec.action_low, spec.action_high
        name = type(self.env).__name__
        if hasattr(self.env, "set_state") and hasattr(self.env, "observation_structure"):
            self.skipped = int(self.env.observation_structure.get("skipped_qpos", 0))
        elif name not in ("PendulumEnv", "CartPoleEnv", "MountainCarEnv", "Continuous_MountainCarEnv"):
            raise NotSeen(f"the state of {spec.id} does not follow from its observation")
        self.from_angle = name == "PendulumEnv"

    def step(
        self, obs: NDArray[Any], action: NDArray[Any], *, clips: bool = True
    ) -> tuple[NDArray[np.float64], float, bool]:
        """Take one step from an observation ``[*obs_shape]`` with an action as a rollout holds it, which is
        clipped to the bounds of a box unless ``clips`` is false.

        Returns:
            The next observation, the reward, and ``terminated``.
        """
        self.set_state(np.asarray(obs, np.float64))
        given = (
            np.clip(action, self.low, self.high) if clips and self.box and self.low is not None else action
        )
        following, reward, terminated, _, _ = self.env.step(given if self.box else int(action))
        return np.asarray(following, np.float64), float(reward), bool(terminated)

    def determines_state(self, obs: NDArray[Any]) -> bool:
        """Whether an observation holds the whole state: some environments clip velocities at 10."""
        return not (hasattr(self, "skipped") and bool((np.abs(obs) == 10.0).any()))

    def set_state(self, obs: NDArray[np.float64]) -> None:
        """Set the environment's state to that of an observation."""
        if self.from_angle:
            self.env.state = np.array([np.arctan2(obs[1], obs[0]), obs[2]])
        elif hasattr(self, "skipped"):
            num_qpos, num_qvel = self.env.model.nq, self.env.model.nv
            qpos = np.concatenate([np.zeros(self.skipped), obs[: num_qpos - self.skipped]])
            self.env.set_state(qpos, obs[num_qpos - self.skipped :][:num_qvel])
        else:
            self.env.state = tuple(obs)
            self.env.steps_beyond_terminated = None


def begins_alike(spec: EnvironmentSpec, num_episodes: int) -> bool:
    """Whether two of so many episodes of the environment, made here, begin alike. Raises NotSeen: it cannot
    be made, or takes too long.
    """
    begun: set[bytes] = set()
    until_s = time.monotonic() + PLAYED_S
    with made_here(spec, TOGETHER) as batch:
        while len(begun) < num_episodes:
            first, _ = batch.reset(seed=len(begun))
            before = len(begun)
            begun |= {row.tobytes() for row in first}
            if len(begun) < before + len(first):
                return True
            if time.monotonic() > until_s:
                raise NotSeen(f"{len(begun)} episodes of {spec.id} begin apart, and more take too long here")
    return False


def ends_elsewhere(spec: EnvironmentSpec) -> bool:
    """Whether the environment, made here and given random actions, cuts an episode before its time limit or
    fails, or goes on beyond it, as what wraps the limit may. Raises NotSeen: it cannot be made, or takes too
    long.
    """
    if spec.action_mask:
        raise NotSeen(f"{spec.id} takes legal actions alone")
    num, until_s = 0, time.monotonic() + PLAYED_S
    with made_here(spec, TOGETHER) as batch:
        batch.reset(seed=1)
        while num < PLAYED:
            _, _, terminated, truncated, info = batch.step(batch.action_space.sample())
            ended = terminated | truncated
            if ended.any():
                lengths, limit = info["episode"]["l"], spec.max_episode_steps
                if (lengths > limit).any() or (lengths[truncated & ~terminated] < limit).any():
                    return True
            num += int(ended.sum())
            if time.monotonic() > until_s:
                raise NotSeen(f"{num} episodes of {spec.id} take longer than {PLAYED_S:.0f} s here")
    return False


@contextmanager
def made_here(spec: EnvironmentSpec, num: int, **options: Any) -> Iterator[BatchedEnv]:
    """Several environments of a run, with further options of ``envs.make``. Raises NotSeen where they cannot
    be made or stepped.
    """
    try:
        with closing(envs.remade(spec, num, step_info=False, **options)) as batch:
            yield batch
    except NotSeen:
        raise
    except Exception as error:  # an environment's own code may raise anything
        raise NotSeen(f"{spec.id} cannot be stepped here: {error}") from None


def whole(peers: Peers, stop: str | None = "random") -> list[Message]:
    """The rollouts up to a mark. Raises NotSeen if there are none, an array of ``NEEDED`` is missing, or a
    number is not finite.
    """
    found = flat(peers.plan.environment, rollouts(peers, None, stop))
    if not found or not set(found[0].arrays) >= NEEDED:
        raise NotSeen("no learner got whole rollouts")
    if any(odd_number(array) for message in found for array in message.arrays.values()):
        raise NotSeen("numbers are not finite, see X16")
    return found


def steps(peers: Peers, stop: str = "random") -> Iterator[tuple[dict[str, Any], int, int, NDArray[np.bool_]]]:
    """Yields for each step up to a mark: arrays and number of its rollout, t, and ``ended [N]``."""
    for number, message in enumerate(whole(peers, stop)):
        arrays = dict(message.arrays)
        for t in range(message.fields["num_steps"]):
            yield arrays, number, t, arrays["terminated"][t] | arrays["truncated"][t]


def differences(peers: Peers) -> dict[str, list[tuple[bool, bool, bool]]]:
    """Repeats steps under version 0: some ordinary ones, all that end an episode, all that follow an end, and
    the last of each rollout.

    Returns:
        By kind of step, for each whether the next observation, the reward and ``terminated`` differ.
    """
    if "differences" in peers.notes:
        return peers.notes["differences"]  # type: ignore[no-any-return]
    physics, fresh = Physics(peers.plan), np.zeros(0, bool)
    found: dict[str, list[tuple[bool, bool, bool]]] = {STEPS: [], FIRST: [], LAST: [], CROSSING: []}
    for arrays, _, t, ended in steps(peers):
        fresh = fresh if len(fresh) == len(ended) else np.zeros(len(ended), bool)
        chosen = {*np.flatnonzero(ended | fresh).tolist()}
        if t % 3 == 0 and len(found[STEPS]) < REPEATED and not fresh.any():
            chosen.add(len(found[STEPS]) % len(ended))
        crosses = t == arrays["reward"].shape[0] - 1
        chosen |= {*range(len(ended))} if crosses else set()
        rows = {tuple(place): row for row, place in enumerate(arrays["final_index"].tolist())}
        for n in chosen:
            obs, action = arrays["obs"][t, n], arrays["action"][t, n]
            if physics.determines_state(obs):
                following, reward, terminated = physics.step(obs, action)
                came = arrays["final_obs"][rows[t, n]] if ended[n] else arrays["obs"][t + 1, n]
                wrong = _far(came, following), _far(arrays["reward"][t, n], reward)
                kind = LAST if ended[n] else FIRST if fresh[n] else CROSSING if crosses else STEPS
                found[kind].append((*wrong, bool(arrays["terminated"][t, n]) != terminated))
        fresh = ended
    peers.notes["differences"] = found
    return found


def unclipped(peers: Peers, stop: str) -> tuple[int, int]:
    """Repeats the steps up to a mark with actions beyond the bounds, clipped and as they were drawn.

    Returns:
        In how many it matters whether they are clipped, and how many of these are as if they were not.
    """
    physics, matters, wrong = Physics(peers.plan), 0, 0
    for arrays, _, t, ended in steps(peers, stop):
        for n in np.flatnonzero(~ended).tolist():
            obs, action = arrays["obs"][t, n], arrays["action"][t, n]
            clipped, raw = (physics.step(obs, action, clips=clips)[:2] for clips in (True, False))
            came = arrays["obs"][t + 1, n], arrays["reward"][t, n]
            if physics.determines_state(obs) and _differ(clipped, raw):
                matters, wrong = matters + 1, wrong + _differ(came, clipped)
    return matters, wrong


def few_wrong(peers: Peers, kind: str, what: int, share: float = MAY_DIFFER) -> str:
    """How many steps of a kind differ in one quantity; raises Broken above a share.

    Raises:
        NotSeen: there is no such step, or ordinary steps differ already.
    """
    found = differences(peers)
    ordinary, rows = [row[OBSERVATION] for row in found[STEPS]], [row[what] for row in found[kind]]
    if kind != STEPS and sum(ordinary) > MAY_DIFFER * len(ordinary):
        raise NotSeen("steps are not those of the environment, see X8")
    if not rows:
        raise NotSeen(f"no {kind} that can be repeated")
    return expect(sum(rows) <= share * len(rows), f"{sum(rows)} of {len(rows)} {kind} differ when repeated")


def _differ(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether the next observations or the rewards of two steps differ."""
    return any(map(_far, one, other))


def _far(one: Any, other: Any) -> bool:
    """Whether two observations or rewards differ by more than rounding."""
    return not np.allclose(np.asarray(one, np.float64), other, rtol=2e-3, atol=2e-3)
