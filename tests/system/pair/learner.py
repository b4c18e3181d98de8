"""Either half of a pair of learners, from PROTOCOL.md alone: ``python ROLE RUN_FILE INDEX``, by its folder.

The critic fits the reward by a line in observation and action, and the policy climbs it.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import time
import zlib
from pathlib import Path

import msgpack
import numpy as np
import zmq

role, run_file, index = Path(sys.argv[0]).name, *sys.argv[1:3]
plan = json.loads(Path(run_file).read_text())
if plan["format"] != 2:
    sys.exit(2)
name, incarnation = f"{role}-{index}", secrets.randbelow(2**53 - 1) + 1
folder, sockets = Path(plan["run_dir"]), Path(plan["socket_dir"])
env, balance, learning = plan["environment"], plan["balance"], plan["learning"]
low, high = (np.float32(env[key]).ravel() for key in ("action_low", "action_high"))
size_obs, size_act, is_critic = env["obs_shape"][0], low.size, role == "critic_learner"
PATTERNS = {"push": zmq.PUSH, "pull": zmq.PULL, "pub": zmq.XPUB, "sub": zmq.SUB}
DESCRIPTION = {
    "layers": [{"kind": "linear", "in": size_obs, "out": 2 * size_act}],
    "distribution": {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0},
    "observation": {"shape": [size_obs], "normalize": False, "clip": 10.0},
}
context, locks, began_s, stopping = zmq.Context(), [], time.time(), []
signal.signal(signal.SIGTERM, lambda *_: stopping.append("SIGTERM"))


def hold(path):
    """L2, L4 and C9."""
    locks.append(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600))
    try:
        fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{path} is taken")
    os.ftruncate(locks[-1], 0)
    os.write(locks[-1], f"{os.getpid()} {incarnation}".encode())


class Channel:
    """One end of a channel."""

    def __init__(self, channel):
        self.about, self.kinds = plan["channels"][channel], plan["channels"][channel]["kinds"]
        self.socket = context.socket(PATTERNS[plan["components"][role]["channels"][channel]])
        self.sequence, self.had, self.latest = 0, {}, None
        self.socket.linger, self.socket.reconnect_ivl_max = 1000, 200
        self.socket.sndhwm = self.socket.rcvhwm = self.about["high_water_mark"]
        if self.socket.type == zmq.XPUB:
            self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        if self.about["binds"] == role:
            hold(self.about["endpoint"].removeprefix("ipc://"))
            self.socket.bind(self.about["endpoint"])
        else:
            self.socket.connect(self.about["endpoint"])
        if self.socket.type == zmq.SUB:
            self.socket.subscribe(b"")

    def send(self, kind, fields, arrays):
        """Whoever takes no reports misses one."""
        header = {"protocol": 1, "kind": kind, "sender": name, "incarnation": incarnation}
        header |= {"arrays": [[key, array.dtype.name, array.shape] for key, array in arrays.items()]}
        header |= {"sequence": self.sequence, "fields": fields}
        self.latest = header, [array.tobytes() for array in arrays.values()]
        if self.socket.type == zmq.XPUB or self.socket.poll(0, zmq.POLLOUT):
            self.socket.send_multipart([msgpack.packb(header), *self.latest[1]])
            self.sequence += 1

    def repeat(self):
        """C10."""
        while self.socket.poll(0):
            if self.socket.recv()[:1] == b"\1" and self.latest:
                header, arrays = self.latest
                self.socket.send_multipart([msgpack.packb({**header, "repeat": True}), *arrays])

    def receive(self):
        """The next message that is news: its header and arrays."""
        while self.socket.poll(0):
            try:
                frames = self.socket.recv_multipart()
                header = msgpack.unpackb(frames[0], max_ext_len=0)
                key = header["sender"], header["incarnation"], header["kind"]
                arrays = {
                    text: np.frombuffer(frame, dtype).reshape(shape)
                    for (text, dtype, shape), frame in zip(header["arrays"], frames[1:], strict=True)
                }
            except Exception as error:
                print(f"passed over: {error}", file=sys.stderr)
                continue
            if header["kind"] in self.kinds and not (
                header.get("repeat") and header["sequence"] <= self.had.get(key, -1)
            ):
                self.had[key] = header["sequence"]
                return header, arrays
        return None


hold(sockets / name)
control, report = Channel("control"), Channel("report")
rollouts, news = Channel(f"experience.{role}"), Channel("policy" if is_critic else "critic")
own = Channel("critic" if is_critic else "policy")
weights = np.zeros(
    size_obs + size_act + 1 if is_critic else 2 * size_act * size_obs + 2 * size_act, np.float32
)
counts = {"version": 0, "updates": 0, "env_steps": 0, "trained": 0}
taken, data, heard, life, rng = {}, [], None, 0, np.random.default_rng([plan["run"]["seed"], is_critic])


def restore():
    """From the newest whole checkpoint, of this run or of the one that it goes on from."""
    global weights
    places = sorted((folder / "checkpoints").iterdir(), reverse=True)
    places += [Path(plan["run"]["resume_from"])] if plan["run"]["resume_from"] else []
    for place in places:
        try:
            parts = json.loads((place / "MANIFEST.json").read_text())["parts"]
            files = {part["name"]: (place / part["name"]).read_bytes() for part in parts}
            if all(zlib.crc32(files[part["name"]]) == part["crc32"] for part in parts):
                saved = np.load(place / f"{role}.npz")
                weights = saved["weights"]
                counts.update(zip(counts, saved["counts"].tolist(), strict=True))
                return
        except (OSError, ValueError, KeyError):
            continue


def save(place):
    """T4."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{role}.npz"
    np.savez(place / f".{role}.npz", weights=weights, counts=np.array(list(counts.values())))
    (place / f".{role}.npz").rename(path)
    content = path.read_bytes()
    about = {"name": path.name, "bytes": len(content), "crc32": zlib.crc32(content)}
    report.send("part", {"folder": place.name, "part": {path.name: about}}, {})


def publish(*, is_new):
    """The weights; the version of a policy is written down before."""
    counts["version"] += is_new
    fields = {"version": counts["version"], "layout": f"{weights.size:016x}"}
    if is_critic:
        fields |= {"critic_updates": counts["updates"], "env_steps": counts["env_steps"]}
        return own.send("critic", fields, {"parameters": weights})
    version_file.seek(0)
    version_file.write(counts["version"].to_bytes(8, "little"))
    version_file.flush()
    fields |= {"critic_updates": heard["critic_updates"] if heard else 0, "actor_updates": counts["updates"]}
    fields |= {"description": DESCRIPTION, "extras": {"env_steps": counts["env_steps"]}}
    return own.send("policy", fields, {"parameters": weights, "action_low": low, "action_high": high})


def take():
    """One rollout, if one has come: T3 and T5."""
    if (message := rollouts.receive()) is None:
        return
    header, arrays = message
    fields = header["fields"]
    size = fields["num_steps"] * fields["num_envs"]
    begin = fields["produced"] - size
    row = taken.setdefault(
        f"{header['sender']}/{header['incarnation']}",
        {"first": begin, "last": begin, "received": 0, "refused": 0, "lost": 0},
    )
    row["lost"] += begin - row["last"]
    row["last"] = fields["produced"]
    good = all(np.isfinite(array).all() for array in arrays.values() if array.dtype == np.float32)
    row["received" if good else "refused"] += size
    if good and is_critic:
        counts["env_steps"] += size
        x = [
            arrays["obs"][:-1].reshape(size, size_obs),
            arrays["action"].reshape(size, size_act),
            np.ones((size, 1)),
        ]
        data.append((np.concatenate(x, 1), arrays["reward"].reshape(size)))
        del data[:-200]


def counted():
    """Transitions received that the replay ratio counts."""
    return max(0, counts["env_steps"] - learning["learning_starts"])


def train():
    """One update, if it is due; returns whether it was."""
    global weights, slope
    if is_critic:
        ahead = learning["batch_size"] + counts["trained"] > balance["replay_ratio"] * counted()
        if ahead or not data:
            return False
        x, reward = data[rng.integers(len(data))]
        error = x @ weights - reward
        weights = (weights - 1e-3 * (error @ x) / len(x)).astype(np.float32)
        counts["trained"] += learning["batch_size"]
    else:
        if (
            heard is None
            or counts["updates"] - met[1] >= (heard["critic_updates"] - met[0]) // learning["policy_delay"]
        ):
            return False
        weights[2 * size_act * size_obs : 2 * size_act * size_obs + size_act] += 1e-4 * np.sign(slope)
    counts["updates"] += 1
    return True


def figures():
    """size_act report."""
    usage = os.times()
    counters = {"critic_updates" if is_critic else "actor_updates": counts["updates"]}
    if is_critic:
        counters |= {"env_steps": counts["env_steps"], "sampled_transitions": counted()}
        counters |= {"trained_transitions": counts["trained"]}
    else:
        counters |= {"policy_version": counts["version"]}
    fields = {"role": role, "name": name, "pid": os.getpid(), "time_s": time.time()}
    fields |= {"uptime_s": time.time() - began_s, "cpu_s": usage.user + usage.system, "rss_bytes": 1 << 26}
    return fields | {"clock_s": {}, "counters": counters, "gauges": {}, "taken": taken, "waiting_for": ""}


restore()
if not is_critic:
    version_file = os.fdopen(os.open(sockets / "policy.version", os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    last = int.from_bytes(version_file.read(8), "little")
    counts["version"] = max(last + 1 if last else 0, counts["version"])
met, slope, report_s, publish_s, knows = (0, 0), np.zeros(size_act), 0.0, 0.0, False
report.send(
    "hello", {"role": role, "name": name, "pid": os.getpid(), "protocol": 1, "host": socket.gethostname()}, {}
)
publish(is_new=False)
poller = zmq.Poller()
for channel in (control, rollouts, news, own):
    poller.register(channel.socket, zmq.POLLIN)
while not stopping:
    own.repeat()
    while (message := control.receive()) is not None:
        fields = message[0]["fields"]
        if message[0]["kind"] == "stop" and {role, "*"} & set(fields["roles"]):
            stopping.append(fields["reason"])
        elif message[0]["kind"] == "checkpoint":
            save(folder / "checkpoints" / fields["folder"])
    while (message := news.receive()) is not None:
        knows = True  # the critic-learner takes nothing before it knows a policy
        if not is_critic:
            fields, slope = message[0]["fields"], message[1]["parameters"][size_obs : size_obs + size_act]
            if heard is None or message[0]["incarnation"] != life:
                met, life = (fields["critic_updates"], counts["updates"]), message[0]["incarnation"]
            heard, counts["env_steps"] = fields, fields["env_steps"]
    due = counts["trained"] + learning["batch_size"]  # one more batch, which needs so many samples
    allowed = due / balance["replay_ratio"] + learning["learning_starts"]
    wants = not is_critic or (knows and (not data or counts["env_steps"] <= allowed))
    if wants:
        take()
    trained = train()
    if trained and time.time() >= publish_s:
        publish_s = time.time() + 0.05
        publish(is_new=True)
    if time.time() >= report_s:
        report_s = time.time() + 0.5
        report.send("report", figures(), {})
    if not trained:
        poller.modify(rollouts.socket, zmq.POLLIN if wants else 0)
        poller.poll(100)
while rollouts.socket.poll(100) and time.time() < report_s + 2:
    take()
report.send("bye", {**figures(), "reason": stopping[0]}, {})
time.sleep(0.2)
context.destroy(1000)
