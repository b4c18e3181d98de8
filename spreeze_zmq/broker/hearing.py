"""What the broker does with each report that comes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.helm import Helm
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import SET, STOP
from spreeze_zmq.broker.validation import validated
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.moves import REPLAY_RATIO
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Inbox

log = logging.getLogger("spreeze")

#: Reports that are noted for the journal and observers as they come.
NOTED = ("hello", "evaluation", "failure", "exited", "workers")
#: What a life says of itself: of one that has ended, its samples and refusals count, and nothing is done.
OWN = ("hello", "report", "bye")


class Hearing:
    """Takes reports into the record, one method for each kind, ``on_KIND``.

    Args:
        plan: of the run.
        record: of the run.
        notes: what is written down.
        helm: what is decided.
        reports: where they come from, and where those are counted that are refused.
        clock: gives the time of the run.

    Attributes:
        is_pressing: whether something has come that the next broker has to know, and that nobody says again.
        is_urgent: whether that is seldom and decides the run: a best policy, a learner that went back, what
            somebody has asked for.
    """

    def __init__(
        self,
        plan: Plan,
        record: RunRecord,
        notes: Notes,
        helm: Helm,
        reports: Inbox,
        clock: Callable[[], float],
    ) -> None:
        self._plan, self.record, self.notes, self.helm = plan, record, notes, helm
        self._reports, self._clock = reports, clock
        self.is_pressing = self.is_urgent = False

    def hear(self, message: Message) -> None:
        """Handle one report, or refuse it."""
        now_s = self._clock()
        try:
            message = message._replace(fields=validated(message, self._plan))
            self.record.lives.check(message, now_s)
            if self.record.lives.is_past(message.sender, message.incarnation):
                self.hear_late(message, now_s)
            else:
                self.handle(message, now_s)
        except WireError as error:
            self._reports.refuse(error, message.sender, message.kind)

    def handle(self, message: Message, now_s: float) -> None:
        """Handle what a living process says."""
        getattr(self, f"on_{message.kind}")(message, now_s)
        if message.kind in NOTED:
            self.notes.note(message.kind, message.fields, now_s)

    def hear_late(self, message: Message, now_s: float) -> None:
        """Handle what a life says that has ended, while another one has its name: its samples and refusals
        count, and its evaluations, of which none is the best any more where the next life is set up and says
        itself which policy it holds. A part of a checkpoint is no use, as its learner has gone back to an
        older one.
        """
        fields, name = message.fields, message.sender
        if message.kind in OWN:
            self.record.take_late(name, message.incarnation, fields, now_s)
            self._take_refused(message, now_s)
        elif message.kind == "evaluation":
            best = fields["best"] and not self.record.processes[name].ready
            self.handle(message._replace(fields={**fields, "best": best}), now_s)
        elif message.kind != "part":
            self.handle(message, now_s)

    def on_hello(self, message: Message, now_s: float) -> None:
        """Enter a process that is ready; a new life is welcomed once."""
        known = self.record.processes.get(message.sender)
        is_new = known is None or known.incarnation != message.incarnation or not known.ready
        self.record.take_hello(message.sender, message.incarnation, message.fields, now_s)
        if is_new:
            self.record.refusals.begin(message.sender, now_s)
            self.helm.welcome(message.fields["role"], now_s)

    def on_report(self, message: Message, now_s: float) -> None:
        """Enter figures; those of a process that starts say nothing of the balance."""
        self.record.take_report(message.sender, message.incarnation, message.fields, now_s)
        self._take_refused(message, now_s)
        if self.record.processes[message.sender].ready:
            self.helm.balancer.take(message.sender, message.incarnation, message.fields, now_s)
        else:  # without it there is no window
            self.helm.balancer.windows.lose(message.sender)

    def on_bye(self, message: Message, now_s: float) -> None:
        self.record.take_bye(message.sender, message.incarnation, message.fields, now_s)
        self._take_refused(message, now_s)
        self.helm.balancer.lose(message.sender, now_s)

    def _take_refused(self, message: Message, now_s: float) -> None:
        news = self.record.take_refused(message.sender, message.incarnation, message.fields, now_s)
        self.notes.refusals(news, now_s)

    def on_episodes(self, message: Message, now_s: float) -> None:
        self.record.episodes.take(message.arrays["returns"], message.arrays["lengths"])
        self.notes.episodes_ended(message.arrays["returns"])

    def on_evaluation(self, message: Message, now_s: float) -> None:
        self.record.evaluations.take(message.fields, now_s)
        self.notes.tensorboard.evaluation(message.fields)
        self.is_pressing = True
        self.is_urgent |= message.fields["best"]

    def on_failure(self, message: Message, now_s: float) -> None:
        went_back = self.record.take_failure(message.sender, message.fields, now_s)
        if went_back is not None:
            self.notes.tensorboard.went_back(vars(went_back))
            self.is_urgent = True

    def on_exited(self, message: Message, now_s: float) -> None:
        """The launcher saw a process end."""
        name, pid = message.fields["name"], message.fields.get("pid", 0)
        self.record.restarts += message.fields["restarting"]
        if name == f"{BROKER}-0" or self.record.lives.has_followed(name, pid):
            self.helm.balancer.disturb(now_s)  # a predecessor's end says nothing of the life that is heard
        else:
            self.record.lose(name, message.fields["how"])
            self.helm.balancer.lose(name, now_s)
            if not message.fields["restarting"]:
                self.helm.lose(name, now_s)

    def on_workers(self, message: Message, now_s: float) -> None:
        """The launcher has changed the number of processes of a role."""
        self.record.take_workers(**message.fields, now_s=now_s)
        self.helm.balancer.disturb(now_s)

    def on_machine(self, message: Message, now_s: float) -> None:
        """The launcher tells of a machine that has joined, or is gone."""
        self.record.machines.take(message.fields)

    def on_fusion(self, message: Message, now_s: float) -> None:
        """The fuser tells of the groups."""
        self.record.groups.take(message.fields["groups"])

    def on_turned_away(self, message: Message, now_s: float) -> None:
        """The launcher has refused machines, or what they sent."""
        rows = message.fields["refused"]
        news = self.record.refusals.take(message.sender, rows, now_s, message.incarnation)
        self.notes.refusals(news, now_s)

    def on_stop_request(self, message: Message, now_s: float) -> None:
        self.helm.end(message.fields["reason"], now_s)
        self.is_urgent = True

    def on_request(self, message: Message, now_s: float) -> None:
        """An observer asks for something: it is written down, and done."""
        row = self.record.requests.take(self._plan, message.fields, now_s)
        log.info("%s", row.line)
        self.notes.note("request", to_plain(row), now_s)
        if row.what == STOP:
            self.helm.end(f"{row.who}: {row.text}", now_s)
        elif row.what == SET:
            if row.option == REPLAY_RATIO:
                self.record.learning.measure_ratio_anew()
            self.helm.turn(row.option, row.value, now_s)
        self.is_urgent = True

    def on_stopping(self, message: Message, now_s: float) -> None:
        """The launcher stops some roles: tell the processes that it did not start."""
        self.record.take_stopping(message.fields["roles"], now_s)
        self.helm.say_who_stops()
        self.is_urgent = True

    def on_part(self, message: Message, now_s: float) -> None:
        """A learner has written its part of a checkpoint; the last one completes it."""
        counts = dict(self.record.learning.counts)
        state = {"t_s": now_s, "core_s": self.record.core_s, "counts": counts}
        state["episodes"] = self.record.episodes.count
        state["best_return"] = self.record.evaluations.best_return
        if folder := self.helm.checkpoints.take(message.sender.rpartition("-")[0], message.fields, state):
            self.notes.note("checkpoint", {"folder": folder, "env_steps": int(counts["env_steps"])}, now_s)
            self.helm.saved(now_s)
            self.is_pressing = True
