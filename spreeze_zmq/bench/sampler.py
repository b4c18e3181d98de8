"""The sampler in ``spreeze bench``: its environments, and a whole one at work, beside the bare physics.

The whole one is the component's own process with the bench as its peers: it gets a policy, and what it pushes
is pulled at once. Between its turns it is stopped by a signal, so that nothing else runs during the others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from spreeze_zmq import channels, envs, topology
from spreeze_zmq.bench.figures import Figure, Rate, Section, in_turn, paired, repeated
from spreeze_zmq.bench.physics import bare_physics, cycled, policy_actions
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import ComponentFailed, PeerTimeout
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.folder import RunFolder, settle
from spreeze_zmq.supervisor import Exited, ProcessSpec, Supervisor
from spreeze_zmq.wire import Message

#: Enough that one call of NumPy for each of them is small beside their physics.
NUM_ENVS = 64
HIDDEN_SIZES = (256, 256)
TIMEOUT_S = 30.0
#: Pulled before a turn is counted: what was under way when the sampler was stopped.
FLUSH_S = 0.05
#: The rate of a turn is taken between its first and its last rollout; there are at least so many.
MIN_ROLLOUTS = 4


def measure(env_id: str, seconds: float) -> Section:
    """Measure engine and whole sampler beside the bare physics for about ``seconds``.

    Raises:
        InvalidEnvironment: there is no such environment, or no policy here can act in it.
        ComponentFailed: the sampler ended; holds its last words.
        PeerTimeout: it pushed nothing.
    """
    plan = topology.load(
        "halfcheetah",
        [
            *(f"run.env={env_id}", "run.name=bench"),
            *("components.sampler.count=1", f"components.sampler.envs={NUM_ENVS}"),
        ],
    )
    num_envs: int = plan.components["sampler"].options["envs"]
    env = envs.make(env_id, num_envs, step_info=False)
    try:
        message = policy_message(plan.environment)
        actions = policy_actions(env, Policy.from_message(message.fields, message.arrays))
        limit, limit_name = bare_physics(env, env_id, actions)
        step = cycled(env.step, actions)
        with running_sampler(plan) as whole:
            ways = {
                "limit": limit,
                "engine": lambda turn_s: repeated(step, num_envs, turn_s),
                "sampler": whole.turn,
            }
            rates = in_turn(ways, seconds)
    finally:
        env.close()
    about = f"{env_id}, {num_envs} environments on one core; limit: {limit_name}"
    return Section("sampler", about, figures(rates, env.backend))


def figures(rates: dict[str, list[Rate]], backend: str) -> list[Figure]:
    """What the table says of the rates of ``limit``, ``engine`` and ``sampler``."""
    by_wall = {name: [rate.per_s for rate in measured] for name, measured in rates.items()}
    by_cpu = {name: [rate.per_cpu_s for rate in measured] for name, measured in rates.items()}
    unit, cpu_unit = "env steps/s", "env steps/CPU s"
    return [
        replace(paired("environment engine", unit, by_wall["limit"], by_wall["engine"]), note=backend),
        replace(
            paired("whole sampler", unit, by_wall["limit"], by_wall["sampler"]), note="to both learners, ipc"
        ),
        paired("whole sampler, of a core", cpu_unit, by_cpu["limit"], by_cpu["sampler"]),
    ]


class WholeSampler:
    """The sampler's process, seen from the ends of its channels that other processes would hold."""

    def __init__(self, plan: Plan, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        opened: dict[str, Any] = {
            name: channels.open_channel(plan.channels[name], end, "bench-0", 1)
            for name, end in (
                ("experience.critic_learner", "pull"),
                ("experience.actor_learner", "pull"),
                ("policy", "pub"),
                ("report", "pull"),
                ("control", "pub"),
            )
        }
        self.opened = list(opened.values())
        self.rollouts, *self.others = opened["experience.critic_learner"], opened["experience.actor_learner"]
        self.others.append(opened["report"])
        self.poller = channels.Poller()
        opened["policy"].publish(policy_message(plan.environment))

    def start(self, spec: ProcessSpec) -> None:
        """Start it, wait for its first rollout, and stop it there."""
        self.supervisor.start(spec)
        self.process = psutil.Process(self.supervisor.pids()[spec.name])
        self.pull_one()
        self.process.suspend()

    def turn(self, turn_s: float) -> Rate:
        """Let it work, pull everything at once, count transitions between the first and the last rollout."""
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

    def cpu_s(self) -> float:
        """CPU time of all its threads so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def pull_one(self) -> int:
        """Wait for the next rollout; its transitions."""
        deadline_s = time.perf_counter() + TIMEOUT_S
        while (message := self.pump(0.1)) is None:
            if time.perf_counter() > deadline_s:
                raise PeerTimeout("bench", "sampler-0", "a rollout", TIMEOUT_S)
        return int(message.fields["num_steps"] * message.fields["num_envs"])

    def pump(self, timeout_s: float) -> Message | None:
        """Take what the other channels hold, and one rollout; waits where there is nothing at all."""
        message: Message | None = self.rollouts.pull()
        for puller in self.others:
            while puller.pull() is not None:
                pass
        if message is None and not self.poller.wait(self.opened, timeout_s=max(0.0, timeout_s)):
            for event in self.supervisor.poll():
                if isinstance(event, Exited):
                    raise ComponentFailed(f"{event}\n{event.words}")
        return message

    def close(self) -> None:
        """Close this side."""
        for channel in self.opened:
            channel.close()


@contextmanager
def running_sampler(plan: Plan) -> Iterator[WholeSampler]:
    """A sampler of ``plan`` between its turns; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="spreeze-bench-") as folder:
        plan, sockets = settle(plan, RunFolder.create("bench", folder))
        try:
            with Supervisor() as supervisor:
                supervisor.end_restarts()
                whole = WholeSampler(plan, supervisor)
                try:
                    whole.start(sampler_process(plan))
                    yield whole
                finally:
                    whole.close()
        finally:
            channels.terminate()
            sockets.remove()


def sampler_process(plan: Plan) -> ProcessSpec:
    """How the launcher starts it."""
    component, folder = plan.components["sampler"], RunFolder(Path(plan.run_dir))
    return ProcessSpec(
        name="sampler-0",
        role="sampler",
        command=(*component.command, str(folder.run_file), "0"),
        log_path=folder.logs / "sampler-0.log",
        threads=component.threads,
    )


def policy_message(spec: EnvironmentSpec) -> Message:
    """A policy of random weights; its version is 1, since version 0 acts without being evaluated."""
    assert spec.action_low is not None, "checked by the algorithm"
    assert spec.action_high is not None
    sizes = (int(np.prod(spec.obs_shape)), *HIDDEN_SIZES, 2 * int(np.prod(spec.action_shape)))
    rng = np.random.default_rng(0)
    layers: list[dict[str, Any]] = []
    parameters: list[NDArray[np.float32]] = []
    for size, next_size in pairwise(sizes):
        layers += [{"kind": "linear", "in": size, "out": next_size}, {"kind": "relu"}]
        bound = 1.0 / np.sqrt(size)
        parameters.append(rng.uniform(-bound, bound, next_size * (size + 1)).astype(np.float32))
    arrays = {
        "parameters": np.concatenate(parameters),
        "action_low": spec.action_low,
        "action_high": spec.action_high,
    }
    squashed = {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0}
    observation: dict[str, Any] = {"shape": list(spec.obs_shape), "normalize": False, "clip": 10.0}
    description = {"layers": layers[:-1], "distribution": squashed, "observation": observation}
    fields = {"version": 1, "critic_updates": 0, "actor_updates": 0, "description": description, "extras": {}}
    return Message("policy", fields, arrays)
