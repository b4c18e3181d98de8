"""The launcher of a run: starts and supervises every process, shows the status, and cleans up at the end."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spreeze_zmq.base.machine import allow_open_files, core_time, physical_cores
from spreeze_zmq.base.pauses import Pauses
from spreeze_zmq.base.trust import leave_mark, modules_folder
from spreeze_zmq.broker import last_checkpoint
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.launcher import texts
from spreeze_zmq.launcher.broker_line import BrokerLine
from spreeze_zmq.launcher.crew import Crew
from spreeze_zmq.launcher.ends import Ends
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.lending import Lending, open_nodes
from spreeze_zmq.launcher.news import News
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.launcher.pinning import pinned
from spreeze_zmq.launcher.watches import DiskWatch, SocketWatch
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.plan import tuning
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, SAMPLER, stop_order
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.screen.terminal.view import View
from spreeze_zmq.screen.terminal.words import mistakes
from spreeze_zmq.supervisor import Exited, LogWatch
from spreeze_zmq.wire import channels

#: Longest wait for who may take longer before the view says what the run still waits for.
SILENT_END_S = 1.0


class Launch:
    """One run: its processes, and the launcher's own two channels.

    Args:
        plan: completed by ``sizing.settle``.
        folder: the run's, new.
        view: displays the run.
        remeasure: ignore the cached number of samplers.
        threads: run components as threads of this process, which a debugger may hold for any time.
        listening: where other machines join; None for nowhere.
        shares: CPUs of the members that run here.
        interrupts: requests to stop; None for those of this process's signals.
    """

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        view: View,
        *,
        remeasure: bool = False,
        threads: bool = False,
        listening: Listening | None = None,
        shares: Mapping[str, frozenset[int]] = {},
        interrupts: Interrupts | None = None,
    ) -> None:
        self.folder, self.view = folder, view
        plan, self.remembered = (plan, "") if remeasure else tuning.begin(plan)
        self.pinning = pinned(plan, physical_cores(os.sched_getaffinity(0)), core_time())
        self.incarnation, self.threads = secrets.randbelow(2**53 - 1) + 1, threads
        known = not remeasure and tuning.movable(plan) and tuning.recall(plan) is not None
        plan = self.pinning.settled(plan, known=known)
        plan = replace(plan, launcher=self.incarnation)
        self.plan, self.sockets = write_plan(plan, folder)
        leave_mark(folder.path, own_modules(plan), modules_folder(plan.topology_file))
        nodes = open_nodes(listening, self.plan, folder, self.incarnation) if listening is not None else None
        self.crew = Crew(self.plan, folder, self.pinning, nodes, threads=threads, shares=shares)
        self.supervisor, self.ports = self.crew.supervisor, self.crew.ports
        self.status: Mapping[str, Any] = {}
        self.line = BrokerLine(self.plan, self.incarnation, self.supervisor.names)
        self.outcome = Outcome(folder, self.plan, listening.words if listening is not None else ())
        self.stages, self.news = texts.Stages(self.sockets), News(folder)
        self.socket_watch = SocketWatch(self.sockets, self.plan.channels)
        self.watches = DiskWatch(folder.path, folder.shown), LogWatch(folder.logs)
        self.interrupts, self.pauses = interrupts or Interrupts(), Pauses()
        self.lending: Lending | None = None
        if nodes is not None and listening is not None:
            self.lending = Lending(nodes, listening, folder, self.crew, self.line.tell, view.note)
        self.ends = Ends(self.outcome, self.crew, self.lending, self.interrupts, self.line.tell, view.note)

    def start(self) -> None:
        """Start every process at once; their sockets wait for each other."""
        for role, component in self.plan.components.items():
            if not component.launched:
                by_hand = component.by_hand(self.folder.run_file)
                self.view.note(f"{role}: its place is left free; join with: {by_hand}")
                continue
            if component.on_demand:
                self.ports.open(role, component.options.get("port", 0), self.folder, self.view.note)
            else:
                self.scale(role, component.count.initial, texts.why_count(self.plan, role, self.remembered))
        self.view.begin(texts.facts(self.plan, self.folder, self.ports.page_address))
        self.show_processes()
        for note in texts.at_first(self.plan, self.remembered):
            self.view.note(note)
        if self.lending is not None:
            self.view.note(texts.how_to_join(self.lending.nodes.router.endpoint, self.folder))

    def scale(self, role: str, count: int, reason: str) -> None:
        """Start or stop processes of a role until there are ``count``."""
        self.crew.scale(role, count)
        self.line.tell("workers", role=role, count=count, reason=reason)

    def obey(self, scale: Mapping[str, Any]) -> None:
        """Scale a role as the broker asks, within the range of the topology, or samplers of a machine."""
        role, count, reason = scale["role"], scale["count"], scale["reason"]
        if "node" in scale:
            if self.lending is not None:
                self.lending.scale(scale["node"], count, reason)
            return
        component = self.plan.components.get(role)
        if component is None or not component.launched:
            self.view.note(f"{role}: the broker asks for {count}, but nothing of this role is launched here")
            return
        count = min(max(count, component.count.minimum), component.count.maximum)
        if count != self.crew.counts.get(role):
            self.view.note(reason)
            self.scale(role, count, reason)

    # --- the run

    def run(self) -> int:
        """Run until a stop condition, the user or a failure ends it. Returns the exit code of ``Outcome``."""
        self.interrupts.heed()
        self.pauses.look()
        allow_open_files()
        try:
            self.start()
            while not self.outcome.stop_reason:
                self.pump(0.1)
                self.watch()
                for role in self.ports.visited(self.crew.counts):
                    self.scale(role, 1, "somebody looks at its page")
                if self.interrupts.count:
                    self.ask_to_stop(f"interrupted by {self.interrupts.by}")
                elif lost := self.socket_watch.lost():
                    self.outcome.gave_up, self.outcome.last_word = True, lost
                    self.ask_to_stop(lost)
            if not self.outcome.is_over and self.status:
                self.ask_to_stop(self.outcome.stop_reason)  # given up: what to save, the broker knows
        finally:
            processes = self.status.get("processes", {})
            self.finish()
        return self.outcome.settle(processes, at_once=self.interrupts.count > 1)

    def pump(self, timeout_s: float) -> None:
        """Handle the broker's messages: show its status, carry out its decisions. Stop here on Ctrl-Z."""
        if self.interrupts.suspends:
            self.view.suspend()
            self.postpone(self.interrupts.suspend())
            self.pauses.look()
        self.line.serve()
        others = [] if self.lending is None else [self.lending.nodes.router]
        channels.poll([self.line.control, *others], [], timeout_s=timeout_s)
        self.heed_pause()
        if self.lending is not None:
            self.lending.is_over = bool(self.outcome.stop_reason)
            self.lending.serve()
        for message in self.line.hear():
            if message.kind == "status":
                self.hear_status(message.fields)
            elif message.kind == "stop" and {"launcher", "*"} & set(message.fields["roles"]):
                self.outcome.stop(message.fields["reason"])
            elif message.kind == "scale":
                self.obey(message.fields)
            elif message.kind == "set" and message.fields.get("reason"):
                self.view.note(message.fields["reason"])

    def heed_pause(self) -> None:
        """Note that this process stood still, as on a laptop that sleeps: nobody was silent then."""
        if stood_s := self.pauses.look():
            self.news.stood_still(stood_s)
            self.postpone(stood_s)

    def postpone(self, seconds: float) -> None:
        """Give all processes the time back in which this one heard nothing."""
        self.crew.postpone(seconds)
        if self.lending is not None:
            self.lending.nodes.postpone()

    def hear_status(self, status: Mapping[str, Any]) -> None:
        """Show a status and its new lines; a process all of whose messages are refused ends the run."""
        self.status = status
        self.crew.deadlines.hear_status(self.status)
        if self.lending is not None:
            self.lending.show()
        self.view.update(status)
        for line in self.news.of(status):
            self.view.note(line)
        for row in mistakes(status):
            if row["stuck"] and not self.crew.deadlines.is_starting(row["sender"]):
                self.ends.on_stuck(row)

    def watch(self) -> None:
        """Handle the supervisor's events, and check that each process gets ready and reports in time."""
        self.heed_pause()
        for line in filter(None, (each.news() for each in self.watches)):
            self.view.note(line)
        events = self.supervisor.poll()
        if any(isinstance(one, Exited) and one.name == f"{BROKER}-0" and one.restarting for one in events):
            self.line.be_silent()  # before anything is told: others have ended with it
        self.ends.on_look(events)
        self.crew.fill()
        self.ends.look_at_code()
        for name, pid in self.supervisor.pids().items():
            if self.threads or (not self.status and name != f"{BROKER}-0"):
                continue  # a thread may stand at a breakpoint, and without a status nothing is known
            self.ends.on_late(name, self.crew.deadlines.row_of(name, pid, self.status), self.status)
        self.show_processes()

    def show_processes(self, leaving: Sequence[str] = ()) -> None:
        """Have the view show the stage of each process; those in ``leaving`` have been asked to stop."""
        pids, heard = self.supervisor.pids(), self.status.get("processes", {})
        hidden = self.crew.deadlines.ready - heard.keys()  # the sums show them
        names = [name for name in self.supervisor.names() if name not in hidden]
        stages = self.stages.of(names, pids, heard)
        self.view.show_processes({**stages, **dict.fromkeys(self.supervisor.alive(leaving), "stopping")})

    # --- the end

    def ask_to_stop(self, reason: str) -> None:
        """Ask the broker to end the run with a last checkpoint, and wait as long as that may take."""
        again = "once more" if self.interrupts.count else "Ctrl-C twice"
        if self.interrupts.count or self.status.get("critic_updates"):  # else it takes no time
            self.view.note(f"stopping: {reason.splitlines()[0]} ({again} to stop at once)")
        self.ends.take_stock(self.status.get("groups", {}))
        self.line.tell("stop_request", reason=reason)
        # the signal may have reached all processes, as from systemd
        writers = [f"{role}-0" for role in (BROKER, *self.plan.learning.learners)]
        self.supervisor.end_restarts(needed=writers)  # of the last checkpoint
        ours = self.supervisor.alive(writers[:1])
        until_s = self.pauses.awake_s() + last_checkpoint.end_s(self.plan)
        while not self.outcome.is_over and self.pauses.awake_s() < until_s and self.interrupts.count < 2:
            if self.supervisor.alive(ours) != ours:
                self.outcome.was_stopped_whole = True
                break
            self.pump(0.1)
            self.watch()
        self.outcome.stop(reason)

    def finish(self) -> None:
        """Stop all processes in :func:`stop_order` and remove the sockets."""
        self.ends.take_stock(self.status.get("groups", {}))
        self.supervisor.end_restarts()
        self.line.go_on()
        for group in stop_order():
            if self.plan.components.keys().isdisjoint(group):
                continue
            names = [name for name in self.supervisor.names() if name.rpartition("-")[0] in group]
            if BROKER not in group:
                self.line.tell("stopping", roles=list(group))
            self.supervisor.stop(names, self.interrupts.grace_s(group))
            self.see_off(names, group)
        self.supervisor.close()
        if self.lending is not None:
            self.lending.end(self.outcome.stop_reason)
        self.view.close()
        self.line.close()
        channels.terminate()
        self.sockets.remove()
        self.crew.close()
        self.pinning.close()
        self.folder.broker_state.unlink(missing_ok=True)
        self.folder.tidy()
        self.folder.end_summary(self.outcome.stop_reason, self.outcome.failures)

    def see_off(self, names: Sequence[str], group: Sequence[str]) -> None:
        """Wait until these processes have ended, or until the second Ctrl-C. The broker, which writes the
        run's record, has until the third; the evaluator and the callbacks of a run that was not interrupted
        until the first.
        """
        awaited = [role for role in group if role in texts.AWAITED]
        patience = 2 if BROKER in group else min(1, self.interrupts.count) if awaited else 1
        note_s = time.monotonic() + SILENT_END_S
        while self.supervisor.alive(names) or (
            SAMPLER in group
            and self.interrupts.count <= patience
            and self.lending is not None
            and self.lending.awaits()
        ):
            self.pump(0.02)
            self.ends.on_look(self.supervisor.poll())
            self.show_processes(leaving=names)
            if self.interrupts.count > patience:
                for name in names:
                    self.supervisor.kill(name)
            for role in awaited:
                if time.monotonic() >= note_s and self.supervisor.alive([f"{role}-0"]):
                    note_s = math.inf
                    self.view.note(texts.AWAITED[role])
