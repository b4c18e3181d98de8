"""Processes of a run that report to a broker, as a test has them."""

import time

from spreeze_zmq.wire import Message, channels


def end(peers, name):
    """A process's end of the report channel, opened once."""
    if name not in peers.ends:
        peers.ends[name] = channels.open_channel(peers.plan.channels["report"], "push", name, 1)
    return peers.ends[name]


class Voice:
    """A process of the run that reports at steady rates.

    ``cpu`` is the number of cores that it uses. A process that is ``busy`` for longer than that sleeps.
    """

    def __init__(self, peers, role, index, per_s, cpu, **shares):
        self.peers, self.role, self.name = peers, role, f"{role}-{index}"
        self.per_s, self.cpu, self.shares = per_s, cpu, shares
        self.began_s, self.greeted = time.monotonic(), False

    def speak(self):
        """Send a report of what it did until now, and before the first one a hello."""
        if not self.greeted:
            hello = {"role": self.role, "name": self.name, "pid": 1, "protocol": 1, "host": "here"}
            self.greeted = end(self.peers, self.name).try_push(Message("hello", hello))
        end(self.peers, self.name).try_push(self.report())

    def report(self):
        """What it did until now."""
        t_s = time.monotonic() - self.began_s
        clock = {name: self.shares.get(name, 0.0) * t_s for name in ("busy", "blocked", "starved", "idle")}
        fields = {"role": self.role, "name": self.name, "pid": 1, "time_s": 0.0, "uptime_s": t_s}
        fields |= {"cpu_s": self.cpu * t_s, "rss_bytes": 1000, "clock_s": clock, "counters": {}, "gauges": {}}
        amount = int(self.per_s * t_s)
        if self.role == "sampler":
            fields["pushed"] = {"critic_learner": amount, "actor_learner": amount}
        if self.role == "critic_learner":
            taken = {"first": 0, "last": amount, "received": amount, "refused": 0, "lost": 0}
            fields["taken"] = {"sampler-0/1": taken}
            fields["counters"] = {
                "env_steps": amount,
                "critic_updates": amount // 8,
                "trained_transitions": 32 * amount,
            }
        return Message("report", fields)


def run(peers, voices, kind, enough=lambda fields: True):
    """Speak twice a second until a message of a kind is ``enough``; returns its fields."""
    spoken_s = 0.0

    def speak():
        nonlocal spoken_s
        if time.monotonic() >= spoken_s:
            spoken_s = time.monotonic() + 0.5
            for voice in voices:
                voice.speak()

    peers.meanwhile = speak
    while not enough(fields := peers.next(kind).fields):
        pass
    return fields


def is_count(entry, count):
    """Whether an entry says that the broker has heard of this number of samplers."""
    return entry["topic"] == "workers" and entry["about"]["count"] == count


def say(peers, kind, **fields):
    """Send a message of the launcher to the broker."""
    end(peers, "launcher").try_push(Message(kind, fields))


def terminated(peers):
    """SIGTERM ends the broker."""
    peers.lives[0].process.terminate()
    assert peers.lives[0].process.wait(30) == 0


def begin(peers, num_samplers, per_s):
    """Start a broker; returns the processes of a run whose environments sleep and whose learners starve."""
    peers.play("broker")
    peers.start()
    say(peers, "workers", role="sampler", count=num_samplers, reason="as the topology says")
    samplers = [
        Voice(peers, "sampler", index, per_s / num_samplers, cpu=0.05, busy=1.0)
        for index in range(num_samplers)
    ]
    learners = {"critic_learner": per_s, "actor_learner": 0}
    return samplers + [
        Voice(peers, role, 0, each, cpu=0.2, busy=0.2, starved=0.8) for role, each in learners.items()
    ]
