"""Checks what an algorithm declares and returns, and reports an error in its code in one line."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch

import spreeze_zmq
from spreeze_zmq.algorithms.algorithm import SET_BY_LIBRARY, Algorithm
from spreeze_zmq.algorithms.declarations import PARTS, Loss, Networks
from spreeze_zmq.algorithms.moving import MovingOptions, problems_of_names
from spreeze_zmq.algorithms.own_optimisers import check_optimisers
from spreeze_zmq.base.errors import AlgorithmError, Diverged, PolicyFailure, SpreezeError, let_interrupts_pass
from spreeze_zmq.base.schema import suggestion
from spreeze_zmq.envs.spec import EnvironmentSpec

log = logging.getLogger("spreeze")


class Fields(SimpleNamespace):
    """A batch as a loss gets it: tensors as attributes, and an error that names the nearest one."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a batch has no {name!r}; {suggestion(name, vars(self))}")

    def _replace(self, **fields: Any) -> Self:
        """A copy with other values of some fields, for a loss that is inherited; new names are refused."""
        for name in fields.keys() - vars(self).keys():
            getattr(self, name)
        return type(self)(**{**vars(self), **fields})


@contextlib.contextmanager
def blaming(
    algorithm: object,
    what: str,
    of_none: str = "",
    raising: type[AlgorithmError | PolicyFailure] = AlgorithmError,
) -> Iterator[None]:
    """Turn an exception from an algorithm's own code into an error of one line, with the place in its file;
    the log gets the traceback. Errors of the machine, such as too little memory, pass unchanged.

    Args:
        algorithm: the class or an instance.
        what: the method that runs, for the message.
        of_none: follows a message about None.
        raising: the error.
    """
    try:
        yield
    except (SpreezeError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        let_interrupts_pass(error)
        message = (str(error).strip() or "no message").splitlines()[0]
        if isinstance(error, RuntimeError) and ("CUDA error" in message or "allocate memory" in message):
            raise
        log.info("%s", traceback.format_exc())
        place, hint = _place(algorithm, error), of_none if "NoneType" in message else ""
        raise raising(algorithm, f"{what}: {place}{type(error).__name__}: {message}{hint}") from error


def _place(algorithm: object, error: BaseException) -> str:
    """``"file:line: "`` of the innermost call in the algorithm's own files or outside of torch and this
    library; empty if there is none, as in a ``Sequential`` of torch's layers.
    """
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    bases = [base for base in kind.__mro__ if issubclass(base, Algorithm) and base is not Algorithm]
    own = {inspect.getsourcefile(base) for base in bases}
    libraries = tuple(str(Path(str(module.__file__)).parent) + os.sep for module in (torch, spreeze_zmq))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in own or not frame.filename.startswith((*libraries, "<")):
            return f"{frame.filename}:{frame.lineno}: "
    return ""


def shown(value: object) -> str:
    """A value in the words of an error message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return f"{value!r:.60}"
    return f"an instance of {type(value).__name__}"


def declared(
    kind: type[Algorithm], options: MovingOptions, env: EnvironmentSpec
) -> tuple[Algorithm, Networks]:
    """An instance of an algorithm and its fresh networks.

    Raises:
        AlgorithmError: they cannot be made, have no valid names, or do not match the losses.
        InvalidEnvironment: the distribution that it makes gives no actions of ``env``.
    """
    given = "" if kind.acts_in else f", for {env.action_kind} actions"
    with blaming(kind, f"networks{given}"):
        algorithm = kind(options.live, env)
        networks: Any = algorithm.networks()
    if not isinstance(networks, Networks):
        problem = f"networks() returned {shown(networks)}, expected Networks(critic=..., policy=...)"
        raise AlgorithmError(kind, problem)
    for problem in _problems(kind, networks, options.stated):
        raise AlgorithmError(kind, problem)
    check_optimisers(algorithm, {**networks.critic, **networks.policy, **networks.targets})
    return algorithm, networks


def _problems(kind: type[Algorithm], networks: Networks, options: Any) -> Iterator[str]:
    """What is wrong with the networks of an algorithm; each check relies on those before it."""
    groups = {"critic": networks.critic, "policy": networks.policy, "targets": networks.targets}
    yield from _problems_of_modules(kind, groups, networks.acting)
    if networks.acting not in {**networks.critic, **networks.policy}:
        names = ", ".join(map(repr, (*networks.policy, *networks.critic)))
        problem = f"networks() has no network {networks.acting!r} to act with, it has {names or 'none'}"
        yield f"{problem}; name the one that acts: Networks(..., acting=NAME)"
    trained = PARTS if kind.has_policy_loss() else PARTS[:1]
    if networks.policy and len(trained) == 1:
        names = ", ".join(map(repr, networks.policy))
        problem = f"networks() gives policy {names}, but without a policy_loss nobody trains that part"
        yield f"{problem}; move it to critic=..., which critic_loss trains"
    if networks.policy and networks.acting in networks.critic:
        names = ", ".join(map(repr, networks.policy))
        problem = f"{networks.acting!r} acts and is in the critic part, but with a policy_loss"
        hint = f"move it to policy=..., or train {names} in critic_loss"
        yield f"{problem} the actor-learner publishes, which has the policy part; {hint}"
    for part in trained:
        if not any(each.numel() for module in groups[part].values() for each in module.parameters()):
            yield f"networks() gives the {part} part nothing to train"
    yield from problems_of_names(options, {part: groups[part] for part in trained})


def _problems_of_modules(
    kind: type[Algorithm], groups: Mapping[str, Mapping[str, Any]], acting: str
) -> Iterator[str]:
    """Networks that are no modules or have no name of their own, that share parameters with one of another
    group, or that are frozen in a group that is trained.
    """
    taken = {"options", "env", *SET_BY_LIBRARY}
    owners = dict[int, tuple[str, str]]()
    for group, name, module in ((group, *item) for group, named in groups.items() for item in named.items()):
        what = f"networks() gives {group} {name!r}"
        if not isinstance(module, torch.nn.Module):
            hint = "a torch.nn.Module; spreeze_zmq.nn.Number holds a single number"
            yield f"{what} as {shown(module)}, expected {hint}"
        if name in taken or hasattr(kind, name):
            yield f"{what}, a name that is taken already; choose another one"
        taken.add(name)
        for parameter in module.parameters():
            other_group, other = owners.setdefault(id(parameter), (group, f"{group} {name!r}"))
            if other_group != group:
                copied = "copy.deepcopy(network) makes another one"
                hint = copied if group == "targets" else "one group trains it"
                yield f"{what} with the parameters of {other}: {hint}"
            if group != "targets" and not parameter.requires_grad:
                hint = "targets=... holds networks that nothing trains"
                if acting in groups[group] or any(each.requires_grad for each in module.parameters()):
                    hint = "leave it, and run what stays as it is under torch.no_grad() in forward"
                    hint += ", with weight_decay 0"
                yield f"{what} with parameters that need no gradient; {hint}"


def check_finite(loss: torch.Tensor, algorithm: Algorithm, part: str, update: int) -> None:
    """Raise Diverged unless a loss, 0-d on the CPU, is finite; ``update`` counts updates for the message."""
    if not math.isfinite(value := loss.item()):
        hint = "a lower learning_rate, max_gradient_norm, or bounded rewards may help"
        raise Diverged(algorithm, f"{part}_loss is {value} at update {update}; {hint}")


def check_loss(algorithm: Algorithm, part: str, loss: Loss, size: int) -> None:
    """Raise AlgorithmError unless a loss is a scalar that depends on a trained network, with 0-d metrics and
    priorities of one number for each transition.

    Args:
        algorithm: the one with the loss.
        part: ``"critic"`` or ``"policy"``.
        loss: what its loss function returned.
        size: transitions of the batch.
    """
    name, value, errors = f"{part}_loss", loss.loss, loss.priorities
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        hint = "return a scalar such as error.square().mean()"
        raise AlgorithmError(algorithm, f"{name} returned {shown(value)}, expected a scalar tensor; {hint}")
    if not value.requires_grad:
        problem = f"{name} does not depend on any network of the {part} part: nothing can be trained"
        raise AlgorithmError(algorithm, problem)
    for metric, number in loss.metrics.items():
        if not isinstance(number, torch.Tensor) or number.dim() != 0:
            problem = f"{name} gives the metric {metric} as {shown(number)}, expected a 0-d tensor"
            raise AlgorithmError(algorithm, f"{problem} such as error.mean()")
    if errors is not None and (not isinstance(errors, torch.Tensor) or tuple(errors.shape) != (size,)):
        problem = f"{name} gives priorities as {shown(errors)}, expected a tensor of shape ({size},)"
        raise AlgorithmError(algorithm, problem)


def check_targets(algorithm: Algorithm, targets: Any, steps: int, envs: int) -> None:
    """Raise AlgorithmError unless ``targets_of`` returned tensors ``[steps, envs, ...]`` by name."""
    if not isinstance(targets, Mapping):
        raise AlgorithmError(algorithm, f"targets_of returned {shown(targets)}, expected tensors by name")
    for name, value in targets.items():
        if not isinstance(value, torch.Tensor) or value.shape[:2] != (steps, envs):
            problem = f"targets_of gives {name} as {shown(value)}, expected [{steps}, {envs}, ...]"
            raise AlgorithmError(algorithm, problem)
