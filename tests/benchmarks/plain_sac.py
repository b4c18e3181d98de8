"""Our SAC updates beside a straightforward SAC in PyTorch.

    python tests/benchmarks/plain_sac.py --batch 256 --batch 1024 --batch 8192 --seconds 10

The straightforward one is float32, autograd, a module for each network, torch's Adam; the same networks,
losses and target updates as ours, nothing left out and nothing made slow. One core, HalfCheetah-v5, two
layers of 256 units. For each batch size, critic and actor update of ours in the best precision beside those
of plain PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import whole_runs
from torch import nn

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.files import write_json
from spreeze_zmq.commands.bench import bench
from spreeze_zmq.commands.bench.figures import Figure, Section, Way, by_clock, in_turn, paired
from spreeze_zmq.commands.bench.learner import precisions
from spreeze_zmq.commands.bench.trial import random_batch, timed
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.replay import Batch

SPEC = envs.probe("HalfCheetah-v5")
BATCH_SIZES = (256, 1024, 8192)
#: Units of each hidden layer.
HIDDEN_SIZES = (256, 256)
TURN_S = 0.1
ROUNDS = 5


def network_widths(spec: EnvironmentSpec) -> dict[str, tuple[int, ...]]:
    """Inputs, units of each hidden layer, and outputs of one critic and of the policy."""
    num_inputs, num_actions = math.prod(spec.obs_shape), math.prod(spec.action_shape)
    return {
        "critic": (num_inputs + num_actions, *HIDDEN_SIZES, 1),
        "policy": (num_inputs, *HIDDEN_SIZES, 2 * num_actions),
    }


def network(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with relu between them."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


class PlainSAC:
    """Critic and actor updates in one class, for actions in [-1, 1].

    Args:
        critic: widths of one critic.
        policy: widths of the policy.
        fused: use torch's fused Adam, one call for all parameters.
    """

    def __init__(self, critic: Sequence[int], policy: Sequence[int], fused: bool = False):
        self.critics = nn.ModuleList(network(critic) for _ in range(2))
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.policy = network(policy)
        self.num_actions = policy[-1] // 2
        self.log_temperature = torch.tensor(math.log(0.1), requires_grad=True)
        self.critic_adam, self.policy_adam, self.temperature_adam = (
            torch.optim.Adam(parameters, lr=1e-3, foreach=False, fused=fused)
            for parameters in (self.critics.parameters(), self.policy.parameters(), [self.log_temperature])
        )

    def act(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``[B, A]`` and their log densities ``[B]``."""
        mean, raw = self.policy(obs).chunk(2, dim=1)
        log_std = -5.0 + 3.5 * (raw.tanh() + 1.0)
        normal = torch.distributions.Normal(mean, log_std.exp(), validate_args=False)
        u = normal.rsample()
        log_det = 2.0 * (math.log(2.0) - u - nn.functional.softplus(-2.0 * u))
        log_prob: torch.Tensor = normal.log_prob(u)  # type: ignore[no-untyped-call]
        return u.tanh(), (log_prob - log_det).sum(1)

    def update(self, batch: Batch) -> None:
        """Both updates."""
        self.update_critic(batch)
        self.update_actor(batch)

    def update_critic(self, batch: Batch) -> None:
        """One step of both critics and their targets."""
        with torch.no_grad():
            action, log_prob = self.act(batch.next_obs)
            rows = torch.cat((batch.next_obs, action), 1)
            lowest = torch.min(*(target(rows).squeeze(1) for target in self.targets))
            soft_value = lowest - self.log_temperature.exp() * log_prob
            target = batch.reward + batch.discount * soft_value
        rows = torch.cat((batch.obs, batch.action), 1)
        loss = sum(0.5 * nn.functional.mse_loss(critic(rows).squeeze(1), target) for critic in self.critics)
        self.critic_adam.zero_grad()
        assert isinstance(loss, torch.Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        self.critic_adam.step()
        with torch.no_grad():
            pairs = zip(self.targets.parameters(), self.critics.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, 0.01)

    def update_actor(self, batch: Batch) -> None:
        """One step of policy and temperature."""
        action, log_prob = self.act(batch.obs)
        self.critics.requires_grad_(False)
        rows = torch.cat((batch.obs, action), 1)
        lowest = torch.min(*(critic(rows).squeeze(1) for critic in self.critics))
        loss = (self.log_temperature.exp().detach() * log_prob - lowest).mean()
        self.policy_adam.zero_grad()
        loss.backward()
        self.policy_adam.step()
        self.critics.requires_grad_(True)
        self.temperature_adam.zero_grad()
        error = log_prob.detach().mean() - self.num_actions
        (-self.log_temperature * error).backward()  # type: ignore[no-untyped-call]
        self.temperature_adam.step()


def halves(batch_size: int, precision: str) -> tuple[Any, Any]:
    """Our critic and actor halves."""
    kind = algorithms.get("sac")
    options = kind.Options(hidden_sizes=HIDDEN_SIZES, batch_size=batch_size, precision=precision)
    critic, actor = (algorithms.make(part, kind, options, SPEC, "cpu", 1) for part in ("critic", "policy"))
    return critic, actor


def measure_beside_plain(batch_size: int, seconds: float, precision: str) -> Figure:
    """Both updates of ours in ``precision`` beside both of plain PyTorch in float32."""
    batch, plain = random_batch(SPEC, batch_size), PlainSAC(**network_widths(SPEC))
    critic, actor = halves(batch_size, precision)

    def ours() -> None:
        critic.update(batch)
        actor.update(batch.obs)

    ways: dict[str, Way] = {
        "theirs": timed(lambda: plain.update(batch), batch_size, "cpu"),
        "ours": timed(ours, batch_size, "cpu"),
    }
    rates = by_clock(in_turn(ways, seconds, ROUNDS, TURN_S))
    note = f"{precision}; limit: plain PyTorch, fp32"
    return paired(f"over plain, batch {batch_size}", "transitions/s", rates["theirs"], rates["ours"], note)


def main() -> None:
    """Measure each batch size and print its figures."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; 256, 1024 and 8192")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="N", help="for each batch size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as in a learner
    machine, sections = bench.machine(), []
    print(bench.machine_line(machine))
    for batch_size in arguments.batch or BATCH_SIZES:
        figure = measure_beside_plain(batch_size, arguments.seconds, precisions("cpu")[-1])
        sections.append(Section("plain_sac", "critic, then actor, on one core", [figure]))
        print("\n" + bench.table(sections[-1]), flush=True)
    if arguments.json:
        write_json(arguments.json, {"machine": machine, "figures": bench.plain_figures(sections)})


if __name__ == "__main__":
    main()
