"""Records a function of tensors: on a CPU on a tape, on a GPU as one CUDA graph, since launching a kernel
takes longer than running most kernels of an update.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from spreeze_zmq.device.taped import Taped
from spreeze_zmq.native import recording
from spreeze_zmq.native.library import enabled

#: Any, because torch's stubs lack much of it.
cuda: Any = torch.cuda

log = logging.getLogger("spreeze")

ResultT = TypeVar("ResultT")

#: Ordinary calls before the recording, in which libraries choose kernels and allocate memory.
WARM_UP_CALLS = 3


class CudaGraphs:
    """Records CUDA graphs on a separate stream.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = cuda.Stream(device)

    def warm(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` on the recording stream, so that it allocates its memory there; ordered with the
        work of the current stream.
        """
        current = cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with cuda.stream(self._stream):
            result = function()
        current.wait_stream(self._stream)
        return result

    def record(self, function: Callable[[], ResultT]) -> tuple[ResultT, Callable[[], None]]:
        """Record without computing. Returns the result, whose memory each replay fills, and the replay.

        Raises:
            RuntimeError: the function does something that cannot be recorded.
        """
        graph = cuda.CUDAGraph()
        # Other threads, such as those of a collective, may use the device during the capture.
        with cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return result, graph.replay


class Captured(Generic[ResultT]):
    """A function of tensors, recorded at its fourth call with the same tensors and replayed from then on.

    The function must launch the same kernels at each call, on memory at fixed addresses; its Python code runs
    only in the warm-up calls, which compute as usual, and in the recording. A call with other tensors starts
    over with warm-up calls. If the function cannot be recorded, it is called directly from then on, and the
    log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
        recorder: records its kernels.
    """

    def __init__(self, function: Callable[..., ResultT], recorder: CudaGraphs):
        self._function = function
        self._recorder: CudaGraphs | None = recorder
        self._key: tuple[object, ...] = ()
        self._tensors: tuple[torch.Tensor | None, ...] = ()  # kept alive, so that their memory is not reused
        self._calls = 0
        self._recorded: tuple[ResultT, Callable[[], None]] | None = None

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        if self._recorder is None:
            return self._function(*tensors)
        key = tuple(None if t is None else (t.data_ptr(), t.shape, t.stride()) for t in tensors)
        if key != self._key:
            self._key, self._tensors, self._calls, self._recorded = key, tensors, 0, None
        self._calls += 1
        if self._calls <= WARM_UP_CALLS:
            warm_up = recording.Recording()
            with recording.into(warm_up):
                result = self._recorder.warm(lambda: self._function(*tensors))
            if warm_up.refusal:
                log.info("updates are not recorded: the loss %s", warm_up.refusal)
                self._recorder = None
            return result
        if self._recorded is None and not self._record(self._recorder):
            return self._function(*tensors)
        assert self._recorded is not None
        result, replay = self._recorded
        replay()
        return result

    def _record(self, recorder: CudaGraphs) -> bool:
        try:
            self._recorded = recorder.record(lambda: self._function(*self._tensors))
        except RuntimeError as error:
            log.warning("updates are launched kernel by kernel, no CUDA graph can be made: %s", error)
            self._recorder = None
        return self._recorded is not None


def captured(function: Callable[..., ResultT], device: torch.device) -> Callable[..., ResultT]:
    """``function`` recorded, on a GPU as a CUDA graph (:class:`Captured`), on a CPU on a tape
    (:class:`Taped`). On a CPU ``SPREEZE_NATIVE=0`` returns it as it is, for a debugger.
    """
    if device.type == "cuda":
        return Captured(function, CudaGraphs(device))
    return Taped(function) if device.type == "cpu" and enabled() else function
