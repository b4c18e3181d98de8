"""Whom a learner meets: a sampler that offers random rollouts, and the other learner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from spreeze_zmq import channels
from spreeze_zmq.conform.peers import Peers
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, CRITIC_LEARNER, PART_OF, POLICY, experience_of
from spreeze_zmq.wire import Message, encode, rollout_message

#: The sampler that is played, the steps of its rollouts, and how many it pushes at once.
STREAM, STEPS, ENVS, AT_ONCE = "sampler-0/5", 24, 4, 50
#: Critic updates between two publications of the critics that are played.
UPDATES = 100


class Sampler:
    """Plays a sampler: random rollouts, pushed as far as the learner takes them; of the newest policy, where
    that counts.
    """

    def __init__(self, peers: Peers) -> None:
        from spreeze_zmq.learner.at_hand import random_rollout  # imports torch

        name, _, incarnation = STREAM.partition("/")
        self.peers, self.end = peers, peers.ends[experience_of(peers.role)]
        self.name, self.incarnation = name, int(incarnation)
        log_prob = np.full((STEPS, ENVS), -1.0, np.float32)
        rollout = replace(random_rollout(peers.plan.environment, STEPS, ENVS), log_prob=log_prob)
        self.rollout = rollout_message(rollout, peers.plan.channels[experience_of(peers.role)].fields)
        self.num_pushed, self.poller = 0, channels.Poller()
        self.num_in_turn = 0

    def next(self, **arrays: Any) -> Message:
        """The next rollout of its stream, perhaps with other arrays."""
        produced = (self.num_pushed + 1) * STEPS * ENVS
        fields = {**self.rollout.fields, "produced": produced}
        if self.peers.plan.learning.on_policy:
            fields["policy_version"] = newest_policy(self.peers)
        changed = {**self.rollout.arrays, **arrays}
        return Message("rollout", fields, changed, self.name, self.incarnation, self.num_pushed)

    def push(self, most: int = AT_ONCE, frames: list[Any] | None = None) -> None:
        """Push rollouts as long as there is a place, or one as these frames."""
        if not frames:
            most = min(most, self.allowed)
        while most and self.poller.wait([], [self.end], timeout_s=0.002):
            if not self.end.forward(frames or encode(self.next())):
                return
            self.num_pushed, most = self.num_pushed + 1, most - 1
            self.num_in_turn += not frames

    @property
    def allowed(self) -> int:
        """How many it may push: where the learner's policies limit it one for each, and ``max_policy_lag``
        ahead.
        """
        lag = self.peers.plan.balance.max_policy_lag
        if not self.peers.plan.learning.on_policy or POLICY in self.peers.voices or lag is None:
            return AT_ONCE
        policies = len(self.peers.between("begun", None, "policy"))
        return max(0, policies + lag - self.num_in_turn)


class Other:
    """Plays the other learner, with untrained weights of the run's algorithm; nobody where there is none.

    Attributes:
        version: of what it publishes next.
        followed: the policy whose rollouts its critics were said to be trained with last.
    """

    def __init__(self, peers: Peers) -> None:
        from spreeze_zmq import algorithms  # imports torch
        from spreeze_zmq.learner.setup import algorithm_of

        self.peers, self.voice = peers, peers.voices.get(POLICY if peers.role == CRITIC_LEARNER else CRITIC)
        self.version, self.followed = 0, -1
        if self.voice is not None:
            algorithm, options = algorithm_of(peers.plan)
            part = next(part for role, part in PART_OF.items() if role != peers.role)
            self.half: Any = algorithms.make(part, algorithm, options, peers.plan.environment, "cpu", 1)
            self.is_actor = peers.role == CRITIC_LEARNER

    def say(self, env_steps: int = 0) -> None:
        """Publish, under the next version and after some more updates."""
        if self.voice is None:
            return
        weights = self.half.weights.detach().cpu().numpy().copy()
        counts = {"version": self.version, "critic_updates": (1 + self.version) * UPDATES}
        if self.is_actor:
            extras = {"env_steps": env_steps}
            about = {"actor_updates": 0, "description": self.half.description(), "extras": extras}
            self.voice.say(Message("policy", {**counts, **about}, self.half.policy_arrays(weights)))
        else:
            self.followed = newest_policy(self.peers)
            fields = {**counts, "env_steps": env_steps, "policy_version": self.followed}
            self.voice.say(Message("critic", fields, {"parameters": weights}))
        self.version += 1

    def follow(self) -> None:
        """Publish critics of each new policy, where an actor-learner that learns by rounds waits for them."""
        on_policy = self.peers.plan.learning.on_policy
        if self.peers.role == ACTOR_LEARNER and on_policy and newest_policy(self.peers) > self.followed:
            self.say()

    def restart(self) -> None:
        """Begin another life, whose versions and counts are lower."""
        if self.voice is not None:
            self.voice.incarnation, self.voice.sequence, self.version = 77, 0, 0


def newest_policy(peers: Peers) -> int:
    """The version of the policy that was published last, by the program or by whoever plays the other."""
    found = peers.between("begun", None, "policy")
    if POLICY in peers.voices and (said := peers.voices[POLICY].latest.get("policy")):
        found = [said]
    return int(found[-1].fields["version"]) if found else 0
