"""Shares a learner's model with the same learner of other groups, without a wait for any of them.

Every so many updates the learner sends how far it has moved since the fused model that it went on from, and
trains on. When the next fused model comes, it moves to that, and keeps what it has learned since it sent.
Group 0 is the run: options that are schedules, and exploration, are in every group where they are there.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.shared_model import Snapshot
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.component import Component
from spreeze_zmq.learner.experience import Experience
from spreeze_zmq.learner.publication import sending_weights
from spreeze_zmq.plan.roles import FUSED, MODELS
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Pusher, Subscriber

log = logging.getLogger("spreeze")

#: Interval at which the channel of fused models is looked at.
LOOK_S = 0.02
#: Patience of a round after which a model that no fused one holds may be lost: it is sent again.
LOST_AFTER = 3.0
#: Lives of a learner count their models from numbers far apart.
NUMBERS = 2**40


class Fusion:
    """One half's share in the model of all groups.

    Args:
        component: the learner.
        half: whose networks are shared.
        experience: says when they may be replaced, and has the counts.
        of_policy: the half publishes the policy.
    """

    def __init__(
        self, component: Component, half: AutogradHalf, experience: Experience, *, of_policy: bool
    ) -> None:
        self._groups, self._half, self._experience = component.plan.groups, half, experience
        self._life = component.plan.launcher
        self._model = half.shared_model(*experience.pooled, of_policy=of_policy)
        self._models = component.open(MODELS, Pusher)
        self._fused = component.open(FUSED, Subscriber)
        self._newest: Message | None = None
        self._is_new = self._has_joined = False
        self._fuser, self._number, self._round = 0, component.incarnation % NUMBERS, 0
        self._base: Snapshot | None = None
        self._sent: Snapshot | None = None
        self._look_s, self._sent_s, self._due = 0.0, 0.0, 0

    def forget(self) -> None:
        """Take over the fused model as it is, since this half's networks have been replaced."""
        self._base = self._sent = None
        self._is_new = self._newest is not None

    def serve(self) -> None:
        """Move to the newest fused model, and send what has been learned if that is due. Raises Diverged
        where a number of it is not finite.
        """
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            while (message := self._fused.receive()) is not None:
                if message.fields["part"] == self._half.part:
                    self._newest, self._is_new = message, True
        if self._is_new and self._newest is not None and self._experience.may_change:
            self._is_new = False
            self._take(self._newest)
        if self._sent is not None:
            is_due = now_s - self._sent_s > LOST_AFTER * self._groups.patience_s
        else:
            is_due = self._base is not None and self._half.num_updates >= self._due
        if is_due:
            self._send()

    def _take(self, message: Message) -> None:
        """Move to a fused model; group 0 gives its own where there is none yet."""
        if message.incarnation != self._fuser:
            self._fuser, self._base, self._sent = message.incarnation, None, None
        fields = message.fields
        if fields["round"] == 0:
            if self._groups.number == 0:
                self._round = 0
                self._is_new = not self._send()
            return
        fused = Snapshot(message.arrays["parameters"], message.arrays.get("statistics", np.empty(0)))
        if fields["layout"] != self._model.layout or fused.parameters.size != self._model.size:
            why = "a fused model that is laid out otherwise: all groups must run the same algorithm options"
            self._fused.refuse(WireError("bad_parameters", why), message.sender, message.kind)
            return
        holds_ours = fields["numbers"].get(str(self._groups.number)) == self._number
        here = self._sent if holds_ours and self._sent is not None else self._base
        move = fused.since(here or self._model.snapshot())
        self._sent = None if holds_ours or self._sent is None else self._sent.moved(move)
        self._model.shift(move)
        reached = fields.get("reached", {})
        self._half.go_on(reached, fields.get("shares", ()))
        self._half.run_env_steps = max(self._half.run_env_steps, int(reached.get("env_steps", 0)))
        if self._base is None:
            log.info("goes on from the fused model of round %d", fields["round"])
            self._due = self._half.num_updates + self._groups.every_updates
            if not self._has_joined:
                self._has_joined = True
                self._experience.join(self._half.run_env_steps)
        if self._half.run_env_steps and not self._half.num_updates:
            self._experience.act_on()
        self._base, self._round = fused, fields["round"]

    def _send(self) -> bool:
        """Send what has been learned since the fused model that this half went on from, or all it is; the
        same model again where no fused one holds it yet. Raises Diverged where a number of it is not finite.
        """
        here, counts = self._sent or self._model.snapshot(), self._experience.counts
        number = self._number + 1 if self._sent is None else self._number
        change = here if self._base is None else here.since(self._base)
        reached = {"env_steps": counts.env_steps} | (self._half.reached if self._half.moves else {})
        fields = {
            "group": self._groups.number,
            "life": self._life,
            "part": self._half.part,
            "layout": self._model.layout,
            "round": self._round,
            "number": number,
            "stepped": self._model.num_stepped,
            "env_steps": counts.env_steps,
            "trained": counts.trained,
            **({} if self._groups.number else {"reached": reached, "shares": self._half.shares()}),
        }
        arrays: dict[str, NDArray[Any]] = {"change": change.parameters.copy()}
        if change.statistics.size:
            arrays["statistics"] = change.statistics
        with sending_weights():
            if not self._models.try_push(Message("model", fields, arrays)):
                return False
        if self._sent is None:
            self._due = self._half.num_updates + self._groups.every_updates
        self._number, self._sent, self._sent_s = number, here, time.monotonic()
        return True
