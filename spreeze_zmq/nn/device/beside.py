"""Repeats a replay as a plain call on the same memory and random numbers, and compares what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_flatten_with_path

ResultT = TypeVar("ResultT")

#: The replays that are compared, counted from the recording, and every so many after the last of them.
COMPARED, EVERY = (10, 100, 1000), 4000
#: How much farther a replay may be from a plain call than plain calls with the same numbers are from each
#: other, where the device adds in another order each time.
NOISE = 10.0
#: The end of the names of weights, which Adam moves.
WEIGHTS = "weights"
#: Relative distance of a replay from a plain call that is no fault: torch adds in another order where it
#: records, as in a batch normalisation. Adam may turn that into the whole move of a weight without gradient.
ROUNDING = 1e-4


def next_due(replays: int) -> int:
    """The next replay that is compared. It depends on counts, not on a clock, so that runs repeat."""
    return next((each for each in COMPARED if each > replays), (replays // EVERY + 1) * EVERY)


def beside(
    replay: Callable[[], ResultT],
    plain: Callable[[], ResultT],
    kept: Mapping[str, torch.Tensor],
    device: torch.device,
) -> tuple[ResultT, str]:
    """Replay, take everything back, and call plainly, which counts.

    Args:
        replay: fills the memory of a recording and returns its result.
        plain: the recorded function.
        kept: all tensors that it may write to, by name.
        device: the one whose random generator it draws from.

    Returns:
        The plain result, and in words what differs from the replay's, to the bit; empty if nothing does.
    """
    memory = _whole(kept)
    start = _Outcome(None, memory, device)
    replayed = _Outcome(replay(), memory, device)
    start.restore(memory, device)
    result = plain()
    first = _Outcome(result, memory, device)
    different = [name for name in first.differences(replayed) if not first.is_near(name, replayed, start)]
    if different:  # then once more, to know whether plain calls agree
        start.restore(memory, device)
        second = _Outcome(plain(), memory, device)
        different = [name for name in different if not first.is_noise(name, replayed, second)]
        first.restore(memory, device)
    return result, first.told(replayed, different[0]) if different else ""


def _whole(kept: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The whole memory that tensors are parts of, once each."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in kept.items():
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in found and storage.nbytes():
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            found[storage.data_ptr()] = name, whole.set_(storage)
    return dict(found.values())


class _Outcome:
    """Copies of a result, of all memory, and of the random generator's state."""

    @torch.no_grad()
    def __init__(self, result: Any, memory: Mapping[str, torch.Tensor], device: torch.device) -> None:
        leaves = tree_flatten_with_path(result)[0]
        named = {_name(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
        self.tensors = {name: tensor.detach().clone() for name, tensor in {**named, **memory}.items()}
        cuda: Any = torch.cuda
        on_gpu = device.type == "cuda"
        self.tensors["random numbers"] = cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()

    @torch.no_grad()
    def restore(self, memory: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Put memory and random generator back to these copies."""
        for name, tensor in memory.items():
            tensor.copy_(self.tensors[name])
        cuda: Any = torch.cuda
        state = self.tensors["random numbers"]
        if device.type == "cuda":
            cuda.set_rng_state(state, device)
        else:
            torch.set_rng_state(state)

    def differences(self, other: _Outcome) -> list[str]:
        """The names of the tensors that differ in a bit."""
        if self.tensors.keys() != other.tensors.keys():
            return sorted(self.tensors.keys() ^ other.tensors.keys())
        return [name for name, tensor in self.tensors.items() if not _same_bits(tensor, other.tensors[name])]

    def is_near(self, name: str, replayed: _Outcome, start: _Outcome) -> bool:
        """Whether a replay's difference is one of rounding."""
        mine, other = self.tensors.get(name), replayed.tensors.get(name)
        if mine is None or other is None or mine.shape != other.shape or not mine.is_floating_point():
            return False
        scale = ROUNDING * _distance(mine, torch.zeros_like(mine))
        if name.endswith(WEIGHTS):
            scale = max(scale, _distance(mine, start.tensors[name]))
        return _distance(mine, other) <= scale

    def is_noise(self, name: str, replayed: _Outcome, again: _Outcome) -> bool:
        """Whether a replay's difference is of the kind that two plain calls show."""
        mine, other, second = (each.tensors.get(name) for each in (self, replayed, again))
        if mine is None or other is None or second is None or mine.shape != other.shape:
            return False
        return mine.shape == second.shape and _distance(mine, other) <= NOISE * _distance(mine, second)

    def told(self, replayed: _Outcome, name: str) -> str:
        """A difference in words."""
        mine, other = self.tensors.get(name), replayed.tensors.get(name)
        if mine is None or other is None:
            return name
        if mine.numel() == other.numel() == 1:
            return f"{name} is {other.item():.6g} where the call gives {mine.item():.6g}"
        if mine.shape != other.shape:
            return f"{name} has the shape {list(other.shape)} where the call gives {list(mine.shape)}"
        return f"{name} differs by up to {float((mine.double() - other.double()).abs().max()):.3g}"


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm())


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    mine, theirs = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(mine, theirs)


def _name(path: tuple[Any, ...]) -> str:
    """The last key of a path into a result; priorities have a number only."""
    last = getattr(path[-1], "key", None) if path else None
    return last if isinstance(last, str) else "the result" if not path or path[0].idx == 0 else "priorities"
