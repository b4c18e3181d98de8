"""The plain updates that ours are compared with learn the same: a comparison with less would be unfair."""

import plain_sac
import pytest
import torch
from plain_sac import SPEC, PlainSAC, halves, measure_beside_plain, network_widths
from torch.utils.flop_counter import FlopCounterMode

from spreeze_zmq import algorithms, envs
from spreeze_zmq.commands.bench.trial import flops_of, random_batch

#: FLOP per transition of a critic and of an actor update, two layers of 256 units, counted by hand. A pass
#: multiplies and adds once for each weight; the gradients of the weights cost as much, and so do those of the
#: inputs. HalfCheetah has 23 x 256, 256 x 256 and 256 x 1 weights in each of two critics (143,360 in a pass)
#: and 17 x 256, 256 x 256 and 256 x 12 in the policy (145,920); Pendulum 4 x 256 and 256 x 1, 3 x 256 and
#: 256 x 2 in their place (133,632 both). A critic update is a pass of the policy and eight of a critic, less
#: two gradients of the first layer's inputs (11,776; 2,048). An actor update is three passes of the policy,
#: less the gradient of its first layer's inputs (8,704; 1,536), and four of a critic, of whose first layer's
#: inputs only the actions need gradients (3,072; 512).
BY_HAND = {
    "HalfCheetah-v5": {
        "critic": 145_920 + 8 * 143_360 - 2 * 11_776,
        "policy": 3 * 145_920 - 8_704 + 4 * 143_360 - 2 * (11_776 - 3_072),
    },
    "Pendulum-v1": {
        "critic": 133_632 + 8 * 133_632 - 2 * 2_048,
        "policy": 3 * 133_632 - 1_536 + 4 * 133_632 - 2 * (2_048 - 512),
    },
}


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


@pytest.mark.parametrize("env_id", BY_HAND)
def test_what_the_bench_counts_of_any_algorithm_is_what_a_hand_counts_of_sac(env_id):
    """At most 5 % more, which are gradients of columns that nobody needs, and no less."""
    kind = algorithms.get("sac")
    counted = flops_of(kind, envs.probe(env_id), kind.Options(hidden_sizes=(256, 256)))
    for part, flops in BY_HAND[env_id].items():
        assert flops <= counted[part] <= 1.05 * flops, part


@pytest.mark.parametrize("env_id", BY_HAND)
def test_tuned_updates_do_the_arithmetic_that_is_counted(env_id):
    """PyTorch's own count of an update: at most 5 % more than the hand's, and no less but for the last
    layer's single column, whose vector products it does not count.
    """
    spec, batch_size, kind = envs.probe(env_id), 32, algorithms.get("sac")
    options = kind.Options(hidden_sizes=(256, 256), precision="fp32")
    critic, actor = (algorithms.make(part, kind, options, spec, "cpu", 1) for part in ("critic", "policy"))
    batch = random_batch(spec, batch_size)
    updates = {"critic": lambda: critic.update(batch), "policy": lambda: actor.update(batch.obs)}
    for part, update in updates.items():
        flops = batch_size * BY_HAND[env_id][part]
        with FlopCounterMode(display=False) as counter:
            update()
        assert 0.995 * flops <= counter.get_total_flops() <= 1.05 * flops, part
