"""A batch of transitions, and batches of several replays: of demonstrations and the run's own transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from spreeze_zmq.base.shares import rows_of_shares

if TYPE_CHECKING:
    from spreeze_zmq.replay.replays import ObservationReplay, Replay


@dataclass(frozen=True)
class Batch:
    """Transitions drawn from a replay; views of its buffers, valid until its next ``sample``.

    Attributes:
        obs: ``[B, *obs_shape]`` in the dtype of the environment; of images ``[B, stack * channels, height,
            width]``.
        action: ``[B, *action_shape]`` in the environment's own units.
        reward: ``[B]`` float32, the discounted sum of up to ``n_step`` rewards, divided if they are scaled.
        discount: ``[B]`` float32, gamma to the number of rewards summed; 0 after termination.
        next_obs: as ``obs``, the observation to bootstrap from.
        weight: ``[B]`` float32, each transition's weight in the loss; None if all are equal.
        action_mask: ``[B, A]`` bool, the actions that were legal at ``obs``; None where the environment gives
            no masks.
        next_action_mask: the same at ``next_obs``.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_obs: torch.Tensor
    weight: torch.Tensor | None = None
    action_mask: torch.Tensor | None = None
    next_action_mask: torch.Tensor | None = None

    def _replace(self, **fields: Any) -> Batch:
        """A copy with other values of some fields, as of a ``NamedTuple``."""
        return replace(self, **fields)

    @staticmethod
    def having(more: Sequence[str]) -> type[Batch]:
        """The class of batches with further tensors ``[B, ...]`` of these names."""
        fields = [(name, "torch.Tensor | None", None) for name in more]
        return make_dataclass("Batch", fields, bases=(Batch,), frozen=True) if more else Batch


#: What a replay's ``sample`` gives.
Sampled = Batch | torch.Tensor | Mapping[str, torch.Tensor]


class Mixture:
    """Draws each batch from several replays (RLPD, Ball et al. 2023, arXiv 2302.02948: half from each).

    Args:
        own: gives the rest of each batch; may be empty where there is none.
        others: replays with the share of each batch that is drawn from them; together at most 1.
    """

    def __init__(
        self, own: Replay | ObservationReplay, others: Sequence[tuple[float, Replay | ObservationReplay]]
    ) -> None:
        self._own, self._others = own, others

    def sizes(self, batch_size: int) -> list[int]:
        """Rows of a batch that are drawn from each of the others."""
        return rows_of_shares(batch_size, (share for share, _ in self._others))

    def sample(self, batch_size: int) -> Sampled:
        """A batch, first the rows of the others in their order, then those of its own."""
        sizes = self.sizes(batch_size)
        replays = [*(replay for _, replay in self._others), self._own]
        drawn = [
            replay.sample(size)
            for replay, size in zip(replays, [*sizes, batch_size - sum(sizes)], strict=True)
            if size
        ]
        return drawn[0] if len(drawn) == 1 else _joined(drawn)


def _joined(drawn: Sequence[Any]) -> Sampled:
    """One batch of the rows of several."""
    first = drawn[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([*drawn])
    if isinstance(first, Mapping):
        return {name: torch.cat([each[name] for each in drawn]) for name in first}
    columns = {each.name: [getattr(part, each.name) for part in drawn] for each in fields(first)}
    joined = {name: None if parts[0] is None else torch.cat(parts) for name, parts in columns.items()}
    made: Batch = type(first)(**joined)
    return made
