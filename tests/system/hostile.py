"""Sends mutated messages, and well-formed ones that are false, over every socket of a live run.

    python -m tests.system.hostile --count 1000000

Counts what was sent, and what the run says of it: refusals, restarts, memory, the account, the return.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import msgpack
import numpy as np
import psutil
import zmq

from spreeze_zmq import envs
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.wire import Message, encode
from tests.system.conftest import NAPPING, SWINGS_UP, Run

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from extreme_messages import ODD_NAMES, extremes
from golden_messages import MESSAGES

#: Subscriptions of one connection: a publisher keeps each until the subscriber hangs up.
SUBSCRIPTIONS = 20_000
#: What ends a run by right is left out.
LEFT_OUT = ("stop_request", "stopping")
ODD = (np.nan, np.inf, -np.inf, 3e38, -1e30)
#: In whose name reports are sent: of processes that are there, in another life, and of some that are not.
ROLES = ("critic_learner", "actor_learner", "sampler", "evaluator")
NAMES = [*(f"{role}-0" for role in ROLES), "critic_learner-8", "nobody-0", "actor_learner-7", "sampler-80"]
SENDERS = {
    "evaluation": ("evaluator-8", "evaluator-0"),
    "part": ("critic_learner-8", "actor_learner-0"),
    **dict.fromkeys(("exited", "workers", "machine", "turned_away"), ("launcher",)),
}


@cache
def plain_rollout(width):
    """A random rollout of 16 steps in 4 pendulums, whose observations are of this width."""
    return random_rollout(replace(envs.probe("Pendulum-v1"), obs_shape=(width,)), 16, 4)


def rollout(rng, number, fields):
    """A rollout of Pendulum with something false in it, on a stream of its own. Each must be refused: nobody
    can tell what only an environment knows, and a run learns from that.
    """
    what = number % 6
    plain = plain_rollout(4 if what == 0 else 3)
    arrays = {name: array.copy() for name, array in plain.arrays(fields).items()}
    produced, version = plain.num_transitions, 0
    if what in (1, 2):
        array = arrays.get("obs" if what == 1 else "action", arrays["obs"])
        array.flat[rng.randrange(array.size)] = rng.choice(ODD)
    elif what == 3:
        version = rng.randrange(10**6, 2**53)
    elif what == 4:
        produced = rng.choice((1, produced - 1, 2**53 - 1))
    elif what == 5:
        arrays["obs"][:, :, 0] = rng.choice(ODD)
    about = {"produced": produced, "policy_version": version, "num_steps": 16, "num_envs": 4}
    return Message(
        "rollout", about, arrays, f"sampler-{80 + number % 9}", rng.randrange(1, 2**53), number % 3
    )


def false_report(rng, number):
    """A report in the name of a process in another life, or of one that is not there, with numbers that
    cannot be.
    """
    kind = rng.choice(sorted(REPORTS))
    golden = rng.choice((MESSAGES[kind], *EXTREME[kind]))
    names = SENDERS.get(kind, (*NAMES, f"sampler-{80 + number % 9}"))
    sender = rng.choice(ODD_NAMES if rng.randrange(50) == 0 else names)
    fields = dict(golden.fields)
    if kind in ("hello", "report", "bye"):
        fields |= {"name": sender, "role": sender.rpartition("-")[0]}
    if kind == "exited":
        fields["name"] = rng.choice(NAMES)
    for _ in range(rng.randrange(3)):
        name = rng.choice(sorted(fields) or ["nothing"])
        if name not in ("name", "role"):
            fields[name] = rng.choice(
                (*ODD, 0, 2**53 - 1, "x" * 5000, {}, {"a": 1e300}, {"b": np.nan}, [], True)
            )
        fields[f"new_{rng.randrange(1000)}"] = rng.random()
    if kind == "request":  # another one ends the run by right
        fields |= {"what": rng.choice(("note", "set")), "option": "tau", "text": f"x{number}"}
    return Message(kind, fields, dict(golden.arrays), sender, rng.randrange(1, 2**53), number)


def raw(message):
    """The frames of a message, also where our own sender would refuse it."""
    header = {
        "protocol": 1,
        "kind": message.kind,
        "sender": message.sender,
        "incarnation": message.incarnation,
        "arrays": [[name, array.dtype.name, array.shape] for name, array in message.arrays.items()],
        "sequence": message.sequence,
        "fields": dict(message.fields),
    }
    return [msgpack.packb(header), *(array.tobytes() for array in message.arrays.values())]


def mutated(rng, frames):
    """Bytes replaced, frames lost, doubled, cut."""
    frames = [bytearray(frame) for frame in frames]
    for _ in range(rng.randrange(1, 5)):
        frame = rng.choice(frames)
        place = rng.randrange(len(frame) + 1)
        frame[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    if rng.random() < 0.2:
        frames.append(bytearray(rng.choice(frames)))
    if rng.random() < 0.2:
        frames.pop(rng.randrange(len(frames)))
    return [bytes(frame) for frame in frames] or [b""]


REPORTS = {"hello", "report", "bye", "episodes", "failure", *SENDERS, "fusion", "request"}
EXTREME = {kind: list(extremes(kind)) for kind in REPORTS}


def subscription(rng, number):
    """To a publisher a peer can only send subscriptions: bytes of no topic, or of too long a one."""
    return [rng.choice((b"\0", b"\1", b"\2", b"")) + rng.randbytes(number % 40)]


def makers(plan):
    """Channel -> what makes a mutated and what makes a false message of it, of ``(rng, number)``."""
    made = {}
    for channel, about in plan["channels"].items():
        if channel.startswith("experience."):
            false = partial(false_rollout, fields=about["fields"])
        else:
            false = false_report_frames if channel == "report" else subscription
        kinds = [name for name, message in MESSAGES.items() if message.kind in about["kinds"]]
        bases = [[bytes(f) for f in encode(MESSAGES[kind])] for kind in kinds if kind not in LEFT_OUT]
        made[channel] = partial(mutated_of, bases=bases), false
    return made


def mutated_of(rng, number, bases):
    """One of the golden messages, mutated."""
    return mutated(rng, bases[number % len(bases)])


def false_rollout(rng, number, fields):
    """The frames of a rollout with something false in it."""
    return raw(rollout(rng, number, fields))


def false_report_frames(rng, number):
    """The frames of a message to the broker with something false in it."""
    return raw(false_report(rng, number))


class Attack:
    """The sockets of a hostile peer, and what it has sent."""

    def __init__(self, plan, seed):
        self.context, self.sent = zmq.Context(), Counter()
        self.rng, self.makers, self.sockets = random.Random(seed), makers(plan), {}
        self.endpoints = {channel: about["endpoint"] for channel, about in plan["channels"].items()}
        self.hang_up_at = dict.fromkeys(self.endpoints, SUBSCRIPTIONS)
        for channel, about in plan["channels"].items():
            pushes = channel == "report" or channel.startswith("experience.")
            socket = self.context.socket(zmq.PUSH if pushes else zmq.XSUB)
            socket.linger, socket.sndhwm, socket.sndtimeo = 0, 100, 0
            socket.connect(about["endpoint"])
            self.sockets[channel] = socket

    def send(self, which, at_most):
        """Send what the sockets take of the mutated (0) or the false (1) ones."""
        before = self.sent[which]
        for channel, socket in self.sockets.items():
            make = self.makers[channel][which]
            for _ in range(1 if socket.type == zmq.XSUB else 200):
                if self.sent[which] - before >= at_most:
                    return
                try:
                    socket.send_multipart(make(self.rng, self.sent[channel, which]))
                except zmq.Again:
                    break
                self.sent[channel, which] += 1
                self.sent[which] += 1
            while socket.type == zmq.XSUB and socket.poll(0):
                socket.recv_multipart()
            if (
                socket.type == zmq.XSUB
                and self.sent[channel, 0] + self.sent[channel, 1] > self.hang_up_at[channel]
            ):
                self.hang_up_at[channel] += SUBSCRIPTIONS
                socket.disconnect(socket.last_endpoint)
                socket.connect(self.endpoints[channel])

    def close(self):
        """Hang up."""
        self.context.destroy(linger=0)


def resident(run):
    """MB of each process of the run."""
    found = {}
    for name, process in run.processes().items():
        try:
            found[name] = process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return found


def attack(folder, count, seed=1, swings=NAPPING["pendulum"]):
    """A run of a pendulum, by the arguments ``swings``, under ``count`` mutated and ``count`` false messages;
    returns the figures.
    """
    sets = [
        *("run.stop.return=10000", "run.stop.minutes=60", "components.sampler.count=1"),
        "algorithm.learning_starts=500",
    ]
    words = (word for setting in sets for word in ("--set", setting))
    run = Run(folder, *words, *swings, "--without", "visualizer")
    try:
        run.until_training()
        pids = {name: process.pid for name, process in run.processes().items()}
        hostile = Attack(run.plan(), seed)
        began_s, memory = time.monotonic(), {}
        while min(hostile.sent[0], hostile.sent[1]) < count:
            assert run.launcher.poll() is None, run.output.read_text()
            for which in (0, 1):
                hostile.send(which, count - hostile.sent[which])
            if not memory and min(hostile.sent[0], hostile.sent[1]) >= count // 4:
                memory = resident(run)
            time.sleep(0.001)
        wall_s = time.monotonic() - began_s
        time.sleep(1.0)
        after = resident(run)
        same = {name: process.pid for name, process in run.processes().items()} == pids
        hostile.close()
        run.until(lambda: run.summary()["evaluations"], "an evaluation")
        updates = run.summary()["critic_updates"]
        run.until(lambda: run.summary()["critic_updates"] > updates, "more updates")
        run.interrupt()
        code, summary = run.end(), run.summary()
        words = Counter()
        for row in summary["refusals"]:
            words[row["word"]] += row["count"]
        return {
            "exit_code": code,
            "sent": {str(key): value for key, value in hostile.sent.items()},
            "wall_s": wall_s,
            "refused": dict(words),
            "nobody_restarted": same,
            "memory_mb": {name: [round(memory[name]), round(after.get(name, 0))] for name in memory},
            "samples": summary["samples"],
            "samples_by_channel": summary["samples_by_channel"],
            "last_return": summary["evaluations"][-1][2],
            "critic_updates": summary["critic_updates"],
            "terminal_bytes": run.output.stat().st_size,
            "summary_bytes": (run.folder / "summary.json").stat().st_size,
            "journal_bytes": (run.folder / "metrics.jsonl").stat().st_size,
            "folder": str(run.folder),
        }
    finally:
        run.clear()


def main():
    """Attack a run and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="mutated and false messages, of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="of the run; by default a temporary one")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="hostile-")) / "run"
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(json.dumps(attack(folder, given.count, given.seed, SWINGS_UP), indent=1))


if __name__ == "__main__":
    main()
