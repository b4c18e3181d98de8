"""Finds optimisers of an algorithm's own, which would step on gradients that are used already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.base.errors import AlgorithmError

#: What is looked through.
CONTAINERS = (dict, list, tuple, set)
#: Containers of an attribute, and items of each, that are looked through: more is data, or a tree.
MOST = 1000


def check_optimisers(algorithm: Algorithm, modules: Mapping[str, torch.nn.Module]) -> None:
    """Raise AlgorithmError if an algorithm holds an optimiser of a network that the library trains.

    Args:
        algorithm: whose attributes are looked through, with dicts, lists, tuples and sets in them.
        modules: its networks by name.
    """
    held = {id(parameter): name for name, module in modules.items() for parameter in module.parameters()}
    for name, value in vars(algorithm).items():
        for place, optimiser in _optimisers_in(f"self.{name}", value):
            for parameter in (each for group in optimiser.param_groups for each in group["params"]):
                if network := held.get(id(parameter)):
                    problem = f"{place} is an optimiser of {network!r}, which the library trains itself"
                    raise AlgorithmError(
                        algorithm, f"{problem} (options.learning_rate): it would step on nothing"
                    )


def _optimisers_in(place: str, value: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    """The optimisers in an attribute, each with its place; shallow ones first, each container once."""
    ahead, seen = deque([(place, value)]), set[int]()
    while ahead:
        place, value = ahead.popleft()
        if isinstance(value, torch.optim.Optimizer):
            yield place, value
        elif type(value) in CONTAINERS and id(value) not in seen and max(len(value), len(seen)) < MOST:
            seen.add(id(value))
            items = value.items() if type(value) is dict else enumerate(value)
            held = [each for each in items if isinstance(each[1], (torch.optim.Optimizer, *CONTAINERS))]
            ahead += [(f"{place}[{key!r}]", item) for key, item in held]
