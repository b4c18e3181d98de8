"""A policy's deterministic mode as one module of torch, from an environment's observations to its actions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from spreeze_zmq.algorithms.class_policy import ClassPolicy
from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.actor import Box
from spreeze_zmq.policy.layers import read_layers
from spreeze_zmq.policy.observations import ObservationScaling
from spreeze_zmq.policy.torch_network import TorchNetwork

Step = Callable[[torch.Tensor], torch.Tensor]


class Deterministic(nn.Module):
    """What ``policy(obs)`` gives, traceable for any number of observations.

    Args:
        policy: of a table of layers, or of an algorithm's class.

    Attributes:
        sizes: number of choices of each discrete action; none for a box, or where a class chooses by itself.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        about = policy.description["observation"]
        rows = ObservationScaling(about, policy.arrays)
        steps = [_scaling(rows, bool(about.get("channels_last", False)))]
        distribution = policy.description["distribution"]
        arrays = policy.arrays
        box = Box(arrays["action_low"], arrays["action_high"]) if "action_low" in arrays else None
        squashed = distribution["kind"] != "normal"  # and so within the bounds
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

    def _network(self, policy: Policy, num_inputs: int) -> Step:
        if isinstance(policy.actor, ClassPolicy):
            self.parts = nn.ModuleDict(policy.actor.modules)
            network: Step = policy.actor.network
            return network
        layers = read_layers(policy.description["layers"], policy.arrays["parameters"], num_inputs)
        return TorchNetwork(layers).forward

    def scores(self, obs: torch.Tensor) -> torch.Tensor:
        """``[N, *observation_shape]`` to what the actions are chosen by: ``[N, sum(sizes)]`` of choices."""
        for step in self._steps:
            obs = step(obs)
        return obs

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """``[N, *observation_shape]`` to ``[N, *action_shape]``, float32 or int64."""
        return self._choose(self.scores(obs))


def _scaling(rows: ObservationScaling, channels_last: bool) -> Step:
    """Observations as the environment gives them to rows."""
    if rows.normalize:
        mean, std, clip = torch.tensor(rows.mean), torch.tensor(rows.std), float(rows.clip)

    def scale(obs: torch.Tensor) -> torch.Tensor:
        x = (obs.movedim(-1, -3) if channels_last else obs).flatten(1).float()
        return ((x - mean) / std).clamp(-clip, clip) if rows.normalize else x

    return scale


def _values(about: Mapping[str, Any]) -> Step:
    """The network's output to the value of each action."""
    num, atoms = about["num_actions"], about["atoms"]
    if atoms == 1:
        return lambda output: output
    support = torch.linspace(about["v_min"], about["v_max"], atoms)
    return lambda output: (output.reshape(-1, num, atoms).softmax(2) * support).sum(2)


def _best(sizes: tuple[int, ...]) -> Step:
    """The choice of the greatest score: ``[N]``, or ``[N, k]`` of several."""
    if len(sizes) == 1:
        return lambda scores: scores.argmax(1)
    ends = list(itertools.accumulate(sizes))
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return lambda scores: torch.stack([scores[:, part].argmax(1) for part in parts], 1)


def _mode(box: Box | None, squashed: bool) -> Step:
    """The mean, squashed or not, stretched to the bounds where there are some."""
    if box is None:
        return lambda output: output[:, : output.shape[1] // 2]
    num, half, centre = box.num, torch.tensor(box.half), torch.tensor(box.centre)
    clip = _clipped(box)

    def mode(output: torch.Tensor) -> torch.Tensor:
        u = output[:, :num].tanh() if squashed else output[:, :num]
        return clip(u * half + centre)

    return mode


def _clipped(box: Box) -> Step:
    """Actions within the bounds, in their shape."""
    low, high = torch.tensor(box.low), torch.tensor(box.high)
    return lambda action: action.flatten(1).maximum(low).minimum(high).reshape(-1, *box.shape)
