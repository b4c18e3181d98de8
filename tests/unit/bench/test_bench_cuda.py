"""The bench of a GPU: all of it but the GPU's own part runs here on the CPU."""

import pytest
import torch

from spreeze_zmq import envs
from spreeze_zmq.bench import cuda as bench_cuda
from spreeze_zmq.bench import replay as bench_replay
from spreeze_zmq.bench.update_arithmetic import actor_flops, critic_flops, network_widths
from spreeze_zmq.commands import spreeze

SPEC = envs.probe("Pendulum-v1")


def measured(monkeypatch, device):
    """The figures of one small batch by name."""
    for module in (bench_cuda, bench_replay):
        monkeypatch.setattr(module, "CAPACITY", 2000)
    return {figure.name: figure for figure in bench_cuda.run("Pendulum-v1", 0.8, (64,), device)}


def test_both_halves_are_measured_beside_the_peak(monkeypatch):
    """Each from its own replay, one after the other, and while rollouts come in and weights go out."""
    figures = measured(monkeypatch, "cpu")
    updates = [f"{half}, fp32, batch 64" for half in ("both", "critic", "actor")]
    feeding = [f"{way}, fp32, batch 64" for way in ("ingesting", "publishing")]
    assert list(figures) == updates + feeding
    both, critic, actor = (figures[name] for name in updates)
    widths = network_widths(SPEC)
    assert critic.details["flops_per_update"] == critic_flops(64, **widths)
    assert both.details["flops_per_update"] == critic_flops(64, **widths) + actor_flops(
        64, **widths, num_actions=1
    )
    assert critic.reached == pytest.approx(64 * critic.details["updates_per_s"])
    assert both.reached == pytest.approx(2 * 64 * both.details["updates_per_s"])
    together = 1 / (1 / critic.details["updates_per_s"] + 1 / actor.details["updates_per_s"])
    assert 1 / 3 < both.details["updates_per_s"] / together < 3
    for figure in (both, critic, actor):
        assert 0 < figure.ratio < 1.5
        share = figure.details["updates_per_s"] * figure.details["flops_per_update"]
        assert share / figure.details["peak_flops_per_s"] == pytest.approx(figure.ratio, rel=1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and a torch that can use it")
def test_a_gpu_is_measured_in_both_precisions(monkeypatch):
    """bf16 and tf32, by the same figures."""
    names = measured(monkeypatch, "cuda")
    assert {"both, bf16, batch 64", "both, tf32, batch 64"} <= names.keys()


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
