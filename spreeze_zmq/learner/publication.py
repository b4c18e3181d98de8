"""Publishes a learner's weights: how they leave the device, to whom; and the record of the losses."""

from __future__ import annotations

import itertools
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.base.errors import Diverged, WireError
from spreeze_zmq.base.files import append_to, plain
from spreeze_zmq.base.patience import append, make_folder
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component import Component
from spreeze_zmq.learner.average import PolicyAverage
from spreeze_zmq.learner.cadence import Cadence
from spreeze_zmq.learner.lag import CollectionLimits, Versions, fitting
from spreeze_zmq.nn.device import Download
from spreeze_zmq.plan.roles import CRITIC, EVALUATOR, POLICY, publisher_of_policy
from spreeze_zmq.run.versions import VersionFile
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher

log = logging.getLogger("spreeze")

#: Longest wait of a learner that leaves for an evaluator that is busy, whose queue may be full.
LAST_POLICY_S = 5.0
#: Publications of which each has its line in the record.
WHOLE_RECORD = 50_000

#: Makes the message of a copy of the weights on the host.
Make = Callable[[NDArray[np.float32]], Message]


@contextmanager
def sending_weights() -> Iterator[None]:
    """Raises Diverged where a message of weights that is sent within holds a number that is not finite."""
    try:
        yield
    except (OverflowError, WireError) as error:
        if isinstance(error, WireError) and error.reason != "not_finite":
            raise
        hint = "a lower learning_rate or max_gradient_norm may help"
        raise Diverged("weights", f"{error}; {hint}") from error


class Outlet:
    """Publishes a half's weights: those of the policy to all its readers, the critics to the actor-learner.

    They are copied off the device and sent when the copy has arrived. The run's first policy has version 0,
    which stands for uniformly random actions; on-policy it has version 1 and acts by its network, since its
    log probabilities are learned from.

    Args:
        component: the learner.
        half: whose weights are published.
        cadence: measures the cost of publications.

    Attributes:
        of_policy: whether these are the weights of the policy.
        average: of the weights of the policy, for its evaluator.
        versions: of the published weights.
        limits: of collection, which go out with the weights.
        published: whether this process has published any weights.
        updates: updates of the half when its weights were published last.
        recent: in order, the policies under which samplers may still collect, without their limits.
        owed: those of them that a run that goes on has to publish again, the oldest first.
    """

    def __init__(self, component: Component, half: AutogradHalf, cadence: Cadence) -> None:
        plan = component.plan
        self.half, self.cadence = half, cadence
        self.of_policy = publisher_of_policy(plan.learning.learners) == component.role
        self.average = PolicyAverage(plan.algorithm.get("average_policy", 0.0) if self.of_policy else 0.0)
        file = VersionFile(Path(plan.socket_dir)) if self.of_policy else None
        self.versions = Versions(file, int(plan.learning.on_policy)) if self.of_policy else Versions()
        self.limits = CollectionLimits(plan)
        self._layout = {"layout": half.layout} if len(plan.learning.learners) > 1 else {}
        self.published, self.updates = False, 0
        in_turn = self.of_policy and plan.balance.in_order and self.limits.schedule is not None
        self.recent: deque[Message] = deque(maxlen=1 + (plan.balance.max_policy_lag or 0) if in_turn else 0)
        self.owed: deque[Message] = deque()
        self._publisher = component.open(POLICY if self.of_policy else CRITIC, Publisher)
        self._download = Download(torch.device(component.options["device"]))
        self._make: Make | None = None

    def observe(self, rollout: Rollout, source: str = "") -> None:
        """Add the observations of a rollout, or of a ``source`` of data, to the statistics that go out with
        the policy.
        """
        if self.of_policy:
            self.half.observe(rollout.acted_on, source)

    def publish(
        self, critic_updates: int, positions: Mapping[str, int], *, is_new: bool, wait: bool, **more: int
    ) -> None:
        """Start to publish the current weights; publications by count are finished before this returns.

        Args:
            critic_updates: critic updates that the weights have made or followed.
            positions: stream -> position up to which the critic-learner has taken it, or on-policy up to
                which it has been trained on; limits of collection follow from them.
            is_new: whether a policy differs from the one published last; if not it keeps its version.
            wait: finish the publication before this returns in any case.
            more: further fields of critics.
        """
        if self.published and (is_new or not self.of_policy):
            self.versions.advance()
        message = self._policy if self.of_policy else self._critics
        self._put(self.half.weights, message(critic_updates, positions, **more), wait=wait)
        self.published, self.updates = True, self.half.num_updates

    def _policy(self, critic_updates: int, positions: Mapping[str, int]) -> Make:
        updates = self.half.num_updates
        fields: dict[str, Any] = {
            "version": self.versions.newest,
            "critic_updates": critic_updates,
            "actor_updates": updates,
            "description": self.half.description(),
            "extras": self.half.extras(),
            **self._layout,
        }
        if (limits := self.limits.collect_until(positions, self.versions)) is not None:
            fields["collect_until"] = limits

        def make(weights: NDArray[np.float32]) -> Message:
            arrays = self.half.policy_arrays(weights)
            if (average := self.average.take(arrays["parameters"], updates)) is not None:
                arrays["average"] = average
            return Message("policy", fields, arrays)

        return make

    def _critics(self, critic_updates: int, positions: Mapping[str, int], **more: int) -> Make:
        fields: dict[str, Any] = {"version": self.versions.newest, "critic_updates": critic_updates}
        fields |= {"env_steps": self.half.env_steps, **self._layout, **more}
        if self.half.moves:
            fields["reached"] = dict(self.half.reached)
        if self.limits.by_position:
            fields["taken"], self.limits.published = fitting(positions), positions
        return lambda weights: Message("critic", fields, {"parameters": weights})

    def _put(self, weights: torch.Tensor, make: Make, *, wait: bool) -> None:
        self.serve(wait=True)
        with self.cadence.publishing():
            self._download.start(weights)
            self._make = make
        self.serve(wait=wait or self.cadence.every > 0)

    def serve(self, *, wait: bool = False) -> bool:
        """Publish the weights once their copy has arrived; ``wait`` waits for the copy.

        Returns:
            Whether no copy is pending any more.

        Raises:
            Diverged: a weight is not finite.
        """
        if self._make is None:
            return True
        if not self._download.ready(wait=wait):
            return False
        make, self._make = self._make, None
        with sending_weights():
            with self.cadence.publishing():
                message = make(self._download.array())
                self._publisher.publish(message)
            self._note(message)
        self.cadence.sent(message)
        return True

    def leave(self) -> None:
        """Publish what has not left the device yet, and have a reader that was busy get the last policy, as
        the evaluator, which plays it when the learners are gone.
        """
        try:
            self.serve(wait=True)
        except Diverged as error:
            log.warning("the last publication was left out: %s", error)
        if self.of_policy and not self._publisher.await_askers(EVALUATOR, LAST_POLICY_S):
            log.info("a reader of the policy may not have the last one")

    def _note(self, message: Message) -> None:
        if self.recent.maxlen:
            if self.recent and self.recent[-1].fields["version"] == message.fields["version"]:
                self.recent.pop()
            fields = {name: value for name, value in message.fields.items() if name != "collect_until"}
            arrays = {name: np.array(array) for name, array in message.arrays.items()}
            self.recent.append(Message(message.kind, fields, arrays))

    # --- a run in order that goes on

    def get_state(self) -> dict[str, Any]:
        """What a run that goes on exactly needs, of types that torch reads without running code."""
        kept = [
            {"fields": m.fields, "arrays": {name: torch.from_numpy(each) for name, each in m.arrays.items()}}
            for m in self.recent
        ]
        return {"first": self.versions.first, "recent": kept}

    def set_state(self, state: Mapping[str, Any], before: int) -> None:
        """Continue from :meth:`get_state`; each sampler has collected ``before`` transitions since then."""
        self.versions.restore(self.versions.newest, state["first"])
        self.limits.before = before
        for kept in state["recent"]:
            arrays = {name: each.numpy() for name, each in kept["arrays"].items()}
            message = Message("policy", dict(kept["fields"]), arrays)
            self.recent.append(message)
            if self.limits.in_turn(message.fields["version"] - self.versions.first):
                self.owed.append(message)

    def publish_owed(self, *, all_heard: bool) -> None:
        """Publish again what samplers collect under: the oldest policy at once, the others when all samplers
        have it, since who comes late gets the newest alone.
        """
        while self.owed and (all_heard or not self.published):
            message = self.owed.popleft()
            limit = self.limits.in_turn(message.fields["version"] - self.versions.first)
            fields = {**message.fields, "collect_until": {"*": limit}}
            self._publisher.publish(Message(message.kind, fields, message.arrays))
            self.published = True


class Record:
    """Writes one line of JSON per publication by count: the losses at that count, and no time, so that two
    runs in lock-step write the same bytes. Publications by the clock are not recorded. Of those by count all
    are up to ``WHOLE_RECORD``, then every second one, and half as many after each doubling of their number.
    """

    def __init__(self, path: Path, cadence: Cadence) -> None:
        self.path = path if cadence.every else None
        self.lines, self._cadence = 0, cadence

    def go_on(self, before: Path, lines: int) -> None:
        """Begin with these first lines of the record of the run before, if it is there."""
        if self.path is None or not before.is_file():
            return
        make_folder(self.path.parent)
        with before.open("rb") as past, append_to(self.path) as file:
            append(file.fileno(), b"".join(itertools.islice(past, lines)), self.path)
        self.lines = lines

    def write(self, counts: Mapping[str, int], metrics: Mapping[str, Any]) -> None:
        """Append the line of the publication that is due now; waits for the device."""
        published = self._cadence.published
        if self.path is None or published % (1 << (published // WHOLE_RECORD).bit_length()):
            return
        make_folder(self.path.parent)
        figures = {name: float(value) for name, value in metrics.items()}
        line = json.dumps(plain({**counts, **figures}), allow_nan=False)
        with append_to(self.path) as file:
            append(file.fileno(), f"{line}\n".encode(), self.path)
        self.lines += 1
