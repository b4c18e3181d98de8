"""Records a function of tensors: on a CPU on a tape, on a GPU as one CUDA graph, since launching a kernel
takes longer than running most kernels of an update.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch

from spreeze_zmq.nn.device.beside import COMPARED, beside, next_due
from spreeze_zmq.nn.device.taped import Taped
from spreeze_zmq.nn.device.watched import REST, Watch
from spreeze_zmq.nn.native import recording
from spreeze_zmq.nn.native.library import enabled

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
        generator = cuda.default_generators[self._stream.device_index]
        state = generator.clone_state()
        try:
            # Other threads, such as those of a collective, may use the device during the capture.
            with cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                result = function()
        except Exception:
            generator.graphsafe_set_state(state)  # else it believes for ever that it is recorded
            raise
        return result, graph.replay


class Captured(Generic[ResultT]):
    """A function of tensors, recorded at its fourth call with the same tensors and replayed from then on.

    The function must launch the same kernels at each call, on memory at fixed addresses; its Python code runs
    only in the warm-up calls, which compute as usual, and in the recording. A call with other tensors starts
    over with warm-up calls; one after a Python value has changed that the recording read, with the last of
    them. If the function cannot be recorded, it is called directly from then on, and the log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
        recorder: records its kernels.
        kept: tensors that the function may write to, by name, besides its inputs and those that its
            objects hold.
        name: of the function, for the log.
        ended: gets the reason when recording ends; functions that share it end together.
    """

    def __init__(
        self,
        function: Callable[..., ResultT],
        recorder: CudaGraphs,
        kept: Mapping[str, torch.Tensor] | None = None,
        name: str = "the loss",
        ended: list[str] | None = None,
    ):
        self._function, self._kept, self._name = function, kept or {}, name
        self._recorder: CudaGraphs | None = recorder
        self._ended: list[str] = [] if ended is None else ended
        self._key: tuple[object, ...] = ()
        self._tensors: tuple[torch.Tensor | None, ...] = ()  # kept alive, so that their memory is not reused
        self._calls = self._replays = self._rest = 0
        self._watch, self._told, self._due = Watch(), "", COMPARED[0]
        self._recorded: tuple[ResultT, Callable[[], None]] | None = None

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        if self._recorder is None or self._ended:
            return self._function(*tensors)
        if self._rest:
            self._rest -= 1
            return self._function(*tensors)
        key = tuple(None if t is None else (t.data_ptr(), t.shape, t.stride()) for t in tensors)
        if key != self._key:
            self._key, self._tensors, self._calls, self._recorded = key, tensors, 0, None
            self._watch = Watch()
        if self._recorded is not None and not self._watch.holds():
            self._recorded, self._calls = None, WARM_UP_CALLS - 1
            self._refuse(self._watch.refusal)
        self._calls += 1
        if self._calls <= WARM_UP_CALLS or self._recorder is None:
            return self._warm_up(self._recorder)
        if self._recorded is None and not self._record(self._recorder):
            return self._function(*tensors)
        self._replays += 1
        return self._beside(self._recorder) if self._replays == self._due else self._replay()

    def _refuse(self, why: str) -> None:
        """Record no more, or not for a while, if there is a reason."""
        if why:
            if why != self._told:  # after a rest it is often the same
                log.info("updates are not recorded: %s %s", self._name, why)
            self._told, self._recorded = why, None
            if self._watch.resting:
                self._rest, self._key = REST, ()
            else:
                self._recorder = None
                self._ended.append(why)

    def _warm_up(self, recorder: CudaGraphs | None) -> ResultT:
        if recorder is None:
            return self._function(*self._tensors)

        def called() -> ResultT:
            return self._function(*self._tensors)

        warm_up, is_last = recording.Recording(), self._calls == WARM_UP_CALLS
        with recording.into(warm_up):
            result = recorder.warm(lambda: self._watch.call(called) if is_last else called())
        self._refuse(warm_up.refusal or self._watch.refusal)
        return result

    def _record(self, recorder: CudaGraphs) -> bool:
        try:
            recorded = recorder.record(lambda: self._watch.call(lambda: self._function(*self._tensors)))
        except RuntimeError as error:
            log.warning("updates are launched kernel by kernel, no CUDA graph can be made: %s", error)
            self._recorder = None
            return False
        self._refuse(self._watch.refusal)
        self._recorded = recorded if self._watch.ready else None
        self._replays, self._due = 0, COMPARED[0]
        return self._watch.ready

    def _replay(self) -> ResultT:
        assert self._recorded is not None
        result, replay = self._recorded
        replay()
        self._watch.assign()
        return result

    def _beside(self, recorder: CudaGraphs) -> ResultT:
        """A plain call, and a comparison of the replay with it."""
        self._due = next_due(self._replays)
        found = {f"tensor {index} that it holds": each for index, each in enumerate(self._watch.tensors)}
        found |= {f"input {index}": each for index, each in enumerate(self._tensors) if each is not None}
        device = next((each.device for each in self._tensors if each is not None), torch.device("cpu"))

        def plain() -> ResultT:
            return recorder.warm(lambda: self._function(*self._tensors))

        result, difference = beside(self._replay, plain, {**self._kept, **found}, device)
        if difference:
            self._refuse(f"is replayed wrongly, as replay {self._replays:,} shows: {difference}")
        return result


def captured(
    function: Callable[..., ResultT],
    device: torch.device,
    kept: Mapping[str, torch.Tensor] | None = None,
    name: str = "the loss",
    ended: list[str] | None = None,
) -> Callable[..., ResultT]:
    """``function`` recorded, on a GPU as a CUDA graph (:class:`Captured`), on a CPU on a tape
    (:class:`Taped`). On a CPU ``SPREEZE_NATIVE=0`` returns it as it is, for a debugger.
    """
    if device.type == "cuda":
        return Captured(function, CudaGraphs(device), kept, name, ended)
    return Taped(function, kept, name, ended) if device.type == "cpu" and enabled() else function
