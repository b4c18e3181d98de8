"""A whole sampler, written from PROTOCOL.md alone, with ZeroMQ, MessagePack, NumPy and Gymnasium.

``python sampler.py RUN_FILE INDEX``, as the launcher starts it. It keeps every clause but C4.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np
import zmq
from environments import Environments, check_finite
from messages import pass_over, read_arrays, read_header, refused


def refuse(why):
    """The input is at fault, which a restart would not mend: the run ends."""
    print(why, file=sys.stderr)
    sys.exit(2)


plan = json.loads(Path(sys.argv[1]).read_text())
if plan["format"] != 2:
    refuse(f"{sys.argv[1]} is of format {plan['format']}, expected 2")
if plan["run"].get("randomize"):
    refuse('run.randomize is not known here: leave it out, or use = "sampler"')
for channel in plan["components"]["sampler"]["channels"]:
    if plan["channels"][channel].get("curve"):
        refuse(f'channels.{channel}.curve: encryption is not known here: leave it out, or use = "sampler"')
name = f"sampler-{sys.argv[2]}"
incarnation = secrets.randbelow(2**53 - 1) + 1
lock = os.fdopen(os.open(f"{plan['socket_dir']}/{name}.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(f"{name} is taken by another process")
lock.truncate(0)
print(os.getpid(), incarnation, file=lock, flush=True)
options = plan["components"]["sampler"]["options"]
T, N = options.get("rollout_steps", 16), options.get("envs", 8)
context, began_s, stopping = zmq.Context(), time.monotonic(), ""
taken = {}  # messages of each sender and kind


def on_sigterm(*_):
    global stopping
    stopping = stopping or "SIGTERM"


class Channel:
    """One connecting end."""

    def __init__(self, channel, pattern):
        self.about, self.sequence, self.produced, self.had = plan["channels"][channel], 0, 0, {}
        self.socket = context.socket(pattern)
        self.socket.linger, self.socket.reconnect_ivl_max = 1000, 200
        self.socket.sndhwm = self.socket.rcvhwm = self.about["high_water_mark"]
        if pattern == zmq.SUB:
            self.socket.subscribe(b"")
        self.socket.connect(self.about["endpoint"])

    def send(self, kind, fields, arrays, wait_ms=0):
        """Whether there was a place, or came one."""
        header = {
            "protocol": 1,
            "kind": kind,
            "sender": name,
            "incarnation": incarnation,
            "arrays": [[key, array.dtype.name, array.shape] for key, array in arrays.items()],
            "sequence": self.sequence,
            "fields": fields,
        }
        frames = [msgpack.packb(header), *(array.tobytes() for array in arrays.values())]
        if not self.socket.poll(wait_ms, zmq.POLLOUT):
            return False
        self.socket.send_multipart(frames)
        self.sequence += 1
        return True

    def receive(self):
        """The next message that is news: its kind, fields and arrays."""
        while self.socket.poll(0):
            header = None
            try:
                frames = self.socket.recv_multipart()
                header = read_header(frames[0])
                arrays = read_arrays(header, frames[1:])
                key = (header["sender"], header["incarnation"], header["kind"])
                fields, sequence = header["fields"], header["sequence"]
            except Exception as error:
                pass_over(header, error)
                continue
            if key[2] not in self.about["kinds"] or sequence <= self.had.get(key, -1):
                continue  # of a newer version, or sent again for somebody who joined late
            self.had[key], taken[key[0], key[2]] = sequence, taken.get((key[0], key[2]), 0) + 1
            return key[2], fields, arrays
        return None


control, report = Channel("control", zmq.SUB), Channel("report", zmq.PUSH)
policies = Channel("policy", zmq.SUB)
mine = plan["components"]["sampler"]["channels"]
outlets = [Channel(channel, zmq.PUSH) for channel in mine if channel.startswith("experience.")]
clock_s, report_due_s = {"busy": 0.0, "blocked": 0.0, "starved": 0.0, "idle": 0.0}, 0.0
awake_s, waits, waits_since_s, greeted_s = time.monotonic(), "", 0.0, float("inf")
returns, lengths, ended = np.zeros(N), np.zeros(N, int), []


def about_me():
    """The fields of a report."""
    cpu = os.times()
    return {
        "role": "sampler",
        "name": name,
        "pid": os.getpid(),
        "time_s": time.time(),
        "uptime_s": time.monotonic() - began_s,
        "cpu_s": cpu.user + cpu.system,
        "rss_bytes": int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "clock_s": clock_s,
        "counters": {"reports_dropped": dropped},
        "gauges": {},
        "refused": [{**row, "good": taken.get(key[:2], 0)} for key, row in refused.items()],
        "pushed": {outlet.about["binds"]: outlet.produced for outlet in outlets},
        "waiting_for": waits if waits and time.monotonic() > waits_since_s + 1 else "",
    }


def greet():
    """Say that everything is set up."""
    global greeted_s
    greeted_s = time.monotonic()
    about = {"role": "sampler", "name": name, "pid": os.getpid(), "protocol": 1, "host": socket.gethostname()}
    report.send("hello", about, {})


def is_unheard(status):
    """Whether a broker knows this process and not that it is ready, as one that was started again may."""
    rows = status.get("processes")
    row = rows.get(name) if isinstance(rows, dict) else None
    known = isinstance(row, dict) and (row.get("pid"), row.get("ready")) == (os.getpid(), False)
    return known and time.monotonic() - greeted_s > 2


def tell_episodes(wait_ms=0):
    """Tell the broker which episodes have ended; what finds no place is told with the next ones."""
    global ended
    if ended:
        columns = zip(*ended, strict=True)
        told = {
            name: np.array(next(columns), dtype) for name, dtype in (("returns", "f4"), ("lengths", "i4"))
        }
        ended = ended if not report.send("episodes", {}, told, wait_ms) else []


def attend(charge="busy", waiting_for=None, what=""):
    """Hear the broker and report when due; meanwhile wait up to 0.2 s for a channel."""
    global stopping, report_due_s, awake_s, waits, waits_since_s, dropped
    clock_s["busy"] += time.monotonic() - awake_s
    from_s = time.monotonic()
    if waiting_for is not None:
        poller = zmq.Poller()
        poller.register(control.socket, zmq.POLLIN)
        poller.register(waiting_for.socket, zmq.POLLIN if charge == "starved" else zmq.POLLOUT)
        poller.poll(200)
    if what != waits:
        waits, waits_since_s = what, from_s
    while (heard := control.receive()) is not None:
        kind, fields, _ = heard
        if kind == "status" and is_unheard(fields):
            greet()
        if kind == "stop" and {"sampler", "*"} & set(fields["roles"]):
            stopping = stopping or fields["reason"]
    awake_s = time.monotonic()
    clock_s[charge] += awake_s - from_s
    if awake_s >= report_due_s:
        report_due_s = awake_s + 0.5
        dropped += not report.send("report", about_me(), {})
        tell_episodes()


def wait_for_place(outlet):
    """Wait until a learner takes a rollout, or until told to stop."""
    while not stopping and not outlet.socket.poll(0, zmq.POLLOUT):
        attend("blocked", outlet, f"{outlet.about['binds']} to take a rollout ({outlet.about['endpoint']})")
    attend()


@contextmanager
def usable(fields):
    """The policy is used; one that cannot act here ends the process."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        refuse(f"policy version {fields['version']} cannot be used: {error!r}")


def collect(policy, frames, masks):
    """T steps of N environments; returns the rollout, the newest k observations [k, N, ...] and masks; no
    rollout if the process must stop before.
    """
    with usable(policy[0]):
        if name_of_class := policy[0]["description"].get("class"):
            raise ValueError(f"it is the Python class {name_of_class}")
        k = policy[0]["description"]["observation"].get("stack", 1)
        frames = frames if len(frames) == k else np.repeat(frames[-1:], k, 0)  # an episode has just begun
    rows, final_obs, final_masks, final_index, history = [], [], [], [], frames[:-1]
    for t in range(T):
        obs = frames[-1]
        if stopping:
            return None, frames, masks
        with usable(policy[0]):
            action, given, log_prob = envs.draw(*policy, envs.seen(policy[0], frames), masks)
        following, reward, terminated, truncated, info = envs.step(given)
        check_finite(following, reward)
        rows.append((obs, action, reward, terminated, truncated, log_prob, masks))
        masks = envs.legal(info)
        returns[:], lengths[:] = returns + reward, lengths + 1
        for n in np.flatnonzero(terminated | truncated):
            final_obs.append(info["final_obs"][n])
            check_finite(final_obs[-1])
            final_masks.append(envs.legal(info["final_info"])[n])
            final_index.append((t, n))
            ended.append((returns[n], lengths[n]))
            returns[n] = lengths[n] = 0
        frames = np.concatenate([frames[1:], following[None]])
        frames[:, terminated | truncated] = following[terminated | truncated]
        if time.monotonic() >= report_due_s:
            attend()
    columns = map(np.stack, zip(*rows, strict=True))
    obs_rows, actions, rewards, terminated, truncated, log_probs, mask_rows = columns
    shape = (-1, *plan["environment"]["obs_shape"])
    arrays = {
        "obs": np.concatenate([obs_rows, frames[-1:]]).astype(plan["environment"]["obs_dtype"]),
        "action": actions,
        "reward": rewards.astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "final_obs": np.array(final_obs, plan["environment"]["obs_dtype"]).reshape(shape),
        "final_index": np.array(final_index, np.int32).reshape(-1, 2),
        "log_prob": log_probs,
        "history": history.astype(plan["environment"]["obs_dtype"]),
        "action_mask": np.concatenate([mask_rows, masks[None]]),
        "final_action_mask": np.array(final_masks, bool).reshape(len(final_obs), masks.shape[1]),
    }
    return arrays, frames, masks


signal.signal(signal.SIGTERM, on_sigterm)
dropped = 0
life = 0 if plan["balance"]["in_order"] else incarnation
rng = np.random.default_rng([plan["run"]["seed"], int(sys.argv[2]), life])
envs = Environments(plan, int(sys.argv[2]), N, rng)
if not envs.are_boxes:
    refuse('run.env: observations that are no Box are not flattened here: wrap them, or use = "sampler"')
first, info = envs.reset(seed=int(rng.integers(2**31 - N)))
check_finite(first)
frames, masks = first[None], envs.legal(info)
greet()
policy, limit = None, -1
while not stopping:
    for outlet in outlets:
        wait_for_place(outlet)
    while not (plan["balance"]["in_order"] and outlets[0].produced < limit):
        if (news := policies.receive()) is None:
            break
        policy = news[1:]
        limits = policy[0].get("collect_until", {})
        limit = limits.get(f"{name}/{incarnation}", limits.get("*", float("inf")))
    if outlets[0].produced >= limit:
        attend("starved", policies, f"a policy ({policies.about['endpoint']})")
        continue
    arrays, frames, masks = collect(policy, frames, masks)
    if arrays is None:
        break
    for outlet in outlets:
        fields = {
            "produced": outlet.produced + T * N,
            "policy_version": policy[0]["version"],
            "num_steps": T,
            "num_envs": N,
        }
        wanted = {key: arrays[key] for key in arrays if key in outlet.about["fields"]}
        while not (sent := outlet.send("rollout", fields, wanted)) and not stopping:
            wait_for_place(outlet)
        outlet.produced += T * N * sent
time.sleep(0.2)
tell_episodes(wait_ms=1000)
report.send("bye", {**about_me(), "reason": stopping}, {}, wait_ms=1000)
context.destroy()
