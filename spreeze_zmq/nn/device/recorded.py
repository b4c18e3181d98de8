"""A function of tensors with a recording for each form of them, whatever it is recorded on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch.multiprocessing import reductions

from spreeze_zmq.nn.device.watched import REST

log = logging.getLogger("spreeze")

ResultT = TypeVar("ResultT")
CourseT = TypeVar("CourseT", bound="CallsOfOneForm[Any]")
KnownT_co = TypeVar("KnownT_co", covariant=True)

Tensors = tuple[torch.Tensor | None, ...]

#: Courses kept, each for tensors of another form; the one that was not called for longest is dropped. On a
#: GPU each holds its graph's memory: who moves to another batch size has the recordings forgotten.
MOST_COURSES = 4
#: Calls in turn that may each be the first of a new course in place of another; then it is hopeless.
MOST_STRANGERS = 100


class InputMemory:
    """Where the tensors of the first call of a form are, which it does not keep alive: those of a round are
    views of a copy of all of it, and the next call of their form may be many rounds later.
    """

    def __init__(self, tensors: Tensors) -> None:
        weak: Any = reductions.StorageWeakRef
        self._place = _place_of(tensors)
        self._memory = [weak(each.untyped_storage()) for each in tensors if each is not None]

    def has(self, tensors: Tensors) -> bool:
        """Whether tensors of the same form are there, as those that a replay keeps and draws into; where the
        memory was freed, others may have its address.
        """
        return _place_of(tensors) == self._place and not any(each.expired() for each in self._memory)


def _place_of(tensors: Tensors) -> list[object]:
    return [None if each is None else (each.data_ptr(), each.stride()) for each in tensors]


class CallsOfOneForm(Protocol[KnownT_co]):
    """The calls with tensors of one form: the first ones are ordinary, later ones replay a recording.

    Attributes:
        refusal: why no call can be recorded; empty if nothing is known against it.
    """

    refusal: str

    @property
    def rests(self) -> bool:
        """Whether the refusal is one for some time."""

    def call(self, tensors: Tensors) -> KnownT_co:
        """Call the function, record it, or replay it."""


class Recorded(Generic[ResultT, CourseT]):
    """Gives each call to the course of its tensors' form, which is their shapes, dtypes and whether they are
    contiguous. A function that a course refuses is called directly from then on, and the log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
        new_course: makes the course of another form.
        name: of the function, for the log.
        ended: gets the reason when recording ends; functions that share it end together.
        say: called with that in one line.
    """

    def __init__(
        self,
        function: Callable[..., ResultT],
        new_course: Callable[[], CourseT],
        name: str,
        ended: list[str] | None,
        say: Callable[[str], object] = log.info,
    ) -> None:
        self._function, self._new_course, self._name, self._say = function, new_course, name, say
        self._courses: dict[tuple[object, ...], CourseT] = {}
        self._ended: list[str] = [] if ended is None else ended
        self._rest = self._strangers = 0
        self._told = ""

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        modes: Any = torch._C
        if self._ended or modes._len_torch_dispatch_stack():
            return self._function(*tensors)
        if self._rest:
            self._rest -= 1
            return self._function(*tensors)
        key = tuple([None if t is None else (t.shape, t.dtype, t.is_contiguous()) for t in tensors])
        course = self._courses.pop(key, None)
        if course is None:
            course = self._new_course()
            if len(self._courses) >= MOST_COURSES:
                del self._courses[next(iter(self._courses))]
                self._strangers += 1
        else:
            self._strangers = 0
        self._courses[key] = course
        result: ResultT = course.call(tensors)
        if course.refusal:
            self._refuse(course.refusal, course.rests)
        elif self._strangers >= MOST_STRANGERS:
            self._refuse(f"gets tensors of more than {MOST_COURSES} shapes in turn", rests=True)
        return result

    def _refuse(self, why: str, rests: bool) -> None:
        """Record no more, or not for a while."""
        self._courses.clear()
        self._strangers = 0
        if rests:
            self._rest = REST
        else:
            self._ended.append(why)
        if why != self._told:  # after a rest it is often the same
            (log.info if rests else self._say)(f"updates are not recorded: {self._name} {why}")
        self._told = why
