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
from spreeze_zmq.policy.own_environment import in_rows, shifted
from spreeze_zmq.policy.torch_network import TorchNetwork

Step = Callable[[torch.Tensor], torch.Tensor]


class Deterministic(nn.Module):
    """Computes ``policy(obs)``, traceable for any number of observations.

    Args:
        policy: a table of layers, or an algorithm's class.

    Attributes:
        inputs: names of what it takes: ``obs``, of a recurrent policy ``memory``, and of one that takes masks
            ``action_mask``.
        outputs: names of what it gives: ``action``, and of a recurrent policy ``next_memory``.
        sizes: number of choices of each discrete action; empty for a box, or if the class itself chooses.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        remembers, masked = bool(policy.memory_size), policy.takes_masks
        self.inputs = ("obs", *["memory"] * remembers, *["action_mask"] * masked)
        self.outputs = ("action", *["next_memory"] * remembers)
        about = policy.description["observation"]
        rows = ObservationScaling(about, policy.arrays)
        self._scale = _scaling(rows, bool(about.get("channels_last", False)))
        distribution = policy.description["distribution"]
        arrays = policy.arrays
        box = Box(arrays["action_low"], arrays["action_high"]) if "action_low" in arrays else None
        squashed = distribution["kind"] != "normal"  # so the action is within the bounds
        self.sizes: tuple[int, ...] = ()
        self._score: Step = lambda output: output
        if isinstance(policy.actor, ClassPolicy) and policy.actor.acts_by_itself:
            self.parts = nn.ModuleDict(policy.actor.modules)
            algorithm = policy.actor.algorithm
            self._network: Callable[..., Any] = lambda rows, *memory: algorithm.act(rows, True)
            self._choose: Step = _clipped(box) if box else lambda action: action
        else:
            self._network = self._network_of(policy, rows.size)
            if distribution["kind"] == "epsilon_greedy":
                self.sizes = (distribution["num_actions"],)
                self._score = _values(distribution)
            elif distribution["kind"] == "categorical":
                self.sizes = tuple(distribution["sizes"])
            self._choose = _best(self.sizes) if self.sizes else _mode(box, squashed)
        self._has_row, self._start = policy.own.has_row, torch.tensor(policy.own.action_start)
        self._limits = None if policy.own.limits is None else [*map(torch.tensor, policy.own.limits)]

    def _network_of(self, policy: Policy, num_inputs: int) -> Callable[..., Any]:
        if isinstance(policy.actor, ClassPolicy):
            self.parts = nn.ModuleDict(policy.actor.modules)
            network: Step = policy.actor.network
            return network
        layers = read_layers(policy.description["layers"], policy.arrays["parameters"], num_inputs)
        return TorchNetwork(layers).forward

    def scores(self, obs: torch.Tensor, *memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """``[N, *observation_shape]``, of a recurrent policy with its memory ``[N, M]``, to network outputs,
        or to ``[N, sum(sizes)]`` scores of choices; and to the next memory.
        """
        found = self._network(self._scale(obs), *memory)
        output, *after = found if memory else (found,)
        return self._score(output), *after

    def forward(self, *given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """What ``outputs`` names, of what ``inputs`` names: own actions ``[N, *action_shape]``, float32 or
        int64, for observations, among the legal ones of masks ``[N, sum(sizes)]`` bool.
        """
        by_name = dict(zip(self.inputs, given, strict=True))
        legal = by_name.pop("action_mask", None)
        scores, *after = self.scores(*by_name.values())
        action = self._choose(scores if legal is None else scores.masked_fill(~legal, -torch.inf))
        action = in_rows(action) if self._has_row else action
        action = shifted(action, self._start) if len(self._start) else action
        if self._limits is not None:
            action = action.maximum(self._limits[0]).minimum(self._limits[1])
        return (action, *after) if after else action


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
