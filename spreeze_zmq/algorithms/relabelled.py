"""The ``relabel`` of an algorithm as a replay calls it: what it raises or returns is checked and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.algorithms.declared import blaming
from spreeze_zmq.base.errors import AlgorithmError, InvalidEnvironment
from spreeze_zmq.envs.goals import goal_places, is_goal_dict
from spreeze_zmq.envs.packed import Packing, sent
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.replay import Episode, Goals, Transitions, misfit
from spreeze_zmq.replay.episodes import MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spreeze_zmq.algorithms.algorithm import Algorithm
    from spreeze_zmq.replay.hindsight import Rewards
    from spreeze_zmq.replay.relabelling import Relabel

#: Steps of the episode that is made up before a run.
STEPS = 5


def checked(algorithm: Algorithm, what: str = "relabel") -> Relabel:
    """The ``relabel`` of an algorithm, which messages call ``what``.

    Raises:
        AlgorithmError: when it is called, for what it raises or returns.
    """

    packing = Packing.of(algorithm.env)

    def relabel(batch: Transitions, episode: Episode) -> Transitions | None:
        with blaming(algorithm, what):
            returned = algorithm.relabel(batch, episode)
        if problem := misfit(batch, returned, packing):
            raise AlgorithmError(algorithm, f"{what} {problem}")
        return returned

    return relabel


def goals_of(env: EnvironmentSpec, rewards: Rewards | None) -> Goals | None:
    """The goals of an environment with these rewards; None where its observation is no goal Dict."""
    return Goals(goal_places(env.obs_parts), rewards) if is_goal_dict(env.obs_parts) else None


class _NoReward:
    """Rewards of a made up episode: nothing is reached."""

    ends = True

    def reward(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.zeros(len(achieved), np.float32)

    def terminated(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.zeros(len(achieved), np.bool_)


def rehearse_relabel(algorithm: Algorithm, env: EnvironmentSpec) -> None:
    """Relabel an episode of zeros and first options as each learner does, if the algorithm relabels. Raises
    AlgorithmError.
    """
    kind, options = type(algorithm), algorithm.options
    if not kind.relabels(options):
        return
    if env.obs_dtype == "uint8":
        raise AlgorithmError(kind, "relabel is for vectors: a replay of images stores each frame once")
    try:
        goals = goals_of(env, _NoReward())
    except InvalidEnvironment as error:
        raise AlgorithmError(kind, f"relabel: {error}") from None
    action = np.zeros((STEPS, *env.action_shape), "float32" if env.action_kind == "box" else "int64")
    shape, dtype = sent(env)
    obs, packing = np.zeros((STEPS + 1, *shape), dtype), Packing.of(env)
    obs, reward = obs if packing is None else packing.flat(obs), np.zeros(STEPS, np.float32)
    masks = {MASK: np.ones((STEPS + 1, env.num_choices), np.bool_)} if env.action_mask else {}
    asked = ", ".join(kind.policy_fields)
    of_actor = f"relabel in the actor-learner (policy_fields: {asked})"
    for part, what in zip(PARTS[: 1 + kind.has_policy_loss()], ("relabel", of_actor), strict=False):
        further = {name: reward for name in kind.fields_of(part) if name == "log_prob"}
        more: dict[str, NDArray[Any]] = {**further, **masks}
        rng = np.random.default_rng(0)
        episode = Episode(obs, action, reward, True, more, goals, rng, lambda count: obs[[0] * count])
        checked(algorithm, what)(Transitions.of(episode, options.n_step), episode)
