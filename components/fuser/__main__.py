"""Fuser: holds the model that several groups share, and moves it by what they have learned since.

No group waits for it: a learner sends what it has learned and trains on; what comes back is added to what it
has learned meanwhile.
"""

import logging
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from spreeze_zmq.balance.fusing import GroupChange, SharedRounds
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.groups import Group
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.plan.parts import GroupsPlan
from spreeze_zmq.plan.roles import FUSED, MODELS, PART_OF
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher, Puller

log = logging.getLogger("spreeze")

#: Longest wait for a model, after which it is seen whether a round has waited long enough.
LOOK_S = 0.1
#: What group 0 says of how far the run is, for the others.
COURSE = ("reached", "shares")
#: Time between two reports of the groups.
TELL_S = 0.5


def rounds_of(groups: GroupsPlan) -> SharedRounds:
    """The rounds of one part."""
    steps = (groups.outer_learning_rate, groups.outer_momentum) if groups.outer == "momentum" else ()
    return SharedRounds(groups.count, groups.patience_s, *steps)


class Fuser:
    """Models in; fused ones and a row for each group out."""

    def __init__(self, component: Component) -> None:
        self.component, self.groups = component, component.plan.groups
        self.models, self.fused = component.open(MODELS, Puller), component.open(FUSED, Publisher)
        parts = [PART_OF[role] for role in component.plan.learning.learners]
        self.parts = {part: rounds_of(self.groups) for part in parts}
        self.layouts = dict.fromkeys(parts, "")
        self.course: dict[str, dict[str, Any]] = {}
        self.rows = {group: Group() for group in range(self.groups.count)}
        self.next_tell_s = 0.0
        for part in parts:
            self.publish(part)

    def listen(self) -> None:
        """Take the models that have come."""
        while (message := self.models.pull()) is not None:
            try:
                self.take(message)
            except WireError as error:
                self.models.refuse(error, message.sender, message.kind)

    def take(self, message: Message) -> None:
        """Take one model. Raises WireError where it does not fit those of the others."""
        fields, part, group = message.fields, message.fields["part"], message.fields["group"]
        self.check(message)
        shared = self.parts[part]
        change = GroupChange(
            fields["number"],
            np.asarray(message.arrays["change"], np.float32),
            np.asarray(message.arrays.get("statistics", np.empty(0)), np.float64),
            fields["stepped"],
        )
        row = self.rows[group]
        row.received_bytes += sum(array.nbytes for array in message.arrays.values())
        if row.life != (life := fields.get("life", 0)):  # which counts from 0
            row.life, row.env_steps, row.trained_transitions = life, 0, 0
        row.env_steps = max(row.env_steps, fields["env_steps"])
        row.trained_transitions = max(row.trained_transitions, fields["trained"])
        if group == 0:
            self.course[part] = {name: fields[name] for name in COURSE if name in fields}
        if shared.parameters is not None and fields["round"]:
            shared.take(group, change, time.monotonic())
        elif shared.parameters is None and not fields["round"] and group == 0:
            self.layouts[part] = fields["layout"]
            shared.found(change)
            self.publish(part)

    def check(self, message: Message) -> None:
        """Raise WireError unless a model is of a group and a part of this run, and laid out as the others."""
        fields, change = message.fields, message.arrays["change"]
        part, group = fields["part"], fields["group"]
        if group not in self.rows or part not in self.parts:
            expected = f"a group below {self.groups.count} and one of {', '.join(self.parts)}"
            raise WireError("wrong_sender", f"model of group {group}, {part[:40]!r}; expected {expected}")
        shared = self.parts[part]
        if shared.parameters is None:
            return
        statistics = message.arrays.get("statistics", shared.statistics[:0])
        came = fields["layout"], change.size, statistics.size
        others = self.layouts[part], shared.parameters.size, shared.statistics.size
        if came != others:
            raise WireError(
                "bad_parameters",
                f"the {part} model of group {group} is laid out as {came}, that of the others as {others}: "
                "all groups must run the same algorithm options",
            )

    def close_rounds(self) -> None:
        """Fuse what the groups of a round have sent, where no other is waited for any more."""
        for part, shared in self.parts.items():
            if not shared.is_due(time.monotonic()):
                continue
            before = shared.living
            shared.close()
            self.publish(part)
            for group in before ^ shared.living:
                says = "is back" if group in shared.living else "is not waited for any more"
                log.info("round %d of the %s: group %d %s", shared.round, part, group, says)

    def publish(self, part: str) -> None:
        """Publish the shared model of a part, or that there is none yet."""
        shared = self.parts[part]
        parameters = np.empty(0, np.float32) if shared.parameters is None else shared.parameters
        arrays: dict[str, Any] = {"parameters": parameters.copy()}
        if shared.statistics.size:
            arrays["statistics"] = shared.statistics.copy()
        fields = {"part": part, "layout": self.layouts[part], "round": shared.round}
        numbers = {str(group): number for group, number in shared.numbers.items()}
        course = self.course.get(part, {})
        self.fused.publish(Message("fused", {**fields, **course, "numbers": numbers}, arrays))

    def tell(self) -> None:
        """Report the rows of the groups."""
        if time.monotonic() < self.next_tell_s:
            return
        self.next_tell_s = time.monotonic() + TELL_S
        for group, row in self.rows.items():
            row.rounds = min(shared.joined[group] for shared in self.parts.values())
            row.distance = max(shared.distances.get(group, 0.0) for shared in self.parts.values())
            row.lost = not all(group in shared.living for shared in self.parts.values())
        self.component.report(
            "fusion", {"groups": {str(group): asdict(row) for group, row in self.rows.items()}}
        )


def main(component: Component) -> None:
    """Fuse models until the run ends."""
    fuser = Fuser(component)
    component.ready()
    while component.running:
        component.poll([fuser.models], timeout_s=LOOK_S)
        fuser.listen()
        fuser.close_rounds()
        fuser.tell()
    fuser.next_tell_s = 0.0
    fuser.tell()


if __name__ == "__main__":
    sys.exit(run("fuser", main))
