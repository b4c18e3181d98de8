"""Broker: receives everybody's reports, keeps the run's record, and decides. No sample passes through it."""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.files import write_json
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.pauses import Pauses
from spreeze_zmq.broker.groups import groups_of
from spreeze_zmq.broker.helm import Helm
from spreeze_zmq.broker.notes import RESUMED, TURNED, Notes
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import SET, STOP
from spreeze_zmq.broker.validation import validated
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.plan import tuning
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Inbox, Publisher, SocketFolder

log = logging.getLogger("spreeze")

#: Reports that are noted for the journal and observers as they come.
NOTED = ("hello", "evaluation", "failure", "exited", "workers")
#: What a life says of itself: of one that has ended, its samples count, and nothing is done.
OWN = ("hello", "report", "bye")
#: Least interval between two updates of the run's files, and their largest share of a core: a long run has
#: thousands of evaluations to write.
WRITE_INTERVAL_S, WRITE_SHARE = 1.0, 0.05
#: Longest time for which a stopping broker takes reports, and for which it then handles those.
DRAIN_S = 2.0
#: Longest time for which reports are handled before the broker does its other work.
LISTEN_AT_MOST_S = 0.1
#: Reports of more processes than this are gathered for a moment: to take them one by one costs several times
#: as much.
MANY_PROCESSES, GATHER_S = 50, 0.02
#: Messages of each process that wait after a time in which it ran on, two a second, and this one did not.
PILED_UP = 4
#: More processes than this hear the status half as often.
CROWD = 200


class Broker:
    """Reports in; status, checkpoints, decisions and the run's files out."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.plan = component.plan
        self.reports = component.open("report", Inbox)
        self.began_s = time.monotonic() - component.uptime_s
        self.record = RunRecord(self.plan)
        self.record.lives.holder = partial(SocketFolder.holder, Path(self.plan.socket_dir))
        self.reports.keeps_all = self.record.learners.__contains__  # each lists some of very many streams
        control, feed = (component.open(channel, Publisher) for channel in ("control", "feed"))
        self.notes = Notes(component.folder, feed, self.record.doctor.take)
        self.helm = Helm(self.plan, component.folder, self.record, self.notes, control)
        self.balancer, self.checkpoints = self.helm.balancer, self.helm.checkpoints
        self.next_write_s = 0.0
        self.launcher, self.pauses = os.getppid(), Pauses()
        self.state_file = component.folder.broker_state
        if self.state_file.exists():
            self.restore(json.loads(self.state_file.read_text()))
        elif component.folder.metrics.exists():
            self.inherit()
        component.hear_own = self.hear

    def restore(self, earlier: Mapping[str, Any]) -> None:
        """Continue from the state of an earlier broker of this run."""
        self.began_s = earlier["began_s"]  # monotonic time, which all processes of a machine share
        self.record.restore(earlier["record"], self.now_s)
        self.notes.thinning.began_s = self.record.before_s
        self.record.doctor.read(read_journal(self.component.folder.metrics))
        self.record.doctor.news()  # noted by the earlier broker
        self.helm.restore(earlier["exit_reason"], self.now_s)

    def inherit(self) -> None:
        """Go on where the run stood from which the launcher has copied the journal."""
        for entry in read_journal(self.component.folder.metrics):
            kind = entry.pop("kind")
            if kind == "evaluation":
                self.record.evaluations.take(entry, entry["t_s"])
                self.notes.tensorboard.evaluation(entry)
            elif kind == "status":
                self.notes.tensorboard.status(entry, entry["gauges"])
            elif kind == RESUMED:
                self.record.resume(entry)
                self.record.requests.values = entry.get(TURNED, {})
        self.helm.turn_again(self.now_s)
        self.began_s -= self.record.before_s
        self.notes.thinning.began_s = self.record.before_s
        self.checkpoints.next_s += self.record.before_s
        self.balancer.disturb(self.now_s)

    @property
    def now_s(self) -> float:
        """Seconds since the run began, or the first of those that it goes on from."""
        return time.monotonic() - self.began_s

    def heed_pause(self) -> None:
        """Stop the run's clock for a time in which all stood still: it counts for no limit, and nobody was
        silent in it. Where this process alone was held up, as by a slow disk, the others' reports have piled
        up, and the time counts.
        """
        if not (stood_s := self.pauses.look()):
            return
        others = sum(not one.gone for one in self.record.processes.values()) - 1
        before = self.reports.num_gathered
        self.reports.gather()
        alone = self.reports.num_gathered - before > PILED_UP * others > 0
        self.began_s += 0.0 if alone else stood_s
        self.balancer.disturb(self.now_s)
        if alone:
            log.warning("was held up for %.0f s, in which the run went on: see its disk and memory", stood_s)
        else:
            log.warning("stood still for %.0f s, which do not count", stood_s)

    @property
    def is_orphan(self) -> bool:
        """Whether the launcher is gone."""
        return os.getppid() != self.launcher

    def note(self, topic: str, about: Mapping[str, Any]) -> None:
        self.notes.note(topic, about, self.now_s)

    # --- messages

    def listen(self, *, gather: bool = True) -> None:
        """Handle the waiting reports, with ``gather`` those that have come since; those of a flood are left
        for later, so that the run goes on.
        """
        if gather:
            self.reports.gather()
        until_s = time.monotonic() + LISTEN_AT_MOST_S
        while time.monotonic() < until_s and (message := self.reports.next()) is not None:
            self.hear(message)

    def drain(self) -> None:
        """Handle what has been sent by now; in a live run, reports never cease."""
        until_s = time.monotonic() + DRAIN_S
        while self.is_behind or self.component.poll([self.reports], timeout_s=0.1, draining=True):
            self.listen(gather=time.monotonic() < until_s)
            if time.monotonic() >= (until_s + DRAIN_S if self.is_behind else until_s):
                return

    @property
    def is_behind(self) -> bool:
        """Whether reports wait that have been taken."""
        return self.reports.num_waiting > 0

    def hear(self, message: Message) -> None:
        """Handle one report, or refuse it."""
        try:
            message = message._replace(fields=validated(message, self.plan))
            self.record.lives.check(message, self.now_s)
            if self.record.lives.is_past(message.sender, message.incarnation):
                self.hear_late(message)
            else:
                self.handle(message)
        except WireError as error:
            self.reports.refuse(error, message.sender, message.kind)

    def handle(self, message: Message) -> None:
        getattr(self, f"on_{message.kind}")(message)
        if message.kind in NOTED:
            self.note(message.kind, message.fields)

    def hear_late(self, message: Message) -> None:
        """Handle what a life says that has ended, while another one has its name: its samples count, and its
        evaluations, of which none is the best any more where the next life is set up and says itself which
        policy it holds. A part of a checkpoint is no use, as its learner has gone back to an older one.
        """
        fields, name = message.fields, message.sender
        if message.kind in OWN:
            self.record.take_late(name, message.incarnation, fields, self.now_s)
        elif message.kind == "evaluation":
            best = fields["best"] and not self.record.processes[name].ready
            self.handle(message._replace(fields={**fields, "best": best}))
        elif message.kind != "part":
            self.handle(message)

    def on_hello(self, message: Message) -> None:
        self.record.take_hello(message.sender, message.incarnation, message.fields, self.now_s)

    def on_report(self, message: Message) -> None:
        self.record.take_report(message.sender, message.incarnation, message.fields, self.now_s)
        news = self.record.take_refused(message.sender, message.fields, self.now_s)
        self.notes.refusals(news, self.now_s)
        self.balancer.take(message.sender, message.incarnation, message.fields, self.now_s)

    def on_bye(self, message: Message) -> None:
        self.record.take_bye(message.sender, message.incarnation, message.fields, self.now_s)
        self.balancer.lose(message.sender, self.now_s)

    def on_episodes(self, message: Message) -> None:
        self.record.episodes.take(message.arrays["returns"], message.arrays["lengths"])
        self.notes.episodes_ended(message.arrays["returns"])

    def on_evaluation(self, message: Message) -> None:
        self.record.evaluations.take(message.fields, self.now_s)
        self.notes.tensorboard.evaluation(message.fields)

    def on_failure(self, message: Message) -> None:
        went_back = self.record.take_failure(message.sender, message.fields, self.now_s)
        if went_back is not None:
            self.notes.tensorboard.went_back(vars(went_back))

    def on_exited(self, message: Message) -> None:
        """The launcher saw a process end."""
        name, pid = message.fields["name"], message.fields.get("pid", 0)
        self.record.restarts += message.fields["restarting"]
        if name == self.component.name or self.record.lives.has_followed(name, pid):
            self.balancer.disturb(self.now_s)  # a predecessor's end says nothing of the life that is heard
        else:
            self.record.lose(name, message.fields["how"])
            self.balancer.lose(name, self.now_s)

    def on_workers(self, message: Message) -> None:
        """The launcher has changed the number of processes of a role."""
        self.record.take_workers(**message.fields, now_s=self.now_s)
        self.balancer.disturb(self.now_s)

    def on_machine(self, message: Message) -> None:
        """The launcher tells of a machine that has joined, or is gone."""
        self.record.machines.take(message.fields)

    def on_fusion(self, message: Message) -> None:
        """The fuser tells of the groups."""
        self.record.groups = groups_of(message.fields["groups"])

    def on_turned_away(self, message: Message) -> None:
        """The launcher has refused machines, or what they sent."""
        rows = message.fields["refused"]
        self.notes.refusals(self.record.refusals.take(message.sender, rows, self.now_s), self.now_s)

    def on_stop_request(self, message: Message) -> None:
        self.helm.end(message.fields["reason"], self.now_s)

    def on_request(self, message: Message) -> None:
        """An observer asks for something: it is written down, and done."""
        row = self.record.requests.take(self.plan, message.fields, self.now_s)
        log.info("%s", row.line)
        self.note("request", to_plain(row))
        if row.what == STOP:
            self.helm.end(f"{row.who}: {row.text}", self.now_s)
        elif row.what == SET:
            self.helm.turn(row.option, row.value, self.now_s)
            self.next_write_s = 0.0  # the next broker needs it

    def on_stopping(self, message: Message) -> None:
        """The launcher stops some roles: tell the processes that it did not start."""
        self.record.take_stopping(message.fields["roles"])
        self.helm.say_who_stops()
        self.next_write_s = 0.0  # the next broker needs it

    def on_part(self, message: Message) -> None:
        """A learner has written its part of a checkpoint; the last one completes it."""
        counts = dict(self.record.learning.counts)
        state = {"t_s": self.now_s, "core_s": self.record.core_s, "counts": counts}
        state["best_return"] = self.record.evaluations.best_return
        if folder := self.checkpoints.take(message.sender.rpartition("-")[0], message.fields, state):
            self.note("checkpoint", {"folder": folder, "env_steps": int(counts["env_steps"])})
            self.helm.saved(self.now_s)

    # --- the run's files

    def write(self, *, final: bool = False) -> None:
        """Update summary.json, the journal, TensorBoard, and the state for a restarted broker."""
        began_s = time.process_time()
        self.notes.note_episodes(self.now_s, last=final)
        status = self.helm.status(self.now_s)
        self.notes.status(status, self.record.learning.gauges, self.now_s, last=final)
        for row in self.record.doctor.news():
            self.note("finding", row)
        reason = self.helm.exit_reason or (
            "the launcher was killed" if self.is_orphan else self.component.stop_reason
        )
        self.record.unfinished_checkpoint = self.checkpoints.missing if final else []
        write_json(self.component.folder.summary, self.record.summary(reason, self.now_s, final=final))
        state = {"began_s": self.began_s, "record": self.record.to_dict()}
        state["exit_reason"] = self.helm.exit_reason
        write_json(self.state_file, state)
        spent_s = time.process_time() - began_s
        self.next_write_s = self.now_s + max(WRITE_INTERVAL_S, spent_s / WRITE_SHARE)

    def finish(self) -> None:
        """Write the last summary. The state file stays for a restarted broker; the launcher removes it."""
        self.write(final=True)
        sound = not (self.record.failures.count or self.record.restarts or self.record.refusals.mistakes)
        if sound and (found := self.balancer.tuning()) is not None:
            tuning.remember(self.plan, found)
        if self.is_orphan or not self.record.workers:
            self.state_file.unlink()
            self.component.folder.tidy()
        self.notes.close()


def main(component: Component) -> None:
    """Listen, decide, show and write until the broker is stopped, as the last process of the run."""
    broker = Broker(component)
    component.ready()
    broker.pauses.look()
    next_show_s = 0.0
    while component.running:
        if len(broker.record.processes) > MANY_PROCESSES and not broker.is_behind:
            component.poll(timeout_s=GATHER_S)
        component.poll([broker.reports], timeout_s=0.0 if broker.is_behind else 0.1)
        broker.heed_pause()
        broker.listen()
        broker.helm.decide(broker.now_s)
        if broker.now_s >= next_show_s:
            pace = 1 if len(broker.record.processes) <= CROWD else 2
            next_show_s = broker.now_s + pace * component.options["status_interval_s"]
            broker.helm.show(broker.now_s)
        if broker.now_s >= broker.next_write_s:
            broker.write()
    broker.drain()
    broker.finish()


if __name__ == "__main__":
    sys.exit(run("broker", main))
