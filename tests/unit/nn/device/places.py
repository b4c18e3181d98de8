"""Where Python keeps a number that a function reads: for each place its reader, and what moves it."""

import contextvars
import dataclasses
import enum
import functools
import threading
from collections import UserDict, defaultdict, deque
from types import SimpleNamespace

import numpy as np
import torch

from tests.unit.nn.device import settings

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


def put_back():
    """What modules have is as it was."""
    global NUMBER
    NUMBER = TABLE["deep"][0]["c"] = 0.0
    settings.COEFFICIENT = settings.SCHEDULE.value = 0.0
    torch.set_default_dtype(torch.float32)
    for kind in (Base, Derived):
        kind.number = 0.0
    del Derived.number
