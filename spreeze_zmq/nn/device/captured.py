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
from spreeze_zmq.nn.device.recorded import InputMemory, Recorded, Tensors
from spreeze_zmq.nn.device.taped import Taped
from spreeze_zmq.nn.device.watched import Watch
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


class _NotRecordedError(Exception):
    """Why no CUDA graph can be made of a function."""


class Captured(Recorded[ResultT, "_GraphCourse[ResultT]"]):
    """A function of tensors, recorded at its fourth call with tensors of the same form and replayed from
    then on.

    The function must launch the same kernels at each call; its Python code runs only in the warm-up calls,
    which compute as usual, and in the recording. A call after a Python value has changed that the recording
    read starts over with the last of the warm-up calls. If the function cannot be recorded, it is called
    directly from then on, and the log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
        recorder: records its kernels.
        kept: tensors that the function may write to, by name, besides its inputs and those that its
            objects hold.
        name: of the function, for the log.
        ended: gets the reason when recording ends; functions that share it end together.
        say: called with that in one line: every update takes longer from then on.
    """

    def __init__(
        self,
        function: Callable[..., ResultT],
        recorder: CudaGraphs,
        kept: Mapping[str, torch.Tensor] | None = None,
        name: str = "the loss",
        ended: list[str] | None = None,
        say: Callable[[str], object] = log.warning,
    ) -> None:
        # Nothing here refers to this object: graphs, whose memory is large, are freed once it is dropped.
        super().__init__(function, lambda: _GraphCourse(function, recorder, kept or {}), name, ended, say)

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        try:
            return super().__call__(*tensors)
        except _NotRecordedError as error:
            self._say(f"updates are launched kernel by kernel, no CUDA graph can be made: {error}")
            self._courses.clear()
            self._ended = [str(error)]  # of this function alone, whatever others can
            return self._function(*tensors)


class _GraphCourse(Generic[ResultT]):
    """The calls with tensors of one form. A graph works on memory at fixed addresses: those of a replay,
    which draws every batch into the same memory, themselves; where the tensors of a call are elsewhere than
    those of the one before, copies of them from then on.
    """

    def __init__(
        self,
        function: Callable[..., ResultT],
        recorder: CudaGraphs,
        kept: Mapping[str, torch.Tensor],
    ) -> None:
        self._function, self._recorder, self._kept = function, recorder, kept
        self._place: InputMemory | None = None
        self._tensors: Tensors = ()  # kept alive, so that their memory is not reused
        self._copies = False
        self._watch = Watch()
        self._calls = self._replays = 0
        self._due = COMPARED[0]
        self._recorded: tuple[ResultT, Callable[[], None]] | None = None
        self.refusal = ""

    @property
    def rests(self) -> bool:
        """Whether the refusal is one for some time."""
        return self._watch.resting

    def call(self, tensors: Tensors) -> ResultT:
        """Call the function, record it, or replay it."""
        tensors = self._taken(tensors)
        if self._recorded is not None and not self._watch.holds():
            self._recorded, self._calls = None, WARM_UP_CALLS - 1
            self.refusal = self._watch.refusal
        if self.refusal:
            return self._function(*tensors)
        self._calls += 1
        if self._calls <= WARM_UP_CALLS:
            return self._warm_up(tensors)
        if self._recorded is None and not self._record(tensors):
            return self._function(*tensors)
        self._replays += 1
        return self._beside(tensors) if self._replays == self._due else self._replay()

    @torch.no_grad()
    def _taken(self, tensors: Tensors) -> Tensors:
        """Bring the numbers of these tensors to where the graph reads them."""
        if self._place is None:
            self._place = InputMemory(tensors)
            return tensors
        if self._copies:
            own, new = ([each for each in some if each is not None] for some in (self._tensors, tensors))
            torch._foreach_copy_(own, new)
        elif not self._place.has(tensors):
            self._tensors = tuple(None if each is None else each.clone() for each in tensors)
            self._copies, self._recorded, self._calls, self._watch = True, None, 0, Watch()
        elif not self._tensors:
            self._tensors = tensors
        return self._tensors

    def _warm_up(self, tensors: Tensors) -> ResultT:
        def called() -> ResultT:
            return self._function(*tensors)

        warm_up, is_last = recording.Recording(), self._calls == WARM_UP_CALLS
        with recording.into(warm_up):
            result = self._recorder.warm(lambda: self._watch.call(called) if is_last else called())
        self.refusal = warm_up.refusal or self._watch.refusal
        return result

    def _record(self, tensors: Tensors) -> bool:
        try:
            recorded = self._recorder.record(lambda: self._watch.call(lambda: self._function(*tensors)))
        except RuntimeError as error:
            raise _NotRecordedError(str(error)) from None
        self.refusal = self._watch.refusal
        self._recorded = recorded if self._watch.ready else None
        self._replays, self._due = 0, COMPARED[0]
        return self._watch.ready

    def _replay(self) -> ResultT:
        assert self._recorded is not None
        result, replay = self._recorded
        replay()
        self._watch.assign()
        return result

    def _beside(self, tensors: Tensors) -> ResultT:
        """A plain call, and a comparison of the replay with it."""
        self._due = next_due(self._replays)
        found = {f"tensor {index} that it holds": each for index, each in enumerate(self._watch.tensors)}
        found |= {f"input {index}": each for index, each in enumerate(tensors) if each is not None}
        device = next((each.device for each in tensors if each is not None), torch.device("cpu"))

        def plain() -> ResultT:
            return self._recorder.warm(lambda: self._function(*tensors))

        result, difference = beside(self._replay, plain, {**self._kept, **found}, device)
        if difference:
            self.refusal = f"is replayed wrongly, as replay {self._replays:,} shows: {difference}"
        return result


def captured(
    function: Callable[..., ResultT],
    device: torch.device,
    kept: Mapping[str, torch.Tensor] | None = None,
    name: str = "the loss",
    ended: list[str] | None = None,
    say: Callable[[str], object] = log.warning,
) -> Callable[..., ResultT]:
    """``function`` recorded, on a GPU as a CUDA graph (:class:`Captured`), on a CPU on a tape
    (:class:`Taped`). On a CPU ``SPREEZE_NATIVE=0`` returns it as it is, for a debugger.
    """
    if device.type == "cuda":
        return Captured(function, CudaGraphs(device), kept, name, ended, say)
    return Taped(function, kept, name, ended) if device.type == "cpu" and enabled() else function
