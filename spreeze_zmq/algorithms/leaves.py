"""Finds what a backward pass reaches and nothing trains."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator

import torch

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.base.errors import AlgorithmError

#: Updates that are looked at.
LOOKED_AT = 2


class Leaves:
    """The tensors in which the backward passes of one part end, in its first ``LOOKED_AT`` updates.

    State that nothing trains is a parameter of no group of ``networks()``, or another tensor that the
    algorithm had before the first update. A tensor that a loss makes, such as the input of a gradient
    penalty, is no state, unless the next update reaches the same one. State that is only reached by the
    second update, such as a copy of the policy to stay near to, need not be trained.

    Args:
        algorithm: the one with the loss, whose networks are made.
        part: ``"critic"`` or ``"policy"``.
        remark: called with a line about state that only the second update reaches.
    """

    def __init__(self, algorithm: Algorithm, part: str, remark: Callable[[str], object]) -> None:
        self._algorithm, self._part, self._remark = algorithm, part, remark
        attributes = vars(algorithm).values()
        self._had = [weakref.ref(each) for each in attributes if isinstance(each, torch.Tensor)]
        self._reached: list[weakref.ref[torch.Tensor]] | None = None

    def check(self, loss: torch.Tensor, held: Collection[int]) -> None:
        """Look at an update, the first or the next one.

        Args:
            loss: before its backward pass.
            held: ids of the parameters that the part trains.

        Raises:
            AlgorithmError: the backward pass reaches state that nothing trains.
        """
        reached, before = [each for each in _ends(loss) if id(each) not in held], self._reached
        for tensor in reached:
            if before is not None and _is_among(tensor, before):
                raise AlgorithmError(self._algorithm, self._problem(tensor))
            if isinstance(tensor, torch.nn.Parameter) or _is_among(tensor, self._had):
                if before is None:
                    raise AlgorithmError(self._algorithm, self._problem(tensor))
                self._remark(f"{type(self._algorithm).__name__}: {self._problem(tensor)}")
        self._reached = [weakref.ref(each) for each in reached]

    def _problem(self, tensor: torch.Tensor) -> str:
        attributes = vars(self._algorithm).items()
        name = next((name for name, value in attributes if _holds(value, tensor)), "")
        what = f"self.{name}" if name else f"a tensor of shape {tuple(tensor.shape)}"
        hint = f"return it from networks(), as in Networks({self._part}={{..., {name or 'NAME'!r}: ...}})"
        problem = f"{self._part}_loss depends on {what}, which nothing trains"
        return f"{problem}: it is in no group of networks(); {hint}, or detach() it"


def _ends(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors into which a backward pass would add gradients."""
    ahead, seen = [loss.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
        ahead += [following for following, _ in node.next_functions]


def _is_among(tensor: torch.Tensor, known: Iterable[weakref.ref[torch.Tensor]]) -> bool:
    return any(tensor is each() for each in known)


def _holds(value: object, tensor: torch.Tensor) -> bool:
    if isinstance(value, torch.nn.Module):
        return any(tensor is each for each in value.parameters())
    return value is tensor
