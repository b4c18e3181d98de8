"""What is recorded once and replayed must be what the plain calls are: shown on a CPU by a tape.

``Tape`` does what a CUDA graph does: it writes down every operation with the very tensors that it was given,
and replays them into the very tensors that they returned, without running the function's Python again.
"""

import logging

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.fast import sac_actor, sac_critic
from spreeze_zmq.bench.learner import random_batch
from spreeze_zmq.device import WARM_UP_CALLS, Captured, captured
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.native.library import Library
from spreeze_zmq.nn import native
from spreeze_zmq.replay import ObservationReplay, Replay
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from tests.unit.replay.made import options

pytestmark = pytest.mark.usefixtures("one_thread")

SAC = algorithms.get("sac")
PENDULUM = envs.probe("Pendulum-v1")
OPTIONS = {"hidden_sizes": (16, 16), "precision": "fp32", "learning_starts": 1}
RICH = {
    "layer_norm": True,
    "actor_layer_norm": True,
    "num_atoms": 11,
    "twin_critics": "mean",
    "activation": "silu",
    "normalize_observations": True,
    "weight_decay": 0.1,
    "max_gradient_norm": 1.0,
}


@pytest.fixture(autouse=True)
def torch_alone(monkeypatch):
    """As on a GPU: a native call is no operation that could be recorded."""
    monkeypatch.setattr(native, "library", lambda: Library(None, problem="as on a GPU"))


class Tape(TorchDispatchMode):
    """Operations in their order, with the tensors that they took and gave."""

    def __init__(self):
        super().__init__()
        self.operations = []
        self.computed = False
        self.num_recordings = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        """Write one down; a tape cannot but do it as well, which counts as the first replay."""
        given = operation(*arguments, **(keywords or {}))
        self.operations.append((operation, arguments, keywords or {}, given))
        return given

    def warm(self, function):
        """As it is."""
        return function()

    def record(self, function):
        """The result, and the replay."""
        self.operations, self.computed = [], True
        self.num_recordings += 1
        with self:
            return function(), self.replay

    @torch.inference_mode()  # as updates run; a graph launches kernels and knows no modes
    def replay(self):
        """The same operations on the same memory."""
        if self.computed:
            self.computed = False
            return
        for operation, arguments, keywords, given in self.operations:
            again = operation(*arguments, **keywords)
            for old, new in zip(tree_leaves(given), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def both_halves(options):
    """SAC's critic and policy halves from the same seed."""
    return [algorithms.make(part, SAC, options, PENDULUM, "cpu", 3) for part in ("critic", "policy")]


def taped(half):
    """The half with its device's work recorded as on a GPU; its tapes."""
    tapes = []
    for name, function in vars(half).items():
        if name.startswith("_launch"):
            tapes.append(Tape())
            setattr(half, name, Captured(function, tapes[-1]))
    assert tapes
    return half, tapes


def train(critic, actor, batch_sizes, prioritized=False):
    """Updates of both halves out of growing replays, exchanging their weights; everything that came of it."""
    kind = PrioritizedReplay if prioritized else Replay
    replay = kind(PENDULUM, options(600, n_step=2))
    observations = ObservationReplay(PENDULUM, options(600))
    seen = []
    for count, size in enumerate(batch_sizes):
        rollout = random_rollout(PENDULUM)
        replay.add(rollout)
        observations.add(rollout)
        actor.observe(rollout.acted_on)
        metrics = critic.update(replay.sample(size))
        seen += [float(value) for value in metrics.values()]
        replay.prioritize(critic.priorities())
        seen += critic.priorities().tolist()
        seen += [float(value) for value in actor.update(observations.sample(size)).values()]
        if count % 3 == 2:
            actor.load_critic(critic.parameters())
            critic.load_policy(actor.policy_arrays(), actor.extras())
    state = (critic.parameters().tobytes(), actor.parameters().tobytes(), actor.extras())
    return seen, state, (critic.num_updates, actor.num_updates)


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_a_replayed_update_is_the_update(options, prioritized):
    """Bit for bit: weights, losses, priorities and counts, over batches that differ at each call."""
    sizes = [32] * 12

    def halves():
        made = SAC.Options(**OPTIONS, **options)
        return both_halves(made)

    plain = train(*halves(), sizes, prioritized)
    (critic, critic_tapes), (actor, actor_tapes) = map(taped, halves())
    assert train(critic, actor, sizes, prioritized) == plain
    assert [tape.num_recordings for tape in (*critic_tapes, *actor_tapes)] == [1, 1, 1]


def test_another_batch_size_is_recorded_anew():
    """And then replayed too; what was recorded of the first is gone."""
    sizes = [32] * 6 + [48] * 6
    made = SAC.Options(**OPTIONS)
    plain = train(*both_halves(made), sizes)
    (critic, critic_tapes), (actor, _) = map(taped, both_halves(made))
    assert train(critic, actor, sizes) == plain
    assert sorted(tape.num_recordings for tape in critic_tapes) == [1, 2]  # the step takes no batch


@pytest.mark.parametrize("recorded", [False, True])
def test_other_rates_hold_from_the_next_update_on(monkeypatch, recorded):
    """Ten times the rate moves ten times as far, targets by their share; what is recorded is made again."""
    if recorded:
        for module in (sac_critic, sac_actor):
            monkeypatch.setattr(module, "captured", lambda function, *_: Captured(function, Tape()))
    made, batch = SAC.Options(**OPTIONS, learning_rate=1e-4, tau=0.1), random_batch(PENDULUM, 32)
    critic, actor = both_halves(made)

    def moved():
        """How far two updates move each, the second one's part of the targets, and what of it they keep."""
        before = critic.parameters(), actor.parameters()
        critic.update(batch)
        actor.update(batch.obs)
        targets = critic.state_dict()["targets"].numpy()
        critic.update(batch)
        actor.update(batch.obs)
        after, new_targets = critic.parameters(), critic.state_dict()["targets"].numpy()
        share = np.linalg.norm(new_targets - targets) / np.linalg.norm(after - targets)
        distances = np.abs(after - before[0]).max(), np.abs(actor.parameters() - before[1]).max()
        return np.array([*distances, share])

    for _ in range(WARM_UP_CALLS):
        slow = moved()
    for half in (critic, actor):
        half.set_rates({"learning_rate": 1e-3, "tau": 0.5})
    for _ in range(WARM_UP_CALLS):
        fast = moved()
    assert slow[:2] == pytest.approx(2e-4, rel=0.1)
    assert fast[:2] == pytest.approx(2e-3, rel=0.1)
    assert (slow[2], fast[2]) == (pytest.approx(0.1, rel=1e-3), pytest.approx(0.5, rel=1e-3))


def test_a_restored_half_is_replayed_from_its_new_state():
    """A checkpoint fills the memory that the recording works on, and its random numbers go on from there."""
    made, batch = SAC.Options(**OPTIONS), random_batch(PENDULUM, 32)
    reference, (half, _) = (
        algorithms.make("critic", SAC, made, PENDULUM, "cpu", 1),
        taped(algorithms.make("critic", SAC, made, PENDULUM, "cpu", 2)),
    )
    for _ in range(WARM_UP_CALLS + 2):
        reference.update(batch)
        half.update(batch)
    half.load_state_dict(reference.state_dict())
    for _ in range(2):
        reference.update(batch)
        half.update(batch)
    assert np.array_equal(half.parameters(), reference.parameters())


def test_what_cannot_be_recorded_is_called_as_it_is(caplog):
    """Once, with the reason in the log; nothing is missing and nothing is done twice."""

    class Refuses(Tape):
        def record(self, function):
            raise RuntimeError("operation not permitted when stream is capturing")

    total = torch.zeros(())
    function = Captured(lambda x: total.add_(x).clone(), Refuses())
    with caplog.at_level(logging.WARNING):
        values = [float(function(torch.ones(()))) for _ in range(1)]
        one = torch.ones(())
        values += [float(function(one)) for _ in range(8)]
    assert values == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert caplog.text.count("not permitted when stream is capturing") == 1


def test_a_cpu_calls_the_function_itself():
    """There is nothing to gain by recording."""
    assert captured(len, torch.device("cpu")) is len


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
def test_an_update_never_reads_its_device(monkeypatch, options):
    """On torch's meta device nothing can be read back, and nothing on the host can be mixed in: an update
    that did either would make a GPU wait, and could not be recorded.
    """
    from spreeze_zmq.algorithms.fast import sac_networks

    monkeypatch.setattr(sac_networks, "generator", lambda *_: torch.Generator())
    made = SAC.Options(**OPTIONS, **options)
    critic = algorithms.make("critic", SAC, made, PENDULUM, "meta", 1)
    actor = algorithms.make("policy", SAC, made, PENDULUM, "meta", 1)
    with pytest.raises((RuntimeError, NotImplementedError)):
        critic.weights[0].item()
    batch = random_batch(PENDULUM, 32)
    fields = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs)
    obs, action, reward, discount, next_obs = (field.to("meta") for field in fields)
    for weight in (None, reward):
        metrics = critic._backward(obs, action, reward, discount, next_obs, weight)
        critic._step()
        assert {value.device.type for value in metrics.values()} == {"meta"}
    assert critic.priorities().device.type == "meta"
    assert {value.device.type for value in actor.update(obs).values()} == {"meta"}
