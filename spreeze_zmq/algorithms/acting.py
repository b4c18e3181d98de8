"""An algorithm as samplers have it: with the networks that are published, acting as its distribution says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Networks
from spreeze_zmq.base.errors import AlgorithmError


def acting_part(networks: Networks) -> Mapping[str, Module]:
    """The part whose networks are published with the acting one."""
    return networks.policy if networks.acting in networks.policy else networks.critic


def set_networks(algorithm: Algorithm, networks: Networks) -> None:
    """Make each network an attribute of the algorithm, ready to act."""
    for name, module in {**networks.critic, **networks.policy, **networks.targets}.items():
        setattr(algorithm, name, module.eval())


def withdraw_others(algorithm: Algorithm, networks: Networks) -> list[RemovableHandle]:
    """Leave an algorithm the networks of the acting part: what uses another one, which samplers do not get,
    raises AlgorithmError.

    Returns:
        What refuses the calls of the others, by whichever name; to be removed where they are used again.
    """
    part = acting_part(networks)
    kept = {id(each) for module in part.values() for each in module.modules()}  # activations may be shared
    group = "policy" if part is networks.policy else "critic"
    user = "act()" if algorithm.acts_by_itself() else f"the network {networks.acting!r}"
    others = {"critic": networks.critic, "policy": networks.policy, "targets": networks.targets}
    del others[group]
    handles = []
    for name, module, of in ((*item, of) for of, named in others.items() for item in named.items()):
        problem = f"{user} uses {name!r}, a network of {of}=..., which samplers do not get"
        hint = f"they have those of {group}=..., where {networks.acting!r} is; move it there"
        withdrawn = Withdrawn(algorithm, f"{problem}: {hint}")
        setattr(algorithm, name, withdrawn)
        for each in module.modules():
            if id(each) not in kept:
                handles.append(each.register_forward_pre_hook(withdrawn.refuse))
    return handles


class Withdrawn:
    """In the place of a network that samplers do not get: what uses it raises AlgorithmError."""

    def __init__(self, algorithm: Algorithm, problem: str) -> None:
        self._error = type(algorithm), problem

    def refuse(self, *given: Any, **named: Any) -> NoReturn:
        """Raise the error."""
        raise AlgorithmError(*self._error)

    __call__ = __getitem__ = __iter__ = __len__ = refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python asks any object for these
            raise AttributeError(name)
        self.refuse()
