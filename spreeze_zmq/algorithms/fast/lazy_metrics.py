"""Metrics that cost nothing until somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch


class LazyMetrics(Mapping[str, torch.Tensor]):
    """0-d float32 tensors by name, computed when asked for: a report looks at one update in hundreds.

    Args:
        functions: of each name; they hold on to what they need, until the next update at most.
    """

    def __init__(self, **functions: Callable[[], torch.Tensor]):
        self._functions = functions

    @torch.inference_mode()
    def __getitem__(self, name: str) -> torch.Tensor:
        return self._functions[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)
