"""Receives published weights: only the newest, or every version in order."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace

import numpy as np

from spreeze_zmq.algorithms.encoders import convolves, seen
from spreeze_zmq.base.errors import ChannelError, WireError
from spreeze_zmq.component.component import Component
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Subscriber

#: Longest wait at the end for the last policy where the queue is found full of older ones: on a busy machine
#: ZeroMQ's thread needs some time to bring what waits behind them, and a learner to answer.
LAST_POLICY_S = 0.5

log = logging.getLogger("spreeze")


class Weights:
    """The policies or critics of one channel.

    Args:
        subscriber: this process's end of the channel.
        in_turn: take every version and leave later ones in the queue; else skip to the newest. The queue
            cannot overflow in turn: the publisher's next version depends on what this reader does first.

    Attributes:
        version: version of the weights taken last and not refused; -1 before the first.
        came: version of the weights that came last, refused or not; -1 before the first.
        num_taken: number of versions taken, in turn those of the lives of a run before that it goes on from.
    """

    def __init__(self, subscriber: Subscriber, *, in_turn: bool) -> None:
        self.subscriber = subscriber
        self.in_turn = in_turn
        self.version = self.came = self._before = -1
        self.num_taken = 0
        self._said: set[tuple[str, int]] = set()
        self._passes_over = False

    def go_on(self, version: int, num_taken: int) -> None:
        """Go on after a version that the run before has taken; it may come again, for others."""
        self.version = self.came = version
        self.num_taken, self._passes_over = num_taken, True

    def say_once(self, message: Message, what: str) -> None:
        """Say what is odd about a sender's weights, once in each of its lives."""
        if (life := (message.sender, message.incarnation)) not in self._said:
            self._said = {life}
            log.warning("%s: the %s of %s %s", self.subscriber.endpoint, message.kind, message.sender, what)

    def refuse(self, message: Message, error: WireError) -> None:
        """Discard and count weights that were taken but do not fit: the version is again the one before."""
        self.version, self.num_taken = self._before, self.num_taken - 1
        self.subscriber.refuse(error, message.sender, message.kind)

    def take(self) -> Message | None:
        """The next weights; None if none have arrived.

        Raises:
            ChannelError: in turn, a version was lost.
        """
        message = self.subscriber.receive() if self.in_turn else self.subscriber.newest()
        while self._passes_over and message is not None and message.fields["version"] <= self.came:
            message = self.subscriber.receive()
        if message is None:
            return None
        version: int = message.fields["version"]
        if self.in_turn and self.num_taken and version != self.came + 1:
            raise ChannelError(
                f"{self.subscriber.endpoint}: version {version} came after {self.came}; a run in order "
                "cannot skip one: start it again"
            )
        self._before, self.version, self.came = self.version, version, version
        self.num_taken += 1
        return message


def last_policy(component: Component, policies: Subscriber) -> Message | None:
    """The last policy of learners that have left; None if it has been taken. A relay may have it, which found
    no room here for it: of that the learners, which wait for who has lost it, knew nothing.
    """
    is_relayed = component.handing.is_elsewhere or bool(component.plan.channels[POLICY].back)
    return policies.newest(LAST_POLICY_S, ask=is_relayed)


def prepare_to_act(component: Component) -> None:
    """Import torch now if the run's policies need it: those with encoders of images or parts, or with memory,
    and those of a user's algorithm. The import may take longer than a process may be silent once it is ready.

    A user's network or ``act`` may draw from torch's default generator, which is seeded here.
    """
    plan = component.plan
    remembers = any("memory" in channel.fields for channel in plan.channels.values())
    own, options = ":" in plan.run.algorithm, SimpleNamespace(**plan.algorithm)
    encodes = own or convolves(seen(plan.environment, options), options)
    if encodes or remembers:
        importlib.import_module("spreeze_zmq.policy.torch_network")
    if own:
        seed = component.seed_sequence().spawn(1)[0].generate_state(1, np.uint64)[0]
        importlib.import_module("torch").manual_seed(int(seed >> np.uint64(1)))
