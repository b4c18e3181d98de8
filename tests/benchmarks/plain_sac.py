"""SAC's updates as one writes them in PyTorch at first, for ``spreeze bench`` to compare ours with.

Float32, autograd, a module for each network, torch's Adam; the same networks, losses and target updates as
ours, nothing left out and nothing made slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from spreeze_zmq.algorithms.interface import CriticHalf, PolicyHalf
from spreeze_zmq.bench.figures import Figure, Way, in_turn, paired, repeated
from spreeze_zmq.replay import Batch

ROUNDS = 5


def network(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with relu between them."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


class PlainSAC:
    """Both halves in one, for actions in [-1, 1].

    Args:
        critic: widths of one critic.
        policy: widths of the policy.
        fused: torch's Adam in one call for all parameters.
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
        """Of both halves."""
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


def measure_beside_plain(
    plain: PlainSAC, critic: CriticHalf, actor: PolicyHalf, batch: Batch, precision: str, seconds: float
) -> Figure:
    """Both updates of ours, at the best precision, beside both of plain PyTorch's in float32."""
    batch_size = len(batch.reward)

    def ours() -> None:
        critic.update(batch)
        actor.update(batch.obs)

    ways: dict[str, Way] = {
        "theirs": lambda turn_s: repeated(lambda: plain.update(batch), batch_size, turn_s),
        "ours": lambda turn_s: repeated(ours, batch_size, turn_s),
    }
    rates = in_turn(ways, seconds, ROUNDS)
    per_s = {way: [rate.per_s for rate in rates[way]] for way in ways}
    figure = paired(f"over plain, batch {batch_size}", "transitions/s", per_s["theirs"], per_s["ours"])
    return replace(figure, note=f"{precision}; limit: plain PyTorch, fp32")
