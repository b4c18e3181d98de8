"""What a tape repeats is what the calls would have done, and what it cannot repeat is called plainly."""

import logging
import math
import sys

import numpy as np
import pytest
import torch

from spreeze_zmq.nn.device import captured
from spreeze_zmq.nn.device.taped import Taped

pytestmark = pytest.mark.usefixtures("one_thread")


def numbers_of(function, calls=8):
    """What a recorded function of a one gives at each call, and whether it was replayed."""
    recorded = Taped(function)
    values = [float(recorded(torch.ones(()))) for _ in range(calls)]
    return values, any(course._steps for course in recorded._courses.values())


class Counting:
    """Something that changes by itself, where Python cannot see it."""

    def __init__(self):
        self.start = sys.getrecursionlimit()

    def number(self):
        """Another one at each call."""
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        return sys.getrecursionlimit() - self.start


@pytest.fixture
def limit():
    """The recursion limit is put back."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda counting, x: x * counting.number(), "gives mul.Tensor other arguments"),
        (lambda counting, x: x * torch.tensor(float(counting.number())), "gives lift_fresh"),
        (
            lambda counting, x: x * torch.from_numpy(np.full((), counting.number(), "f4")),
            "gives lift_fresh",
        ),
        (lambda counting, x: x * x.item() * counting.number(), "reads _local_scalar_dense of a tensor"),
        (lambda counting, x: x.expand(3)[x.expand(3) > 0].sum() / 3 * counting.number(), "indexes by a mask"),
        (
            lambda counting, x: x + 1 if counting.number() % 2 else x * 2 + 0,
            "does 2 operations, and 1 at another",
        ),
        (lambda counting, x: torch.tensor(0.0).add_(x * counting.number()), "writes to what torch.tensor"),
    ],
    ids=["number", "tensor", "numpy", "item", "mask", "branch", "constant"],
)
@pytest.mark.usefixtures("limit")
def test_what_a_replay_would_change_is_called_plainly(caplog, function, why):
    """Its results are the plain ones, and the log says once why it is not recorded, with the line."""
    ours = Counting()
    with caplog.at_level(logging.INFO):
        values, replayed = numbers_of(lambda x: function(ours, x))
    theirs = Counting()
    assert values == [float(function(theirs, torch.ones(()))) for _ in range(8)]
    assert not replayed
    assert caplog.text.count("updates are not recorded: the loss " + why) == 1, caplog.text
    assert f"({__file__}:" in caplog.text or "operations, and" in why


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.tensor(0.5) + torch.linspace(0.0, 1.0, 5)[2],
        lambda x: torch.zeros(3).index_add_(0, torch.tensor([1]), x.expand(1)).sum(),
        lambda x: torch.stack((x, 2 * x)).max(0).values + torch.full_like(x, 3.0).add_(x),
        lambda x: torch.nn.functional.mse_loss(x.expand(4), torch.zeros(4)) + x.double().float(),
        lambda x: torch.zeros(2, 2)[torch.tensor([0, 1]), torch.tensor([1, 1])].sum() + x,
        lambda x: (x + torch.tensor(math.nan)).nan_to_num(math.nan).nan_to_num(3.0),
        lambda x: torch._foreach_norm([x.expand(3) * 2.0])[0] + torch._foreach_add([x], [x])[0],
        lambda x: torch._foreach_norm([x.expand(3) * 2.0, x])[0],
    ],
    ids=["constants", "scatter", "filled", "reduced", "indexed", "nan", "list of one", "list"],
)
def test_what_is_the_same_at_each_call_is_replayed(function):
    """Constants, memory that is filled anew, reductions, views of made things."""
    values, replayed = numbers_of(function)
    assert values == [float(function(torch.ones(())))] * 8
    assert replayed


def test_a_replay_draws_what_the_calls_would_have_drawn():
    """Each time other numbers of torch's generator, in the same order."""

    def noisy(x):
        drawn = torch.randn(2), torch.rand(2), torch.randn_like(x.expand(2)), torch.randperm(4).float()
        return sum(numbers.sum() for numbers in drawn) + torch.empty(2).uniform_(0.0, 5.0).sum() + x

    torch.manual_seed(3)
    values, replayed = numbers_of(noisy)
    torch.manual_seed(3)
    assert values == [float(noisy(torch.ones(()))) for _ in range(8)]
    assert len(set(values)) == 8
    assert replayed


@torch.library.custom_op("spreeze_tests::count_up", mutates_args=["total"])
def count_up(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Adds to a total, and returns another tensor."""
    total.add_(x)
    return total * 2.0


def test_what_an_operation_returns_is_renewed_although_it_writes_to_an_argument():
    """Both its result and what it wrote: as a leaky ReLU with random slopes, which keeps them."""
    total = torch.zeros(())
    values, replayed = numbers_of(lambda x: count_up(total, x) + 0.0)
    assert values == [2.0 * count for count in range(1, 9)]
    assert replayed

    def leaky(x):
        return torch.nn.functional.rrelu(x.expand(3) - 2.0, training=True).sum()

    torch.manual_seed(3)
    values, replayed = numbers_of(leaky)
    torch.manual_seed(3)
    assert values == [float(leaky(torch.ones(()))) for _ in range(8)]
    assert len(set(values)) == 8
    assert replayed


def test_a_batch_in_the_same_tensors_is_recorded_where_it_is_drawn_and_others_are_copied():
    """A replay that follows the batch's memory needs no copy of it; a batch from elsewhere stays as it is."""
    recorded = Taped(lambda x: x * 2 + 1)
    drawn, other = torch.zeros(4, 3)[:, 1], torch.full((4, 3), 7.0)[:, 1]
    for number in range(6):
        assert recorded(drawn.fill_(number)).tolist() == [2 * number + 1] * 4
    (course,) = recorded._courses.values()
    assert course._steps
    assert course._tensors[0] is drawn
    for _ in range(6):
        assert recorded(other).tolist() == [15.0] * 4
        assert recorded(drawn).tolist() == [11.0] * 4
    assert course._steps
    assert (drawn == 5).all()
    assert (other == 7).all()


def test_no_tape_where_torch_alone_is_asked_for(monkeypatch):
    """SPREEZE_NATIVE=0: a debugger stops in each update."""
    monkeypatch.setenv("SPREEZE_NATIVE", "0")
    assert captured(len, torch.device("cpu")) is len
