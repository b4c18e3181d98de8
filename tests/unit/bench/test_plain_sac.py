"""The plain updates that ours are compared with learn the same: a comparison with less would be unfair."""

import plain_sac
import pytest
import torch
from plain_sac import SPEC, PlainSAC, halves, measure_beside_plain
from torch.utils.flop_counter import FlopCounterMode
from update_arithmetic import actor_flops, critic_flops, network_widths, product_flops

from spreeze_zmq import algorithms, envs
from spreeze_zmq.bench.trial import flops_of, random_batch

#: HalfCheetah: 17 observations and 6 actions, two layers of 256 units.
CRITIC, POLICY = (23, 256, 256, 1), (17, 256, 256, 12)


def flat(*stacks):
    """Parameters layer by layer, as ours are packed."""
    layers = zip(*(stack.parameters() for stack in stacks), strict=True)
    return torch.cat([tensor.detach().reshape(-1) for layer in layers for tensor in layer])


def stacked(*stacks):
    """As ours lie: of each layer the weights of all networks, then the biases."""
    layers = zip(*(stack.parameters() for stack in stacks), strict=True)
    return torch.cat([torch.stack(layer).detach().reshape(-1) for layer in layers])


@pytest.mark.parametrize("fused", [False, True])
def test_plain_and_ours_take_the_same_step(fused):
    """From the same weights, with the temperature's and the noise's part taken out, one critic update."""
    batch = random_batch(SPEC, 64)
    batch.discount.zero_()
    critic, _ = halves(64, "fp32")
    plain = PlainSAC(**network_widths(SPEC), fused=fused)
    state = critic.state_dict()
    state["own"] = stacked(*plain.critics)
    critic.load_state_dict(state)
    critic.update(batch)
    plain.update_critic(batch)
    ours, theirs = critic.weights, stacked(*plain.critics)
    far = ~torch.isclose(ours, theirs, rtol=1e-4, atol=2e-5)
    # Where a gradient is near Adam's epsilon, its rounding, which differs between processors, is the step.
    assert far.sum() <= 3
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=6e-5)


def test_the_plain_actor_moves_policy_and_temperature_and_no_critic():
    """As much work as ours."""
    batch, plain = random_batch(SPEC, 32), PlainSAC(**network_widths(SPEC))
    before = flat(plain.policy), flat(*plain.critics), plain.log_temperature.item()
    plain.update_actor(batch)
    assert not torch.equal(flat(plain.policy), before[0])
    assert torch.equal(flat(*plain.critics), before[1])
    assert plain.log_temperature.item() == pytest.approx(before[2] - 1e-3, rel=1e-3)


def test_the_figure_says_what_was_compared():
    """A speed-up over plain PyTorch, in transitions that both halves trained on."""
    figure = measure_beside_plain(32, 0.2, "fp32")
    assert (figure.name, figure.unit) == ("over plain, batch 32", "transitions/s")
    assert figure.ratio > 0


def test_the_script_prints_each_batch_size(monkeypatch, capsys):
    """One table for each."""
    monkeypatch.setattr("sys.argv", ["plain_sac.py", "--batch", "32", "--batch", "64", "--seconds", "0.2"])
    plain_sac.main()
    said = capsys.readouterr().out
    assert "over plain, batch 32" in said
    assert "over plain, batch 64" in said


# --- the arithmetic, by hand ----------------------------------------------------------------------


def test_a_pass_multiplies_and_adds_once_for_each_weight_and_row():
    """3 rows through 2 x 5 and 5 x 4 weights: 2 * 3 * (10 + 20)."""
    assert product_flops(3, (2, 5, 4)) == 180
    assert product_flops(1, CRITIC) == 2 * (5888 + 65536 + 256) == 143_360
    assert product_flops(1, POLICY) == 2 * (4352 + 65536 + 3072) == 145_920


def test_a_critic_update_costs_what_a_hand_counts():
    """One policy, eight passes of a critic, less two gradients of the first layer's input (11,776 each)."""
    assert critic_flops(1, CRITIC, POLICY) == 145_920 + 8 * 143_360 - 2 * 11_776 == 1_269_248
    assert critic_flops(256, CRITIC, POLICY) == 256 * 1_269_248


def test_an_actor_update_costs_what_a_hand_counts():
    """Three passes of the policy less 8,704; four of a critic, of whose first layer the way back has six of
    23 columns only (3,072 of 11,776).
    """
    hand = 3 * 145_920 - 8_704 + 4 * 143_360 - 2 * (11_776 - 3_072)
    assert actor_flops(1, CRITIC, POLICY, 6) == hand == 985_088


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_what_the_bench_counts_of_any_algorithm_is_what_a_hand_counts_of_sac(env_id):
    """At most 5 % more, which are gradients of columns that nobody needs, and no less."""
    spec, kind = envs.probe(env_id), algorithms.get("sac")
    widths = network_widths(spec)
    counted = flops_of(kind, spec, kind.Options(hidden_sizes=(256, 256)))
    hand = {
        "critic": critic_flops(1, **widths),
        "policy": actor_flops(1, **widths, num_actions=spec.action_shape[0]),
    }
    for part, flops in hand.items():
        assert flops <= counted[part] <= 1.05 * flops, part


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_tuned_updates_do_the_arithmetic_that_is_counted(env_id):
    """PyTorch's own count of an update: at most 5 % more than the hand's, and no less but for the last
    layer's single column, whose vector products it does not count.
    """
    spec, batch_size, kind = envs.probe(env_id), 32, algorithms.get("sac")
    options = kind.Options(hidden_sizes=(256, 256), precision="fp32")
    critic = algorithms.make("critic", kind, options, spec, "cpu", 1)
    actor = algorithms.make("policy", kind, options, spec, "cpu", 1)
    batch, widths = random_batch(spec, batch_size), network_widths(spec)
    counted = {
        "critic": critic_flops(batch_size, **widths),
        "actor": actor_flops(batch_size, **widths, num_actions=spec.action_shape[0]),
    }
    for half, update in (
        ("critic", lambda: critic.update(batch)),
        ("actor", lambda: actor.update(batch.obs)),
    ):
        with FlopCounterMode(display=False) as counter:
            update()
        assert 0.995 * counted[half] <= counter.get_total_flops() <= 1.05 * counted[half], half
