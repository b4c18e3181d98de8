"""Functions whose kernels are launched as one CUDA graph: a launch costs more than most kernels of an update.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

#: Much of it is missing in its stubs.
cuda: Any = torch.cuda

log = logging.getLogger("spreeze")

ResultT = TypeVar("ResultT")

#: Calls as they are before the one that is recorded: libraries choose their kernels and take their memory.
WARM_UP_CALLS = 3


class Recorder(Protocol):
    """How the kernels of a function are written down and launched again."""

    def warm(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` as it is, where it may allocate what it will use again."""

    def record(self, function: Callable[[], ResultT]) -> tuple[ResultT, Callable[[], None]]:
        """Its result, whose memory each replay fills, and the replay; nothing has been computed yet.

        Raises:
            RuntimeError: it does what cannot be recorded.
        """


class CudaGraphs:
    """Records on a stream of its own.

    Args:
        device: a CUDA device.
        generators: of the random numbers that the functions draw; each replay goes on with them.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]):
        self._device = device
        self._generators = generators
        self._stream = cuda.Stream(device)

    def warm(self, function: Callable[[], ResultT]) -> ResultT:
        """On the stream that graphs are recorded on, in its turn with the current one."""
        current = cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with cuda.stream(self._stream):
            result = function()
        current.wait_stream(self._stream)
        return result

    def record(self, function: Callable[[], ResultT]) -> tuple[ResultT, Callable[[], None]]:
        """As the protocol says."""
        graph = cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # Other threads, of a collective for example, may use the device meanwhile.
        with cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return result, graph.replay


class Captured(Generic[ResultT]):
    """A function of tensors that is recorded at its fourth call with the same tensors and replayed from then
    on.

    The function must launch the same kernels at each call, on memory that stays where it is; whatever it does
    in Python happens while it is recorded and not again. The first calls are real ones: nothing has to be
    taken back. A call with other tensors begins anew. Where recording fails the function is called as it is,
    and the log says why.

    Args:
        function: takes tensors, or None, in fixed places.
        recorder: of its kernels.
    """

    def __init__(self, function: Callable[..., ResultT], recorder: Recorder):
        self._function = function
        self._recorder: Recorder | None = recorder
        self._key: tuple[object, ...] = ()
        self._tensors: tuple[torch.Tensor | None, ...] = ()  # kept, so that no other takes their place
        self._calls = 0
        self._recorded: tuple[ResultT, Callable[[], None]] | None = None

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; that of a replay holds until the next call."""
        if self._recorder is None:
            return self._function(*tensors)
        key = tuple(None if t is None else (t.data_ptr(), t.shape, t.stride()) for t in tensors)
        if key != self._key:
            self._key, self._tensors, self._calls, self._recorded = key, tensors, 0, None
        self._calls += 1
        if self._calls <= WARM_UP_CALLS:
            return self._recorder.warm(lambda: self._function(*tensors))
        if self._recorded is None and not self._record(self._recorder):
            return self._function(*tensors)
        assert self._recorded is not None
        result, replay = self._recorded
        replay()
        return result

    def _record(self, recorder: Recorder) -> bool:
        try:
            self._recorded = recorder.record(lambda: self._function(*self._tensors))
        except RuntimeError as error:
            log.warning("updates are launched kernel by kernel, no CUDA graph can be made: %s", error)
            self._recorder = None
        return self._recorded is not None


def captured(
    function: Callable[..., ResultT], device: torch.device, generators: Sequence[torch.Generator] = ()
) -> Callable[..., ResultT]:
    """``function`` as it is best called on ``device``: itself on a CPU, else :class:`Captured`."""
    if device.type != "cuda":
        return function
    return Captured(function, CudaGraphs(device, generators))
