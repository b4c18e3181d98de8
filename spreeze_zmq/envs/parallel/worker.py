"""One worker process: steps its units in the order of the requests, and reports those that are done."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop
from spreeze_zmq.envs.failures import Failure, Failures, traceback_of
from spreeze_zmq.envs.in_process import choose
from spreeze_zmq.envs.infos import scalars
from spreeze_zmq.envs.parallel.slots import MESSAGE_BYTES, UNIT, Slots

#: A worker with more to do holds back finished units this long: to wake the batch costs as much as a short
#: step.
FLUSH_S = 0.0003
SUMMARY_CHARS = 4000
#: Workers tolerate every failure: the batch counts them.
NO_LIMIT = 1 << 62


def make_units(settings: dict[str, Any], num_envs: int) -> list[tuple[slice, BatchedEnv]]:
    """The rows and the batch of each unit of one worker.

    Args:
        settings: as for ``Worker``.
        num_envs: number of environments of the whole batch.
    """
    arguments = settings["make"]
    engine = choose(arguments["env_id"], arguments["kwargs"], arguments["backend"])
    made = []
    for first, count in settings["units"]:
        env = engine.make(
            count,
            settings["seed"] + first,
            step_info="final" if arguments["final_info"] else False,
            randomize=arguments["randomize"],
        )
        env.first_row, env.num_rows = first, num_envs
        made.append((slice(first, first + count), env))
    return made


class Worker:
    """Steps the units of one process.

    Args:
        channel: to the batch: numbers of units come in, failures go out, in messages.
        done: the stream for numbers of finished units, shared by all workers.
        slots: the shared memory.
        settings: ``worker``, ``units`` and their ``numbers``, ``restarts``, ``seed``, and ``make``: name,
            arguments, backend and ranges of the environments, and whether final infos are wanted.
    """

    def __init__(self, channel: socket.socket, done: socket.socket, slots: Slots, settings: dict[str, Any]):
        self.channel, self.done, self.slots = channel, done, slots
        self.index: int = settings["worker"]
        self.at = slots.at[self.index]
        units = make_units(settings, len(slots.reward))
        self.units = dict(zip(settings["numbers"], units, strict=True))
        self.begun: dict[int, NDArray[Any]] = {}
        for rows, env in units:
            env.failures = Failures(NO_LIMIT, self.report)
            if isinstance(env, GymnasiumLoop):
                env.at = self.at[1:]
            if settings["restarts"]:
                self.begun[rows.start] = self.begin_again(rows, env, settings["seed"], settings["restarts"])

    def run(self) -> None:
        """Serve requests until the batch closes the channel."""
        while message := self.channel.recv(MESSAGE_BYTES):
            finished = bytearray()
            flushed_s = time.perf_counter()
            for (number,) in UNIT.iter_unpack(message):
                if number < 0:
                    self.reset(~number)
                else:
                    self.step(*self.units[number])
                finished += UNIT.pack(number if number >= 0 else ~number)
                if (now_s := time.perf_counter()) - flushed_s > FLUSH_S:
                    self.done.sendall(finished)
                    finished.clear()
                    flushed_s = now_s
            if finished:
                self.done.sendall(finished)

    def step(self, rows: slice, env: BatchedEnv) -> None:
        """Step a unit once, or end the episodes that were lost."""
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
        """Write a step that truncates the lost episodes and returns the first observations of the next."""
        slots = self.slots
        slots.obs[rows], slots.reward[rows], slots.terminated[rows] = self.begun.pop(rows.start), 0.0, False
        slots.truncated[rows] = slots.failed[rows] = True
        slots.lost[rows] = False

    def begin_again(self, rows: slice, env: BatchedEnv, seed: int, restarts: int) -> NDArray[Any]:
        """Begin new episodes in place of those of a dead worker, with new seeds; their observations.

        They are not written yet: the dead worker's last results may still be unread.
        """
        seeds: list[int | None] = [
            int(np.random.SeedSequence((seed % 2**63, row, restarts)).generate_state(1)[0])
            for row in range(rows.start, rows.stop)
        ]
        return env.reset(seed=seeds)[0]

    def reset(self, number: int) -> None:
        """Reset the chosen environments of a unit."""
        rows, env = self.units[number]
        slots = self.slots
        self.at[0] = rows.start
        chosen: NDArray[np.bool_] = slots.chosen[rows].copy()
        seeds = [None if seed < 0 else seed for seed in slots.seed[rows].tolist()]
        options = {**(slots.take_options() or {}), **({} if chosen.all() else {"reset_mask": chosen})}
        slots.failed[rows] = False
        try:
            obs, _ = env.reset(
                seed=seeds if any(seed is not None for seed in seeds) else None, options=options
            )
            slots.obs[rows.start + chosen.nonzero()[0]] = obs[chosen]
            if chosen.all():
                slots.lost[rows] = False
        except Exception as error:
            cause = error.__cause__ or error
            self.report(Failure(str(error), traceback_of(cause)))
            slots.failed[rows] = True

    def report(self, failure: Failure) -> None:
        """Send a failure to the batch, before the step is reported as done."""
        self.send({"summary": failure.summary[:SUMMARY_CHARS], "traceback": failure.traceback})

    def send(self, message: dict[str, Any]) -> None:
        """Send what is no number of a unit; the batch looks for it when the count of messages has changed."""
        self.channel.send(json.dumps(message, ensure_ascii=False).encode())
        self.slots.num_messages[self.index] += 1


def work(channel: socket.socket, done: socket.socket, slots: Slots, settings: dict[str, Any]) -> None:
    """Make the environments, report their units as finished, and serve until the batch ends."""
    with contextlib.suppress(ConnectionError):  # the batch is gone
        try:
            worker = Worker(channel, done, slots, settings)
        except Exception as error:
            channel.send(json.dumps({"error": str(error), "traceback": traceback_of(error)}).encode())
            return
        if not settings["restarts"]:
            done.sendall(b"".join(map(UNIT.pack, worker.units)))
        worker.run()
    for _, env in worker.units.values():
        env.close()
