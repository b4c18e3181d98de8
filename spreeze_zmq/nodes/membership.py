"""One membership of a run: from a machine's join to the loss of the head or the end of the run."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.errors import ChannelError, DiskFull, InputError, WireError
from spreeze_zmq.base.parent_death import is_within
from spreeze_zmq.base.patience import BETWEEN_BEATS_S, patient
from spreeze_zmq.base.provenance import installed
from spreeze_zmq.nn.native import library as native
from spreeze_zmq.nodes.errands import KINDS as ERRANDS
from spreeze_zmq.nodes.errands import Errands
from spreeze_zmq.nodes.head import BEAT_S, HEAD_LOST, HEAD_LOST_S, KINDS, OVER, REFUSED
from spreeze_zmq.nodes.load import Load, is_closed
from spreeze_zmq.nodes.place import SIGNALS, Place, odd_start
from spreeze_zmq.nodes.relay import PATIENCE_S
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import LEARNERS, MEMBER
from spreeze_zmq.supervisor import GroupSpawner, LogWatch, Process
from spreeze_zmq.wire import Message, channels
from spreeze_zmq.wire.channels import Dealer, SocketFolder

if TYPE_CHECKING:
    from spreeze_zmq.nodes.half import Half

#: Time for which an answer to ``join`` is awaited.
ANSWER_S = 15.0
#: Time for processes to end by SIGTERM before SIGKILL.
GRACE_S = 5.0
#: Longest tail of a log that is sent.
TAIL_BYTES = 16 * 1024
#: After this silence it is tried whether anybody listens at the head's address.
DOUBT_S = 2.0
_TICK_S = 0.05


class Left(Exception):
    """This machine is not part of the run any more: the exit code and why.

    Attributes:
        for_good: whether the head is known to be gone, not only out of reach.
    """

    def __init__(self, code: int, why: str, *, for_good: bool = False) -> None:
        super().__init__(why)
        self.code, self.for_good = code, for_good


class Membership:
    """Joins, starts what the head asks for, reports how it goes, and ends with it.

    Args:
        half: whose it is.
    """

    def __init__(self, half: Half) -> None:
        self.half = half
        self.dealer = Dealer(
            half.head,
            sender=half.node or socket.gethostname(),
            incarnation=secrets.randbelow(2**53 - 1) + 1,
            kinds=KINDS,
            keys=half.invitation,
        )
        self.processes: dict[str, Process] = {}
        self.logs: dict[str, Any] = {}
        self.ended: list[Message] = []
        self.place: Place | None = None
        self.errands: Errands | None = None
        self.spawner: GroupSpawner | None = None
        self.log_watch: LogWatch | None = None
        self.heard_s = time.monotonic()
        self.next_beat_s, self.load = 0.0, Load()
        self.is_leaving = self.is_lost = False
        self.next_doubt_s = self.heard_s + DOUBT_S

    def live(self) -> None:
        """Take part. Raises Left at the end, when nothing runs here any more."""
        try:
            self._join()
            while True:
                self._turn()
        except (InputError, ChannelError, OSError) as error:
            why = _said(error) if isinstance(error, OSError) else str(error)
            self.dealer.send(Message("leave", {"code": REFUSED, "reason": why}))
            raise Left(REFUSED, why) from None
        except Left as left:
            self.is_lost = left.code == HEAD_LOST
            self._end_processes()
            if left.code == OVER:
                self.dealer.send(Message("leave", {"code": OVER, "reason": self.half.stop_reason}))
            raise
        finally:
            self._close()

    # --- joining

    def _join(self) -> None:
        host, half = socket.gethostname(), self.half
        fields = {"host": host, "cores": half.cores, "packages": installed(), "before": half.node}
        fields["owes"] = half.relays.owes
        most = {} if half.most is None else {"samplers": half.most}
        self.dealer.send(Message("join", {**fields, **most}))
        until_s = time.monotonic() + ANSWER_S
        while (message := self._receive()) is None:
            half.check_wanted()
            if refused := self.dealer.attend():
                raise Left(REFUSED, refused)
            if time.monotonic() > until_s:
                raise Left(HEAD_LOST, f"{half.head} does not answer: is the run over?")
        if message.kind != "welcome":
            raise Left(int(message.fields["code"]), str(message.fields["reason"]))
        plan = Plan.from_json(message.arrays["plan"].tobytes().decode())
        self.place = Place(message.fields, plan, message.arrays["bundle"].tobytes(), half.free_cores)
        if {*LEARNERS, MEMBER} & {*self.place.roles}:
            native.prepare(half.say)  # no start timeout runs before the first beat
        self.spawner = GroupSpawner([self.place.sockets.path])
        self.errands = Errands(self.place.folder, self.dealer.send)
        self.log_watch = LogWatch(self.place.folder.logs)
        half.node, self.heard_s = message.fields["node"], time.monotonic()  # it has not listened meanwhile
        bound = f", at most {half.most} samplers" if half.most is not None else ""
        half.say(f"joined {plan.name} as {half.node} with {half.cores} cores{bound}")

    # --- taking part

    def _turn(self) -> None:
        """One look at everything."""
        until_s = time.monotonic() + BEAT_S
        while time.monotonic() < until_s and (message := self._receive()) is not None:
            self._obey(message)
        if self.errands is not None:
            self.errands.run()
        self._watch()
        if self.log_watch is not None and (line := self.log_watch.news()):
            self.half.say(line)
        now_s = time.monotonic()
        self.half.until_s = now_s + PATIENCE_S
        self._beat_if_due(now_s)
        self.half.check_wanted()
        if self.dealer.is_replaced:
            raise Left(HEAD_LOST, f"another run listens at {self.half.head} now", for_good=True)
        if now_s - self.heard_s > HEAD_LOST_S:
            raise Left(HEAD_LOST, f"the head has been silent for {HEAD_LOST_S:.0f} s")
        if now_s >= self.next_doubt_s:
            self.next_doubt_s = max(now_s, self.heard_s) + DOUBT_S
            if now_s - self.heard_s >= DOUBT_S and is_closed(self.half.head):
                raise Left(HEAD_LOST, f"nobody listens at {self.half.head} any more", for_good=True)

    def _receive(self) -> Message | None:
        channels.poll([self.dealer], timeout_s=_TICK_S)
        message = self.dealer.receive()
        if message is not None:
            self.heard_s = time.monotonic()
        return message

    def _obey(self, message: Message) -> None:
        kind, fields = message.kind, message.fields
        assert self.place is not None
        assert self.errands is not None
        if kind == "start" and (why := odd_start(fields, self.place.roles)):
            self.dealer.refuse(WireError("wrong_field_type", why), "launcher", kind)
        elif kind == "start":
            self._start(fields)
        elif kind == "signal" and fields["number"] in SIGNALS and fields["name"] in self.processes:
            self.processes[fields["name"]].signal(fields["number"])
        elif kind in ERRANDS:
            try:
                self.errands.hear(message)
            except WireError as error:
                self.dealer.refuse(error, "launcher", kind)
            except OSError as error:
                self.half.say(f"{fields['about'].rpartition('.')[0]} does not get {_said(error)}")
        elif kind == "leave":
            self._watch()  # its processes have been asked to stop
            raise Left(int(fields["code"]), str(fields["reason"]))

    def _start(self, fields: Mapping[str, Any]) -> None:
        assert self.place is not None
        assert self.spawner is not None
        self.half.relays.open(self.place.wires)
        name = fields["name"]
        try:
            spec = self.place.spec(fields)
            begin = partial(self.spawner.spawn, spec)
            self.processes[name] = patient(begin, spec.log_path, BETWEEN_BEATS_S)
            self.logs[name] = spec.log_path
        except (InputError, OSError) as error:
            if isinstance(error, DiskFull):
                error = DiskFull(self.place.folder.path, elsewhere=True)
            why = _said(error) if isinstance(error, OSError) else str(error)
            self.dealer.send(
                Message("ended", {"name": name, "code": InputError.exit_code, "log": f"{why}\n"})
            )

    def _watch(self) -> None:
        """Tell the head of each process that has ended, once the head has the files that it left; of the last
        one, where it was to end, once all that was sent from here has left.
        """
        for name, process in list(self.processes.items()):
            if (code := process.poll()) is not None and not self._owes(name):
                del self.processes[name]
                log = _tail(self.logs[name], process.log_start)
                how = {"code": code} if code >= 0 else {"signal": -code}
                self.ended.append(Message("ended", {"name": name, **how, "log": log}))
                if code == 0 and not self.processes:
                    self.half.relays.end()
        if not self.is_leaving:  # then its processes end in any case, and the head hears how
            self.half.relays.check()
        while self.ended and not self.half.relays.is_flushing and not self.is_leaving:
            self.dealer.send(self.ended.pop(0))

    def _owes(self, process: str) -> bool:
        """Whether the head still takes files of a process."""
        return self.errands is not None and not self.is_leaving and self.errands.holds(process)

    def _beat_if_due(self, now_s: float) -> None:
        if now_s < self.next_beat_s:
            return
        self.next_beat_s = now_s + BEAT_S
        rows = {
            name: {"pid": process.pid, "printed": process.has_printed, **self._life(name, process.pid)}
            for name, process in self.processes.items()
        }
        relays = self.half.relays
        figures = {**self.load.figures(relays.now), **({"leaving": True} if self.is_leaving else {})}
        self.dealer.send(Message("beat", {"processes": rows, "owes": relays.owes, **figures}))

    def _life(self, name: str, pid: int) -> dict[str, int]:
        """The ``incarnation`` of a process, once it has claimed its name, and its ``pid``: a script may have
        started it.
        """
        holder = SocketFolder.holder(self.place.sockets.path, name) if self.place is not None else None
        return holder._asdict() if holder is not None and is_within(holder.pid, pid) else {}

    # --- the end

    def _end_processes(self) -> None:
        """SIGTERM, then SIGKILL after ``GRACE_S``; at once where the head is lost, or gave this machine up
        and others may be in their places: what they had sent by then goes to the head once it can be reached
        again. The head hears first that this machine leaves, and of their ends last: they have not failed.
        """
        self.is_leaving, self.next_beat_s = True, 0.0
        for process in self.processes.values():
            process.signal(signal.SIGKILL if self.is_lost else signal.SIGTERM)
        until_s = time.monotonic() + GRACE_S
        while self.processes or self.half.relays.is_flushing:
            if not self.is_lost:
                self._beat_if_due(time.monotonic())
            self._watch()
            if time.monotonic() > until_s:
                for process in self.processes.values():
                    process.signal(signal.SIGKILL)
            time.sleep(_TICK_S)
        for ended in self.ended:
            self.dealer.send(ended)

    def _close(self) -> None:
        if self.spawner is not None:
            self.spawner.close()
        if self.errands is not None:
            self.errands.close()
        self.half.relays.leave(is_lost=self.is_lost)
        if self.is_lost:  # nobody hears what is left
            self.dealer.socket.linger = 0
        self.dealer.close()
        channels.terminate()
        if self.place is not None:
            self.place.close()


def _tail(path: Path, start: int) -> str:
    """The last bytes of a log that begins at ``start``: that of a week may be larger than the memory."""
    with path.open("rb") as log:
        log.seek(max(start, log.seek(0, os.SEEK_END) - TAIL_BYTES))
        return log.read(TAIL_BYTES).decode("utf-8", errors="replace")


def _said(error: OSError) -> str:
    """What cannot be read or written on this machine, and what mends it."""
    return f"{error.filename or 'a file'}: {error.strerror}: make room there, or mend its permissions"
