"""What the learner section says of updates, counted and timed."""

import time

import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.commands import spreeze
from spreeze_zmq.commands.bench import learner
from spreeze_zmq.commands.bench.figures import Job
from spreeze_zmq.commands.bench.learner import measure_beside_others, update_figures
from spreeze_zmq.commands.bench.trial import Halves, flops_of, launched, make_trial, random_batch
from spreeze_zmq.nn.native_sequential import NativeSequential

pytestmark = pytest.mark.usefixtures("one_thread")  # as a learner's process has

SAC, TD3, PPO, DQN = map(algorithms.get, ("sac", "td3", "ppo", "dqn"))
CHEETAH, CARTPOLE = envs.probe("HalfCheetah-v5"), envs.probe("CartPole-v1")


def test_the_arithmetic_of_a_value_network_is_what_a_hand_counts():
    """PPO of 64-wide layers on CartPole, each transition once: the values of ``prepare`` once for ten epochs
    (of one observation more in each of 16 environments than transitions), the update's passes forward, back
    to the weights and back to all inputs but the first's.
    """
    value = 2 * (4 * 64 + 64 * 64 + 64)
    ahead = (512 + 16) / 512 * value / 10
    policy_too = 2 * (4 * 64 + 64 * 64 + 64 * 2) / 10  # V-trace needs the policy's probabilities
    hand = 3 * value - 2 * 4 * 64 + ahead + policy_too
    assert flops_of(PPO, CARTPOLE, PPO.Options())["critic"] == pytest.approx(hand)


def trial(shares, flops, batch_size=10):
    """One that was measured already."""
    options = type("Options", (), {"batch_size": batch_size})
    return Halves(options, "fp32", "cpu", dict.fromkeys(shares), batch_size, shares, flops)


def test_figures_of_updates_follow_from_the_rates():
    """Batch 10; 10 FLOP a transition at 40/s of 1000 FLOP/s is 0.4, 5 FLOP at 100/s 0.5. One after the other
    they take 0.035 s for a transition, which is counted once, and 15 FLOP.
    """
    both, critic, policy = update_figures(
        trial({"critic": 1.0, "policy": 1.0}, {"critic": 10.0, "policy": 5.0}),
        [1000.0] * 3,
        {"critic": [40.0] * 3, "policy": [100.0] * 3},
    )
    assert (critic.limit, critic.reached, critic.ratio) == (100.0, 40.0, 0.4)
    assert (policy.limit, policy.reached, policy.ratio) == (200.0, 100.0, 0.5)
    assert both.reached == pytest.approx(1 / 0.035)
    assert both.ratio == pytest.approx(15 / 0.035 / 1000)
    assert critic.details == {
        "updates_per_s": 4.0,
        "flops_per_update": 100.0,
        "batch_size": 10,
        "limit_flops_per_s": 1000.0,
    }


def test_a_policy_that_follows_every_second_update_takes_half_of_its_time():
    """0.025 s of the critic and 0.005 s of the policy for each transition."""
    both, *_ = update_figures(
        trial({"critic": 1.0, "policy": 0.5}, {"critic": 10.0, "policy": 5.0}),
        [1000.0],
        {"critic": [40.0], "policy": [100.0]},
    )
    assert both.reached == pytest.approx(1 / 0.03)
    assert both.ratio == pytest.approx(12.5 / 0.03 / 1000)
    assert make_trial(TD3, CHEETAH, "cpu", batch_size=16).shares == {"critic": 1.0, "policy": 0.5}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (SAC, CHEETAH),
        (DQN, CARTPOLE),
        pytest.param(TD3, CHEETAH, marks=pytest.mark.thorough),
        pytest.param(PPO, CARTPOLE, marks=pytest.mark.thorough),
    ],
)
def test_native_layers_are_compared_with_torchs(kind, spec):
    """For every algorithm; in the trial that it is held against no layer is native."""
    ours = make_trial(kind, spec, "cpu", batch_size=32, precision="fp32")
    (figure,) = measure_beside_others(ours, kind, spec, 0.2)
    assert (figure.name, figure.note) == ("over torch, fp32 32", "limit: plain torch")
    assert figure.ratio > 0
    half = algorithms.make("critic", kind, kind.Options(), spec, "cpu", 1)
    half.leave_to_torch()
    layers = [each for network in half._networks.modules.values() for each in network.modules()]
    formats = [each.formats for each in layers if isinstance(each, NativeSequential)]
    assert formats
    assert not any(formats)


def test_an_on_policy_step_is_a_whole_round():
    """Ten epochs of at least 512 transitions, in batches that divide them."""
    made = make_trial(PPO, CARTPOLE, "cpu", batch_size=96)
    assert made.transitions == 10 * 576
    assert set(made.steps) == {"critic", "policy"}


@pytest.mark.parametrize(("env_id", "ppo"), [("Pendulum-v1", "Pendulum-v1"), ("CartPole-v1", "CartPole-v1")])
def test_each_shipped_algorithm_has_an_environment_that_it_can_act_in(env_id, ppo):
    """The one that was asked for, else HalfCheetah or CartPole."""
    box = env_id if env_id == "Pendulum-v1" else "HalfCheetah-v5"
    assert learner.suited(env_id) == {
        "discrete_sac": "CartPole-v1",
        "dqn": "CartPole-v1",
        "ppo": ppo,
        "pqn": "CartPole-v1",
        "sac": box,
        "td3": box,
        "td3_bc": box,
    }


def test_small_times_leave_out_the_largest_batch():
    """Five rounds of it alone take longer."""
    assert learner.batch_sizes(Job("Pendulum-v1", "sac", 4.0)) == (256, 1024)
    assert learner.batch_sizes(Job("Pendulum-v1", "sac", 5.0))[-1] == 8192
    assert learner.batch_sizes(Job("Pendulum-v1", "sac", 4.0, "cuda:0"))[-1] == 131_072


def test_launched_steps_are_awaited_and_counted():
    """On a CPU, where a launch is the step itself."""
    began_s, steps = time.perf_counter(), []
    rate = launched(lambda: steps.append(1), 5, 0.01, "cpu")
    assert 5 / (time.perf_counter() - began_s) <= rate.per_s <= 5 * len(steps) / 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and a torch that can use it")
def test_a_gpu_is_measured_in_both_precisions(monkeypatch):
    """bf16 and tf32, by the same figures."""
    monkeypatch.setattr(learner, "BATCH_SIZES", {"cuda": (64,)})
    names = {figure.name for figure in learner.figures(Job("Pendulum-v1", "sac", 1.0, "cuda:0"))}
    assert {"both, bf16, batch 64", "both, tf32, batch 64"} <= names


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("gpu", "--device gpu: expected cpu, cuda or cuda:1"),
        ("cuda:77", 'cuda:77" is absent: this machine has'),
    ],
)
def test_a_device_that_is_not_there_is_refused(capsys, device, why):
    """One line, exit code 2, nothing measured."""
    assert spreeze.main(["bench", "learner", "--device", device]) == 2
    said = capsys.readouterr()
    assert why in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_batch_fits_the_environment():
    """Shapes, formats and bounds of what a replay would give."""
    spec = envs.probe("Pendulum-v1")
    batch = random_batch(spec, 7)
    assert (batch.obs.shape, batch.next_obs.shape, batch.action.shape) == ((7, 3), (7, 3), (7, 1))
    assert batch.weight is None
    fields = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs)
    assert {tensor.dtype for tensor in fields} == {torch.float32}
    assert batch.action.abs().max() <= spec.action_high[0]
    assert random_batch(CARTPOLE, 7).action.dtype == torch.int64
