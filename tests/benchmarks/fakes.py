"""Many fake samplers that speak the real protocol to a real broker and real learners: what each number costs.

    python tests/benchmarks/fakes.py 10 100 300 1000 --seconds 20
    python tests/benchmarks/fakes.py 1000 --without-learners --soft-files 1024
    python tests/benchmarks/fakes.py 300 --set balance.mode=bounded

A fake holds its name and has its own sockets, incarnation, hello, bye, two reports a second and, where
learners run, rollouts of 16 x 1 constant steps at a stated rate. It heeds ``collect_until`` and waits for
room as a sampler does; it acts in no environment. A process has up to ``PER_PROCESS`` fakes, and serves each
every half second, so that a rate above two rollouts a second comes in bursts.

A line for each number: samplers in the broker's sums, shares of a core of the run's processes, the broker's
resident memory and descriptors, rows and bytes of its largest status, reports that fakes sent in a second,
how many found no place, messages refused, the journal's bytes in a second, and transitions ``produced`` as
the account says at the end and as the fakes counted them. In a mode that bounds the lag by count also how
many policies a fake took that gave it no limit although its stream was known.
"""

import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import psutil
import whole_runs
import zmq

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CONTROL, LEARNERS, POLICY, REPORT, SAMPLER, experience_of
from spreeze_zmq.wire import Message, channels, rollout_message
from spreeze_zmq.wire.channels import contexts

#: Most fakes in one process, whose descriptors are a dozen each.
PER_PROCESS = 250
#: Interval of a fake's reports, and of its looks at what has come for it.
INTERVAL_S = 0.5
NUM_STEPS = 16
#: Longest time for fakes to be heard, and for them and for the run to end.
BEGIN_S, END_S = 120.0, 60.0
#: Rollouts after which a fake counts as known to the learners: more than fit in the queues between them.
KNOWN_AFTER = 40
#: The gauges of a sampler's report; the values are of no matter.
GAUGES = dict.fromkeys(
    (
        *("reward_min", "reward_max", "reward_rms", "obs_mean", "obs_std", "obs_still", "truncated"),
        *("terminated", "action_at_bounds", "action_one_sided"),
    ),
    0.5,
)


class Fake:
    """One sampler.

    Attributes:
        pushed: learner -> transitions that ZeroMQ has taken.
        policies: policies that came once its stream was known; ``unlimited`` of them gave it no limit.
    """

    def __init__(self, plan, index, per_s):
        self.name, self.incarnation = f"{SAMPLER}-{index}", 1 + int.from_bytes(os.urandom(6), "little")
        self.claim = channels.Claim.take(Path(plan.socket_dir, self.name))
        self.outbox = self._open(plan, REPORT, "push")
        self.control, self.policy = (self._open(plan, name, "sub") for name in (CONTROL, POLICY))
        learners = [role for role in plan.learning.learners if per_s]
        self.outlets = {role: self._open(plan, experience_of(role), "push") for role in learners}
        self.fields = {role: plan.channels[experience_of(role)].fields for role in learners}
        self.rollout, self.per_s = self._rollout(plan.environment), per_s
        self.pushed, self.limit, self.version = dict.fromkeys(learners, 0), 0.0, None
        self.sent = self.dropped = self.policies = self.unlimited = 0
        self.began_s = 0.0

    def _open(self, plan, channel, end):
        return channels.open_channel(plan.channels[channel], end, self.name, self.incarnation)

    def _rollout(self, env):
        """Steps in which nothing happens."""
        sizes = {"T": NUM_STEPS, "N": 1, "K": 0, "T + 1": NUM_STEPS + 1, "k - 1": 0}
        entries = {"obs": env.obs_shape, "action": env.action_shape, "number": (), "index": (2,)}
        types = {"obs": env.obs_dtype, "action": "float32" if env.action_kind == "box" else "int64"}
        arrays = {}
        for name, form in ARRAY_FIELDS.items():
            if form.entry in entries and name not in ("history", "state"):
                dtype = types.get(form.entry, form.dtypes[0])
                arrays[name] = np.zeros(form.shape(sizes, entries), dtype)
        return Rollout(self.name, self.incarnation, 0, 0, 0, NUM_STEPS, 1, **arrays)

    def _say(self, kind, **more):
        about = {"role": SAMPLER, "name": self.name, "pid": os.getpid(), **more}
        taken = self.outbox.try_push(Message(kind, about))
        self.sent, self.dropped = self.sent + taken, self.dropped + (not taken)

    def begin(self):
        """Say hello, as a sampler does once all is set up."""
        self.began_s = time.monotonic()
        self._say("hello", protocol=1, host="fakes")

    def report(self, kind="report", **more):
        """Send the figures that a sampler sends."""
        uptime_s = time.monotonic() - self.began_s
        clock_s = {"busy": 0.1 * uptime_s, "blocked": 0.0, "starved": 0.9 * uptime_s, "idle": 0.0}
        self._say(
            kind,
            **{"time_s": time.time(), "uptime_s": uptime_s, "cpu_s": 0.1 * uptime_s, "rss_bytes": 10**8},
            **{"clock_s": clock_s, "counters": {"reports_dropped": self.dropped}, "gauges": GAUGES},
            **{"pushed": self.pushed, "waiting_for": "", "refused": [], **more},
        )

    def listen(self, read):
        """Take everything that has come; the last policy's version and limit hold from now on."""
        newest = None
        for socket in (self.control.socket, self.policy.socket):
            try:
                while True:
                    frames = socket.recv_multipart(zmq.DONTWAIT)
                    newest = frames[0] if socket is self.policy.socket else newest
            except zmq.Again:
                pass
        if newest is None:
            return
        fields = read(newest)
        self.version, limits = fields["version"], fields.get("collect_until", {"*": np.inf})
        own = limits.get(f"{self.name}/{self.incarnation}", limits.get("*"))
        is_known = max(self.pushed.values(), default=0) >= KNOWN_AFTER * NUM_STEPS
        if "collect_until" in fields and is_known:
            self.policies, self.unlimited = self.policies + 1, self.unlimited + (own is None)
        self.limit = np.inf if own is None else own

    def push(self, now_s):
        """Push the rollouts that are due by now, as far as there are places and the limit allows."""
        due = (now_s - self.began_s) * self.per_s * NUM_STEPS
        while self.version is not None and self.outlets and max(self.pushed.values()) < min(due, self.limit):
            for role, outlet in self.outlets.items():
                produced = self.pushed[role] + NUM_STEPS
                about = replace(self.rollout, produced=produced, policy_version=self.version)
                if not outlet.try_push(rollout_message(about, self.fields[role])):
                    return
                self.pushed[role] = produced


def fake(run_file, first, count, per_s):
    """A process of fakes: a line ``count`` or ``stop`` is answered with one of JSON, its counts."""
    context = contexts.this_thread.context
    context.set(zmq.MAX_SOCKETS, 16 * count + 100)
    plan, cache = Plan.read(Path(run_file)), {}

    def read(header):
        if header not in cache:
            cache.clear()
            cache[header] = msgpack.unpackb(header)["fields"]
        return cache[header]

    fakes = [Fake(plan, first + index, per_s) for index in range(count)]
    due_s, turn = time.monotonic(), 0
    while True:
        due_s = max(due_s + INTERVAL_S / count, time.monotonic() - INTERVAL_S)
        wait_s = max(0.0, due_s - time.monotonic())
        if select.select([sys.stdin], [], [], wait_s if turn % 20 == 0 else 0)[0]:
            stopping = sys.stdin.readline().strip() != "count"
            for one in fakes if stopping else ():
                one.report("bye", reason="told to")
            names = ("sent", "dropped", "policies", "unlimited")
            counts = {name: sum(getattr(one, name) for one in fakes) for name in names}
            counts["pushed"] = sum(one.pushed.get(LEARNERS[0], 0) for one in fakes)
            print(json.dumps(counts), flush=True)
            if stopping:
                sys.stdin.read()  # until the run has heard the last words
                os._exit(0)
        time.sleep(max(0.0, due_s - time.monotonic()))
        one, turn = fakes[turn % count], turn + 1
        if turn <= count:
            one.begin()
        one.listen(read)
        one.push(time.monotonic())
        one.report()


class Swarm:
    """The processes of fakes."""

    def __init__(self, run_file, count, per_s):
        sizes = [min(PER_PROCESS, count - first) for first in range(0, count, PER_PROCESS)]
        command = [sys.executable, __file__, "--fake", str(run_file)]
        self.processes = [
            subprocess.Popen(
                [*command, str(PER_PROCESS * number), str(size), str(per_s)],
                **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
            )
            for number, size in enumerate(sizes)
        ]

    def ask(self, word="count"):
        """The sums of their counts."""
        for process in self.processes:
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process in self.processes]
        return {name: sum(answer[name] for answer in answers) for name in answers[0]}

    def close(self):
        """Let them go."""
        for process in self.processes:
            process.stdin.close()
            process.wait(END_S)


class Watch:
    """The broker seen from outside: its status messages, its process and its journal."""

    def __init__(self, plan, run_dir):
        end = ("sub", "watch", 1)
        self.control, self.run_dir = channels.open_channel(plan.channels[CONTROL], *end), run_dir
        self.status, self.largest = {}, (0, 0)
        self.processes = {}

    def look(self):
        """Take the statuses that have come."""
        while self.control.socket.poll(100):
            header = self.control.socket.recv_multipart()[0]
            if (message := msgpack.unpackb(header))["kind"] == "status":
                self.status = message["fields"]
                self.largest = max(self.largest, (len(header), len(self.status["processes"])))

    def until(self, enough, most_s):
        """Look until a status is ``enough``, for at most so long; returns whether one was."""
        until_s = time.monotonic() + most_s
        while not (self.status and enough(self.status)) and time.monotonic() < until_s:
            self.look()
        return bool(self.status) and enough(self.status)

    def marks(self):
        """Time, size of the journal, and CPU seconds of the run's own ``processes``."""
        if not self.processes:
            rows = self.status["processes"].items()
            pids = {name: row["pid"] for name, row in rows if row["role"] != SAMPLER}
            self.processes = {name: psutil.Process(pid) for name, pid in sorted(pids.items())}
        size = (self.run_dir / "metrics.jsonl").stat().st_size
        return np.array([time.monotonic(), size, *(sum(p.cpu_times()[:2]) for p in self.processes.values())])


def num_samplers(status):
    """Samplers in the sums of a status."""
    return status["workers"].get(SAMPLER, {}).get("count", 0)


def measured(count, arguments, run_dir):
    """One run with so many fakes; returns its line."""
    plan = Plan.read(run_dir / "run.json")
    watch = Watch(plan, run_dir)
    assert watch.until(lambda status: f"{BROKER}-0" in status["processes"], BEGIN_S), "no status came"
    swarm = Swarm(run_dir / "run.json", count, 0.0 if arguments.without_learners else arguments.per_s)
    watch.until(lambda status: num_samplers(status) >= count, arguments.begin_s)
    if not arguments.without_learners:
        watch.until(lambda status: status["critic_updates"] > 0, arguments.begin_s)
    before, sent = watch.marks(), swarm.ask()["sent"]
    watch.until(lambda _: False, arguments.seconds)
    (span_s, journal, *cpu_s), sent = watch.marks() - before, swarm.ask()["sent"] - sent
    broker = watch.processes[f"{BROKER}-0"]
    line = {"fakes": count, "seen": num_samplers(watch.status)}
    line |= {name: f"{own_s / span_s:.0%}" for name, own_s in zip(watch.processes, cpu_s, strict=True)}
    line |= {"rss": f"{broker.memory_info().rss / 1e6:.0f} MB", "fds": broker.num_fds()}
    line |= {"rows": watch.largest[1], "status": watch.largest[0], "reports/s": round(sent / span_s)}
    line["journal"] = f"{journal / span_s / 1e3:.0f} KB/s"
    line["env steps/s"] = round(watch.status["env_steps_per_s"])
    counts = swarm.ask("stop")
    line |= {"dropped": counts["dropped"], "pushed": counts["pushed"]}
    if counts["policies"]:
        line["no limit"] = f"{counts['unlimited']} of {counts['policies']}"
    watch.until(lambda status: not num_samplers(status), END_S)
    swarm.close()
    return line


def one(count, arguments):
    """Start a run, measure it, end it; prints its line."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        overrides = ["run.stop={minutes=60}", f"components.sampler.count={count}", *arguments.set]
        away = ["sampler", "evaluator", "visualizer", *(LEARNERS if arguments.without_learners else ())]
        command = whole_runs.launch(arguments.topology, run_dir, overrides)
        command += [word for role in away for word in ("--without", role)]
        limit = f"ulimit -Sn {arguments.soft_files}; " if arguments.soft_files else ""
        shell = ["bash", "-c", f'{limit}exec "$@"', "bash", *command]
        with Path(folder, "launcher.log").open("w") as log:
            launcher = subprocess.Popen(shell, stdout=log, stderr=subprocess.STDOUT)
        try:
            while not (run_dir / "run.json").exists() and launcher.poll() is None:
                time.sleep(0.1)
            line = measured(count, arguments, run_dir)
        finally:
            launcher.terminate()
            launcher.wait(END_S)
        summary = json.loads((run_dir / "summary.json").read_text())
        line |= {"produced": summary["samples"]["produced"], "account": summary["samples"]}
        line["refused"] = sum(row["count"] for row in summary["refusals"])
        line["failures"] = summary["num_failures"]
        if arguments.show:
            print(Path(folder, "launcher.log").read_text(), *summary["refusals"][:5], sep="\n")
            print([line for line in read_journal(run_dir / "metrics.jsonl") if line["kind"] == "failure"][:3])
        print(" | ".join(f"{name} {value}" for name, value in line.items()), flush=True)


def main():
    """Measure one number of fakes after the other."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--topology", default="pendulum")
    parser.add_argument("--set", action="append", default=[], help="as of spreeze-launch")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--begin-s", type=float, default=BEGIN_S, help="longest wait for all to be seen")
    parser.add_argument("--per-s", type=float, default=1.0, help="rollouts a second of each")
    parser.add_argument("--without-learners", action="store_true")
    parser.add_argument("--soft-files", type=int, default=0, help="soft limit of open files of the run")
    parser.add_argument("--show", action="store_true", help="the launcher's output and the first refusals")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for count in arguments.counts:
        one(count, arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fake"]:
        fake(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    main()
