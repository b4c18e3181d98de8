"""A recorded function does what the call does, wherever Python keeps the numbers that it reads."""

import functools
import gc
import itertools
import logging
import os
import random
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq.nn.device import Captured
from spreeze_zmq.nn.device.reads import Reads
from spreeze_zmq.nn.device.taped import Taped
from tests.unit.nn.device import settings
from tests.unit.nn.device.places import PLACES, put_back
from tests.unit.nn.device.test_captured import Tapes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def as_before():
    """What modules have is put back."""
    yield
    put_back()


def recorded(function, recorder, **kept):
    """A function as a tape, which finds what it writes to, or as a graph, which is told what is ``kept``."""
    return Taped(function) if recorder == "tape" else Captured(function, Tapes(), kept)


def is_replayed(function):
    """Whether the next call is a replay."""
    replayed = "_steps" if isinstance(function, Taped) else "_recorded"
    return any(getattr(course, replayed) for course in function._courses.values())


@pytest.mark.parametrize("recorder", ["tape", "graph"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_value_that_has_changed_holds_at_the_next_call(place, recorder):
    """Wherever it is kept; until then, and from then on, the calls are replayed."""
    read, move = place()
    function, one = recorded(lambda x: x * 2.0 + read(), recorder), torch.ones(())
    before = [float(function(one)) for _ in range(8)]
    assert is_replayed(function)
    move(1.0)
    assert [float(function(one)) for _ in range(8)] == [before[0] + 1.0] * 8
    assert is_replayed(function)


class Counter:
    """Counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        """Whether it is a late one."""
        self.calls += 1
        return float(self.calls > 12)


def nonlocal_counter():
    """The same in a closure."""
    calls = 0

    def read():
        nonlocal calls
        calls += 1
        return float(calls > 12)

    return read


def iterated():
    """The next of an iterator."""
    numbers = itertools.chain([0.0] * 12, itertools.repeat(1.0))
    return lambda: next(numbers)


def drawn():
    """A number of a numpy generator."""
    generator = np.random.default_rng(1)
    return lambda: generator.random()


@functools.lru_cache
def cached():
    """Of a function that keeps its results."""
    return settings.COEFFICIENT


def seeded():
    """The same numbers each time."""
    torch.manual_seed(1)
    return 1.0


REFUSED = {
    "cache": (lambda: lambda: cached(), "cached, whose results"),
    "seed": (lambda: seeded, "calls torch.random.manual_seed"),
    "counter": (Counter, "changes "),
    "nonlocal": (nonlocal_counter, "changes calls of"),
    "iterator": (iterated, "which gives another value each time"),
    "random": (lambda: random.random, "calls random.random"),
    "random in a function": (lambda: lambda: random.uniform(0.0, 1.0), "calls random.uniform"),
    "numpy's random": (lambda: lambda: np.random.rand(), "draws random numbers that are not torch's"),
    "own generator": (drawn, "a Generator, which gives another value each time"),
    "clock": (lambda: lambda: time.perf_counter(), "calls time.perf_counter"),
    "environment": (lambda: lambda: float(os.environ["NUMBER"]), "calls os.__getitem__"),
    "print": (lambda: lambda: print(end="") or 0.0, "calls print"),
    "log": (lambda: lambda: logging.getLogger("x").debug("") or 0.0, "calls logging."),
    "large array": (lambda: lambda: float(LARGE[0]), "a ndarray of 80000 bytes"),
}
LARGE = np.zeros(10_000)


@pytest.mark.parametrize(("made", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_called_plainly(monkeypatch, caplog, made, why):
    """Each time, and the log says why, with the line."""
    monkeypatch.setenv("NUMBER", "1")
    read, calls = made(), torch.zeros(())

    def function(x):
        calls.add_(1.0)
        return x * 2.0 + read()

    taped = Taped(function)
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            taped(torch.ones(()))
    assert float(calls) == 10.0
    assert not is_replayed(taped)
    assert why in caplog.text
    assert f"({__file__}:" in caplog.text


def test_a_number_that_moves_at_every_call_is_not_recorded_for_a_while(caplog):
    """The log says once which, and how it is recorded; later it is tried again."""
    schedule = {"c": 0.0}
    function = Taped(lambda x: x + schedule["c"])
    with caplog.at_level(logging.INFO):
        for count in range(40):
            schedule["c"] = float(count)
            assert float(function(torch.ones(()))) == 1.0 + count
    assert caplog.text.count("which changes every few updates; a 0-d tensor") == 1
    assert f"reads schedule['c'] ({__file__}:" in caplog.text
    for _ in range(1010):
        function(torch.ones(()))
    assert is_replayed(function)


def test_equal_numbers_are_the_same():
    """A schedule that computes its number anew, without changing it, is replayed."""
    holder = SimpleNamespace(c=0.5)
    function = Taped(lambda x: x + holder.c)
    for _ in range(10):
        holder.c = float(np.sqrt(np.float64(0.25)))
        assert float(function(torch.ones(()))) == 1.5
    assert is_replayed(function)


def test_what_a_call_assigns_is_assigned_by_a_replay():
    """As a tensor of its own each time: one that was kept is not overwritten."""
    holder, seen = SimpleNamespace(), []

    def function(x):
        holder.mean = x * 2.0
        return x + 1.0

    taped = Taped(function)
    for count in range(8):
        taped(torch.tensor(float(count)))
        seen.append(holder.mean)
        holder.mean = None
    assert is_replayed(taped)
    assert [float(each) for each in seen] == [2.0 * count for count in range(8)]


def test_what_no_code_names_has_no_place():
    """The line of another function would mislead."""
    reads = Reads()
    with reads.watching():
        hidden()
    assert reads.place_of("getrecursionlimit").startswith(f" ({__file__}:")
    assert reads.place_of("nowhere") == ""


def hidden():
    """A number that only C code holds."""
    return float(sys.getrecursionlimit())


@pytest.mark.parametrize("recorder", ["tape", "graph"])
def test_a_plain_call_beside_the_replay_finds_what_guards_miss(caplog, recorder):
    """At the tenth replay: its result counts, and from then on nothing is replayed."""
    limit, total = sys.getrecursionlimit(), torch.zeros(())
    function = recorded(lambda x: total.add_(x * hidden()).clone(), recorder, total=total)
    one, numbers = torch.ones(()), []
    try:
        with caplog.at_level(logging.INFO):
            for count in range(16):
                sys.setrecursionlimit(limit + 100 * (count > 6))
                before = float(total)
                numbers.append(float(function(one)) - before - limit)
    finally:
        sys.setrecursionlimit(limit)
    tenth = 12  # after three calls the next ones are replays
    assert numbers == [0.0] * tenth + [100.0] * (16 - tenth)
    assert "is replayed wrongly, as replay 10 shows" in caplog.text
    assert not is_replayed(function)


def test_a_plain_call_beside_the_replay_changes_nothing():
    """Random numbers and memory are those of the calls."""

    def run(wrap):
        torch.manual_seed(1)
        total = torch.zeros(3)
        function = wrap(lambda x: total.mul_(0.9).add_(torch.randn(3) * x).clone())
        return [function(torch.ones(())).tolist() for _ in range(120)]

    assert run(Taped) == run(lambda function: function)


@pytest.mark.parametrize("recorder", ["tape", "graph"])
@pytest.mark.parametrize("same", [True, False])
def test_a_plain_call_beside_the_replay_begins_with_the_batch_as_it_came(recorder, same):
    """A loss may write to it: the call does not do so a second time."""
    function, one, numbers = recorded(lambda x: x.mul_(0.5) + 0.0, recorder), torch.ones(()), []
    for count in range(16):
        batch = one.fill_(count) if same else torch.full((), float(count))
        numbers.append(float(function(batch)))
    assert numbers == [0.5 * count for count in range(16)]
    assert is_replayed(function) or (recorder == "graph" and not same)


def test_what_the_garbage_collector_runs_meanwhile_is_not_read():
    """A callback or finalizer of another part of the program, which reads a clock, ends no recording."""
    asked = []
    gc.callbacks.append(lambda *_: asked.append(time.time()))
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        taped = Taped(lambda x: torch.stack([x * number for number in (1.0, 2.0)]).sum())
        for _ in range(5):
            taped(torch.ones(3))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()
    assert asked
    assert is_replayed(taped)
