"""A policy's deterministic actions as one torch module, which the exports trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from spreeze_zmq.algorithms.class_policy import ClassPolicy
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.actor import Box
from spreeze_zmq.policy.description import read_layers
from spreeze_zmq.policy.observations import ObservationScaling
from spreeze_zmq.policy.own_environment import shifted
from spreeze_zmq.policy.torch_network import TorchNetwork

Step = Callable[[torch.Tensor], torch.Tensor]


class Deterministic(nn.Module):
    """Computes ``policy(obs)``, traceable for any number of observations.

    Args:
        policy: a table of layers, or an algorithm's class.

    Attributes:
        sizes: number of choices of each discrete action; empty for a box, or if the class itself chooses.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        about = policy.description["observation"]
        rows = ObservationScaling(about, policy.arrays)
        steps = [_scaling(rows, bool(about.get("channels_last", False)))]
        distribution = policy.description["distribution"]
        arrays = policy.arrays
        box = Box(arrays["action_low"], arrays["action_high"]) if "action_low" in arrays else None
        squashed = distribution["kind"] != "normal"  # so the action is within the bounds
        self.sizes: tuple[int, ...] = ()
        if isinstance(policy.actor, ClassPolicy) and policy.actor.acts_by_itself:
            self.parts = nn.ModuleDict(policy.actor.modules)
            algorithm = policy.actor.algorithm
            steps.append(lambda rows: algorithm.act(rows, True))
            self._choose: Step = lambda action: action if squashed or not box else _clipped(box)(action)
        else:
            steps.append(self._network(policy, rows.size))
            if distribution["kind"] == "epsilon_greedy":
                self.sizes = (distribution["num_actions"],)
                steps.append(_values(distribution))
            elif distribution["kind"] == "categorical":
                self.sizes = tuple(distribution["sizes"])
            self._choose = _best(self.sizes) if self.sizes else _mode(box, squashed)
        self._steps = steps
        self._start = torch.tensor(policy.own.action_start)

    def _network(self, policy: Policy, num_inputs: int) -> Step:
        if isinstance(policy.actor, ClassPolicy):
            self.parts = nn.ModuleDict(policy.actor.modules)
            network: Step = policy.actor.network
            return network
        layers = read_layers(policy.description["layers"], policy.arrays["parameters"], num_inputs)
        return TorchNetwork(layers).forward

    def of(self, obs: torch.Tensor, legal: torch.Tensor | None) -> torch.Tensor:
        """Own actions ``[N, *action_shape]`` for observations, among ``legal`` ones ``[N, sum(sizes)]``."""
        scores = self.scores(obs)
        action = self._choose(scores if legal is None else scores.masked_fill(~legal, -torch.inf))
        return shifted(action, self._start) if len(self._start) else action

    def scores(self, obs: torch.Tensor) -> torch.Tensor:
        """``[N, *observation_shape]`` to network outputs, or to ``[N, sum(sizes)]`` scores of choices."""
        for step in self._steps:
            obs = step(obs)
        return obs

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """``[N, *observation_shape]`` to own actions ``[N, *action_shape]``, float32 or int64."""
        return self.of(obs, None)


class LegalDeterministic(Deterministic):
    """Computes ``policy(obs, action_mask=action_mask)`` of a policy that chooses among legal actions."""

    def forward(self, obs: torch.Tensor, action_mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """As :class:`Deterministic`, with masks ``[N, sum(sizes)]`` bool."""
        return self.of(obs, action_mask)


def _scaling(rows: ObservationScaling, channels_last: bool) -> Step:
    """Observations ``[N, *observation_shape]`` to scaled rows ``[N, size]``, float32."""
    if rows.normalize:
        mean, std, clip = torch.tensor(rows.mean), torch.tensor(rows.std), float(rows.clip)

    def scale(obs: torch.Tensor) -> torch.Tensor:
        x = (obs.movedim(-1, -3) if channels_last else obs).flatten(1).float()
        return ((x - mean) / std).clamp(-clip, clip) if rows.normalize else x

    return scale


def _values(about: Mapping[str, Any]) -> Step:
    """The network's output to the (expected) value of each action, ``[N, num_actions]``."""
    num, atoms = about["num_actions"], about["atoms"]
    if atoms == 1:
        return lambda output: output
    support = torch.linspace(about["v_min"], about["v_max"], atoms)
    return lambda output: (output.reshape(-1, num, atoms).softmax(2) * support).sum(2)


def _best(sizes: tuple[int, ...]) -> Step:
    """Scores ``[N, sum(sizes)]`` to the best choices, ``[N]``, or ``[N, k]`` for ``k`` discrete actions."""
    if len(sizes) == 1:
        return lambda scores: scores.argmax(1)
    ends = list(itertools.accumulate(sizes))
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return lambda scores: torch.stack([scores[:, part].argmax(1) for part in parts], 1)


def _mode(box: Box | None, squashed: bool) -> Step:
    """The network's output to the mean action, squashed by tanh or not, and scaled to the bounds if any."""
    if box is None:
        return lambda output: output[:, : output.shape[1] // 2]
    num, half, centre = box.num, torch.tensor(box.half), torch.tensor(box.centre)
    clip = _clipped(box)

    def mode(output: torch.Tensor) -> torch.Tensor:
        u = output[:, :num].tanh() if squashed else output[:, :num]
        return clip(u * half + centre)

    return mode


def _clipped(box: Box) -> Step:
    """Actions clipped to the bounds, ``[N, *action_shape]``."""
    low, high = torch.tensor(box.low), torch.tensor(box.high)
    return lambda action: action.flatten(1).maximum(low).minimum(high).reshape(-1, *box.shape)
