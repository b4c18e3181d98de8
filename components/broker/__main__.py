"""Broker: hears everybody, keeps the run's record, and decides; no sample ever passes through it."""

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.autoscale import tuning
from spreeze_zmq.autoscale.balancer import Balancer
from spreeze_zmq.autoscale.rule import Change
from spreeze_zmq.channels import Publisher, Puller
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.metrics import Journal, TensorBoard, write_json
from spreeze_zmq.plan.roles import CRITIC_LEARNER, SAMPLER
from spreeze_zmq.run.checkpoint import Part, complete, prune
from spreeze_zmq.run.record import RunRecord
from spreeze_zmq.wire import Message

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Status

log = logging.getLogger("spreeze")

#: How often summary.json, metrics.jsonl and TensorBoard are brought up to date.
RECORD_INTERVAL_S = 1.0
#: How long the end of a run waits for its last checkpoint.
LAST_CHECKPOINT_S = 5.0
CHECKPOINTS_KEPT = 2
#: Characters of a traceback that are noted: they must fit in the header of a message.
LONGEST_WORDS = 8000
#: How often the balance is looked at.
BALANCE_INTERVAL_S = 1.0


class Broker:
    """Reports in; status, checkpoints, decisions and the run's files out."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.plan = component.plan
        self.reports: Puller = component.open("report")
        self.control: Publisher = component.open("control")
        self.feed: Publisher = component.open("feed")
        self.began_s = time.monotonic() - (time.time() - component.folder.run_file.stat().st_mtime)
        self.record = RunRecord(self.plan)
        self.balancer = Balancer(self.plan)
        self.next_balance_s = 0.0
        self.ended: list[NDArray[np.float32]] = []
        self.journal = Journal(component.folder.metrics)
        self.tensorboard = TensorBoard(component.folder.path)
        self.state = "starting"
        self.exit_reason = ""
        self.parts: dict[str, dict[str, Any]] = {}
        self.next_checkpoint_s = self.checkpoint_interval_s
        self.last_checkpoint, self.stop_by_s = "", 0.0
        self.stop_published = False
        self.launcher = os.getppid()
        self.goes_on_from = component.folder.broker_state
        if self.goes_on_from.exists():
            earlier = json.loads(self.goes_on_from.read_text())
            self.record.restore(earlier["record"], self.now_s)
            self.exit_reason = earlier["exit_reason"]
            if (size := self.record.moved(CRITIC_LEARNER, "batch_size")) is not None:
                self.balancer.go_on_with(size)
                for role in self.plan.learning.learners:
                    self.say("set", role=role, option="batch_size", value=size)
        component.hear_own = self.hear

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began_s

    @property
    def checkpoint_interval_s(self) -> float:
        """Seconds between two checkpoints."""
        return 60 * self.plan.run.checkpoint_minutes

    def say(self, kind: str, **fields: Any) -> None:
        """Tell everybody."""
        self.control.publish(Message(kind, fields))

    def tell_observers(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Publish one entry on the feed."""
        self.feed.publish(Message("entry", {"topic": topic, "t_s": round(t_s, 3), "about": dict(about)}))

    def note(self, topic: str, about: Mapping[str, Any]) -> None:
        """Write one line of the journal, and publish it on the feed."""
        t_s = self.now_s
        self.journal.write(topic, t_s, about)
        self.tell_observers(topic, about, t_s)

    # --- what comes in

    def listen(self) -> None:
        """Enter every report that waits."""
        while (message := self.reports.pull()) is not None:
            self.hear(message)

    def hear(self, message: Message) -> None:
        """Enter one report."""
        getattr(self, f"on_{message.kind}")(message)

    def on_hello(self, message: Message) -> None:
        """A process is set up."""
        self.record.take_hello(message.sender, message.incarnation, message.fields, self.now_s)
        self.note("hello", message.fields)

    def on_report(self, message: Message) -> None:
        """Figures of a process."""
        self.record.take_report(message.sender, message.incarnation, message.fields, self.now_s)
        self.balancer.take(message.sender, message.incarnation, message.fields, self.now_s)

    def on_bye(self, message: Message) -> None:
        """A process leaves by itself."""
        self.record.take_bye(message.sender, message.incarnation, message.fields, self.now_s)
        self.balancer.lose(message.sender, self.now_s)

    def on_episodes(self, message: Message) -> None:
        """Episodes have ended."""
        self.record.take_episodes(message.arrays["returns"], message.arrays["lengths"])
        self.ended.append(message.arrays["returns"])

    def on_evaluation(self, message: Message) -> None:
        """A policy has been evaluated."""
        self.record.take_evaluation(message.fields, self.now_s)
        self.note("evaluation", message.fields)
        self.tensorboard.evaluation(message.fields)

    def on_failure(self, message: Message) -> None:
        """Something failed."""
        self.record.take_failure(message.fields, self.now_s)
        self.note("failure", {**message.fields, "traceback": message.fields["traceback"][-LONGEST_WORDS:]})

    def on_exited(self, message: Message) -> None:
        """The launcher saw a process end."""
        self.record.lose(message.fields["name"], message.fields["how"])
        self.record.restarts += message.fields["restarting"]
        self.balancer.lose(message.fields["name"], self.now_s)
        self.note("exited", message.fields)

    def on_workers(self, message: Message) -> None:
        """The launcher has changed a count."""
        self.record.take_workers(**message.fields, now_s=self.now_s)
        self.balancer.disturb(self.now_s)
        self.note("workers", message.fields)

    def on_stop_request(self, message: Message) -> None:
        """Somebody asks for the end of the run."""
        self.end(message.fields["reason"])

    def on_stopping(self, message: Message) -> None:
        """The launcher begins to stop these: those that it did not start must hear it too."""
        self.say(
            "stop", roles=message.fields["roles"], reason=self.exit_reason or "the launcher stops the run"
        )

    def on_part(self, message: Message) -> None:
        """A learner has written its part of a checkpoint; with the last one it is complete."""
        folder = message.fields["folder"]
        parts = self.parts.setdefault(folder, {})
        parts[message.sender] = message.fields["part"].values()
        if len(parts) == len(self.plan.learning.learners):
            state = {"t_s": self.now_s, "counts": self.record.counts, "best_return": self.record.best_return}
            path = self.component.folder.checkpoints / folder
            complete(path, [Part.from_dict(file) for part in parts.values() for file in part], state)
            prune(self.component.folder.checkpoints, keep=CHECKPOINTS_KEPT)
            del self.parts[folder]
            if folder == self.last_checkpoint:
                self.last_checkpoint = ""

    # --- what follows

    def checkpoint(self) -> str:
        """Ask the learners for a checkpoint; returns its folder's name."""
        folder = f"{int(self.record.counts['env_steps']):012d}-{int(self.now_s * 1000):09d}"
        self.next_checkpoint_s = self.now_s + self.checkpoint_interval_s
        self.parts.clear()
        self.say("checkpoint", folder=folder, env_steps=int(self.record.counts["env_steps"]))
        return folder

    def decide(self) -> None:
        """Checkpoint when due, keep the balance, end the run when a stop condition holds."""
        if self.exit_reason:
            if not self.stop_published and (not self.last_checkpoint or self.now_s >= self.stop_by_s):
                self.stop_published = True
                self.say(
                    "stop", roles=["launcher"] if self.record.workers else ["*"], reason=self.exit_reason
                )
            return
        if self.record.counts["critic_updates"] > 0:
            self.state = "training"
        elif self.record.counts["env_steps"] > 0:
            self.state = "warming up"
        if self.state == "training" and self.now_s >= self.next_checkpoint_s:
            self.checkpoint()
        if self.now_s >= self.next_balance_s:
            self.balance()
        self.end(self.record.stop_condition(self.now_s))

    def balance(self) -> None:
        """Look at the rates, write down what is decided from, and have a count changed where that pays."""
        self.next_balance_s = self.now_s + BALANCE_INTERVAL_S
        change = self.balancer.step(
            self.record.num_workers(SAMPLER), self.now_s, training=self.state == "training"
        )
        self.journal.write("balance", self.now_s, self.balancer.figures(self.now_s))
        if change is not None:
            log.info("%s", change.reason)
            self.carry_out(change)

    def carry_out(self, change: Change) -> None:
        """Have the launcher change a count, or the processes of a role an option of theirs."""
        if not change.option:
            self.note("scale", vars(change))
            self.say("scale", role=change.role, count=change.count, reason=change.reason)
            return
        self.note("set", vars(change))
        self.record.take_move(change.role, change.option, change.count, change.reason, self.now_s)
        self.say("set", role=change.role, option=change.option, value=change.count, reason=change.reason)
        if change.role in self.plan.learning.learners:  # the reason is said once
            for role in set(self.plan.learning.learners) - {change.role}:
                self.say("set", role=role, option=change.option, value=change.count)

    def end(self, reason: str) -> None:
        """Begin the end: one last checkpoint, then the stop."""
        if not reason or self.exit_reason:
            return
        log.info("the run ends: %s", reason)
        self.note("end", {"reason": reason})
        learning = self.state == "training"
        self.exit_reason, self.state = reason, "stopping"
        self.show()  # the evaluator keeps up with the last policies from now on
        self.last_checkpoint = self.checkpoint() if learning else ""
        self.stop_by_s = self.now_s + LAST_CHECKPOINT_S

    def status(self) -> "Status":
        """The run as it stands."""
        return self.record.status(self.state, self.balancer.status(), self.now_s)

    def show(self) -> None:
        """Publish the status."""
        status = self.status()
        self.say("status", **status)
        self.tell_observers("status", status, status["t_s"])

    def note_episodes(self) -> None:
        """Note the training episodes that have ended since the last call."""
        if not self.ended:
            return
        returns, self.ended = np.concatenate(self.ended), []
        figures = {"mean": returns.mean(), "std": returns.std(), "min": returns.min(), "max": returns.max()}
        self.note(
            "episodes", {"count": returns.size, **{name: float(value) for name, value in figures.items()}}
        )

    def write(self, *, final: bool = False) -> None:
        """Bring the run's files up to date."""
        self.note_episodes()
        status = self.status()
        self.journal.write("status", self.now_s, status)
        self.tensorboard.status(status, self.record.gauges)
        reason = self.exit_reason or self.component.stop_reason
        write_json(self.component.folder.summary, self.record.summary(reason, self.now_s, final=final))
        write_json(self.goes_on_from, {"record": self.record.to_dict(), "exit_reason": self.exit_reason})

    def finish(self) -> None:
        """The last summary. A launcher that was killed cannot remove the run's sockets: then this does."""
        if os.getppid() != self.launcher:
            self.exit_reason = self.exit_reason or "the launcher was killed"
            shutil.rmtree(self.plan.socket_dir or "", ignore_errors=True)
        self.write(final=True)
        if (found := self.balancer.found()) is not None:
            tuning.remember(self.plan, found)
        self.goes_on_from.unlink()
        self.journal.close()
        self.tensorboard.close()


def main(component: Component) -> None:
    """Listen, decide, show, write; until everybody else has left."""
    broker = Broker(component)
    component.ready()
    show_s = write_s = 0.0
    while component.running:
        component.poll([broker.reports], timeout_s=0.1)
        broker.listen()
        broker.decide()
        if broker.now_s >= show_s:
            show_s = broker.now_s + component.options["status_interval_s"]
            broker.show()
        if broker.now_s >= write_s:
            write_s = broker.now_s + RECORD_INTERVAL_S
            broker.write()
    while component.poll([broker.reports], timeout_s=0.1, draining=True):
        broker.listen()
    broker.finish()


if __name__ == "__main__":
    sys.exit(run("broker", main))
