"""Starts, watches, restarts and stops the processes of a run; ``poll`` does the work and never waits."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from spreeze_zmq.base.errors import DiskFull, InputError
from spreeze_zmq.base.patience import PATIENCE_S, RETRY_S
from spreeze_zmq.supervisor.events import UNKILLABLE_S, Event, Exited, GaveUp, Printed, Restarted, Unwanted
from spreeze_zmq.supervisor.process import GroupSpawner, Process, ProcessSpec, Spawner
from spreeze_zmq.supervisor.sentences import last_words

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
#: The delay before a restart doubles so often at most; a topology may allow any number of restarts.
MOST_DOUBLINGS = 6


@dataclass
class _Supervised:
    """One name: its process while that lives, the time of its restart, since when that waits for room on the
    disk of its log; how long its lives were at work, and of its recent crashes when they were, and after how
    much of such work.
    """

    spec: ProcessSpec
    process: Process | None
    started_s: float
    stopping: bool = False
    kill_at_s: float | None = None
    overdue: bool = False
    printed: bool = False
    forget_at_s: float | None = None
    restart_at_s: float = 0.0
    full_s: float | None = None
    delay_s: float = 0.0
    worked_s: float = 0.0
    crashes: list[tuple[float, float]] = field(default_factory=list)


class Supervisor:
    """The processes of one run; it has no thread of its own.

    Args:
        spawner: starts processes.
        clock: monotonic seconds.
        worked_s: how long a name's last life was at work, in seconds, where somebody sees that: a crash is
            old once there has been enough work since then. None where each life works from start to end.
    """

    def __init__(
        self,
        spawner: Spawner | None = None,
        clock: Callable[[], float] = time.monotonic,
        worked_s: Callable[[str], float] | None = None,
    ) -> None:
        self._spawner = spawner or GroupSpawner()
        self._clock, self._worked_s = clock, worked_s
        self._supervised: dict[str, _Supervised] = {}
        self._needed: Collection[str] | None = None
        self._unwanted: list[str] = []

    # --- commands

    def start(self, spec: ProcessSpec) -> None:
        """Start a process, and restart it when it crashes. While the disk of its log is full, ``poll`` tries
        that again, at most ``PATIENCE_S``.

        Raises:
            InputError: it cannot be started; the message names it and its command.
            ValueError: its name is in use.
        """
        if spec.name in self._supervised:
            raise ValueError(f"{spec.name} is supervised already")
        self._begin(_Supervised(spec, None, self._clock()))

    def stop(self, names: Iterable[str], most_s: float = math.inf) -> None:
        """Ask processes to stop: SIGTERM now, SIGKILL after ``stop_grace_s``, but after ``most_s`` at the
        latest. Unknown names are ignored.
        """
        for one in self._known(names):
            one.stopping = True
            if one.process is None:
                del self._supervised[one.spec.name]
                self._unwanted += [one.spec.name] if one.crashes else []
            elif one.kill_at_s is None:
                one.process.signal(signal.SIGTERM)
                one.kill_at_s = self._clock() + min(one.spec.stop_grace_s, most_s)

    def kill(self, name: str) -> None:
        """SIGKILL a process now; unless it was asked to stop, this counts as a crash and it is restarted."""
        for one in self._known([name]):
            if one.process is not None:
                self._kill(one)

    def forget(self, names: Iterable[str]) -> None:
        """Leave processes alone that are out of reach, with the machine that they run on."""
        for one in self._known(names):
            del self._supervised[one.spec.name]

    def end_restarts(self, needed: Collection[str] = ()) -> None:
        """Restart nothing from now on, since the run ends, except who is ``needed`` until then: at once where
        it waits for that, and after a crash, but not where somebody else has stopped it.
        """
        self._needed = needed
        for one in list(self._supervised.values()):
            if one.process is None and one.spec.name in needed:
                one.restart_at_s = self._clock()
            elif one.process is None:
                del self._supervised[one.spec.name]

    def postpone(self, seconds: float) -> None:
        """Give those that are to end the time back in which all stood still."""
        for one in self._supervised.values():
            one.kill_at_s = None if one.kill_at_s is None else one.kill_at_s + seconds
            one.forget_at_s = None if one.forget_at_s is None else one.forget_at_s + seconds

    def poll(self) -> list[Event]:
        """Events since the last call; also carries out restarts and kills that are due. Never waits."""
        events: list[Event] = [Unwanted(name) for name in self._unwanted if name not in self._supervised]
        self._unwanted, now_s = [], self._clock()
        self._spawner.attend()
        for one in list(self._supervised.values()):
            if one.process is None:
                events += self._restart(one) if now_s >= one.restart_at_s else []
                continue
            code = one.process.poll()
            if not one.printed and one.process.has_printed:
                one.printed = True
                events.append(Printed(one.spec.name, one.spec.log_path))
            if code is not None:
                events += self._on_exit(one, code, now_s)
            elif one.forget_at_s is not None and now_s >= one.forget_at_s:
                events += self._on_exit(one, None, now_s)
            elif one.kill_at_s is not None and now_s >= one.kill_at_s and one.forget_at_s is None:
                one.overdue = True
                self._kill(one)
        return events

    def close(self) -> None:
        """Kill all processes, wait for their end, and close the spawner."""
        self.end_restarts()
        for one in self._supervised.values():
            self._kill(one)
        while self._supervised:
            self.poll()
            time.sleep(0.005)
        self._spawner.close()

    # --- state

    def names(self) -> list[str]:
        """Supervised names in the order of their start, including those that wait for a restart."""
        return list(self._supervised)

    def alive(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that are still supervised."""
        return [name for name in names if name in self._supervised]

    def pids(self) -> dict[str, int]:
        return {name: one.process.pid for name, one in self._supervised.items() if one.process is not None}

    # --- exits and restarts

    def _known(self, names: Iterable[str]) -> list[_Supervised]:
        return [self._supervised[name] for name in names if name in self._supervised]

    def _kill(self, one: _Supervised) -> None:
        assert one.process is not None
        one.process.signal(signal.SIGKILL)
        if one.forget_at_s is None:
            one.forget_at_s = self._clock() + UNKILLABLE_S

    def _on_exit(self, one: _Supervised, code: int | None, now_s: float) -> list[Event]:
        spec = one.spec
        expected = one.stopping
        reason = "" if expected else self._why_not_again(one, code, now_s)
        exited = _exited(one, code, now_s, expected=expected)
        if not (expected or reason) and self._is_needed(exited):
            doublings = min(len(one.crashes), MOST_DOUBLINGS)
            one.delay_s = min(FIRST_DELAY_S * 2**doublings, LONGEST_DELAY_S)
            one.crashes.append((now_s, one.worked_s))
            one.process, one.restart_at_s = None, now_s + one.delay_s
            return [replace(exited, restarting=True)]
        del self._supervised[spec.name]
        return [exited] if expected or self._needed is not None else [exited, GaveUp(spec.name, reason)]

    def _is_needed(self, exited: Exited) -> bool:
        """Whether who has ended unasked is to come back, if it may."""
        return self._needed is None or (exited.name in self._needed and not exited.heeds_sigterm)

    def _why_not_again(self, one: _Supervised, code: int | None, now_s: float) -> str:
        """Why a crashed process is not restarted; empty where it is. Drops crashes from before the window, in
        which work alone counts: starts and silences may be longer than it, again and again.
        """
        spec, lived_s = one.spec, now_s - one.started_s
        one.worked_s += lived_s if self._worked_s is None else min(lived_s, self._worked_s(spec.name))
        window_s, worked_s = spec.restart_window_s, one.worked_s
        one.crashes = [crash for crash in one.crashes if worked_s - crash[1] <= window_s]
        if code is None:
            return "its last process hangs in the kernel"
        if code == InputError.exit_code:
            return f"it exited with code {code}: its input is at fault, and will be the next time"
        if spec.max_restarts == 0:
            return "max_restarts is 0, as it always is where balance.in_order is true"
        if len(one.crashes) < spec.max_restarts:
            return ""
        what, (began_s, before_s) = f"{len(one.crashes) + 1} crashes within", one.crashes[0]
        if now_s - began_s <= window_s:
            return f"{what} {window_s:g} s"
        return f"{what} {now_s - began_s:.0f} s, in which it was at work for {worked_s - before_s:.0f} s"

    def _restart(self, one: _Supervised) -> list[Event]:
        spec = one.spec
        try:
            has_begun = self._begin(one)
        except InputError as error:
            del self._supervised[spec.name]
            return [GaveUp(spec.name, str(error), has_begun=bool(one.crashes))]
        return [Restarted(spec.name, len(one.crashes), one.delay_s)] if has_begun and one.crashes else []

    def _begin(self, one: _Supervised) -> bool:
        """Begin a life; False where that is to be tried again, since the disk of its log is full.

        Raises:
            InputError: it cannot be started, also where that disk has been full for ``PATIENCE_S``.
        """
        now_s = self._clock()
        try:
            process = self._spawner.spawn(one.spec)
        except DiskFull:
            one.full_s = now_s if one.full_s is None else one.full_s
            if now_s - one.full_s > PATIENCE_S:
                raise
            one.restart_at_s = now_s + RETRY_S
            self._supervised[one.spec.name] = one
            return False
        self._supervised[one.spec.name] = _Supervised(
            one.spec, process, now_s, worked_s=one.worked_s, crashes=one.crashes
        )
        return True


def _exited(one: _Supervised, code: int | None, now_s: float, *, expected: bool) -> Exited:
    assert one.process is not None
    by_signal = -code if code is not None and code < 0 else None
    exited = Exited(
        name=one.spec.name,
        pid=one.process.pid,
        code=code if by_signal is None else None,
        signal=by_signal,
        expected=expected,
        killed=one.forget_at_s is not None,
        overdue=one.overdue,
        restarting=False,
        words="",
        log_path=one.spec.log_path,
        lived_s=now_s - one.started_s,
    )
    if not exited.is_fault:
        return exited
    words = last_words(one.spec.log_path, one.process.log_start)
    if by_signal == signal.SIGKILL and not exited.killed:
        words += (
            "\n" * bool(words)
            + "(that SIGKILL was not ours; often it is the kernel's, for want of memory: see dmesg)"
        )
    return replace(exited, words=words or "(its log says nothing)")
