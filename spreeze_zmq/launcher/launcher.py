"""The launcher of a run: starts and supervises every process, shows the status, and cleans up at the end."""

from __future__ import annotations

import math
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spreeze_zmq import channels
from spreeze_zmq.autoscale import tuning
from spreeze_zmq.autoscale.pinning import pinned
from spreeze_zmq.autoscale.sizing import KEEP_FREED_MEMORY
from spreeze_zmq.errors import InputError
from spreeze_zmq.launcher.doors import Doors
from spreeze_zmq.launcher.telling import AS_STATED, Stages, facts, first_count, last_words, why_no_step
from spreeze_zmq.metrics import physical_cores
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import (
    BROKER,
    CONTROL,
    EVALUATOR,
    LEARNERS,
    OBSERVERS,
    REPORT,
    SAMPLER,
    VISUALIZER,
)
from spreeze_zmq.run.folder import RunFolder, settle
from spreeze_zmq.status import View, say_last
from spreeze_zmq.supervisor import Event, Exited, GaveUp, ProcessSpec, Supervisor
from spreeze_zmq.wire import Message

#: Longest wait for the broker's stop message after a stop request; the broker waits for the last checkpoint.
BROKER_ANSWERS_S = 8.0
#: Groups of roles, stopped one after the other: producers first, then the evaluator, which plays the last
#: policy of the learners, and the broker with its records last.
STOP_ORDER = ((SAMPLER,), LEARNERS, (EVALUATOR, VISUALIZER), (BROKER,))
#: Longest wait for the evaluator before the view says what the run still waits for.
SILENT_END_S = 1.0


class Launch:
    """One run: its processes, and the launcher's own two channels.

    Args:
        plan: completed by ``sizing.settle``.
        folder: the run's, new.
        view: displays the run.
        anew: ignore the cached number of samplers and measure it again.
    """

    def __init__(self, plan: Plan, folder: RunFolder, view: View, *, anew: bool = False) -> None:
        self.folder, self.view = folder, view
        plan, self.remembered = (plan, "") if anew else tuning.begin(plan)
        self.pinning = pinned(plan, physical_cores(os.sched_getaffinity(0)))
        plan = replace(plan, pinning={"cpus": self.pinning.cpus, "reason": self.pinning.reason})
        self.plan, self.sockets = settle(plan, folder)
        self.incarnation = secrets.randbelow(2**53 - 1) + 1
        self.supervisor = Supervisor()
        self.status: dict[str, Any] = {}
        self.control: Any = channels.open_channel(
            self.plan.channels[CONTROL], "sub", "launcher", self.incarnation
        )
        self.reports: Any = channels.open_channel(
            self.plan.channels[REPORT], "push", "launcher", self.incarnation
        )
        self.poller = channels.Poller()
        self.counts: dict[str, int] = {}
        self.missing: list[str] = []
        self.started_s: dict[str, float] = {}
        self.stages = Stages(self.sockets)
        self.stop_reason = ""
        self.failures: list[tuple[str, str]] = []
        self.gave_up = False
        self.doors = Doors()
        self.input_fault: tuple[str, str] | None = None
        self.no_step = ""
        self.interrupts, self.interrupted_by = 0, "the user"
        self.heartbeat_timeout_s: float = self.plan.components[BROKER].options["heartbeat_timeout_s"]

    # --- starting

    def start(self) -> None:
        """Start every process at once; their sockets wait for each other."""
        for role, component in self.plan.components.items():
            if not component.launched:
                self.view.note(
                    f"{role}: its place is left free; join with: {component.by_hand(self.folder.run_file)}"
                )
                continue
            if component.on_demand:
                self.doors.open(role, component.options.get("port", 0), self.folder, self.view.note)
            else:
                self.scale(role, component.count.initial, self.why(role))
        self.view.begin(facts(self.plan, self.folder, self.doors.page_address))
        self.show_processes()
        if self.pinning.cpus or self.plan.balance.pin == "always":
            self.view.note(self.pinning.reason)
        if note := first_count(self.plan, self.why(SAMPLER)):
            self.view.note(note)

    def why(self, role: str) -> str:
        """How the first count of a role was chosen."""
        count = self.plan.components[role].count
        if role != SAMPLER or count.minimum == count.maximum:
            return AS_STATED
        return self.remembered or "by a rule from the number of cores"

    def scale(self, role: str, count: int, reason: str) -> None:
        """Start or stop processes of a role until there are ``count``; the highest indices stop first."""
        before = self.counts.get(role, 0)
        leaving = [f"{role}-{index}" for index in range(count, before)]
        self.supervisor.stop(leaving)
        self.missing = [name for name in self.missing if name not in leaving]
        self.missing += [f"{role}-{index}" for index in range(before, count)]
        self.counts[role] = count
        self.fill()
        self.tell("workers", role=role, count=count, reason=reason)

    def fill(self) -> None:
        """Start the missing processes, except those whose predecessor of the same name still runs."""
        for name in [name for name in self.missing if not self.supervisor.alive([name])]:
            role, _, index = name.rpartition("-")
            self.supervisor.start(self.spec(role, int(index)))
            self.missing.remove(name)
            self.started_s[name] = time.monotonic()

    def obey(self, role: str, count: int, reason: str) -> None:
        """Scale a role as the broker asks, within the range of the topology."""
        component = self.plan.components.get(role)
        if component is None or not component.launched:
            self.view.note(f"{role}: the broker asks for {count}, but nothing of this role is launched here")
            return
        count = min(max(count, component.count.minimum), component.count.maximum)
        if count != self.counts.get(role):
            self.view.note(reason)
            self.scale(role, count, reason)

    def spec(self, role: str, index: int) -> ProcessSpec:
        """The supervisor's description of one process."""
        component = self.plan.components[role]
        name = f"{role}-{index}"
        environment = KEEP_FREED_MEMORY if role in LEARNERS else self.doors.environment(role)
        return ProcessSpec(
            name=name,
            command=(*component.command, str(self.folder.run_file), str(index)),
            environment=environment,
            descriptors=self.doors.descriptors(role),
            log_path=self.folder.logs / f"{name}.log",
            nice=component.nice,
            threads=component.threads,
            stop_grace_s=component.stop_grace_s,
            max_restarts=component.max_restarts,
            restart_window_s=component.restart_window_s,
            parent_death_signal=signal.SIGTERM if role == BROKER else signal.SIGKILL,
            cpus=self.pinning.of(name),
        )

    # --- the run

    def run(self) -> int:
        """Run until a stop condition, the user or a failure ends it; returns the exit code: 2 where a process
        has found the user's input at fault, 1 where it has failed or has taken no env step.
        """
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, self._on_signal)
        try:
            self.start()
            while not self.stop_reason:
                self.pump(0.1)
                self.watch()
                for role in self.doors.visited(self.counts):
                    self.scale(role, 1, "somebody looks at its page")
                if self.interrupts:
                    self.ask_to_stop(f"interrupted by {self.interrupted_by}")
        finally:
            processes = self.status.get("processes", {})
            self.finish()
        if self.gave_up:
            return 1 if self.input_fault is None else InputError.exit_code
        self.no_step = why_no_step(self.folder, processes)
        return 1 if self.no_step else 0

    def pump(self, timeout_s: float) -> None:
        """Handle the broker's messages: show its status, carry out its decisions."""
        self.poller.wait([self.control], [], timeout_s=timeout_s)
        while (message := self.control.receive()) is not None:
            if message.kind == "status":
                self.status = message.fields
                self.view.update(message.fields)
            elif message.kind == "stop" and "launcher" in message.fields["roles"]:
                self.stop_reason = self.stop_reason or message.fields["reason"]
            elif message.kind == "scale":
                self.obey(message.fields["role"], message.fields["count"], message.fields["reason"])
            elif message.kind == "set" and message.fields.get("reason"):
                self.view.note(message.fields["reason"])

    def watch(self) -> None:
        """Handle the supervisor's events, and check that each process gets ready and reports."""
        for event in self.supervisor.poll():
            self.on_event(event)
        self.fill()
        heard = self.status.get("processes", {})
        for name, pid in self.supervisor.pids().items():
            process = heard.get(name, {})
            if process.get("pid") != pid:  # the status is of this process's predecessor
                process = {}
            self.watch_one(name, process)
        self.show_processes()

    def show_processes(self, leaving: Sequence[str] = ()) -> None:
        """Have the view show what each process does; those that are ``leaving`` have been asked to stop."""
        names, pids = self.supervisor.names(), self.supervisor.pids()
        stages = self.stages.of(names, pids, self.status.get("processes", {}))
        self.view.show_processes({**stages, **dict.fromkeys(self.supervisor.alive(leaving), "stopping")})

    def watch_one(self, name: str, process: Mapping[str, Any]) -> None:
        """Kill a process, and so restart it, if it does not get ready or has stopped reporting."""
        if process.get("ready"):
            self.started_s.pop(name, None)
        waiting_for = process.get("waiting_for", "")
        if not self.status and name != f"{BROKER}-0":
            return  # no status yet, or never without a broker: nothing is known of this process
        waited_s = time.monotonic() - self.started_s.get(name, math.inf)
        start_timeout_s = self.plan.components[name.rpartition("-")[0]].start_timeout_s
        if waited_s > start_timeout_s:
            what = f"not ready after {waited_s:.0f} s; it waits for {waiting_for or 'something untold'}"
        elif process.get("silent_s", 0.0) > self.heartbeat_timeout_s:
            what = f"has not reported for {process['silent_s']:.0f} s, longer than heartbeat_timeout_s"
        else:
            return
        self.started_s[name] = time.monotonic()
        self.fail(name, what)
        self.supervisor.kill(name)

    def on_event(self, event: Event) -> None:
        """Report the end of a process to the broker and the user."""
        if event.name.rpartition("-")[0] in OBSERVERS:
            self.on_observer(event)
        elif isinstance(event, Exited) and not event.expected:
            self.tell("exited", name=event.name, how=event.how, restarting=event.restarting)
            self.started_s[event.name] = time.monotonic()
            if event.code == InputError.exit_code:
                fault = input_fault(event)
                self.input_fault = self.input_fault or (event.name, fault)
                self.fail(event.name, fault)
            else:
                self.fail(event.name, f"{event.how}\n{event.words}")
        elif isinstance(event, Exited):
            self.tell("exited", name=event.name, how=event.how, restarting=False)
        elif isinstance(event, GaveUp):
            self.gave_up, self.stop_reason = True, str(event)
            self.tell("stop_request", reason=self.stop_reason)

    def on_observer(self, event: Event) -> None:
        """Report the end of a process that the run does without."""
        if isinstance(event, Exited):
            self.tell("exited", name=event.name, how=event.how, restarting=event.restarting)
            if not event.expected:
                what = input_fault(event) if event.code == InputError.exit_code else event.how
                self.fail(event.name, f"{what}; the run goes on\n{event.words}")
        elif isinstance(event, GaveUp):
            self.doors.shut(event.name.rpartition("-")[0])

    def fail(self, name: str, what: str) -> None:
        """Record one failure and report it; ``report_end`` shows the first one again."""
        if name.rpartition("-")[0] not in OBSERVERS:
            self.failures.append((name, what))
        log = self.folder.logs / f"{name}.log"
        summary = what.splitlines()[0]
        self.tell("failure", name=name, summary=summary, traceback=what)
        self.view.note(f"{name}: {summary} ({log})")

    def tell(self, kind: str, **fields: Any) -> None:
        """Send one message to the broker; it is queued while the broker starts."""
        self.reports.try_push(Message(kind, fields))

    # --- the end

    def ask_to_stop(self, reason: str) -> None:
        """Have the broker end the run with a last checkpoint, within ``BROKER_ANSWERS_S``."""
        self.view.note(f"stopping: {reason} (once more to stop at once)")
        self.tell("stop_request", reason=reason)
        deadline_s = time.monotonic() + BROKER_ANSWERS_S
        while not self.stop_reason and time.monotonic() < deadline_s and self.interrupts < 2:
            self.pump(0.1)
            self.watch()
        self.stop_reason = self.stop_reason or reason

    def finish(self) -> None:
        """Stop all processes in ``STOP_ORDER`` and remove the sockets."""
        self.supervisor.end_restarts()
        for group in STOP_ORDER:
            names = [name for name in self.supervisor.names() if name.rpartition("-")[0] in group]
            if BROKER not in group:
                self.tell("stopping", roles=list(group))
            self.supervisor.stop(names)
            self.see_off(names, group)
        self.supervisor.close()
        self.view.close()
        self.control.close()
        self.reports.close()
        channels.terminate()
        self.sockets.remove()
        self.doors.close(self.folder)

    def see_off(self, names: Sequence[str], group: Sequence[str]) -> None:
        """Wait until these processes have left. The second Ctrl-C ends the wait, the first one that for the
        evaluator of a run that nobody interrupted; the broker writes what the run was until the third.
        """
        patience = {EVALUATOR: min(1, self.interrupts), BROKER: 2}.get(group[0], 1)
        note_s = time.monotonic() + SILENT_END_S
        while self.supervisor.alive(names):
            self.pump(0.02)
            for event in self.supervisor.poll():
                self.on_event(event)
            self.show_processes(leaving=names)
            if self.interrupts > patience:
                for name in names:
                    self.supervisor.kill(name)
            if (
                time.monotonic() >= note_s
                and EVALUATOR in group
                and self.supervisor.alive([f"{EVALUATOR}-0"])
            ):
                note_s = math.inf
                self.view.note("the last policy is evaluated (Ctrl-C to leave it out)")

    def report_end(self, command: str) -> None:
        """Print the last words; ``command`` began this run, and goes on with it by ``--resume``."""
        say_last(
            last_words(self.folder, self.stop_reason, command, self.failures, self.input_fault, self.no_step)
        )

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:  # a shell and the kernel may both send it; it is no second request
            self.interrupts = max(1, self.interrupts)
            self.interrupted_by = "the end of its terminal"
        else:
            self.interrupts += 1


def input_fault(event: Exited) -> str:
    """What a process that ended with the exit code of an InputError said last: the error's own lines."""
    role = event.name.rpartition("-")[0]
    _, _, message = f"\n{event.words}".rpartition(f"\n{role}: ")
    return message.strip() or f"{event.how}\n{event.words}"
