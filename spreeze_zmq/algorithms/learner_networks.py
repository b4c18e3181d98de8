"""The networks of an algorithm as one learner holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declared import declared
from spreeze_zmq.algorithms.flat import FlatNetworks
from spreeze_zmq.algorithms.interface import Environment


class LearnerNetworks:
    """An algorithm with its networks on a device: those that this part trains, those of the other part, and
    the targets, each kind in one flat buffer.

    Args:
        kind: the algorithm.
        options: an instance of its ``Options``.
        env: as the algorithm sees it.
        device: where the networks go.
        name: ``"critic"`` or ``"policy"``.

    Attributes:
        algorithm: the instance.
        own: what is trained here; the acting network comes first where it is among them.
        other: what the other learner publishes.
        targets: what follows the others by no gradient.
        modules: every network by its name.
        layers: those of the acting network as messages describe them; None for a class's own way to act.

    Raises:
        AlgorithmError: the algorithm's declarations do not fit together.
    """

    def __init__(
        self, kind: type[Algorithm], options: Any, env: Environment, device: torch.device, name: str
    ) -> None:
        self.algorithm, networks = declared(kind, options, env)
        parts = {"critic": dict(networks.critic), "policy": dict(networks.policy)}
        own, other = parts.pop(name), *parts.values()
        self.modules: dict[str, torch.nn.Module] = {**own, **other, **networks.targets}
        for each, module in self.modules.items():
            setattr(self.algorithm, each, module.to(device))
        acting = {**own, **other}[networks.acting]
        self.layers = None if kind.acts_by_itself() else nn.describe(acting)
        self.own = FlatNetworks(own, networks.acting, trained=True)
        self.other = FlatNetworks(other, networks.acting, trained=False)
        self.targets = FlatNetworks(networks.targets, networks.acting, trained=False)

    def put_back(self) -> None:
        """Where the algorithm has put another network under a name, such as a deep copy as its targets, copy
        its weights into the network that is trained, published and in the checkpoints. What wraps the same
        parameters stays.
        """
        for name, network in self.modules.items():
            other = getattr(self.algorithm, name)
            if other is network or {*map(id, other.parameters())} == {*map(id, network.parameters())}:
                continue
            network.load_state_dict(other.state_dict())
            setattr(self.algorithm, name, network)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of all networks, by kind."""
        return {name: networks.flat.clone() for name, networks in self._kinds()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        for name, networks in self._kinds():
            networks.flat.copy_(state[name])
        self.own.gradient.zero_()

    def _kinds(self) -> tuple[tuple[str, FlatNetworks], ...]:
        return ("own", self.own), ("other", self.other), ("targets", self.targets)
