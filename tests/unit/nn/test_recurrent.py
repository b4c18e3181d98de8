"""Networks with a memory: the unit itself, and the way through the steps of a rollout."""

import pytest
import torch

from spreeze_zmq import nn

STEPS, ENVS, SIZE, MEMORY = 7, 4, 3, 5


@pytest.fixture
def network():
    """With a head of two outputs."""
    torch.manual_seed(0)
    return nn.Recurrent(SIZE, MEMORY, nn.mlp((SIZE + MEMORY, 8, 2)))


@pytest.fixture
def steps():
    """Rows, the memory before them, and which of them begin an episode: some, also at once."""
    torch.manual_seed(1)
    begins = torch.zeros(STEPS, ENVS, dtype=torch.bool)
    begins[3, 1] = begins[0, 2] = begins[5, 2] = begins[6, 2] = True
    return torch.randn(STEPS * ENVS, SIZE), torch.randn(ENVS, MEMORY), begins


def by_hand(network, rows, memory, begins):
    """Each environment alone, an episode after the other."""
    outputs, after = torch.empty(STEPS, ENVS, 2), torch.empty(STEPS, ENVS, MEMORY)
    for n in range(ENVS):
        kept = memory[n : n + 1]
        for t in range(STEPS):
            if begins[t, n]:
                kept = torch.zeros(1, MEMORY)
            outputs[t, n : n + 1], kept = network(rows.view(STEPS, ENVS, SIZE)[t, n : n + 1], kept)
            after[t, n] = kept[0]
    return outputs, after


def test_the_unit_is_torchs(network):
    """Its gates are torch's: reset, update, new."""
    other = torch.nn.GRUCell(SIZE, MEMORY)
    with torch.no_grad():
        other.weight_ih.copy_(network.seen.weight)
        other.bias_ih.copy_(network.seen.bias)
        other.weight_hh.copy_(network.kept.weight)
        other.bias_hh.copy_(network.kept.bias)
    rows, memory = torch.randn(6, SIZE), torch.randn(6, MEMORY)
    torch.testing.assert_close(network(rows, memory)[1], other(rows, memory))


def test_a_fresh_memory_lasts():
    """What it holds still moves it sixteen steps later; of a unit that keeps half in each step, a thousandth
    would be left, and a cue that old is hardly ever learned.
    """
    torch.manual_seed(0)
    network, size = nn.Recurrent(SIZE, 32, nn.mlp((SIZE + 32, 2))), 32
    rows, begins = torch.randn(16 * 1, SIZE), torch.zeros(16, 1, dtype=torch.bool)

    def last(memory):
        return network.memories(rows, memory, begins)[-1].sum(0)

    slopes = torch.autograd.functional.jacobian(last, torch.zeros(1, size))
    assert slopes.norm() / size**0.5 > 0.05


class Plain(torch.nn.Module):
    """Anybody's: the same network, which the library knows nothing of."""

    def __init__(self, network):
        super().__init__()
        self.inner = network

    def forward(self, rows, memory):
        """One step."""
        return self.inner(rows, memory)


@pytest.mark.parametrize("wrap", [lambda network: network, Plain], ids=["ours", "anybody's"])
def test_all_steps_at_once_are_those_one_by_one(network, steps, wrap):
    """Outputs, memories and gradients, over ends of episodes."""
    outputs, after = nn.unroll(wrap(network), *steps)
    expected, kept = by_hand(network, *steps)
    torch.testing.assert_close(outputs.view(STEPS, ENVS, 2), expected)
    torch.testing.assert_close(after, kept)
    got, wanted = (
        torch.autograd.grad(made.square().sum(), list(network.parameters())) for made in (outputs, expected)
    )
    torch.testing.assert_close(got, wanted)


def test_what_is_remembered_before_each_step(steps):
    """The memory after the step before; nothing where an episode begins."""
    _, memory, begins = steps
    after = torch.randn(STEPS, ENVS, MEMORY)
    before = nn.remembered(memory, after, begins)
    for t in range(STEPS):
        for n in range(ENVS):
            last = after[t - 1, n] if t else memory[n]
            assert torch.equal(before[t, n], torch.zeros(MEMORY) if begins[t, n] else last)
