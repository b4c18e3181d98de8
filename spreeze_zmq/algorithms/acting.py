"""An algorithm as samplers have it: with the networks that are published, acting as its distribution says."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import PARTS, Networks
from spreeze_zmq.algorithms.distributions import described
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.policy.actor import SHIPPED

#: Methods of a distribution by which nobody acts.
BESIDE_ACTING = frozenset({"entropy", "arrays", "noise", "unit"})
#: What helps where samplers would need a target.
OF_TARGETS = (
    "make it a part of {acting!r}, run under torch.no_grad() with weight_decay 0, or, if networks() makes it "
    "the same each time, freeze it by requires_grad_(False)"
)


def acting_part(networks: Networks) -> Mapping[str, Module]:
    """The part whose networks are published with the acting one."""
    return networks.policy if networks.acting in networks.policy else networks.critic


def set_networks(algorithm: Algorithm, networks: Networks) -> None:
    """Make each network an attribute of the algorithm, ready to act."""
    for name, module in {**networks.critic, **networks.policy, **networks.targets}.items():
        setattr(algorithm, name, module.eval())


class Withdrawn:
    """The networks of an algorithm that samplers do not get, which it has no more: those of the other parts,
    but for ``kept`` ones.

    Args:
        algorithm: as :func:`set_networks` has left it.
        networks: those that it made.
        kept: names of targets that it keeps.
    """

    def __init__(self, algorithm: Algorithm, networks: Networks, kept: Collection[str]) -> None:
        part = acting_part(networks)
        self._algorithm, self._problems = algorithm, dict[str, str]()
        self._hooks: list[RemovableHandle] = []
        group, acting = ("policy" if part is networks.policy else "critic"), networks.acting
        user = "act()" if algorithm.acts_by_itself() else f"the network {acting!r}"
        theirs = f"they have those of {group}=..., where {acting!r} is"
        others = {"critic": networks.critic, "policy": networks.policy, "targets": networks.targets}
        del others[group]
        left = [*part.values(), *(networks.targets[name] for name in kept)]
        shared = {id(each) for module in left for each in module.modules()}  # activations may be
        for name, module, of in ((*item, of) for of, named in others.items() for item in named.items()):
            if of == "targets" and name in kept:
                continue
            hint = OF_TARGETS.format(acting=acting) if of == "targets" else "move it there"
            problem = f"{user} uses {name!r}, a network of {of}=..., which samplers do not get"
            self._problems[name] = f"{problem}: {theirs}; {hint}"
            vars(algorithm).pop(name, None)
            refuse = partial(self._refuse, name)
            hooked = [each for each in module.modules() if id(each) not in shared]
            self._hooks += [each.register_forward_pre_hook(refuse) for each in hooked]

    def _refuse(self, name: str, *given: Any) -> NoReturn:
        raise AlgorithmError(type(self._algorithm), self._problems[name])

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        """Inside, what uses one of them, by whichever name, raises AlgorithmError; ``hasattr`` is False."""
        try:
            yield
        except AttributeError as error:
            if error.obj is self._algorithm and error.name in self._problems:
                self._refuse(error.name)
            raise

    def release(self) -> None:
        """Let them be called again."""
        for hook in self._hooks:
            hook.remove()


def frozen_targets(networks: Networks) -> frozenset[str]:
    """The targets of which no parameter takes a gradient; of networks as ``networks()`` returned them."""
    named = {name: [*module.parameters()] for name, module in networks.targets.items()}
    return frozenset(
        name for name, own in named.items() if own and not any(each.requires_grad for each in own)
    )


def targets_alike(algorithm: Algorithm, targets: Mapping[str, Module], names: Iterable[str]) -> set[str]:
    """Those of ``names`` that ``networks()`` makes again with the numbers that they have, as from a file:
    each process has the same ones. Draws from torch's generator stay inside.
    """
    if not (names := set(names)):
        return set()
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        again = type(algorithm)(algorithm.options, algorithm.env).networks().targets
    return {name for name in names if _are_equal(targets[name].state_dict(), again[name].state_dict())}


def _are_equal(now: Mapping[str, torch.Tensor], then: Mapping[str, torch.Tensor]) -> bool:
    return [*now] == [*then] and all(torch.equal(now[key].cpu(), then[key].cpu()) for key in now)


def check_described(algorithm: Algorithm, distribution: Any) -> None:
    """Raise AlgorithmError unless samplers, which have the description of a distribution alone, act as the
    losses assume.

    Args:
        algorithm: the one whose distribution it is, with its networks.
        distribution: what ``distribution()`` returned.
    """
    kind, about = type(algorithm), described(distribution)
    if not kind.acts_by_itself() and (changed := _changed(kind, type(distribution))):
        name = type(distribution).__name__
        problem = f"samplers act by a plain {about['kind']}, as {name} describes itself, not by its {changed}"
        hint = "write act(), or give what only losses call another name"
        other = "or define describe(), too, if samplers are to act by the plain one"
        raise AlgorithmError(kind, f"{problem}; {hint}, {other}")
    used: Any = getattr(algorithm, "actions", None)
    if not kind.on_policy() or not hasattr(used, "describe") or (expected := described(used)) == about:
        return
    for method in ("targets_of", "policy_loss"):
        inherited = getattr(kind, method)
        if inherited is not getattr(Algorithm, method) and inherited.__module__.startswith(SHIPPED):
            problem = f"distribution() gives {about}, but {method}, which {kind.__name__} inherits, takes"
            hint = "set self.actions in __init__, and return it"
            raise AlgorithmError(kind, f"{problem} densities of self.actions, {expected}; {hint}")


def _changed(kind: type[Algorithm], of: type) -> str:
    """The methods of a distribution's class that take the place of those by which a class of this library
    acts; none where it describes itself, too.
    """
    order = of.__mro__
    theirs = next((base for base in order if base.__module__.startswith(SHIPPED)), object)
    before = order[: order.index(theirs)]
    own = {name for base in before for name, value in vars(base).items() if callable(value)}
    sends_densities = any("log_prob" in kind.fields_of(part) for part in PARTS)
    beside = BESIDE_ACTING if sends_densities else BESIDE_ACTING | {"log_prob"}
    changed = {name for name in own - beside if not name.startswith("_") and hasattr(theirs, name)}
    return "" if "describe" in own else " and ".join(sorted(changed))
