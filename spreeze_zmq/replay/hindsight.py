"""Hindsight experience replay: transitions are kept once more with goals that were reached in place of those
that were wanted (Andrychowicz et al. 2017, arXiv:1707.01495).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.goals import GoalPlaces
from spreeze_zmq.replay.episodes import Episode, Transitions

#: Which reached goals take the place of wanted ones (section 4.5 of the paper): one of a later step of the
#: episode, that of its end, one of any of its steps, one of any step in the replay.
STRATEGIES = ("future", "final", "episode", "random")


class Rewards(Protocol):
    """What an environment pays for goals, as :class:`spreeze_zmq.envs.goals.GoalRewards`."""

    ends: bool

    def reward(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """``[M]``: the rewards for goals ``[M, size]``."""

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_]:
        """``[M]``: whether an episode ends there."""


@dataclass(frozen=True)
class Goals:
    """The goals of an environment whose observation is a goal Dict.

    Attributes:
        places: of the goals in an observation.
        rewards: what the environment pays; None in a learner that keeps observations alone.
    """

    places: GoalPlaces
    rewards: Rewards | None = None

    def achieved(self, obs: NDArray[Any]) -> NDArray[Any]:
        """``[..., size]``: the goals that were reached in observations ``[..., obs_size]``."""
        return obs[..., self.places.achieved]

    def desired(self, obs: NDArray[Any]) -> NDArray[Any]:
        """``[..., size]``: the goals that were wanted."""
        return obs[..., self.places.desired]

    def relabelled(self, batch: Transitions, episode: Episode, desired: NDArray[Any]) -> Transitions:
        """Transitions with other wanted goals ``[M, size]``: in both observations, in every reward and, where
        the environment has a ``compute_terminated``, in what terminates.
        """
        obs, next_obs = batch.obs.copy(), batch.next_obs.copy()
        obs[:, self.places.desired] = next_obs[:, self.places.desired] = desired
        batch = batch._replace(obs=obs, next_obs=next_obs)
        if self.rewards is None:
            return batch
        size = desired.shape[-1]
        reached = self.achieved(episode.obs)[batch.step + 1]
        pair = reached.reshape(-1, size), np.broadcast_to(desired[:, None], reached.shape).reshape(-1, size)
        batch = batch._replace(reward=self.rewards.reward(*pair).reshape(batch.reward.shape))
        if not self.rewards.ends:
            return batch
        ends = self.rewards.terminated(*pair).reshape(batch.terminated.shape)
        own = self.achieved(episode.obs[-1:]), self.desired(episode.obs[-1:])
        # What ended it without its goal, such as a fall, ends it with any other one too.
        if episode.terminated and not self.rewards.terminated(*own)[0]:
            ends = ends | batch.terminated
        return batch._replace(terminated=ends)


def in_hindsight(batch: Transitions, episode: Episode, strategy: str, num_goals: int) -> Transitions:
    """Transitions with goals that were reached, ``num_goals`` times each.

    Args:
        batch: transitions of ``episode``.
        episode: of a goal environment.
        strategy: one of ``STRATEGIES``.
        num_goals: ``k`` of the paper.
    """
    goals = episode.goals
    assert goals is not None, "the start has checked that there are goals"
    batch = batch.rows(np.tile(np.arange(len(batch)), num_goals))
    size, last = len(batch), len(episode)
    if strategy == "random":
        return goals.relabelled(batch, episode, goals.achieved(episode.drawn(size)))
    reached = goals.achieved(episode.obs)
    chosen: Any = last
    if strategy != "final":
        chosen = episode.rng.integers(batch.step[:, 0] + 1 if strategy == "future" else 1, last + 1, size)
    return goals.relabelled(batch, episode, np.broadcast_to(reached[chosen], (size, reached.shape[-1])))
