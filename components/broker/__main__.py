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

from spreeze_zmq.base.files import write_json
from spreeze_zmq.base.journal import RESUMED, TURNED, read_journal
from spreeze_zmq.base.pauses import Pauses
from spreeze_zmq.broker.hearing import Hearing
from spreeze_zmq.broker.helm import Helm
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.plan import tuning
from spreeze_zmq.wire.channels import Inbox, Publisher, SocketFolder

log = logging.getLogger("spreeze")

#: Interval at which the run's status is noted, for the doctor too.
NOTE_INTERVAL_S = 1.0
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
        self.notes = Notes(component.folder, feed, self.record.doctor.take, offline=self.plan.offline)
        self.helm = Helm(self.plan, component.folder, self.record, self.notes, control)
        self.balancer, self.checkpoints = self.helm.balancer, self.helm.checkpoints
        self.next_note_s = self.next_write_s = self.paid_s = 0.0
        self.launcher, self.pauses = os.getppid(), Pauses()
        self.state_file = component.folder.broker_state
        if self.state_file.exists():
            self.restore(json.loads(self.state_file.read_text()))
        else:
            if component.folder.metrics.exists():
                self.inherit()
            self.helm.begin(self.now_s)
        parts = self.plan, self.record, self.notes, self.helm, self.reports
        self.hearing = Hearing(*parts, clock=lambda: self.now_s)
        self.hear = component.hear_own = self.hearing.hear

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
        metrics, board = self.component.folder.metrics, self.notes.tensorboard
        ends_s = max((entry["t_s"] for entry in read_journal(metrics, (RESUMED,))), default=0.0)
        for entry in read_journal(metrics):
            kind, board.age_s = entry.pop("kind"), max(0.0, ends_s - entry["t_s"])
            self.record.doctor.take(kind, entry["t_s"], entry)
            if kind == "evaluation":
                self.record.evaluations.take(entry, entry["t_s"])
                board.evaluation(entry)
            elif kind == "status":
                board.status(entry, entry["gauges"])
            elif kind == RESUMED:
                self.record.resume(entry)
                self.record.requests.values = entry.get(TURNED, {})
        board.age_s = 0.0
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
            self.record.cores.stood_still()
            log.warning("stood still for %.0f s, which do not count", stood_s)

    @property
    def is_orphan(self) -> bool:
        """Whether the launcher is gone."""
        return os.getppid() != self.launcher

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

    # --- the run's files

    @property
    def owes_write(self) -> bool:
        """Whether the run's files are due. News may come often: what decides nothing waits until the
        last time is paid for.
        """
        is_pressing = self.hearing.is_pressing and self.now_s >= self.paid_s
        return self.hearing.is_urgent or is_pressing or self.now_s >= self.next_write_s

    def note(self, *, final: bool = False) -> None:
        """Note the status in the journal and TensorBoard, and what the doctor finds, which hears it: at its
        own pace, however long the record takes to write.
        """
        self.next_note_s = self.now_s + NOTE_INTERVAL_S
        self.notes.note_episodes(self.now_s, last=final)
        status = self.helm.status(self.now_s)
        self.notes.status(status, self.record.learning.gauges, self.now_s, last=final)
        for row in self.record.doctor.news():
            self.notes.note("finding", row, self.now_s)

    def write(self, *, final: bool = False) -> None:
        """Update summary.json and the state for a restarted broker."""
        began_s = time.process_time()
        reason = self.helm.exit_reason or (
            "the launcher was killed" if self.is_orphan else self.component.stop_reason
        )
        self.record.unfinished_checkpoint = self.checkpoints.missing if final else []
        state = {"began_s": self.began_s, "record": self.record.to_dict()}
        state["exit_reason"] = self.helm.exit_reason
        # First: what others have read here, the next broker knows.
        write_json(self.state_file, state, indent=None)
        write_json(self.component.folder.summary, self.record.summary(reason, self.now_s, final=final))
        self.hearing.is_pressing = self.hearing.is_urgent = False
        self.paid_s = self.now_s + (time.process_time() - began_s) / WRITE_SHARE
        self.next_write_s = max(self.now_s + WRITE_INTERVAL_S, self.paid_s)

    def finish(self) -> None:
        """Write the last summary. The state file stays for a restarted broker; the launcher removes it."""
        self.note(final=True)
        self.write(final=True)
        if not self.record.disturbances and (found := self.balancer.tuning()) is not None:
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
        if broker.now_s >= broker.next_note_s:
            broker.note()
        if broker.owes_write:
            broker.write()
    broker.drain()
    broker.finish()


if __name__ == "__main__":
    sys.exit(run("broker", main))
