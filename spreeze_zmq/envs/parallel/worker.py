"""The program that forks the workers of a batch, and a worker, which steps its units as it is asked to.

``WorkerPool`` starts it. It imports the environments once, and reports each worker that dies. When the batch
closes the control channel, or dies, the workers get ``GRACE_S`` to close their environments; the kernel kills
the remaining ones when this process exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, SpreezeError, in_one_line
from spreeze_zmq.base.parent_death import die_with_parent
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop
from spreeze_zmq.envs.failures import EnvironmentFault, Failures, printable, shortened, traceback_of
from spreeze_zmq.envs.forms import check_alike, form_of
from spreeze_zmq.envs.in_process import choose
from spreeze_zmq.envs.infos import scalars
from spreeze_zmq.envs.parallel.pool import MESSAGE_BYTES, RESET, STOPS, UNIT, Slots
from spreeze_zmq.envs.parallel.preloading import read_and_preload
from spreeze_zmq.envs.seeds import seed_after_failure, shared_generators_seeded

#: Time for workers to close their environments, before they are killed.
GRACE_S = 2.0
#: Finished units are reported together for this long, since waking the batch costs as much as a short step.
FLUSH_S = 0.0003


def main(control_fd: int, done_fd: int, slots_fd: int, *channel_fds: int) -> None:
    """Read the settings, of any length, from standard input, then fork workers until the batch ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch's process handles Ctrl-C
    # A stop request goes to the whole process group, but the batch may have steps left to take. A handler and
    # not SIG_IGN, which programs that the environments start would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    control = socket.socket(fileno=control_fd)
    settings = read_and_preload()
    slots = Slots(settings.pop("arrays"), slots_fd)
    channels = [socket.socket(fileno=fd) for fd in channel_fds]
    WorkerForkServer(control, socket.socket(fileno=done_fd), slots, channels, settings).serve()


class WorkerForkServer:
    """Forks the workers of one batch.

    Args:
        control: receives the numbers of workers to restart; each is sent back after the fork.
        done: the stream for numbers of finished units, shared by all workers, to which the complement of a
            dead worker's number is written too.
        slots: the shared memory; process ids and exit codes are written to it.
        channels: the workers' ends of their channels, for requests from the batch, and failures and infos to
            it; a restarted worker inherits its predecessor's.
        settings: plain data, the same for all workers: ``env_id``, ``kwargs`` and ``backend`` as for
            ``envs.make``, ``seed``, ``options`` for ``Choice.make``, the ``form`` of the spaces, and the
            ``units`` of each worker.

    Attributes:
        restarts: how often each worker has been restarted.
    """

    def __init__(
        self,
        control: socket.socket,
        done: socket.socket,
        slots: Slots,
        channels: list[socket.socket],
        settings: dict[str, Any],
    ):
        self.control, self.done, self.slots, self.channels = control, done, slots, channels
        self.settings = settings
        self.restarts = [0] * len(channels)
        self.workers: dict[int, int] = {}  # process id -> number of the worker
        self.child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork all workers and restart them on request until the batch closes the channel, then end them."""
        for worker in range(len(self.channels)):
            self.fork(worker)
        with contextlib.suppress(ConnectionError):
            while message := self.next_request():
                (worker,) = UNIT.unpack(message)
                self.restarts[worker] += 1
                with contextlib.suppress(BlockingIOError):  # the batch sends unread requests again
                    while self.channels[worker].recv(MESSAGE_BYTES, socket.MSG_DONTWAIT):
                        pass
                self.fork(worker)
                self.control.send(message)
        until_s = time.monotonic() + GRACE_S
        while self.workers and (left_s := until_s - time.monotonic()) > 0:
            select.select([self.child_ended], [], [], left_s)
            self.reap()

    def next_request(self) -> bytes:
        """Wait for the batch's next message and report deaths meanwhile; empty when the batch has ended."""
        while True:
            ready, _, _ = select.select([self.control.fileno(), self.child_ended], [], [])
            if self.child_ended in ready:
                self.reap()
            if self.control.fileno() in ready:
                return self.control.recv(MESSAGE_BYTES)

    def fork(self, worker: int) -> None:
        """Start one worker."""
        pid = os.fork()
        if pid == 0:
            self.become_worker(worker)
        self.workers[pid] = worker
        self.slots.pids[worker] = pid

    def become_worker(self, worker: int) -> NoReturn:
        """Run as a worker in the forked process until the batch ends."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent()
            self.control.close()
            self.work(worker)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def work(self, index: int) -> None:
        """Make the environments of a worker, report its units as finished, and serve until the batch ends.

        A restarted worker reports none: the batch sends it requests.
        """
        seed = seed_after_failure(self.settings["seed"], index, 0, self.restarts[index])
        try:
            with shared_generators_seeded(seed):
                worker = Worker(self, index)
        except BaseException as error:
            said = printable(str(error) if isinstance(error, SpreezeError) else in_one_line(error))
            message = {"error": shortened(said), "traceback": printable(traceback_of(error))}
            with contextlib.suppress(ConnectionError):  # the batch is gone
                self.channels[index].send(json.dumps(message, ensure_ascii=False).encode())
            return
        with contextlib.suppress(ConnectionError):
            if not self.restarts[index]:
                self.done.sendall(b"".join(map(UNIT.pack, worker.units)))
            worker.run()
        for _, env in worker.units.values():
            env.close()

    def reap(self) -> None:
        """Report each worker that has ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.child_ended, 4096)
        with contextlib.suppress(ChildProcessError, ConnectionError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if (worker := self.workers.pop(pid, None)) is None:
                    continue  # a program that the environments' modules have started as they were imported
                self.slots.pids[worker], self.slots.exits[worker] = 0, os.waitstatus_to_exitcode(status)
                self.done.sendall(UNIT.pack(~worker))


class Worker:
    """Steps the units of one process.

    Args:
        server: that has forked this process.
        index: number of this worker.
    """

    def __init__(self, server: WorkerForkServer, index: int):
        self.channel, self.done, self.index = server.channels[index], server.done, index
        self.slots, settings, restarts = server.slots, server.settings, server.restarts[index]
        self.at = self.slots.at[index]
        self.units: dict[int, tuple[slice, BatchedEnv]] = {}  # number -> rows in the batch, environments
        self.first_obs: dict[int, NDArray[Any]] = {}  # first row of a lost unit -> [rows, *obs]
        choice = choose(settings["env_id"], settings["kwargs"], settings["backend"])
        seed: int = settings["seed"]
        first_number = sum(map(len, settings["units"][:index]))
        options = settings["options"]
        for number, (first, count) in enumerate(settings["units"][index], first_number):
            own = {**options, "first_index": options["first_index"] + first}
            env = choice.make(count, seed + first, **own)
            env.first_row, env.num_rows, env.restarts = first, len(self.slots.reward), restarts
            check_alike(env.env_id, own["first_index"], form_of(*env.own_spaces), settings["form"])
            env.failures = Failures(sys.maxsize, self.report)  # the batch counts them
            env.whole_rows = True  # the batch parts masks from observations
            if isinstance(env, GymnasiumLoop):
                env.at = self.at[1:]
            self.units[number] = slice(first, first + count), env
            if restarts:  # not written to the slots yet: results of the dead worker may still be unread
                self.at[:] = first, 0
                seeds = [seed_after_failure(seed, row, 0, restarts) for row in range(first, first + count)]
                self.first_obs[first] = env.reset(seed=seeds)[0]

    def run(self) -> None:
        """Serve requests until the batch closes the channel."""
        while message := self.channel.recv(MESSAGE_BYTES):
            if message.startswith(RESET):
                request = json.loads(message.removeprefix(RESET))
                for number in request["units"]:
                    self.reset(*self.units[number], request["options"])
                    self.done.sendall(UNIT.pack(number))
                continue
            finished = bytearray()
            flushed_s = time.perf_counter()
            for (number,) in UNIT.iter_unpack(message):
                self.step(*self.units[number])
                finished += UNIT.pack(number)
                if (now_s := time.perf_counter()) - flushed_s > FLUSH_S:
                    self.done.sendall(finished)
                    finished.clear()
                    flushed_s = now_s
            if finished:
                self.done.sendall(finished)

    def step(self, rows: slice, env: BatchedEnv) -> None:
        """Step a unit once, or truncate the episodes that were lost with the previous process."""
        slots = self.slots
        self.at[0] = rows.start
        if slots.lost[rows].any():
            self.end_lost(rows)
            return
        obs, slots.reward[rows], slots.terminated[rows], slots.truncated[rows], info = env.step(
            slots.action[rows]
        )
        slots.obs[rows] = obs
        if "final_obs" in info:
            ended = info["_final_obs"]
            slots.final_obs[rows][ended] = info["final_obs"][ended]
            for row in ended.nonzero()[0].tolist() if info.get("final_info") else ():
                self.send({"row": rows.start + row, "final_info": scalars(info["final_info"], row)})
        if "failed" in info:
            slots.failed[rows] = info["failed"]

    def end_lost(self, rows: slice) -> None:
        """Truncate the lost episodes, and write the first observations of the next ones."""
        slots = self.slots
        slots.obs[rows] = self.first_obs.pop(rows.start)
        slots.reward[rows], slots.terminated[rows] = 0.0, False
        slots.truncated[rows] = slots.failed[rows] = True
        slots.lost[rows] = False

    def reset(self, rows: slice, env: BatchedEnv, options: dict[str, Any]) -> None:
        """Reset the chosen environments of a unit; an error is reported as a failure."""
        slots = self.slots
        self.at[0] = rows.start
        chosen: NDArray[np.bool_] = slots.chosen[rows].copy()
        seeds = [None if seed < 0 else seed for seed in slots.seed[rows].tolist()]
        if not chosen.all():
            options = {**options, "reset_mask": chosen}
        slots.failed[rows] = False
        try:
            obs, _ = env.reset(
                seed=seeds if any(seed is not None for seed in seeds) else None, options=options
            )
            slots.obs[rows.start + chosen.nonzero()[0]] = obs[chosen]
            if chosen.all():
                slots.lost[rows] = False
        except EnvironmentFailure as error:
            self.report(
                EnvironmentFault(str(error), traceback_of(error.__cause__) if error.__cause__ else "")
            )
        except Exception as error:
            self.report(EnvironmentFault(in_one_line(error), traceback_of(error)))

    def report(self, failure: EnvironmentFault) -> None:
        """Send a failure to the batch, before the step is reported as done."""
        about = {"traceback": failure.traceback, "mild": failure.mild}
        self.send({"summary": shortened(failure.summary), **about})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, and increase the count that shows the batch that there is one."""
        data = json.dumps(message, ensure_ascii=False).encode()
        if len(data) > MESSAGE_BYTES:  # a text of nothing but control characters
            data = json.dumps({**message, "traceback": ""}, ensure_ascii=False).encode()
        self.channel.send(data)
        self.slots.num_messages[self.index] += 1
