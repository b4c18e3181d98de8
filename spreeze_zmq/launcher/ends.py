"""Says how processes end, to the broker and to the user, and what that means for the run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.launcher import closing, texts
from spreeze_zmq.launcher.crew import Crew
from spreeze_zmq.launcher.edits import Edits
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.lending import Lending
from spreeze_zmq.launcher.outcome import Outcome, whose
from spreeze_zmq.plan.roles import BROKER, FUSER, LEARNERS, is_observer
from spreeze_zmq.screen.terminal.words import mistakes
from spreeze_zmq.supervisor import Event, Exited, GaveUp, Printed, Restarted, Unwanted

#: The signals by which who takes a machine back ends what runs there.
TAKEN_BACK = (signal.SIGTERM, signal.SIGKILL)


class Ends:
    """Handles the supervisor's events.

    Args:
        outcome: where each failure is entered.
        crew: has the processes and their deadlines.
        lending: the machines that have joined; None where none can.
        interrupts: how often the user has asked the run to end.
        tell: sends a message of this kind and these fields to the broker.
        note: shows the user a line.
    """

    def __init__(
        self,
        outcome: Outcome,
        crew: Crew,
        lending: Lending | None,
        interrupts: Interrupts,
        tell: Callable[..., None],
        note: Callable[[str], None],
    ) -> None:
        self._outcome, self._crew, self._lending = outcome, crew, lending
        self._interrupts, self._tell, self._note = interrupts, tell, note
        self._folder, self._turned_out = outcome.folder, set[str]()
        self._edits = Edits(outcome.plan, note)

    def on_look(self, events: Iterable[Event]) -> None:
        """Handle what one look has found. What a machine is turned out for holds within it alone: later its
        processes' names are those of others, on other machines.
        """
        self._turned_out.clear()
        for event in events:
            self.on_event(event)

    def on_event(self, event: Event) -> None:
        """Report the end of a process to the broker and the user."""
        if event.name in self._turned_out and event.name not in self._crew.supervisor.names():
            if isinstance(event, Exited):  # in the same look as what its machine was turned out for
                self._tell_exit(event, restarting=False)
            return
        asked = self._interrupts.count > 0
        elsewhere = self._lending if self._lending and self._lending.may_lose(event.name) else None
        if isinstance(event, Restarted) or (isinstance(event, Exited) and event.restarting):
            self._crew.deadlines.begin(event.name)
        if isinstance(event, Printed):
            self.on_printed(event)
        elif isinstance(event, Unwanted):
            self._tell("exited", name=event.name, how="is not wanted any more", restarting=False)
        elif is_observer(event.name):
            self.on_observer(event, elsewhere)
        elif isinstance(event, Exited) and event.is_fault and not (event.heeds_sigterm and asked):
            fault = texts.fault_in(event)
            if event.code == InputError.exit_code and elsewhere is None:
                self._outcome.input_fault = self._outcome.input_fault or (event.name, fault)
            at_end = not event.restarting and (asked or self._outcome.stop_reason)
            if elsewhere is None and at_end:
                self._outcome.fail_at_end(event.name, fault)
            if not event.is_told:  # before its end, so that no restart is counted without its reason
                self.fail(event.name, fault)
            self._tell_exit(event, restarting=event.restarting)
        elif isinstance(event, Exited):
            self._tell_exit(event, restarting=False)
            self._outcome.was_stopped_whole = self._outcome.was_stopped_whole or not event.expected
            if event.overdue:
                grace_s = self._outcome.plan.components[event.name.rpartition("-")[0]].stop_grace_s
                self.fail(event.name, f"still there {grace_s:g} s after SIGTERM, when it should end; killed")
        elif isinstance(event, GaveUp) and elsewhere is not None:
            faults = [what for name, what in self._outcome.failures if name == event.name]
            why = f"{event.name}: {[str(event), *faults][-1].splitlines()[0]}"
            self._turned_out.update(elsewhere.turn_out(event.name, why))
        elif isinstance(event, GaveUp):
            reason, saves = str(event), not _writes(event.name)
            if full := closing.full_disk(self._folder, self._outcome.input_fault):
                self._outcome.input_fault = self._outcome.input_fault or (event.name, full)
                reason, saves = str(replace(event, reason=full)), False
            self._outcome.give_up(reason, saves=saves)
            self._tell("stop_request", reason=reason)

    def look_at_code(self) -> None:
        """Say which of the user's files a process that has begun here has otherwise than those before it."""
        pids, away = self._crew.supervisor.pids(), self._lending
        self._edits.look({name: pid for name, pid in pids.items() if not (away and away.nodes.holds(name))})

    def on_stuck(self, row: Mapping[str, Any]) -> None:
        """End the run for a process of ours of which nothing gets through, by its row of the refusals; where
        the run goes on without its machine, turn that out.
        """
        name, line = row["sender"], row["line"]
        if name not in self._crew.supervisor.names() or self._outcome.stop_reason or is_observer(name):
            return
        self.fail(name, line.removeprefix(f"{name}: "))
        if self._lending is not None and self._lending.may_lose(name):
            self._lending.turn_out(name, line)
            return
        self._outcome.give_up(line, last_word=line, saves=not _writes(name))
        self._tell("stop_request", reason=line)

    def on_late(self, name: str, process: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Kill a process that has missed a deadline, so that it is restarted; see to a stuck one instead.

        Args:
            name: of the process; nothing is late of one that is gone with its machine.
            process: its row in the broker's status; empty where it has none.
            status: of the broker.
        """
        is_there = name in self._crew.supervisor.names()
        if not (what := is_there and self._crew.deadlines.missed(name, process)):
            return
        if stuck := [row for row in mistakes(status) if row["stuck"] and row["sender"] == name]:
            self.on_stuck(stuck[0])
            return
        self._crew.deadlines.give_up(name)
        why = "" if process.get("ready") else f"; {texts.why_silent(name, process, status)}"
        place = self._crew.place_of(name)
        self.fail(name, what + why + f"; it was {place}" * bool(place))
        self._crew.supervisor.kill(name)

    def on_printed(self, event: Printed) -> None:
        """Say once where what the environment or the algorithm prints is; an observer's libraries greet."""
        if is_observer(event.name):
            return
        if not self._outcome.printed:
            self._note(f"{event.name} prints; its output is in {self._folder.shown}/logs/{event.name}.log")
        self._outcome.printed.append(event.name)

    def on_observer(self, event: Event, elsewhere: Lending | None) -> None:
        """Report the end of an observer, without which the run goes on; ``elsewhere`` has its machine."""
        if isinstance(event, Exited):
            if event.is_fault:
                fault = texts.fault_in(event)
                what = fault if event.code == InputError.exit_code else event.how
                then = "when it was asked to stop" if event.expected else "the run goes on"
                if not event.is_told:
                    self.fail(event.name, f"{what}; {then}\n{event.words}")
                if not event.expected:
                    self._outcome.losses.fail(event.name, fault.splitlines()[0])
                elif whose(event.name) and not (elsewhere and event.signal in TAKEN_BACK):
                    self._outcome.fail_at_end(event.name, fault)
            self._tell_exit(event, restarting=event.restarting)
        elif isinstance(event, GaveUp):
            self._crew.ports.shut(event.name.rpartition("-")[0])
            self._outcome.losses.add(event, self._note)
            if elsewhere is not None:
                self._turned_out.update(elsewhere.turn_out(event.name, f"{event.name}: {event}"))

    def _tell_exit(self, event: Exited, *, restarting: bool) -> None:
        self._tell("exited", name=event.name, pid=event.pid, how=event.how, restarting=restarting)

    def take_stock(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Note what the run lacks as it is asked to end; the first call counts.

        Args:
            groups: the rows of the last status.
        """
        absent, silent = ({}, []) if self._lending is None else self._lending.absent()
        self._outcome.losses.settle(self._crew.supervisor.pids(), groups, absent, silent)

    def fail(self, name: str, what: str) -> None:
        """Record and report one failure; the last lines show the first one again."""
        if not is_observer(name):
            self._outcome.fail(name, what)
        log = self._folder.logs / f"{name}.log"
        summary = what.splitlines()[0]
        self._tell("failure", name=name, summary=summary, traceback=what)
        self._note(f"{name}: {summary} ({log})")


def _writes(name: str) -> bool:
    """Whether there is no last checkpoint without the process ``ROLE-INDEX``."""
    return name.rpartition("-")[0] in (BROKER, FUSER, *LEARNERS)
