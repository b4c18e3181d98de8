"""Networks that follow others slowly."""

from __future__ import annotations

import torch


@torch.no_grad()
def polyak(target: torch.nn.Module, source: torch.nn.Module, tau: float) -> None:
    """Move the parameters of ``target`` by the share ``tau`` of the way to those of ``source``, in place."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


class PeriodicCopy(torch.nn.Module):
    """Moves a target by ``tau`` at every ``period``-th call of ``update``, and not in between.

    The count is a parameter, so that it is saved with the targets; it is never read on the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    @torch.no_grad()
    def update(self, target: torch.nn.Module, source: torch.nn.Module, tau: float, period: int) -> None:
        """Count this call; move ``target`` towards ``source`` where it is a ``period``-th one."""
        self.count.add_(1.0).remainder_(period)
        share = (self.count == 0.0) * tau
        for follower, leader in zip(target.parameters(), source.parameters(), strict=True):
            follower.lerp_(leader, share.to(follower.dtype))
