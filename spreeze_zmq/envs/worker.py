"""One worker process: steps its environments when told to, first come first served, and says what is done."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batched import BatchedEnv
from .failures import Failure, Failures, traceback_of
from .gymnasium_loop import GymnasiumLoop
from .slots import Slots

#: A worker that has more to do keeps what is done to itself for so long: waking the batch costs as much as a
#: short step.
FLUSH_S = 0.0003
#: Number of a unit in a message; its complement asks for a reset, or says that a worker died.
UNIT = struct.Struct("<i")
#: A message to or from a worker is at most so long.
MESSAGE_BYTES = 1 << 17
SUMMARY_CHARS = 4000
#: In a worker nothing is too much: the batch counts.
NO_LIMIT = 1 << 62


def make_units(units: Sequence[Sequence[int]], num_envs: int, arguments: dict[str, Any]) -> list[BatchedEnv]:
    """The batches that one worker steps.

    Args:
        units: for each one the first row of the whole batch and how many.
        num_envs: how many the whole batch has.
        arguments: of ``make``, but for the number of environments and the seed.
    """
    from .make import make

    made = []
    for first, count in units:
        env = make(num_envs=count, seed=arguments["seed"] + first, **{**arguments["make"], "num_workers": 0})
        env.first_row, env.num_rows = first, num_envs
        made.append(env)
    return made


class Worker:
    """Steps the units of one process.

    Args:
        channel: to the batch: numbers of units come, failures go, in messages.
        done: where the numbers of finished units go; all workers share it.
        slots: the shared memory.
        settings: ``worker``, ``units``, ``numbers``, ``lives`` and the arguments of ``make``.
    """

    def __init__(self, channel: socket.socket, done: socket.socket, slots: Slots, settings: dict[str, Any]):
        self.channel, self.done, self.slots = channel, done, slots
        self.rows = [slice(first, first + count) for first, count in settings["units"]]
        self.index: int = settings["worker"]
        self.at = slots.at[self.index]
        units = make_units(settings["units"], slots.layout.num_envs, settings)
        self.units = dict(zip(settings["numbers"], zip(self.rows, units, strict=True), strict=True))
        self.begun: dict[int, NDArray[Any]] = {}
        for rows, env in self.units.values():
            env.failures = Failures(NO_LIMIT, self.tell)
            if isinstance(env, GymnasiumLoop):
                env.at = self.at[1:]
            if settings["lives"]:
                self.begun[rows.start] = self.begin_again(rows, env, settings["seed"], settings["lives"])

    def run(self) -> None:
        """Until the batch hangs up."""
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
        """One step of a unit, or the end of the episodes that were lost."""
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
        if "failed" in info:
            slots.failed[rows] = info["failed"]

    def end_lost(self, rows: slice) -> None:
        """Give what a step of episodes gives whose states are lost, and the beginning of the next ones."""
        slots = self.slots
        slots.obs[rows], slots.reward[rows], slots.terminated[rows] = self.begun.pop(rows.start), 0.0, False
        slots.truncated[rows] = slots.failed[rows] = True
        slots.lost[rows] = False

    def begin_again(self, rows: slice, env: BatchedEnv, seed: int, lives: int) -> NDArray[Any]:
        """New episodes after the death of the last worker, with seeds of their own.

        Their observations are kept back: what the dead one finished may not have been read yet.
        """
        seeds: list[int | None] = [
            int(np.random.SeedSequence((seed % 2**63, row, lives)).generate_state(1)[0])
            for row in range(rows.start, rows.stop)
        ]
        return env.reset(seed=seeds)[0]

    def reset(self, number: int) -> None:
        """Reset those of a unit that were chosen."""
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
            self.tell(Failure(str(error), traceback_of(cause)))
            slots.failed[rows] = True

    def tell(self, failure: Failure) -> None:
        """Tell the batch, before it hears that the step is done."""
        message = {"summary": failure.summary[:SUMMARY_CHARS], "traceback": failure.traceback}
        self.channel.send(json.dumps(message, ensure_ascii=False).encode())
        self.slots.told[self.index] += 1


def work(channel: socket.socket, done: socket.socket, slots: Slots, settings: dict[str, Any]) -> None:
    """The life of one worker, from its first message to the end of the batch."""
    with contextlib.suppress(ConnectionError):  # the batch is gone
        try:
            worker = Worker(channel, done, slots, settings)
        except Exception as error:
            channel.send(json.dumps({"error": str(error), "traceback": traceback_of(error)}).encode())
            return
        channel.send(b"{}")
        worker.run()
    for _, env in worker.units.values():
        env.close()
