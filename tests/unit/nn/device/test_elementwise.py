"""Elementwise operations of a tape, done natively in a row, must be torch's own one by one, to the bit."""

import math

import pytest
import torch

from spreeze_zmq.nn.device.elementwise import CODES, Elementwise, _named
from spreeze_zmq.nn.device.tape import Tape
from spreeze_zmq.nn.native.library import compiled, library, loaded, runnable

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(library().code is None, reason="no native library here"),
]

ABLE = runnable()

aten = torch.ops.aten
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-42, 3e38, -3e38, 0.1]
#: Of three operands: whole, broadcast along rows and columns, longer than a piece, of three dimensions,
#: numbers.
SHAPES = [
    [(7,), (7,), (7,)],
    [(256, 12), (256, 1), (12,)],
    [(2, 1300), (1300,), ()],
    [(2, 3, 5), (2, 3, 5), (2, 3, 5)],
    [(), (), ()],
    [(1, 600), (1, 600), (1,)],
]


def values(shape, seed):
    """Numbers of every kind."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(shape, generator=generator) * 3
    special = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.3, special, made)


def calls(x, y, z):
    """Every operation that is known, in the forms that updates have, by a name."""
    mask, other = x > 0.5, z < y
    return {
        "add": lambda: (x + y, x + 0.1, 3 + x),
        "sub": lambda: (x - y, x - 0.3, 1.0 - x, y - x),
        "mul": lambda: (x * y, x * 1e-3, x**2, x.square(), torch.mul(x, 2)),
        "div": lambda: (x / y, x / 256, 0.7 / y),
        "neg": lambda: -x,
        "abs": lambda: x.abs(),
        "minimum": lambda: torch.minimum(x, y),
        "maximum": lambda: torch.maximum(x, y),
        "clamp": lambda: (
            *(x.clamp(-1, 1), x.clamp(min=0.2), x.clamp(max=0.2), x.clamp(-0.5, max=2.0)),
            torch.relu(x),
        ),
        "copy": lambda: x.clone(),
        "where": lambda: (torch.where(mask, y, z), x.masked_fill(mask, 0.0)),
        "eq": lambda: (x == y, x == 0.1),
        "ne": lambda: (x != y, x != 0.1),
        "lt": lambda: (x < y, x < 0.1),
        "le": lambda: (x <= y, x <= 0),
        "gt": lambda: (x > y, x > 0.1),
        "ge": lambda: (x >= y, x >= 0.1),
        "and": lambda: (mask & other, torch.logical_and(mask, other)),
        "or": lambda: (mask | other, torch.logical_or(mask, other)),
        "not": lambda: (~mask, torch.logical_not(mask)),
        "float": lambda: mask.float(),
    }


def bits(tensor):
    """For a comparison to the bit, in which any NaN is one."""
    if tensor.dtype == torch.bool:
        return tensor
    return torch.where(tensor.isnan(), 0x7FC00000, tensor.contiguous().view(torch.int32))


@pytest.mark.long("the first of them compiles for each set of instructions")
@pytest.mark.parametrize("name", CODES)
def test_each_operation_is_torchs_to_the_bit(name):
    """For every instruction set that this processor has, on every kind of number and shape, and on memory
    that is not in one piece.
    """
    for instructions in ABLE:
        code = loaded(compiled(instructions))
        for shapes in SHAPES:
            assert_torchs(code, name, shapes, f"{instructions} {shapes}")


def assert_torchs(code, name, shapes, where):
    """All forms of an operation on three operands."""
    x, y, z = (values(shape, seed) for seed, shape in enumerate(shapes))
    if x.dim() == 2:
        x = x.t().contiguous().t()
    tape = Tape()
    tape.record(calls(x, y, z)[name])
    done = [each for each in tape.operations if _named(each.function, *each.inputs)]
    assert name in {_named(each.function, *each.inputs)[0] for each in done} | {"float"}
    for operation in done:
        what = f"{operation.function} {where}"
        together, expected = Elementwise(code), operation.output.clone()
        assert together.take(operation.function, operation.inputs, operation.output), what
        operation.output.copy_(torch.full_like(operation.output, 7))
        (step,) = together.end()
        step()
        made = operation.output
        if name in ("minimum", "maximum"):  # of 0.0 and -0.0 torch gives either, by their place in memory
            made, expected = made + 0.0, expected + 0.0
        assert torch.equal(bits(made), bits(expected)), what


def test_in_place_operations_write_where_torch_does():
    """All of them as one step."""
    x, y = torch.randn(600), torch.randn(600)
    mask, scale = x > 0, torch.tensor(3.0)
    start = x.clone()

    def change():
        x.add_(y).mul_(scale).div_(7.0)
        x.masked_fill_(mask, -1.0)
        x[::2].sub_(y[::2])
        x.clamp_(-2.0, 2.0)
        x.copy_(x.neg())
        x[:300].relu_()

    tape = Tape()
    tape.record(change)
    expected = x.clone()
    x.copy_(start)
    steps = tape.steps()
    assert len(steps) == 1
    steps[0]()
    assert torch.equal(x, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.add(x, x, alpha=2),
        lambda x: torch.div(x, 3.0, rounding_mode="floor"),
        lambda x: x.double() * 2,
        lambda x: x**3,
        lambda x: x.long() + 1,
        lambda x: x[:0] * 2,
        lambda x: x.view(2, 2, 2, 2).permute(0, 2, 1, 3) + x.view(2, 2, 2, 2).permute(3, 1, 2, 0),
        lambda x: x.to(torch.bfloat16) + 1,
        lambda x: x.to_sparse() * 2.0,
        lambda x: x.long().__ior__(1),
        lambda x: x.clone().set_(x),
        lambda x: torch._foreach_add_([x.clone()], 1.0),
    ],
)
def test_other_operations_are_left_to_torch(function):
    """Other arguments, other numbers, nothing at all, more dimensions."""
    x = torch.randn(16)
    tape = Tape()
    tape.record(lambda: function(x))
    last = tape.operations[-1]
    assert not Elementwise(library().code).take(last.function, last.inputs, last.output)


def test_without_a_library_torch_does_all():
    """Then nothing is taken."""
    x = torch.randn(16)
    tape = Tape()
    tape.record(lambda: x + 1)
    together = Elementwise(None)
    assert not together.take(*tape.operations[-1][:3])
    assert together.end() == []


def test_a_step_between_two_runs_sees_the_first_and_not_the_second():
    """What looks at numbers on the host comes in its turn."""
    x, seen = torch.zeros(8), []
    tape = Tape()

    def function():
        x.add_(1.0)
        tape.each_time(lambda: seen.append(float(x[0])))
        x.add_(1.0)

    tape.record(function)
    for step in tape.steps():
        step()
    assert seen == [1.0, 3.0]
    assert x[0] == 4.0
