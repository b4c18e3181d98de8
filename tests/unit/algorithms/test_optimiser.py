"""Numbers of Adam by network, and rates that move: those of torch's own optimisers in float64."""

import pytest
import torch

from spreeze_zmq.algorithms.optimiser import Optimiser, Stretch
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.schema import Scheduled

pytestmark = pytest.mark.usefixtures("one_thread")

#: Two stretches of the part's own, the second of single numbers, with one of network "b" between them.
STRETCHES = (Stretch("", 5, 5), Stretch("b", 4, 4), Stretch("", 2, 0))
MADE = {
    "learning_rate": {"critic": 1e-2, "b": {"from": 4e-2, "to": 1e-2}},
    "adam_beta1": {"b": 0.5},
    "adam_beta2": {"critic": 0.95},
    "weight_decay": {"critic": 0.1, "b": 0.3},
    "max_gradient_norm": {"critic": 1.0, "b": 0.25},
}


def test_each_network_is_stepped_with_its_own_numbers():
    """200 steps of two AdamW, one with a rate that falls, the gradient of each shortened as one but for
    single numbers; half of them on a state that another optimiser has kept.
    """
    source = torch.Generator().manual_seed(0)
    start = torch.randn(11, generator=source)
    gradients = [torch.randn(11, generator=source) * 10.0 ** (step % 3 - 1) for step in range(200)]
    sizes, progress = [each.size for each in STRETCHES], [0.0]
    first, second, last = (each.double().requires_grad_(True) for each in start.clone().split(sizes))
    groups = [{"params": [first], "weight_decay": 0.1}, {"params": [last], "weight_decay": 0.0}]
    others = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    of_b = torch.optim.AdamW([second], lr=0.0, betas=(0.5, 0.95), weight_decay=0.3)

    def made(parameters, gradient):
        options = SAC.Options(**MADE)
        found = Optimiser(
            parameters, gradient, STRETCHES, options, "critic", lambda each: each.value(progress[0])
        )
        assert isinstance(found._groups[1].schedules["learning_rate"], Scheduled)
        return found

    ours, given = start.clone(), torch.zeros(11)
    optimiser = made(ours, given)
    for step, gradient in enumerate(gradients):
        progress[0] = step / 200
        if step == 100:
            state, optimiser = optimiser.state_dict(), made(ours, given)
            optimiser.load_state_dict(state)
        first.grad, second.grad, last.grad = gradient.double().split(sizes)
        torch.nn.utils.clip_grad_norm_([first], 1.0)
        torch.nn.utils.clip_grad_norm_([second], 0.25)
        of_b.param_groups[0]["lr"] = 4e-2 - 3e-2 * progress[0]
        others.step()
        of_b.step()
        given.copy_(gradient)
        optimiser.follow()
        optimiser.step()
        assert not given.any()
    expected = torch.cat([first, second, last]).detach()
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=2e-6)
    assert (expected - start).abs().mean() > 0.1, "nothing moved: the comparison would show nothing"
    assert optimiser.rates() == {"": 1e-2, "b": pytest.approx(4e-2 - 3e-2 * 199 / 200)}


def test_a_rate_that_a_loss_moves_is_kept():
    """Within its bounds; another optimiser goes on with it."""
    options = SAC.Options(learning_rate=4e-3)
    about = [Stretch("", 3, 3)], options, "critic", None
    make = [Optimiser(torch.zeros(3), torch.ones(3), *about) for _ in range(2)]
    assert "rates" not in make[0].state_dict()
    way = ((1.5, 6e-3), (1.5, 9e-3), (1.5, 1e-2), (0.25, 2.5e-3), (1e-9, 1e-5), (2.0, 2e-5))
    for factor, expected in way:
        make[0].multiply_rate(torch.tensor(factor))
        assert make[0].rates()[""] == pytest.approx(expected)
    make[1].load_state_dict(make[0].state_dict())
    make[1].follow()
    assert make[1].rates()[""] == pytest.approx(2e-5)


def test_a_moved_rate_goes_on_where_the_schedule_that_it_was_moved_from_has_ended():
    """In a run before; and not where this run's schedule is elsewhere."""
    options = SAC.Options(learning_rate={"from": 4e-3, "to": 1e-3})
    progress = [1.0]

    def made():
        about = [Stretch("", 3, 3)], options, "critic", lambda each: each.value(progress[0])
        return Optimiser(torch.zeros(3), torch.ones(3), *about)

    before = made()
    before.multiply_rate(torch.tensor(1.5))
    for reached, expected in ((1.0, 1.5e-3), (0.5, 2.5e-3)):
        progress[0] = 0.0
        after = made()
        after.load_state_dict(before.state_dict())
        progress[0] = reached
        after.follow()
        assert after.rates()[""] == pytest.approx(expected)
