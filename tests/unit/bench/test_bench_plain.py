"""The plain updates that ours are compared with learn the same: a comparison with less would be unfair."""

import pytest
import torch

from spreeze_zmq import envs
from spreeze_zmq.bench.learner import make_halves, measure_over_fp32, network_widths, random_batch
from spreeze_zmq.bench.plain import PlainSAC, measure_beside_plain
from spreeze_zmq.bench.replay import measure_feeding

SPEC = envs.probe("HalfCheetah-v5")


def flat(*stacks):
    """Parameters layer by layer, as ours are packed."""
    layers = zip(*(stack.parameters() for stack in stacks), strict=True)
    return torch.cat([tensor.detach().reshape(-1) for layer in layers for tensor in layer])


@pytest.mark.parametrize("fused", [False, True])
def test_plain_and_ours_take_the_same_step(fused):
    """From the same weights, with the temperature's and the noise's part taken out, one critic update."""
    batch = random_batch(SPEC, 64)
    batch.discount.zero_()
    critic, _ = make_halves(SPEC, "fp32", 64)
    plain = PlainSAC(**network_widths(SPEC), fused=fused)
    state = critic.state_dict()
    state["critics"] = flat(*plain.critics)
    critic.load_state_dict(state)
    critic.update(batch)
    plain.update_critic(batch)
    torch.testing.assert_close(
        torch.from_numpy(critic.parameters()), flat(*plain.critics), rtol=1e-4, atol=2e-5
    )


def test_the_plain_actor_moves_policy_and_temperature_and_no_critic():
    """As much work as ours."""
    batch, plain = random_batch(SPEC, 32), PlainSAC(**network_widths(SPEC))
    before = flat(plain.policy), flat(*plain.critics), plain.log_temperature.item()
    plain.update_actor(batch)
    assert not torch.equal(flat(plain.policy), before[0])
    assert torch.equal(flat(*plain.critics), before[1])
    assert plain.log_temperature.item() == pytest.approx(before[2] - 1e-3, rel=1e-3)


def test_the_figures_say_what_was_compared(monkeypatch):
    """A speed-up over plain PyTorch and over fp32, and what feeding costs."""
    monkeypatch.setattr("spreeze_zmq.bench.replay.CAPACITY", 1000)
    batch, halves = random_batch(SPEC, 32), make_halves(SPEC, "fp32", 32)
    plain = PlainSAC(**network_widths(SPEC))
    figure = measure_beside_plain(plain, *halves, batch, "fp32", 0.2)
    assert (figure.name, figure.unit) == ("over plain, batch 32", "transitions/s")
    assert figure.ratio > 0
    beside = measure_over_fp32(SPEC, halves[0], batch, "fp32", 0.2)
    assert (beside.name, beside.unit) == ("over fp32, batch 32", "transitions/s")
    assert beside.ratio == pytest.approx(1.0, rel=0.5)  # the same beside itself
    fed = measure_feeding(SPEC, halves[0].update, batch, "fp32, batch 32", 0.2)
    assert [each.name for each in fed] == ["ingesting, fp32, batch 32", "sampling, fp32, batch 32"]
