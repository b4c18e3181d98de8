"""A stranger's sampler: ZeroMQ, MessagePack and PROTOCOL.md, random actions, and one mistake at a time."""

import fcntl
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import gymnasium as gym
import msgpack
import numpy as np
import zmq

T, N = 16, 4
plan = json.loads(Path(sys.argv[1]).read_text())
name, incarnation = f"sampler-{sys.argv[2]}", secrets.randbelow(2**53 - 1) + 1
mistake = plan["components"]["sampler"]["options"]["mistake"]
lock = Path(plan["socket_dir"], f"{name}.lock").open("a+")  # noqa: SIM115
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(os.getpid(), file=lock, flush=True)
context, began_s = zmq.Context(), time.time()
stopping = admitted = False


def err(which):
    """Whether to make this mistake now; says in the log when it is made for the first time."""
    global admitted
    if which != mistake:
        return False
    if not admitted:
        admitted = True
        print(f"mistake at {time.time():.3f}", flush=True)
    return True


def on_sigterm(*_):
    """Obey, or not."""
    global stopping
    stopping = stopping or not err("deaf")


class Channel:
    """One connecting end."""

    def __init__(self, channel, pattern):
        self.about, self.sequence, self.produced = plan["channels"][channel], 0, 0
        self.socket = context.socket(pattern)
        self.socket.linger, self.socket.reconnect_ivl_max = 1000, 200
        self.socket.sndhwm = self.socket.rcvhwm = self.about["high_water_mark"]
        if pattern == zmq.SUB:
            self.socket.subscribe(b"")
        self.socket.connect(self.about["endpoint"])

    def send(self, kind, fields, arrays):
        """Whether there was a place."""
        header = {
            "protocol": 2 if err("version 2") else 1,
            "kind": kind,
            "sender": name,
            "incarnation": incarnation,
            "sequence": self.sequence,
            "fields": fields,
            "arrays": [[key, array.dtype.name, array.shape] for key, array in arrays.items()],
        }
        if not self.socket.poll(0, zmq.POLLOUT):
            return False
        self.socket.send_multipart(
            [msgpack.packb(header), *(np.ascontiguousarray(a).tobytes() for a in arrays.values())]
        )
        self.sequence += 1
        return True

    def receive(self):
        """The next message's kind and fields."""
        if not self.socket.poll(0):
            return None
        header = msgpack.unpackb(self.socket.recv_multipart()[0])
        return header["kind"], header["fields"]


control, report = Channel("control", zmq.SUB), Channel("report", zmq.PUSH)
policies = Channel("policy", zmq.SUB)
mine = plan["components"]["sampler"]["channels"]
outlets = [Channel(channel, zmq.PUSH) for channel in mine if channel.startswith("experience.")]
clock_s, report_due_s = {"busy": 0.0, "blocked": 0.0, "starved": 0.0, "idle": 0.0}, 0.0


def about_me():
    """The fields of a report."""
    fields = {
        "role": "sampler",
        "name": name,
        "pid": os.getpid(),
        "time_s": time.time(),
        "uptime_s": time.time() - began_s,
        "cpu_s": sum(os.times()[:2]),
        "rss_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "clock_s": clock_s,
        "counters": {},
        "gauges": {},
        "pushed": {outlet.about["binds"]: outlet.produced for outlet in outlets},
    }
    if err("report without a field"):
        del fields["pid"]
    return fields


def attend(waiting_s=0.0, charge="busy", socket=None, flag=zmq.POLLIN):
    """Wait for a place or a message, hear the broker, report when due."""
    global stopping, report_due_s
    poller, from_s = zmq.Poller(), time.time()
    poller.register(control.socket, zmq.POLLIN)
    if socket is not None:
        poller.register(socket, flag)
    poller.poll(1000 * waiting_s)
    clock_s[charge] += time.time() - from_s
    while (heard := control.receive()) is not None:
        kind, fields = heard
        told = kind == "stop" and bool({"sampler", "*"} & set(fields["roles"]))
        stopping = stopping or (told and not err("deaf"))
    if time.time() >= report_due_s and not err("no heartbeat"):
        report_due_s = time.time() + 0.5
        report.send("report", about_me(), {})


def collect(obs):
    """T steps of N environments with random actions: the rollout's arrays and the last observations."""
    rows, final_obs, final_index = [], [], []
    for t in range(T):
        action = rng.integers(0, 2, N)
        following, reward, terminated, truncated, info = envs.step(action)
        rows.append((obs, action, reward, terminated, truncated))
        for n in np.flatnonzero(terminated | truncated):
            final_obs.append(info["final_obs"][n])
            final_index.append((t, n))
        obs = following
    seen, action, reward, terminated, truncated = map(np.stack, zip(*rows, strict=True))
    arrays = {
        "obs": np.concatenate([seen, obs[None]]).astype(np.float32),
        "action": action,
        "reward": reward.astype(np.float64 if err("wrong dtype") else np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "final_obs": np.array(final_obs, np.float32).reshape(-1, 4),
        "final_index": np.array(final_index, np.int32).reshape(-1, 2),
    }
    if err("[T] for [T+1]"):
        arrays["obs"] = arrays["obs"][:T]
    if len(final_index) > 1 and err("unordered index"):
        arrays["final_index"] = arrays["final_index"][::-1]
    if err("wrong width"):
        arrays["obs"], arrays["final_obs"] = (
            np.concatenate([a, a[..., :1]], -1) for a in (arrays["obs"], arrays["final_obs"])
        )
    if err("NaN reward"):
        arrays["reward"][3, 1] = np.nan
    if err("NaN observation"):
        arrays["obs"][5, 2, 0] = np.nan
    return arrays, obs


signal.signal(signal.SIGTERM, on_sigterm)
rng = np.random.default_rng(plan["run"]["seed"])
envs = gym.make_vec(
    plan["environment"]["id"],
    N,
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
)
obs, _ = envs.reset(seed=1)
if mistake != "no hello":
    hello = {"role": "sampler", "name": name, "pid": os.getpid(), "protocol": 1, "host": "here"}
    report.send("hello", hello, {})
version = None
while not stopping:
    while (news := policies.receive()) is not None:
        version = news[1]["version"]
    if version is None:
        attend(0.5, "starved", policies.socket)
        continue
    arrays, obs = collect(obs)
    for outlet in outlets:
        step = T if err("produced off") else T * N
        fields = {
            "produced": outlet.produced + step,
            "policy_version": version + 1_000_000 * err("version from the future"),
            "num_steps": T,
            "num_envs": N,
        }
        if err("missing field"):
            del fields["num_envs"]
        wanted = {key: arrays[key] for key in arrays if key in outlet.about["fields"]}
        err("no hello")  # of somebody who pushes
        sent = False
        while not sent and not stopping:
            if not (sent := outlet.send("rollout", fields, wanted)):
                attend(0.5, "blocked", outlet.socket, zmq.POLLOUT)
        outlet.produced += step * sent
    attend()
time.sleep(0.2)
report.send("bye", {**about_me(), "reason": "told to stop"}, {})
context.destroy()
