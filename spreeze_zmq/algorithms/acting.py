"""An algorithm as samplers have it: with the networks that are published, acting as its distribution says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Networks
from spreeze_zmq.algorithms.distributions import described
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.policy.actor import SHIPPED

#: Methods of a distribution by which nobody acts.
BESIDE_ACTING = frozenset({"entropy", "arrays"})


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


def check_described(algorithm: Algorithm, distribution: Any) -> None:
    """Raise AlgorithmError unless samplers, which have the description of a distribution alone, act as the
    losses assume.

    Args:
        algorithm: the one whose distribution it is, with its networks.
        distribution: what ``distribution()`` returned.
    """
    kind, about = type(algorithm), described(distribution)
    if not kind.acts_by_itself() and (changed := _changed(type(distribution))):
        name = type(distribution).__name__
        problem = f"samplers act by a plain {about['kind']}, as {name} describes itself, not by its {changed}"
        raise AlgorithmError(kind, f"{problem}; write act(), or give what only losses call another name")
    used: Any = getattr(algorithm, "actions", None)
    if not kind.on_policy() or not hasattr(used, "describe") or (expected := described(used)) == about:
        return
    for method in ("targets_of", "policy_loss"):
        inherited = getattr(kind, method)
        if inherited is not getattr(Algorithm, method) and inherited.__module__.startswith(SHIPPED):
            problem = f"distribution() gives {about}, but {method}, which {kind.__name__} inherits, takes"
            hint = "set self.actions in __init__, and return it"
            raise AlgorithmError(kind, f"{problem} densities of self.actions, {expected}; {hint}")


def _changed(kind: type) -> str:
    """The methods of a distribution's class that take the place of those by which a class of this library
    acts; none where it describes itself, too.
    """
    order = kind.__mro__
    theirs = next((base for base in order if base.__module__.startswith(SHIPPED)), object)
    before = order[: order.index(theirs)]
    own = {name for base in before for name, value in vars(base).items() if callable(value)}
    changed = {name for name in own - BESIDE_ACTING if not name.startswith("__") and hasattr(theirs, name)}
    return "" if "describe" in own else " and ".join(sorted(changed))
