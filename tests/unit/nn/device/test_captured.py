"""What is recorded once and replayed must be what the plain calls are: on a tape, and as a CUDA graph would
do it, shown on a CPU by a recorder that makes tapes.
"""

import copy
import gc
import logging
import weakref

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import gradient_steps
from spreeze_zmq.commands.bench.trial import random_batch
from spreeze_zmq.learner.at_hand import random_replay, random_rollout, random_round
from spreeze_zmq.nn.device import WARM_UP_CALLS, Captured
from spreeze_zmq.nn.device.recorded import MOST_COURSES, MOST_STRANGERS
from spreeze_zmq.nn.device.tape import Tape
from spreeze_zmq.nn.device.taped import Taped
from spreeze_zmq.replay import Minibatches, Mixture, ObservationReplay, Replay
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


class Tapes:
    """Records as CUDA graphs are recorded; the first replay is what a tape has done already."""

    def __init__(self):
        self.num_recordings = 0

    def warm(self, function):
        """As it is."""
        return function()

    def record(self, function):
        """The result, and the replay."""
        self.num_recordings += 1
        tape = Tape()
        result = tape.record(function)
        assert not tape.refusal
        steps, done = tape.steps(), [True]
        self.kept = tape

        @torch.no_grad()
        def replay():
            for step in [] if done else steps:
                step()
            done.clear()

        return result, replay


@pytest.fixture
def as_graph(monkeypatch):
    """Halves that are recorded as on a GPU; their recorders."""
    recorders = []

    def captured_so(function, _, *about):
        recorders.append(Tapes())
        return Captured(function, recorders[-1], *about)

    monkeypatch.setattr(gradient_steps, "captured", captured_so)
    return recorders


@pytest.fixture
def plainly(monkeypatch):
    """A switch: halves made from then on are not recorded."""
    return lambda: monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)


def both_halves(options):
    """SAC's critic and policy halves from the same seed."""
    return [algorithms.make(part, SAC, options, PENDULUM, "cpu", 3) for part in ("critic", "policy")]


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
        if prioritized:
            replay.prioritize(critic.priorities())
            seen += critic.priorities().tolist()
        seen += [float(value) for value in actor.update(observations.sample(size)).values()]
        if count % 3 == 2:
            actor.load_critic(critic.weights.numpy().copy())
            critic.load_policy(actor.policy_arrays())
    state = (critic.weights.numpy().tobytes(), actor.weights.numpy().tobytes())
    return seen, state, (critic.num_updates, actor.num_updates)


def num_steps(half):
    """Of each recording that is replayed."""
    return [len(course._steps) for course in half._launch[True]._courses.values() if course._steps]


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_a_taped_update_is_the_update(plainly, options, prioritized):
    """Bit for bit: weights, losses, priorities and counts, over batches that differ at each call, also in
    their size.
    """
    made, sizes = SAC.Options(**OPTIONS, **options), [32] * 8 + [48] * 6 + [32] * 4
    critic, actor = both_halves(made)
    ours = train(critic, actor, sizes, prioritized)
    for half in (critic, actor):
        assert len(num_steps(half)) == 2
        assert 15 < num_steps(half)[0] < 200
    plainly()
    assert train(*both_halves(made), sizes, prioritized) == ours


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
def test_a_graphs_update_is_the_update(as_graph, plainly, options):
    """Likewise."""
    made = SAC.Options(**OPTIONS, **options)
    ours = train(*both_halves(made), [32] * 12)
    assert sorted(recorder.num_recordings for recorder in as_graph)[-2:] == [1, 1]
    plainly()
    assert train(*both_halves(made), [32] * 12) == ours


def test_another_batch_size_is_recorded_anew(as_graph, plainly):
    """As a graph; what was recorded of the first is gone."""
    sizes, made = [32] * 6 + [48] * 6, SAC.Options(**OPTIONS)
    ours = train(*both_halves(made), sizes)
    assert sorted(recorder.num_recordings for recorder in as_graph)[-2:] == [2, 2]
    plainly()
    assert train(*both_halves(made), sizes) == ours


def rounds(name, env, **options):
    """Updates of six rounds of three batches in each of four epochs, the last of which is shorter."""
    kind, spec = algorithms.get(name), envs.probe(env)
    made = kind.Options(hidden_sizes=(16, 16), precision="fp32", epochs=4, batch_size=48, **options)
    half = algorithms.make("critic", kind, made, spec, "cpu", 1)
    taken = random_round(spec, 128, "cpu", memory_size=made.memory_size if options else 0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(6):
        batches = Minibatches(half.prepare(taken), made.epochs, made.batch_size)
        for left, batch in zip(reversed(range(len(batches))), batches.drawn(generator), strict=True):
            half.update(batch, measured=left == 0)
    return half


def joined(name, env, mixed, **options):
    """Updates on batches that are new tensors at each draw."""
    kind, spec = algorithms.get(name), envs.probe(env)
    made = kind.Options(hidden_sizes=(16, 16), precision="fp32", learning_starts=1, **options)
    half = algorithms.make("critic", kind, made, spec, "cpu", 1)
    own, other = (
        random_replay(kind.kept_fields("critic", made), spec, half.options, "cpu", 16) for _ in range(2)
    )
    replay = Mixture(own, [(0.5, other)]) if mixed else own
    for _ in range(12):
        half.update(replay.sample(64), measured=False)
    return half


ELSEWHERE = {
    "ppo": (lambda: rounds("ppo", "Pendulum-v1"), [2, 1]),
    "pqn": (lambda: rounds("pqn", "CartPole-v1"), [2, 1]),
    "a recurrent ppo": (lambda: rounds("ppo", "Pendulum-v1", memory_size=4), [2, 1]),
    "a share of data": (lambda: joined("sac", "Pendulum-v1", mixed=True), [1, 0]),
    "a burn-in": (
        lambda: joined("dqn", "CartPole-v1", mixed=False, memory_size=4, sequence_length=8, burn_in=True),
        [1, 0],
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_batches_that_are_elsewhere_at_each_call_are_recorded(as_graph, plainly, case):
    """Once for each shape, without and with measured metrics; the weights are those of the plain calls."""
    train_so, recordings = ELSEWHERE[case]
    weights = train_so().weights.clone()
    assert [recorder.num_recordings for recorder in as_graph[-2:]] == recordings
    plainly()
    assert torch.equal(train_so().weights, weights)


def test_what_is_drawn_into_the_same_memory_is_not_copied():
    """The first tensors are worked on; others of the shape that come later are copied to one place."""
    function, one = Captured(lambda x: 2.0 * x, Tapes()), torch.zeros(3)
    for count in range(6):
        assert torch.equal(function(one.fill_(count)), torch.full((3,), 2.0 * count))
    (course,) = function._courses.values()
    assert course._recorded
    assert course._tensors[0].data_ptr() == one.data_ptr()
    kept = [torch.full((3,), float(count)) for count in range(6)]
    for each in kept:
        assert torch.equal(function(each), 2.0 * each)
    assert course._recorded
    assert course._tensors[0].data_ptr() not in {each.data_ptr() for each in (one, *kept)}
    assert [each.tolist() for each in kept] == [[float(count)] * 3 for count in range(6)]


@pytest.mark.parametrize("made", [Taped, lambda function: Captured(function, Tapes())], ids=["tape", "graph"])
def test_no_form_keeps_the_round_alive_that_its_tensors_are_views_of(made):
    """However often it is seen: where samplers come and go, the last batch has another in each round."""
    function = made(lambda x: 2.0 * x)
    for rows in (5, 5, 6, 5, 7):
        copy_of_all = torch.ones(64, 3)
        memory = StorageWeakRef(copy_of_all.untyped_storage())
        assert function(copy_of_all.narrow(0, 1, rows)).tolist() == [[2.0] * 3] * rows
        del copy_of_all
        assert memory.expired()


def test_the_shapes_that_come_back_stay_recorded():
    """One that is another at each round drops none that is called in between."""
    recorder, kept = Tapes(), torch.ones(3)
    function = Captured(lambda x: 2.0 * x, recorder)
    for count in range(8):
        for _ in range(6):
            assert function(kept).tolist() == [2.0] * 3
        assert len(function(torch.ones(4 + count))) == 4 + count
    assert recorder.num_recordings == 1
    assert len(function._courses) == MOST_COURSES


def test_too_many_shapes_in_turn_are_logged(caplog):
    """Else nothing shows that every call is the first of its shape."""
    recorder = Tapes()
    function = Captured(lambda x: 2.0 * x, recorder)
    with caplog.at_level(logging.INFO):
        for count in range(2 * MOST_STRANGERS):
            assert len(function(torch.ones(1 + count % (MOST_COURSES + 1)))) == 1 + count % (MOST_COURSES + 1)
    assert recorder.num_recordings == 0
    assert caplog.text.count("the loss gets tensors of more than 4 shapes in turn") == 1


@pytest.mark.parametrize("recorder", ["tape", "as_graph"])
def test_other_rates_hold_from_the_next_update_on(request, recorder):
    """Ten times the rate moves ten times as far, targets by their share; what is recorded is made again."""
    if recorder != "tape":
        request.getfixturevalue(recorder)
    made, batch = SAC.Options(**OPTIONS, learning_rate=1e-4, tau=0.1), random_batch(PENDULUM, 32)
    critic, actor = both_halves(made)

    def moved():
        """How far two updates move each, the second one's part of the targets, and what of it they keep."""
        before = critic.weights.clone(), actor.weights.clone()
        critic.update(batch)
        actor.update(batch.obs)
        targets = critic.state_dict()["targets"]
        critic.update(batch)
        actor.update(batch.obs)
        new_targets = critic.state_dict()["targets"]
        share = (new_targets - targets).norm() / (critic.weights - targets).norm()
        far = (critic.weights - before[0]).abs().max(), (actor.weights - before[1]).abs().max()
        return [float(value) for value in (*far, share)]

    for _ in range(WARM_UP_CALLS):
        slow = moved()
    for half in (critic, actor):
        half.set_rates({"learning_rate": 1e-3, "tau": 0.5})
    for _ in range(WARM_UP_CALLS):
        fast = moved()
    assert slow[:2] == pytest.approx([2e-4] * 2, rel=0.1)
    assert fast[:2] == pytest.approx([2e-3] * 2, rel=0.1)
    assert (slow[2], fast[2]) == (pytest.approx(0.1, rel=1e-3), pytest.approx(0.5, rel=1e-3))


@pytest.mark.parametrize("recorder", ["tape", "as_graph"])
def test_what_is_forgotten_is_freed_at_once(request, recorder):
    """A graph holds the memory of an update, and that of the next batch size may not fit beside it."""
    if recorder != "tape":
        request.getfixturevalue(recorder)
    half, batch = both_halves(SAC.Options(**OPTIONS))[0], random_batch(PENDULUM, 32)
    for _ in range(WARM_UP_CALLS + 2):
        half.update(batch)
    courses = [*map(weakref.ref, half._launch[True]._courses.values())]
    request.addfinalizer(gc.enable)
    gc.disable()
    assert [course() is None for course in courses] == [False]
    half.forget_recordings()
    assert [course() is None for course in courses] == [True]


@pytest.mark.parametrize("recorder", ["tape", "as_graph"])
def test_a_restored_half_is_replayed_from_its_new_state(request, recorder):
    """A checkpoint fills the memory that the recording works on, and its random numbers go on from there."""
    if recorder != "tape":
        request.getfixturevalue(recorder)
    made, batch = SAC.Options(**OPTIONS), random_batch(PENDULUM, 32)
    saved, weights = [], []
    for seed in (1, 2):
        half = algorithms.make("critic", SAC, made, PENDULUM, "cpu", seed)
        for _ in range(WARM_UP_CALLS + 2):
            half.update(batch)
        saved = saved or [half.state_dict()]
        half.load_state_dict(saved[0])
        for _ in range(2):
            half.update(batch)
        weights.append(half.weights)
    assert torch.equal(*weights)


def test_what_cannot_be_recorded_is_called_as_it_is(caplog):
    """Once, with the reason in the log; nothing is missing and nothing is done twice."""

    class Refuses(Tapes):
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


class Annealed(SAC):
    """Its loss depends on how far the run is."""

    def critic_loss(self, batch):
        """Half of it at the start."""
        loss = super().critic_loss(batch)
        return loss._replace(loss=loss.loss * (0.5 + self.env_steps / 1000))


class Renewed(SAC):
    """Now and then something is another one."""

    scale = 1.0

    def critic_loss(self, batch):
        """Larger and larger."""
        loss = super().critic_loss(batch)
        return loss._replace(loss=loss.loss * self.scale)

    def after_critic_step(self):
        """A number changes with the seventh update, and the targets are other networks."""
        super().after_critic_step()
        self.count = getattr(self, "count", 0) + 1
        if self.count == 7:
            self.scale, self.target_critics = 2.0, copy.deepcopy(self.critics)


@pytest.mark.parametrize("kind", [Annealed, Renewed])
@pytest.mark.parametrize("recorder", ["tape", "as_graph"])
def test_what_the_algorithm_keeps_is_never_that_of_the_recording(request, plainly, kind, recorder):
    """A schedule by env_steps, attributes that change: the weights are those of the plain calls."""
    if recorder != "tape":
        request.getfixturevalue(recorder)
    batch, weights = random_batch(PENDULUM, 32), []
    for _ in range(2):
        half = algorithms.make("critic", kind, kind.Options(**OPTIONS), PENDULUM, "cpu", 1)
        for count in range(16):
            half.env_steps = 100 * count
            half.update(batch)
        weights.append(half.weights)
        plainly()
    assert torch.equal(*weights)
