"""A run that has lived for some seconds, as its broker knows it: what the doctor is asked about."""

import re
from dataclasses import replace

import numpy as np

from spreeze_zmq.base.files import plain
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.sightings import Sightings
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.plan import topology

#: A setting that a remedy spells out.
SETTING = re.compile(
    r"\b((?:algorithm|balance|run|groups|components)\.[\w.]+) = (\"[^\"]*\"|\{[^}]*\}|[\w.+-]*\w)"
)
BALANCE = {"movable": True, "settled": False, "last_change": ""}


class Lived:
    """A run as its broker records it, fed with the messages that its processes send."""

    def __init__(self, *overrides, name="pendulum", journal=None):
        self.source = name, overrides
        self.record = RunRecord(topology.load(name, overrides))
        self.record.cores.row = lambda now_s: {"cpus": 2.0, "cpus_of_others": self.others, "cpus_idle": 0.0}
        self.experience = Sightings(self.record.plan.environment)
        self.rollout = random_rollout(self.record.plan.environment)
        self.t_s, self.others, self.journal, self.num_episodes = 0.0, 0.0, journal, 0
        self.draw = lambda size: np.linspace(-1300.0, -700.0, size)
        self.gauges = {"critic_loss": 1.0, "q_mean": -10.0, "temperature": 0.1, "entropy": -1.0}
        self.env_steps = self.updates = 0
        self.heard = []
        self.waits, self.apart_s = {}, 1.0
        self.flops_per_s, self.limit_flops_per_s = 0.0, 0.0

    def see(self, **arrays):
        """Have the sampler's rollouts hold these arrays from now on."""
        self.rollout = replace(self.rollout, **arrays)

    def report(self, role, **figures):
        """A report of the first process of a role."""
        clock = {"busy": self.t_s, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
        clock |= {name: share * self.t_s for name, share in self.waits.get(role, {}).items()}
        fields = {
            "role": role,
            "name": f"{role}-0",
            "pid": 1,
            "cpu_s": self.t_s,
            "rss_bytes": 1,
            "clock_s": clock,
        }
        fields |= {"counters": {}, "gauges": {}, **figures}
        if self.t_s == 0:
            self.record.take_hello(f"{role}-0", 1, fields, 0.0)
        self.record.take_report(f"{role}-0", 1, fields, self.t_s)

    def note(self, kind, about):
        """One line of the journal."""
        if self.journal is not None:
            self.journal.write(kind, self.t_s, about)
        self.record.doctor.take(kind, self.t_s, about)

    def episodes(self, returns, lengths):
        """Training episodes end."""
        returns, lengths = np.array(returns, np.float32), np.array(lengths, np.int32)
        self.record.episodes.take(returns, lengths)
        about = {"count": returns.size, "mean": float(returns.mean()), "std": float(returns.std())}
        about |= {"min": float(returns.min()), "max": float(returns.max())}
        self.note("episodes", about)

    def look(self, mean, info=None, **more):
        """A policy is evaluated."""
        fields = {"version": 3, "env_steps": 500, "mean_return": mean, "std_return": 1.0, "num_episodes": 5}
        fields |= {"mean_length": 200.0, "confirmed": False, "best": False, "info": info or {}, **more}
        self.record.evaluations.take(fields, self.t_s)
        self.note("evaluation", fields)

    def follow(self, remedy):
        """What a remedy spells out is accepted by this very topology, and changes it."""
        name, overrides = self.source
        settings = [f"{key}={value}" for key, value in SETTING.findall(remedy)]
        if settings:
            is_new = topology.load(name, [*overrides, *settings]) != topology.load(name, overrides)
            assert is_new, f"{remedy}: it is so already"

    def live(self, seconds, steps=1000, updates=200, episodes=4, length=200):
        """Some seconds, or times that are further apart, each with a status; returns the names of what is
        found at their end.
        """
        for _ in range(seconds):
            self.experience.take(self.rollout)
            self.report("sampler", gauges=self.experience.figures())
            self.env_steps, self.updates = self.env_steps + steps, self.updates + updates
            counters = {"env_steps": self.env_steps, "critic_updates": self.updates}
            counters["critic_flops"] = self.flops_per_s * self.t_s
            device = {"limit_flops_per_s": self.limit_flops_per_s}
            self.report("critic_learner", counters=counters, gauges=self.gauges, device=device)
            if episodes:
                self.episodes(self.draw(episodes), [length] * episodes)
            self.note("status", plain(self.record.status("training", BALANCE, self.t_s)))
            news = self.record.doctor.news()
            for row in news:
                self.follow(row.get("try", ""))
            self.heard += news
            self.t_s += self.apart_s
        return [row["name"] for row in self.record.doctor.rows()]
