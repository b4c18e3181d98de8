"""The arithmetic that updates need, counted from the networks' shapes."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from spreeze_zmq import algorithms, envs
from spreeze_zmq.bench.bare_products import hidden_products, update_products
from spreeze_zmq.bench.learner import measure_one, random_batch, update_figures
from spreeze_zmq.bench.update_arithmetic import actor_flops, critic_flops, network_widths, product_flops

#: HalfCheetah: 17 observations and 6 actions, two layers of 256 units.
CRITIC, POLICY = (23, 256, 256, 1), (17, 256, 256, 12)


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
def test_real_updates_do_the_arithmetic_that_is_counted(env_id):
    """PyTorch's own count of an update: at most 5 % more (columns that nobody needs), and no less but for
    the last layer's single column, whose vector products it does not count.
    """
    spec, batch_size = envs.probe(env_id), 32
    algorithm = algorithms.get("sac")
    options = algorithm.Options(hidden_sizes=(256, 256), precision="fp32")
    critic = algorithms.make("critic", algorithm, options, spec, "cpu", 1)
    actor = algorithms.make("policy", algorithm, options, spec, "cpu", 1)
    batch = random_batch(spec, batch_size)
    widths = network_widths(spec)
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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_limit_counts_its_own_products(precision):
    """Three products of 256 x 256 units; PyTorch counts the same."""
    multiply, flops = hidden_products(8, precision)
    with FlopCounterMode(display=False) as counter:
        multiply()
    assert flops == counter.get_total_flops() == 3 * 2 * 8 * 256 * 256


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_products_of_an_update_are_all_that_is_counted(precision):
    """PyTorch counts the same in them as the formulas of both halves."""
    spec = envs.probe("HalfCheetah-v5")
    widths, num_actions = network_widths(spec), spec.action_shape[0]
    multiply = update_products(8, precision, **widths, num_actions=num_actions)
    with FlopCounterMode(display=False) as counter:
        multiply()
    counted = critic_flops(8, **widths) + actor_flops(8, **widths, num_actions=num_actions)
    assert counter.get_total_flops() == counted


def test_figures_of_updates_follow_from_the_rates():
    """Batch 10; 100 FLOP at 4 updates/s of 1000 FLOP/s is 0.4, 50 FLOP at 10 updates/s 0.5; the arithmetic
    of both, one after the other, takes 0.35 s for 150 FLOP.
    """
    both, critic, actor = update_figures(
        "x", 10, [1000.0] * 3, {"critic": 100, "actor": 50}, {"critic": [4.0] * 3, "actor": [10.0] * 3}
    )
    assert (critic.limit, critic.reached, critic.ratio) == (100.0, 40.0, 0.4)
    assert (actor.limit, actor.reached, actor.ratio) == (200.0, 100.0, 0.5)
    assert both.ratio == pytest.approx(150 / 0.35 / 1000)
    assert (both.limit, both.unit) == (pytest.approx(1e-6), "GFLOP/s")
    assert critic.details == {"updates_per_s": 4.0, "flops_per_update": 100, "batch_size": 10}


def test_plain_pytorch_stands_beside_the_same_limit():
    """In fp32 both compute with the same kernels."""
    figures = measure_one(envs.probe("HalfCheetah-v5"), "fp32", 64, 0.3)
    names = ["both, fp32, batch 64", "critic, fp32, batch 64", "actor, fp32, batch 64"]
    own = "products, fp32, batch 64"
    assert [figure.name for figure in figures] == [*names, own, "plain both, fp32, batch 64"]
    both, plain = figures[0], figures[-1]
    assert figures[3].reached == both.reached
    assert both.limit == plain.limit
    assert plain.ratio > 0
    assert plain.reached != both.reached


def test_the_batch_fits_the_environment():
    """Shapes, formats and bounds of what a replay would give."""
    spec = envs.probe("Pendulum-v1")
    batch = random_batch(spec, 7)
    assert (batch.obs.shape, batch.next_obs.shape, batch.action.shape) == ((7, 3), (7, 3), (7, 1))
    assert batch.weight is None
    fields = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs)
    assert {tensor.dtype for tensor in fields} == {torch.float32}
    assert batch.action.abs().max() <= spec.action_high[0]
