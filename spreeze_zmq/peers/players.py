"""The peers of a learner: a sampler that pushes random rollouts, and the other learner."""

from __future__ import annotations

from typing import Any

from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, CRITIC_LEARNER, PART_OF, POLICY, experience_of
from spreeze_zmq.wire import Message, channels, encode, rollout_message

#: Name and incarnation of the played sampler, the shape of its rollouts, and how many it pushes at once.
STREAM, STEPS, ENVS, AT_ONCE = "sampler-0/5", 24, 4, 50
#: Critic updates between two publications of the played critics.
UPDATES = 100


class Sampler:
    """Plays a sampler: pushes random rollouts while the learner takes them, for on-policy learners under the
    newest policy.

    Attributes:
        version: that of the policy of its next rollouts, for learners that are not on-policy.
    """

    def __init__(self, peers: Peers, steps: int = STEPS, envs: int = ENVS) -> None:
        from spreeze_zmq.learner.at_hand import random_rollout  # imports torch

        name, _, incarnation = STREAM.partition("/")
        self.peers, self.end = peers, peers.ends[experience_of(peers.role)]
        self.name, self.incarnation = name, int(incarnation)
        rollout = random_rollout(peers.plan.environment, steps, envs)
        self.rollout = rollout_message(rollout, peers.plan.channels[experience_of(peers.role)].fields)
        self.num_pushed = self.num_in_turn = self.version = 0

    def next(self, **arrays: Any) -> Message:
        """The next rollout of its stream, with some arrays replaced."""
        on_policy, fields = self.peers.plan.learning.on_policy, dict(self.rollout.fields)
        fields["produced"] = (self.num_pushed + 1) * fields["num_steps"] * fields["num_envs"]
        fields["policy_version"] = newest_policy(self.peers) if on_policy else self.version
        changed = {**self.rollout.arrays, **arrays}
        return Message("rollout", fields, changed, self.name, self.incarnation, self.num_pushed)

    def push(self, most: int = AT_ONCE, frames: list[Any] | None = None) -> None:
        """Push at most ``most`` rollouts while the queue has room; or these frames, each time."""
        if not frames:
            most = min(most, self.allowed)
        # without a short wait the sender's queue seems full while its messages are on their way
        while most > 0 and channels.poll([], [self.end], timeout_s=0.002):
            if not self.end.forward(frames or encode(self.next())):
                return
            self.num_pushed, most = self.num_pushed + 1, most - 1
            self.num_in_turn += not frames

    @property
    def allowed(self) -> int:
        """How many rollouts it may push: for an on-policy learner that publishes the policy, one for each
        policy and ``max_policy_lag`` more.
        """
        lag = self.peers.plan.balance.max_policy_lag
        if not self.peers.plan.learning.on_policy or self.peers.plays(POLICY) or lag is None:
            return AT_ONCE
        # One that is published again, to a reader who has just come, lets nobody collect more.
        versions = {policy.fields["version"] for policy in self.peers.between("begun", None, "policy")}
        return max(0, len(versions) + lag - self.num_in_turn)


class OtherLearner:
    """Plays the other learner with untrained weights of the run's algorithm; does nothing if there is none.

    Attributes:
        version: of its next publication.
        followed: the ``policy_version`` that its last critics named.
    """

    def __init__(self, peers: Peers) -> None:
        from spreeze_zmq import algorithms  # imports torch
        from spreeze_zmq.learner.setup import algorithm_of

        self.peers, self.channel = peers, POLICY if peers.role == CRITIC_LEARNER else CRITIC
        self.plays, self.version, self.followed = peers.plays(self.channel), 0, -1
        if self.plays:
            algorithm, options = algorithm_of(peers.plan)
            part = next(part for role, part in PART_OF.items() if role != peers.role)
            self.half: Any = algorithms.make(part, algorithm, options, peers.plan.environment, "cpu", 1)
            self.is_actor = peers.role == CRITIC_LEARNER

    def publish(self, env_steps: int = 0, *, follows: bool = True, **more: Any) -> None:
        """Publish the next version, after ``UPDATES`` more critic updates, with ``more`` fields. On-policy
        critics are of the newest policy's rollouts, or of none where ``follows`` is false.
        """
        if not self.plays:
            return
        weights = self.half.weights.detach().cpu().numpy().copy()
        updates = (1 + self.version) * UPDATES
        counts: dict[str, Any] = {"version": self.version, "critic_updates": updates}
        counts |= {"layout": self.half.layout, **more}
        if self.is_actor:
            extras = {"env_steps": env_steps}
            counts |= {"actor_updates": 0, "description": self.half.description(), "extras": extras}
            self.peers.publish(POLICY, "policy", self.half.policy_arrays(weights), **counts)
        else:
            self.followed = newest_policy(self.peers) if follows else 0
            counts |= {"env_steps": env_steps, "policy_version": self.followed}
            self.peers.publish(CRITIC, "critic", {"parameters": weights}, **counts)
        self.version += 1

    def follow(self) -> None:
        """Publish critics for each new policy if the actor-learner is on-policy, and so waits for them."""
        on_policy = self.peers.plan.learning.on_policy
        if self.peers.role == ACTOR_LEARNER and on_policy and newest_policy(self.peers) > self.followed:
            self.publish()

    def restart(self) -> None:
        """Begin another incarnation, whose versions and counts start from 0."""
        if self.plays:
            self.peers.restart(self.channel, 77)
            self.version = 0


def newest_policy(peers: Peers) -> int:
    """The version of the latest policy, by the program or by the played learner; 0 before the first."""
    if peers.plays(POLICY):
        messages = [message for message in peers.published if message.kind == "policy"]
    else:
        messages = peers.between("begun", None, "policy")
    return int(messages[-1].fields["version"]) if messages else 0
