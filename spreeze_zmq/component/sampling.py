"""What a sampler has beside its environments: learners that take its rollouts, and the policy that acts."""

from __future__ import annotations

import math
from dataclasses import replace

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.weights import Weights
from spreeze_zmq.plan.roles import CRITIC_LEARNER, POLICY, experience_of
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.wire import rollout_message
from spreeze_zmq.wire.channels import Pusher, Subscriber

#: How often it is looked whether a receiver on another machine has room again.
HELD_S = 0.001


class RolloutOutlet:
    """Pushes rollouts to one learner, with the fields that it asks for, and counts their transitions."""

    def __init__(self, component: Component, learner: str) -> None:
        channel = experience_of(learner)
        self.component, self.learner = component, learner
        self.pusher = component.open(channel, Pusher)
        self.fields = component.plan.channels[channel].fields
        if learner == CRITIC_LEARNER:
            self.fields = (*self.fields, "state")
        self.produced = 0

    def wait_for_place(self) -> None:
        """Wait until the learner's queue has room for a rollout or this process is stopped; a rollout that is
        collected earlier only grows stale.
        """
        waiting_for = f"{self.learner} to take a rollout ({self.pusher.endpoint})"
        while self.component.running:
            if self.pusher.is_held:
                self.component.poll(timeout_s=HELD_S, charge="blocked", waiting_for=waiting_for)
            elif self.component.poll(
                writable=[self.pusher], timeout_s=1.0, charge="blocked", waiting_for=waiting_for
            ):
                return

    def push(self, rollout: Rollout) -> None:
        """Push a rollout as soon as there is room. After a stop the rollout is dropped and not counted."""
        produced = self.produced + rollout.num_transitions
        message = rollout_message(replace(rollout, produced=produced), self.fields)
        while not self.pusher.try_push(message):
            if not self.component.running:
                return
            self.wait_for_place()
        self.produced = produced


class Acting:
    """The policy that acts: the newest one, or in order each version in turn."""

    def __init__(self, component: Component, outlets: list[RolloutOutlet]) -> None:
        self.component = component
        self.weights = Weights(component.open(POLICY, Subscriber), in_turn=component.plan.balance.in_order)
        self.publisher = component.plan.channels[POLICY].binds
        self.outlets = outlets
        self.policy: Policy | None = None
        self.collect_until = 0.0

    def next(self) -> Policy | None:
        """The policy for the next rollout; waits for a new one while the present one is used up.

        Returns None if this process is stopped first.
        """
        while self.component.running:
            if not (self.weights.in_turn and self.fresh):
                self.adopt()
            if self.fresh:
                return self.policy
            what = "a newer policy" if self.policy else "a policy"
            self.component.poll(
                [self.weights.subscriber],
                timeout_s=1.0,
                charge="starved",
                waiting_for=f"{what} from {self.publisher} ({self.weights.subscriber.endpoint})",
            )
        return None

    @property
    def fresh(self) -> bool:
        """Whether another rollout may begin under the present policy; past ``collect_until`` it would be too
        stale on arrival.
        """
        return self.policy is not None and max(o.produced for o in self.outlets) < self.collect_until

    def adopt(self) -> None:
        """Take the next policy, if one has arrived.

        Raises:
            InputError: the policy cannot be used; nor can later ones, which come from the same algorithm.
        """
        if (message := self.weights.take()) is not None:
            with usable(message.fields["version"]):
                self.policy = Policy.from_message(message.fields, message.arrays, self.policy)
            limits = message.fields.get("collect_until", {})
            stream = f"{self.component.name}/{self.component.incarnation}"
            self.collect_until = limits.get(stream, limits.get("*", math.inf))
