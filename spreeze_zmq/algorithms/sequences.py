"""What off-policy algorithms with a memory share: recurrent networks over sequences from a replay, R2D2
(Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.options import ReplayOptions
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import option
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

#: Weight of the largest error of a sequence in its priority, beside the mean (R2D2, section 2.3).
LARGEST_SHARE = 0.9


@dataclass(frozen=True)
class SequenceOptions(ReplayOptions):
    """Options of an off-policy algorithm whose policy may have a memory."""

    memory_size: int = option(
        0,
        "size of the policy's memory, a gated recurrent unit (1406.1078), where one observation is not "
        "enough; a batch then has sequences of steps (R2D2)",
        minimum=0,
        fixed=True,
    )
    sequence_length: int = option(
        16,
        "steps of a sequence, which is a rollout of one environment with the memory stored at its start; the "
        "same number as components.sampler.rollout_steps",
        minimum=2,
        only_with="memory_size",
        idle_at=(0,),
        fixed=True,
    )
    burn_in: bool = option(
        True,
        "go through the sequence before, where the replay has it, to bring the stored memory up to date",
        only_with="memory_size",
        idle_at=(0,),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_size:
            self._check_sequences()

    def _check_sequences(self) -> None:
        """Raise InputError where options do not go together with sequences."""
        length = self.sequence_length
        if self.n_step > length:
            raise InputError(
                f"n_step = {self.n_step} is longer than sequence_length = {length}, beyond which no rewards "
                "are summed: lower n_step, or raise sequence_length"
            )
        if self.batch_size == "auto" or self.batch_size % length:
            least = length * max(1, 0 if self.batch_size == "auto" else self.batch_size // length)
            raise InputError(
                f"batch_size = {self.batch_size!r} is no whole number of sequences of {length} steps, as "
                f"memory_size needs: write a multiple of sequence_length, such as {least}"
            )
        if self.frame_stack > 1:
            raise InputError(
                f"frame_stack = {self.frame_stack} with memory_size = {self.memory_size}: a memory is for "
                "one observation at a time; leave one of them out"
            )
        if self.hindsight != "off":
            raise InputError(
                f'hindsight = "{self.hindsight}" keeps transitions by themselves, memory_size = '
                f"{self.memory_size} needs sequences of them: leave one of them out"
            )


class Steps:
    """The transitions of a batch, each by itself.

    Args:
        batch: as a loss gets it.
        seen: makes of observations ``[B, size]`` what networks take.

    Attributes:
        batch: the transitions that are trained on, as rows.
    """

    def __init__(self, batch: Any, seen: Callable[[Tensor], Tensor]) -> None:
        self.batch, self._seen = batch, seen
        self._obs = seen(batch.obs)
        self._next_obs: Tensor | None = None

    def outputs(self, network: Module, action: Tensor | None = None) -> Tensor:
        """A network's outputs at the transitions' observations, ``[B, outputs]``; of critics at these and
        actions ``[B, A]``.
        """
        output: Tensor = network(self._obs if action is None else torch.cat((self._obs, action), 1))
        return output

    def following(self, network: Module, action: Tensor | None = None) -> Tensor:
        """The same at the observations to bootstrap from, which get no gradient."""
        if self._next_obs is None:
            with torch.no_grad():
                self._next_obs = self._seen(self.batch.next_obs)
        rows = self._next_obs if action is None else torch.cat((self._next_obs, action), 1)
        output: Tensor = network(rows)
        return output

    def priorities(self, error: Tensor) -> Tensor:
        """The priority of each entry of the replay, from the absolute errors ``[B]`` of transitions."""
        return error


class Sequences:
    """The transitions of ``n`` sequences of ``T`` steps, as :class:`Steps`: time-major, ``B = T * n``.

    The memory stored at a sequence's start was another version's. With the burn-in, a network begins with the
    one at the start of the sequence before, goes through that without gradients, and from there through the
    steps that are trained on: all of them, as each is the burn-in of the next (of overlapping sequences,
    section 3 of the paper, half at most). Where the replay does not have the one before, the stored memory is
    used as it is. Where an episode begins, memory is zeros. That after the last step whose reward is summed
    goes with the observation to bootstrap from.

    Critics, which take actions too, remember those that were taken. They begin with zeros, before the
    burn-in: the stored memory is the policy's, whose meaning another network does not know, and samplers have
    no critics. A memory of each, which begins with zeros, is that of Ni et al. 2021 (arXiv 2110.05038), who
    found that one for both learns worse.

    Args:
        batch: of a replay of sequences, as a loss gets it: rows ``[T * n, ...]``; with the burn-in ``obs``,
            ``action`` and ``begins`` have those of the sequences before first, ``[2 T * n, ...]``.
        taken: the batch's actions as critics take them; None where none do.
    """

    def __init__(self, batch: Any, taken: Tensor | None = None) -> None:
        steps, self._num = batch.begins.shape
        self._before = 0 if batch.earlier is None else steps // 2
        self._steps, self._whole, self._obs, self._taken = steps - self._before, batch, batch.obs, taken
        self._begins = batch.begins[self._before :]
        trained = {name: getattr(batch, name)[self._before * self._num :] for name in ("obs", "action")}
        if batch.weight is not None:
            trained["weight"] = batch.weight.repeat(self._steps)
        self.batch = batch._replace(**trained)
        self._after: dict[Module, Tensor] = {}

    def outputs(self, network: Module, action: Tensor | None = None) -> Tensor:
        """A network's outputs at the transitions' observations, ``[B, outputs]``; of critics at these and
        actions ``[B, A]``, after the actions that were taken before. Gradients go back to the end of the
        burn-in.
        """
        begins, (rows, start) = self._begins, self._trained(network, action is not None)
        if action is None:
            output, after = nn.unroll(network, rows, start, begins)
        else:
            after = nn.memories(network, rows, start, begins)
            before = nn.remembered(start, after, begins).flatten(0, 1)
            output = network(torch.cat((self.batch.obs, action), 1), before)[0]
        self._after[network] = after.detach()
        return output

    def following(self, network: Module, action: Tensor | None = None) -> Tensor:
        """The same at the observations to bootstrap from; without gradients into the memory."""
        after = self._after.get(network)
        if after is None:
            with torch.no_grad():
                rows, start = self._trained(network, action is not None)
                after = nn.memories(network, rows, start, self._begins)
        last = self.batch.last.view(after.shape[:2])
        memory = after.gather(0, last.unsqueeze(2).expand_as(after)).flatten(0, 1)
        next_obs = self.batch.next_obs
        rows = next_obs if action is None else torch.cat((next_obs, action), 1)
        output: Tensor = network(rows, memory)[0]
        return output

    def priorities(self, error: Tensor) -> Tensor:
        """``[n]``: a mix of the largest and the mean absolute error of each sequence (section 2.3)."""
        errors = error.view(-1, self._num)
        return LARGEST_SHARE * errors.amax(0) + (1.0 - LARGEST_SHARE) * errors.mean(0)

    def _trained(self, network: Module, judges: bool) -> tuple[Tensor, Tensor]:
        """What a network, or critics that judge actions, take of the steps that are trained on, as rows; the
        memory ``[n, M]`` before them, without gradients.
        """
        rows, memory, earlier = self._obs, self._whole.memory, self._whole.earlier
        if judges:
            assert self._taken is not None
            rows = torch.cat((rows, self._taken), 1)
            memory = earlier = torch.zeros_like(memory)
        if start := self._before * self._num:
            begins = self._whole.begins[: self._before]
            with torch.no_grad():
                burned = nn.memories(network, rows[:start], earlier, begins)[-1]
                memory = torch.where(self._whole.follows.unsqueeze(1), burned, memory)
        return rows[start:], memory


def steps_of(
    batch: Any,
    options: SequenceOptions,
    seen: Callable[[Tensor], Tensor],
    unit: Callable[[Tensor], Tensor] | None = None,
) -> Steps | Sequences:
    """The transitions of a batch as the options have them.

    Args:
        batch: as a loss gets it.
        options: of the algorithm.
        seen: makes of observations what networks take, where there is no memory.
        unit: makes of actions what critics take; None where none do.
    """
    if options.memory_size:
        return Sequences(batch, None if unit is None else unit(batch.action))
    return Steps(batch, seen)
