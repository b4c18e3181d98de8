"""Statuses as the broker publishes them, from real messages in a real record."""

import numpy as np

from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology


def report(role, pid, shares=(1.0, 0.0, 0.0), rss_bytes=60e6, scale=1.0, **figures):
    """The fields of a report, as ``Component.own_report`` makes them, ``scale`` seconds after the start."""
    clock = dict(zip(("busy", "blocked", "starved"), (scale * share for share in shares), strict=True))
    base = {"role": role, "name": f"{role}-0", "pid": pid, "time_s": 0.0, "uptime_s": 1.0}
    base |= {"cpu_s": scale * shares[0], "rss_bytes": int(rss_bytes), "clock_s": {**clock, "idle": 0.0}}
    return {**base, "counters": {}, "gauges": {}, "waiting_for": "", **figures}


def evaluate(record, t_s, env_steps, mean, std):
    """Record a look at a policy and fresh episodes of the same mean, for which it may be kept."""
    fields = {"version": 3, "env_steps": env_steps, "mean_return": mean, "std_return": std}
    fields |= {"num_episodes": 30, "mean_length": 1000.0, "num_truncated": 0, "info": {}}
    fields |= {"interval_low": mean - std / 2, "interval_high": mean + std / 2}
    best = record.evaluations.best_return is None or mean > record.evaluations.best_return
    for confirmed in (False, True):
        record.evaluations.take({**fields, "confirmed": confirmed, "best": confirmed and best}, t_s)


class Recorded:
    """The record and balancer of a run of a shipped topology."""

    def __init__(self, name="pendulum", *overrides):
        self.plan = topology.load(name, overrides)
        self.record, self.balancer = RunRecord(self.plan), Balancer(self.plan)

    def status(self, state, t_s):
        """The status at a time."""
        return self.record.status(state, self.balancer.status(), t_s)


def starting():
    """A run in which only the broker is ready, and a learner waits."""
    run = Recorded("pendulum", "run.stop={}")
    run.record.take_hello("broker-0", 1, report("broker", 10), 0.3)
    owed = "critics from critic_learner (ipc:///tmp/run/critic)"
    run.record.take_hello("actor_learner-0", 2, report("actor_learner", 11, waiting_for=owed), 0.4)
    return run.status("starting", 0.4)


def large():
    """A long run on a large machine, with the widest figures."""
    stop = "return=10000, env_steps=2_000_000_000, trained_transitions=1_000_000_000_000, minutes=1000"
    run = Recorded(
        "halfcheetah",
        f"run.stop={{{stop}}}",
        "components.sampler.count=128",
    )
    record = run.record
    gauges = {"replay_ratio": 7.981, "replay_size": 1e6, "critic_loss": 0.1234, "q_mean": -12.345}
    now = {"env_steps": (1_123_456_789, 1_230_123.4), "trained_transitions": (912_345_678_901, 12_345_678.0)}
    now |= {"sampled_transitions": (114_314_707_292, 1_230_123.4)}
    now |= {"critic_updates": (1_234_567, 190.2), "critic_flops": (1e18, 9.8e12)}
    for t_s in (36_080.0, 36_083.4):
        counters = {name: value + per_s * (t_s - 36_083.4) for name, (value, per_s) in now.items()}
        critic = report("critic_learner", 1, (0.99, 0.0, 0.01), 12.4e9, t_s, counters=counters, gauges=gauges)
        lag = {"p50": 900, "p99": 5_000, "recent_p50": 1, "recent_p99": 13, "max": 12_000}
        device = {"limit_flops_per_s": 4e13 / record._num_cores}
        record.take_report("critic_learner-0", 1, {**critic, "policy_lag": lag, "device": device}, t_s)
        counters = {"actor_updates": 617_000 + 88.17 * (t_s - 36_083.4)}
        actor = report("actor_learner", 2, (0.4, 0.0, 0.6), 1e9, t_s, counters=counters)
        record.take_report("actor_learner-0", 2, {**actor, "gauges": {"actor_loss": 98.7}}, t_s)
        for number in range(128):
            fields = report("sampler", 100 + number, (0.39, 0.61, 0.0), 2.27e9, t_s)
            record.take_report(f"sampler-{number}", 100 + number, fields, t_s)
    for name in ("critic_learner-0", "actor_learner-0", *(f"sampler-{number}" for number in range(128))):
        record.processes[name].ready = True
    record.episodes.take(np.full(100, -1234.567, np.float32), np.full(100, 1000, np.int32))
    record.episodes.count = 1_123_456
    for number in range(20):
        evaluate(record, 1800.0 * (number + 1), 55_000_000 * (number + 1), -500.0 + 331.2 * number, 88.2)
    return run.status("training", 36_083.4)
