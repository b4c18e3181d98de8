"""The same on a real GPU: graphs, copies beside the work, and how busy the device is."""

import logging
import time

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import gradient_steps
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.nn.device import Download, Ingestion, Staging, Work, captured
from spreeze_zmq.replay import Batch, ObservationReplay, Replay
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from tests.unit.replay.made import options, spec

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device, and a torch that can use it"
)

SAC = algorithms.get("sac")
PENDULUM = envs.probe("Pendulum-v1")
CUDA = torch.device("cuda")
RICH = {"layer_norm": True, "num_atoms": 51, "twin_critics": "mean", "normalize_observations": True}


def make_halves(device="cuda", **options):
    """Both halves, of small networks."""
    made = SAC.Options(**{"hidden_sizes": (64, 64), "precision": "fp32", "learning_starts": 1, **options})
    return [algorithms.make(part, SAC, made, PENDULUM, device, 3) for part in ("critic", "policy")]


def make_replays(device="cuda", kind=Replay):
    """Filled with the same in each call."""
    replay = kind(PENDULUM, options(1000), device, 5)
    observations = ObservationReplay(PENDULUM, options(1000), device, 6)
    for _ in range(2):
        replay.add(random_rollout(PENDULUM))
        observations.add(random_rollout(PENDULUM))
    return replay, observations


def train(critic, actor, replay, observations, updates):
    """Updates of both, with everything that a learner does between them."""
    losses = []
    for count in range(updates):
        metrics = critic.update(replay.sample(256))
        if replay.prioritized:
            replay.prioritize(critic.priorities())
        actor.update(observations.sample(256))
        if count % 3 == 2:
            replay.add(random_rollout(PENDULUM))
            actor.load_critic(critic.weights.cpu().numpy())
            critic.load_policy(actor.policy_arrays())
            losses.append(float(metrics["critic_loss"]))
    return losses


def is_recorded(function):
    """Whether a graph is replayed."""
    return any(course._recorded for course in function._courses.values())


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("kind", [Replay, PrioritizedReplay])
def test_a_graph_trains_as_the_plain_launches_do(request, monkeypatch, caplog, options, precision, kind):
    """Twelve updates each from one seed: the same losses and weights, whatever the precision."""
    results = []
    if kind is PrioritizedReplay:  # of a row that was drawn twice the last priority counts, not any
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
        torch.use_deterministic_algorithms(True, warn_only=True)
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
        critic, actor = make_halves(precision=precision, **options)
        losses = train(critic, actor, *make_replays(kind=kind), 12)
        results.append((losses, critic.weights.cpu().numpy(), actor.weights.cpu().numpy()))
        if not plain:
            assert is_recorded(critic._launch[True]), caplog.text
            assert is_recorded(actor._launch[True]), caplog.text
    (losses, *weights), (plain_losses, *plain_weights) = results
    tolerance = {"rtol": 0.02, "atol": 2e-3} if precision == "bf16" else {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(losses, plain_losses, **tolerance)
    for ours, theirs in zip(weights, plain_weights, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)


def test_a_graph_is_made_anew_for_other_rates(monkeypatch):
    """Learning rate and tau are numbers of the recording: it trains on as the plain launches do."""
    results = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
        critic, actor = make_halves()
        replays = make_replays()
        for rates in ({"learning_rate": 3e-4, "tau": 0.005}, {"learning_rate": 3e-3, "tau": 0.5}):
            for each in (critic, actor):
                each.set_rates(rates)
            train(critic, actor, *replays, 6)
        results.append((critic.weights.cpu().numpy(), actor.weights.cpu().numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_an_update_is_that_of_the_cpu():
    """One batch, one step, float32; only the random noise of the target actions is the device's own."""
    for_cpu, for_gpu = (make_halves(device, initial_temperature=1e-8)[0] for device in ("cpu", "cuda"))
    replay, _ = make_replays("cpu")
    batch = replay.sample(256)
    batch.discount.zero_()  # without a next state there is no noise
    fields = {name: field for name, field in vars(batch).items() if field is not None}
    for_cpu.update(batch)
    for_gpu.update(Batch(**{name: field.to("cuda") for name, field in fields.items()}))
    np.testing.assert_allclose(for_gpu.weights.cpu(), for_cpu.weights, rtol=1e-4, atol=1e-5)


def test_noise_goes_on_over_replays_and_checkpoints(tmp_path):
    """Replays do not repeat each other's noise, and a restored half goes on with what would have come."""
    critic, actor = make_halves()
    train(critic, actor, *make_replays(), 9)
    torch.save(critic.state_dict(), tmp_path / "half.pt")
    replay, _ = make_replays()
    batch = replay.sample(256)
    first, second = (float(critic.update(batch)["target_mean"]) for _ in range(2))
    assert first != second
    other, _ = make_halves()
    other.load_state_dict(torch.load(tmp_path / "half.pt", map_location="cpu", weights_only=True))
    assert float(other.update(batch)["target_mean"]) == pytest.approx(first, rel=1e-5)


def test_updates_do_not_wait_for_the_device():
    """With the device held up by something else, twenty updates are launched at once, rollouts, priorities
    and other weights included.
    """
    critic, actor = make_halves()
    replay, observations = make_replays(kind=PrioritizedReplay)
    train(critic, actor, replay, observations, 15)  # the tenth replay is compared with a call, which waits
    weights, policy = critic.weights.cpu().numpy(), actor.policy_arrays()
    torch.cuda.synchronize()
    held = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)  # about a second
    held.record()
    for _ in range(3):  # as many rollouts as staging has room for, each of two columns
        replay.add(random_rollout(PENDULUM))
        critic.update(replay.sample(256))
        replay.prioritize(critic.priorities())
        actor.update(observations.sample(256))
    actor.load_critic(weights)
    critic.load_policy(policy)
    assert not held.query()
    torch.cuda.synchronize()


def test_no_sample_holds_a_row_that_is_half_written():
    """Rows of equal numbers, overwritten at once by others: every sampled row is of one number."""
    replay = ObservationReplay(spec((1024,)), options(4096), "cuda", 1)
    torn = torch.zeros((), device="cuda")
    for count in range(200):
        rows = np.full((2048, 1024), count, np.float32)
        replay.ring.write({"obs": rows})
        obs = replay.sample(8192)
        torn += (obs != obs[:, :1]).any()
    assert float(torn) == 0


def test_a_download_has_the_weights_of_its_beginning():
    """Though they change before it has arrived; and nobody waited."""
    download, weights = Download(CUDA), torch.ones(1_000_000, device="cuda")
    download.start(weights)
    assert download.ready(wait=True)
    torch.cuda._sleep(500_000_000)
    began_s = time.perf_counter()
    download.start(weights)
    weights.zero_()
    launched_s = time.perf_counter() - began_s
    assert not download.ready()
    assert download.ready(wait=True)
    assert (download.array() == 1).all()
    assert launched_s < 0.1


def test_work_tells_how_busy_the_device_is():
    """Half of the time in updates of ten milliseconds."""
    work = Work("cuda")
    work.figures()
    for _ in range(30):
        work.run(lambda: torch.cuda._sleep(15_000_000))
        torch.cuda.synchronize()
        time.sleep(0.01)
    figures = work.figures()
    assert 0.1 < figures["busy"] < 0.95
    assert 0.1 < figures["busy_in_all"] < 0.95
    time.sleep(0.5)
    assert work.figures()["busy"] == 0
    assert work.figures()["busy_in_all"] == figures["busy_in_all"]
    assert figures["memory_bytes"] > 0
    assert figures["memory_free_bytes"] > 0


def test_what_cannot_be_recorded_is_launched_as_it_is(caplog):
    """A function that reads the device: the log says so, and the device works on."""
    function = captured(lambda x: x + float(x.sum()) + 0.0 * torch.rand_like(x), CUDA)
    x = torch.ones(4, device="cuda")
    with caplog.at_level(logging.WARNING):
        assert [float(function(x)[0]) for _ in range(6)] == [5.0] * 6
    assert "no CUDA graph can be made" in caplog.text
    assert torch.rand(1000, device="cuda").std() > 0.1


def test_a_replay_that_does_not_fit_is_refused():
    """Before anything is allocated, with what would fit."""
    free = torch.cuda.mem_get_info()[0]
    with pytest.raises(InputError, match=r"cuda has .* GB free: lower algorithm.replay_capacity to at most"):
        ObservationReplay(spec((1000,)), options(free // 1000), "cuda", 1)
    assert torch.cuda.mem_get_info()[0] > 0.9 * free


def test_staging_and_ingestion_are_pinned_and_ordered():
    """What the host fills is memory that the device can copy from by itself."""
    target = torch.zeros(3, 5, device=CUDA)
    with Staging(CUDA).filling(target) as rows:
        assert torch.from_numpy(rows).is_pinned()
        rows[:] = np.arange(15).reshape(3, 5)
    assert target.flatten().tolist() == list(range(15))
    with Ingestion(CUDA).writing():
        assert torch.cuda.current_stream() != torch.cuda.default_stream()
