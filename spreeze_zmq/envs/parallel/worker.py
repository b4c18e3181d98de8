"""One worker process: steps its units in the order of the requests, and reports those that are done."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, SpreezeError, in_one_line
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop
from spreeze_zmq.envs.failures import (
    Failure,
    Failures,
    printable,
    seed_after_failure,
    traceback_of,
)
from spreeze_zmq.envs.in_process import choose
from spreeze_zmq.envs.infos import scalars
from spreeze_zmq.envs.parallel.slots import MESSAGE_BYTES, RESET, UNIT, Slots

#: Finished units are reported together for this long, since waking the batch costs as much as a short step.
FLUSH_S = 0.0003
SUMMARY_CHARS = 4000


class Worker:
    """Steps the units of one process.

    Args:
        channel: receives requests from the batch, and sends it failures and infos.
        done: the stream for numbers of finished units, shared by all workers.
        slots: the shared memory.
        index: number of this worker.
        restarts: how often it has been restarted.
        settings: plain data, the same for all workers: ``env_id``, ``kwargs`` and ``backend`` as for
            ``envs.make``, ``seed``, ``options`` for ``Engine.make``, and the ``units`` of each worker.
    """

    def __init__(
        self,
        channel: socket.socket,
        done: socket.socket,
        slots: Slots,
        index: int,
        restarts: int,
        settings: dict[str, Any],
    ):
        self.channel, self.done, self.slots, self.index = channel, done, slots, index
        self.at = slots.at[index]
        self.units: dict[int, tuple[slice, BatchedEnv]] = {}  # number -> rows in the batch, environments
        self.first_obs: dict[int, NDArray[Any]] = {}  # first row of a lost unit -> [rows, *obs]
        engine = choose(settings["env_id"], settings["kwargs"], settings["backend"])
        seed: int = settings["seed"]
        first_number = sum(map(len, settings["units"][:index]))
        for number, (first, count) in enumerate(settings["units"][index], first_number):
            options = settings["options"]
            own = {**options, "first_index": options["first_index"] + first}
            env = engine.make(count, seed + first, **own)
            env.first_row, env.num_rows = first, len(slots.reward)
            env.failures = Failures(sys.maxsize, self.report)  # the batch counts them
            if isinstance(env, GymnasiumLoop):
                env.at = self.at[1:]
            self.units[number] = slice(first, first + count), env
            if restarts:  # not written to the slots yet: results of the dead worker may still be unread
                seeds = [seed_after_failure(seed, row, restarts) for row in range(first, first + count)]
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
            self.report(Failure(str(error), traceback_of(error.__cause__) if error.__cause__ else ""))
        except Exception as error:
            self.report(Failure(in_one_line(error), traceback_of(error)))

    def report(self, failure: Failure) -> None:
        """Send a failure to the batch, before the step is reported as done."""
        self.send({"summary": failure.summary[:SUMMARY_CHARS], "traceback": failure.traceback})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, and increase the count that shows the batch that there is one."""
        data = json.dumps(message, ensure_ascii=False).encode()
        if len(data) > MESSAGE_BYTES:  # a text of nothing but control characters
            data = json.dumps({**message, "traceback": ""}, ensure_ascii=False).encode()
        self.channel.send(data)
        self.slots.num_messages[self.index] += 1


def work(
    channel: socket.socket,
    done: socket.socket,
    slots: Slots,
    index: int,
    restarts: int,
    settings: dict[str, Any],
) -> None:
    """Make the environments, report their units as finished, and serve until the batch ends.

    The arguments are those of ``Worker``. A restarted worker reports none: the batch sends it requests.
    """
    with contextlib.suppress(ConnectionError):  # the batch is gone
        try:
            worker = Worker(channel, done, slots, index, restarts, settings)
        except BaseException as error:
            said = printable(str(error) if isinstance(error, SpreezeError) else in_one_line(error))
            message = {"error": said[:SUMMARY_CHARS], "traceback": printable(traceback_of(error))}
            channel.send(json.dumps(message, ensure_ascii=False).encode())
            return
        if not restarts:
            done.sendall(b"".join(map(UNIT.pack, worker.units)))
        worker.run()
    for _, env in worker.units.values():
        env.close()
