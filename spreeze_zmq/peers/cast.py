"""The peers of a broker: a launcher, and processes that report twice a second what they are to have done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.plan.roles import CONTROL, CRITIC_LEARNER, REPORT
from spreeze_zmq.wire import PROTOCOL_VERSION, Message

LAUNCHER = "launcher"
REPORT_S, LIFE = 0.5, 5
#: What every played process uses, and since when it lives.
USAGE = {"time_s": 1.0, "uptime_s": 1.0, "cpu_s": 0.25, "rss_bytes": 1 << 20}
CLOCKS = dict.fromkeys(("busy", "blocked", "starved", "idle"), 0.25)


class Voice:
    """Plays one process, or the launcher, towards the broker.

    Attributes:
        pid: that it says.
        about: fields of its reports that change: ``counters``, ``pushed``, ``taken``.
    """

    def __init__(self, peers: Peers, name: str, pid: int = 0) -> None:
        self.name, self.role, self.pid = name, name.rpartition("-")[0], pid
        self.about: dict[str, Any] = {}
        self.end = peers.ends[name] = peers.opened(REPORT, "push", name, LIFE)

    def say(self, kind: str, arrays: Mapping[str, Any] | None = None, /, **fields: Any) -> Message:
        """Push one message, if there is room for it; returns it."""
        message = Message(kind, fields, arrays or {}, self.name, LIFE)
        self.end.try_push(message)
        return message

    def hello(self) -> None:
        """Say that it is ready."""
        named = {"role": self.role, "name": self.name, "pid": self.pid}
        self.say("hello", **named, protocol=PROTOCOL_VERSION, host="here")

    def report(self, kind: str = "report", **more: Any) -> Message:
        """Report what it has done."""
        named = {"role": self.role, "name": self.name, "pid": self.pid, **USAGE, "clock_s": CLOCKS}
        return self.say(kind, **{**named, "counters": {}, "gauges": {}, **self.about, **more})


class Cast:
    """All peers of a broker; each reports while the broker is waited for.

    Attributes:
        launcher: the voice of the launcher.
        voices: of the processes that live, by name.
    """

    def __init__(self, peers: Peers) -> None:
        self.peers, self.launcher = peers, Voice(peers, LAUNCHER)
        self.voices: dict[str, Voice] = {}
        self._next_s, self._broker, self._workers = 0.0, 0, dict[str, int]()
        peers.meanwhile = self.speak

    def join(self, name: str) -> Voice:
        """A process that says hello and reports from now on."""
        voice = self.voices[name] = Voice(self.peers, name, 1000 + len(self.voices))
        voice.hello()
        return voice

    def leave(self, name: str) -> None:
        """A process says bye."""
        self.voices.pop(name).report("bye", reason="told to")

    def tell_workers(self, role: str, count: int) -> None:
        """The launcher says how many processes of a role there are."""
        self._workers[role] = count
        self.launcher.say("workers", role=role, count=count, reason="as the topology says")

    def speak(self) -> None:
        """Send the reports that are due; who hears of another broker says hello again, and the launcher what
        the last one may not have written down.
        """
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + REPORT_S
        broker = next((h.message.incarnation for h in reversed(self.peers.heard) if h.channel == CONTROL), 0)
        if self._broker and broker != self._broker:
            for role, count in self._workers.items():
                self.tell_workers(role, count)
        for voice in self.voices.values():
            if broker != self._broker:
                voice.hello()
            voice.report()
        self._broker = broker


def work_done(cast: Cast, env_steps: int, *, samplers: Mapping[str, int]) -> None:
    """Have the learners and samplers have done some work.

    Args:
        cast: where they are.
        env_steps: that the critic-learner says it has received, of the first sampler's.
        samplers: name -> transitions that it has pushed to each learner.
    """
    learners = cast.peers.plan.learning.learners
    for name, pushed in samplers.items():
        if name in cast.voices:
            cast.voices[name].about["pushed"] = dict.fromkeys(learners, pushed)
    first = f"{next(iter(samplers))}/{LIFE}"
    row = {"first": 0, "last": env_steps, "received": env_steps, "refused": 0, "lost": 0}
    for role in learners:
        part = role.removesuffix("_learner")
        counters = {f"{part}_updates": env_steps // 8}
        if role == CRITIC_LEARNER:
            counters |= {"env_steps": env_steps, "trained_transitions": 4 * env_steps}
        cast.voices[f"{role}-0"].about |= {"counters": counters, "taken": {first: row}}
