"""A recorded function does what the call does, wherever Python keeps the numbers that it reads."""

import contextvars
import dataclasses
import enum
import functools
import gc
import itertools
import logging
import os
import random
import sys
import threading
import time
from collections import UserDict, defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions, gradient_steps
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.commands.bench.trial import random_batch
from spreeze_zmq.nn.device import Captured
from spreeze_zmq.nn.device.taped import Taped
from tests.unit.nn.device import settings
from tests.unit.nn.device.test_captured import Tapes

pytestmark = pytest.mark.usefixtures("one_thread")

NUMBER = 0.0
TABLE = {"deep": [{"c": 0.0}]}
FACTORS = {"low": 0.0, "high": 1.0}


def global_number():
    """A module's variable, assigned by another function of the module."""

    def move(value):
        global NUMBER
        NUMBER = value

    return lambda: NUMBER, move


def in_container(container, key):
    """A number in a container that is changed in place."""
    return lambda: container[key], functools.partial(container.__setitem__, key)


def in_attribute(holder, name="c"):
    """A number that is an attribute."""
    setattr(holder, name, 0.0)
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


def closure():
    """A number in a closure, assigned as nonlocal."""
    number = 0.0

    def read():
        return number

    def move(value):
        nonlocal number
        number = value

    return read, move


def default_argument():
    """A number among the defaults of a function, which are replaced."""

    def read(number=0.0):
        return number

    def move(value):
        read.__defaults__ = (value,)

    return read, move


def keyword_of_partial():
    """A number that functools.partial binds."""
    bound = functools.partial(lambda number: number, number=0.0)
    return lambda: bound(), lambda value: bound.keywords.update(number=value)


class Base:
    """Has the number as an attribute of the class."""

    number = 0.0

    @property
    def doubled(self):
        """By way of a property."""
        return 2 * self.number / 2


class Derived(Base):
    """Inherits it."""


class Forwarding:
    """Finds its attributes in a dict."""

    def __init__(self):
        self.inside = {"c": 0.0}

    def __getattr__(self, name):
        return self.inside[name]


class Slotted:
    """Has no dict."""

    __slots__ = ("c",)


class Level(enum.Enum):
    """Two."""

    LOW = 0.0
    HIGH = 1.0


@dataclasses.dataclass
class Outer:
    """Holds another one."""

    inner: SimpleNamespace


def of_class(kind, target):
    """An attribute of a class: read by an object of ``kind``, assigned to ``target``."""
    target.number = 0.0
    made = kind()
    return lambda: made.number, lambda value: setattr(target, "number", value)


def shadowed():
    """The class's number, until the object has its own."""
    Base.number, made = 0.0, Derived()
    return lambda: made.doubled, lambda value: setattr(made, "number", value)


def enumerated():
    """A member of an enum."""
    holder = SimpleNamespace(level=Level.LOW)
    return (
        lambda: holder.level.value,
        lambda value: setattr(holder, "level", Level.HIGH if value else Level.LOW),
    )


def chosen_lambda():
    """A function in a list is another one."""
    chosen = [lambda: 0.0]
    return lambda: chosen[0](), lambda value: chosen.__setitem__(0, lambda: value)


def array(values, index):
    """A number in an array that is changed in place, read by float."""
    return lambda: float(values[index]), functools.partial(values.__setitem__, index)


def in_bytes():
    """A byte, which numpy does not know."""
    values = bytearray(2)
    return lambda: float(values[1]), lambda value: values.__setitem__(1, int(value))


def nested():
    """A dataclass in a dataclass."""
    outer = Outer(SimpleNamespace())
    return in_attribute(outer.inner)


def appended():
    """As many as a list is long."""
    values = []
    return lambda: float(len(values)), lambda value: values.append(value)


def in_set():
    """Whether a set has a member."""
    members = set()
    return lambda: float("on" in members), lambda value: members.add("on")


def by_words():
    """A text chooses among numbers."""
    holder = SimpleNamespace(word="low")
    return lambda: FACTORS[holder.word], lambda value: setattr(holder, "word", "high")


def other_module():
    """Another module's variable, read as an attribute of the module."""
    return lambda: settings.COEFFICIENT, lambda value: setattr(settings, "COEFFICIENT", value)


def other_function():
    """Another module's variable, read by that module's own function."""
    return settings.coefficient, lambda value: setattr(settings, "COEFFICIENT", value)


def not_a_number():
    """NaN is the same until it is a number."""
    holder = SimpleNamespace(c=float("nan"))
    return lambda: 0.0 if holder.c != holder.c else holder.c, lambda value: setattr(holder, "c", value)


def tensor_replaced():
    """Another tensor in place of one, or under it."""
    holder = SimpleNamespace(t=torch.zeros(()))
    return lambda: holder.t, lambda value: setattr(holder, "t", torch.tensor(value))


def tensors_data():
    """Another memory under the same tensor."""
    holder = SimpleNamespace(t=torch.zeros(()))
    return lambda: holder.t, lambda value: setattr(holder.t, "data", torch.tensor(value))


def default_dtype():
    """A mode of torch."""
    return (
        lambda: float(torch.zeros(()).dtype == torch.float64),
        lambda value: torch.set_default_dtype(torch.float64 if value else torch.float32),
    )


VARIABLE = contextvars.ContextVar("VARIABLE", default=0.0)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Changed all the same."""

    c: float = 0.0


def frozen():
    """By way of object."""
    made = Frozen()
    return lambda: made.c, lambda value: object.__setattr__(made, "c", value)


def in_context():
    """A context variable."""
    VARIABLE.set(0.0)
    return VARIABLE.get, VARIABLE.set


def code():
    """Another body of the same function."""

    def read():
        return 0.0

    return lambda: read(), lambda value: setattr(read, "__code__", (lambda: 1.0).__code__)


PLACES = {
    "context": in_context,
    "frozen": frozen,
    "code": code,
    "thread": lambda: in_attribute(threading.local()),
    "global": global_number,
    "dict": lambda: in_container({"c": 0.0}, "c"),
    "list": lambda: in_container([0.0, 5.0], 0),
    "defaultdict": lambda: in_container(defaultdict(float, c=0.0), "c"),
    "UserDict": lambda: in_container(UserDict(c=0.0), "c"),
    "deque": lambda: in_container(deque([0.0]), 0),
    "deep": lambda: in_container(TABLE["deep"][0], "c"),
    "object": lambda: in_attribute(SimpleNamespace()),
    "slots": lambda: in_attribute(Slotted()),
    "dataclass": nested,
    "function's attribute": lambda: in_attribute(lambda: None),
    "module's number": lambda: in_attribute(torch.nn.Linear(1, 1)),
    "closure": closure,
    "default": default_argument,
    "partial": keyword_of_partial,
    "class": lambda: of_class(Base, Base),
    "inherited": lambda: of_class(Derived, Base),
    "subclass": lambda: of_class(Derived, Derived),
    "shadowed": shadowed,
    "enum": enumerated,
    "lambda": chosen_lambda,
    "array": lambda: array(np.zeros(3), 1),
    "0-d array": lambda: array(np.zeros(()), ()),
    "numpy scalar": lambda: in_container([np.float32(0.0)], 0),
    "bytes": in_bytes,
    "length": appended,
    "set": in_set,
    "word": by_words,
    "other module": other_module,
    "other module's function": other_function,
    "NaN": not_a_number,
    "tensor": tensor_replaced,
    "tensor's data": tensors_data,
    "default dtype": default_dtype,
}


@pytest.fixture(autouse=True)
def as_before():
    """What modules have is put back."""
    global NUMBER
    yield
    NUMBER = TABLE["deep"][0]["c"] = 0.0
    settings.COEFFICIENT = settings.SCHEDULE.value = 0.0
    torch.set_default_dtype(torch.float32)
    for kind in (Base, Derived):
        kind.number = 0.0
    del Derived.number


def recorded(function, recorder):
    """A function as a tape or as a graph."""
    return Taped(function) if recorder == "tape" else Captured(function, Tapes())


def is_replayed(function):
    """Whether the next call is a replay."""
    if isinstance(function, Taped):
        return any(course._steps for course in function._courses.values())
    return function._recorded is not None


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
    return NUMBER


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


def hidden():
    """A number that only C code holds."""
    return float(sys.getrecursionlimit())


@pytest.mark.parametrize("recorder", ["tape", "graph"])
def test_a_plain_call_beside_the_replay_finds_what_guards_miss(caplog, recorder):
    """At the tenth replay: its result counts, and from then on nothing is replayed."""
    limit, total = sys.getrecursionlimit(), torch.zeros(())
    function = recorded(lambda x: total.add_(x * hidden()).clone(), recorder)
    if recorder == "graph":
        function._kept = {"the total": total}
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


# --- modules, in a whole update ---------------------------------------------------------------------


class Trained(Algorithm):
    """A network with all that a module can have switched."""

    class Options(ReplayOptions):
        """None of its own."""

    def networks(self):
        """A network of torch's layers, and one that is not trained."""
        batch_norm = torch.nn.BatchNorm1d(8)
        layers = torch.nn.Linear(4, 8, bias=False), torch.nn.Dropout(0.5), batch_norm, torch.nn.Linear(8, 2)
        return Networks(critic={"q": torch.nn.Sequential(*layers)}, targets={"t": nn.mlp([4, 2])}, acting="q")

    def distribution(self):
        """Of two actions."""
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        """A regression."""
        return Loss((self.q(batch.obs) - self.t(batch.obs) - 1.0).square().mean())

    def after_critic_step(self):
        """Nothing, but an author's own."""


SWITCHES = {
    "eval": lambda a: a.q.eval(),
    "eval of a layer": lambda a: a.q[1].eval(),
    "p": lambda a: setattr(a.q[1], "p", 0.1),
    "momentum": lambda a: setattr(a.q[2], "momentum", 0.5),
    "requires_grad": lambda a: a.q[0].requires_grad_(False),
    "hook": lambda a: a.q[0].register_forward_hook(lambda module, given, output: output * 2.0),
    "hook of a tensor": lambda a: a.q[0].weight.register_hook(lambda gradient: gradient * 0.0),
    "global hook": lambda a: HANDLES.append(
        torch.nn.modules.module.register_module_forward_hook(lambda module, given, output: output * 1.5)
    ),
    "layer": lambda a: a.q.__setitem__(1, torch.nn.ReLU()),
    "parameter": lambda a: setattr(a.q[3], "weight", torch.nn.Parameter(torch.ones(2, 8))),
    "buffer": lambda a: setattr(a.q[2], "running_mean", torch.ones(8)),
    "forward": lambda a: setattr(a.q[1], "forward", lambda x: x * 3.0),
    "network": lambda a: setattr(a, "t", nn.mlp([4, 2]).requires_grad_(False)),
}
HANDLES = []


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_switch_of_a_module_holds_at_the_next_update(monkeypatch, switch):
    """The weights are those of the plain updates, up to how batch normalisation sums, and are others without
    the switch.
    """
    spec, weights = envs.probe("CartPole-v1"), {}
    batch = random_batch(spec, 16)
    for how in ("recorded", "plain", "without"):
        if how != "recorded":
            monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
        half = algorithms.make("critic", Trained, Trained.Options(precision="fp32"), spec, "cpu", 1)
        for count in range(12):
            if count == 7 and how != "without":
                assert how == "plain" or is_replayed(half._launch[True])
                switch(half.algorithm)
            half.update(batch)
        while HANDLES:
            HANDLES.pop().remove()
        weights[how] = torch.cat([half.state_dict()[name] for name in ("own", "targets")])
    far = (weights["without"] - weights["plain"]).abs().max()
    assert (weights["recorded"] - weights["plain"]).abs().max() < 0.1 * far


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
