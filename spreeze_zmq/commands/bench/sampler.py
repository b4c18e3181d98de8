"""The sampler section of ``spreeze bench``: environments and a whole sampler beside the bare physics.

The whole sampler is the component's own process with the bench as its peers: the bench publishes a policy and
receives rollouts at once. Outside its turns a signal suspends it, so that it does not disturb the others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.class_policy import loader_of_run
from spreeze_zmq.base.errors import ComponentFailed, PeerTimeout
from spreeze_zmq.commands.bench import isolated
from spreeze_zmq.commands.bench.figures import (
    Figure,
    Job,
    Rate,
    Section,
    Way,
    by_clock,
    in_turn,
    paired,
    repeated,
)
from spreeze_zmq.commands.bench.physics import (
    bare_physics,
    cycled,
    on_one_core,
    policy_actions,
    without_limit,
)
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy import Policy, register_class_loader
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.supervisor import Exited, ProcessSpec, Supervisor
from spreeze_zmq.wire import Message, channels

#: Enough environments that NumPy's overhead per call is small beside their physics.
NUM_ENVS = 64
TIMEOUT_S = 30.0
#: Seconds before a turn's count begins, for rollouts that were under way when the sampler was suspended.
FLUSH_S = 0.05
#: Smallest number of rollouts of a turn; its rate is taken between the first and the last one.
MIN_ROLLOUTS = 4


def measure(job: Job) -> Section:
    """Measure the engine and the whole sampler beside the bare physics for about ``job.seconds``.

    Raises:
        ComponentFailed: the sampler ended; holds its last words.
        PeerTimeout: it pushed nothing.
    """
    if why_not := without_limit(job.env_id):
        return Section("sampler", why_not, [])
    plan = bench_plan(job.env_id, job.algorithm)
    if plan.environment.action_mask:
        illegal = "says at each step which actions are legal, and the same are stepped over and over here"
        return Section("sampler", f"{job.env_id} {illegal}", [])
    register_class_loader(loader_of_run(plan.run.algorithm))
    spec, message = plan.environment, policy_message(plan)
    env = on_one_core(job.env_id, NUM_ENVS)
    try:
        actions = policy_actions(env, spec.action_shape, Policy.from_message(message.fields, message.arrays))
        limit, limit_name = bare_physics(env, job.env_id, actions)
        step = cycled(env.step, actions)
        with running_sampler(plan, message) as whole:
            ways: dict[str, Way] = {
                "limit": limit,
                "engine": partial(repeated, step, NUM_ENVS),
                "sampler": whole.turn,
            }
            rates = in_turn(ways, job.seconds)
            num_processes = len(whole.processes())
    finally:
        env.close()
    about = f"{job.env_id}, {NUM_ENVS} environments on one core; limit: {limit_name}; acting: {job.algorithm}"
    return Section("sampler", about, figures(rates, env.backend, num_processes))


def bench_plan(env_id: str, algorithm: str, use: str = "sampler") -> Plan:
    """The plan of a topology with one sampler, of the component ``use``, and defaults for all else."""
    run = {"env": env_id, "algorithm": algorithm}
    sampler = {"use": use, "count": 1, "envs": NUM_ENVS}
    return topology.load({"run": run, "components": {"sampler": sampler}})


def figures(rates: dict[str, list[Rate]], backend: str, num_processes: int) -> list[Figure]:
    """The figures made of the rates of ``limit``, ``engine`` and ``sampler``, which has so many processes."""
    by_wall = by_clock(rates)
    by_cpu = {name: [rate.per_cpu_s for rate in measured] for name, measured in rates.items()}
    unit, cpu_unit = "env steps/s", "env steps/CPU s"
    of_all = f"of {num_processes} processes" if num_processes > 1 else ""
    return [
        paired("environment engine", unit, by_wall["limit"], by_wall["engine"], backend),
        paired("whole sampler", unit, by_wall["limit"], by_wall["sampler"], "to learners, ipc"),
        paired("whole sampler, of a core", cpu_unit, by_cpu["limit"], by_cpu["sampler"], of_all),
    ]


class WholeSampler:
    """The sampler's process, and its peers' ends of its channels."""

    def __init__(self, plan: Plan, supervisor: Supervisor, policy: Message) -> None:
        self.supervisor = supervisor
        rollouts = [name for name in plan.channels if name.startswith("experience.")]
        ends = {**dict.fromkeys(rollouts, "pull"), "policy": "pub", "report": "pull", "control": "pub"}
        opened: dict[str, Any] = {
            name: channels.open_channel(plan.channels[name], end, "bench-0", 1) for name, end in ends.items()
        }
        self.opened = list(opened.values())
        self.rollouts, *self.others = (opened[name] for name in (*rollouts, "report"))
        opened["policy"].publish(policy)

    def start(self, spec: ProcessSpec) -> None:
        """Start the sampler, wait for its first rollout, and suspend it."""
        self.supervisor.start(spec)
        self.process = psutil.Process(self.supervisor.pids()[spec.name])
        self.pull_one()
        self.process.suspend()

    def turn(self, turn_s: float) -> Rate:
        """Resume the sampler, receive at once, and count transitions from the first rollout to the last."""
        self.process.resume()
        until_s = time.perf_counter() + FLUSH_S
        while time.perf_counter() < until_s:
            self.pump(until_s - time.perf_counter())
        self.pull_one()
        began_s, began_cpu_s = time.perf_counter(), self.cpu_s()
        count = transitions = 0
        while count < MIN_ROLLOUTS or time.perf_counter() - began_s < turn_s:
            transitions += self.pull_one()
            count += 1
        wall_s, cpu_s = time.perf_counter() - began_s, self.cpu_s() - began_cpu_s
        self.process.suspend()
        return Rate(transitions / wall_s, transitions / max(cpu_s, 1e-9))

    def processes(self) -> list[psutil.Process]:
        """The sampler, and the workers in which it steps a slow environment."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """CPU time of all of them."""
        times = [process.cpu_times() for process in self.processes()]
        return float(sum(each.user + each.system for each in times))

    def pull_one(self) -> int:
        """Wait for the next rollout; returns its number of transitions."""
        deadline_s = time.perf_counter() + TIMEOUT_S
        while (message := self.pump(0.1)) is None:
            if time.perf_counter() > deadline_s:
                raise PeerTimeout("bench", "sampler-0", "a rollout", TIMEOUT_S)
        return int(message.fields["num_steps"] * message.fields["num_envs"])

    def pump(self, timeout_s: float) -> Message | None:
        """Receive one rollout, if there is one, and everything on the other channels; otherwise wait."""
        message: Message | None = self.rollouts.pull()
        for puller in self.others:
            while puller.pull() is not None:
                pass
        if message is None and not channels.poll(self.opened, timeout_s=max(0.0, timeout_s)):
            for event in self.supervisor.poll():
                if isinstance(event, Exited):
                    raise ComponentFailed(f"{event}\n{event.words}")
        return message

    def close(self) -> None:
        for channel in self.opened:
            channel.close()


@contextmanager
def running_sampler(plan: Plan, policy: Message) -> Iterator[WholeSampler]:
    """A context with a suspended sampler of ``plan``, which leaves no process and no file behind."""
    with tempfile.TemporaryDirectory(prefix="spreeze-bench-") as folder:
        plan, sockets = write_plan(plan, RunFolder.create("bench", folder))
        try:
            with closing(Supervisor()) as supervisor:
                supervisor.end_restarts()
                with closing(WholeSampler(plan, supervisor, policy)) as whole:
                    whole.start(sampler_process(plan))
                    yield whole
        finally:
            channels.terminate()
            sockets.remove()


def sampler_process(plan: Plan) -> ProcessSpec:
    """The specification of the sampler's process, as in the launcher."""
    component, folder = plan.components["sampler"], RunFolder(Path(plan.run_dir))
    return ProcessSpec(
        name="sampler-0",
        command=(*component.command, str(folder.run_file), "0"),
        log_path=folder.logs / "sampler-0.log",
        environment=isolated.environment(),
        threads=component.threads,
    )


def policy_message(plan: Plan) -> Message:
    """A new policy of the run's algorithm; its version is 1, since version 0 acts without a network."""
    kind = algorithms.get(plan.run.algorithm)
    part = "policy" if kind.has_policy_loss() else "critic"
    half = algorithms.make(part, kind, kind.Options(), plan.environment, "cpu", 1)
    counts = {"version": 1, "critic_updates": 0, "actor_updates": 0}
    fields = {**counts, "description": half.description(), "extras": {}}
    return Message("policy", fields, half.policy_arrays())
