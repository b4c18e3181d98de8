"""A sampler of a run in order tells its state with each rollout, and goes on from it or says why not."""

import logging
import random
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import StateNotKept, WireError
from spreeze_zmq.component import Weights
from spreeze_zmq.component.going_on import SamplerState
from spreeze_zmq.envs.seeds import shared_generators_seeded
from spreeze_zmq.policy import FrameStack
from spreeze_zmq.run.checkpoint import SavedCheckpoint, complete, write_part
from spreeze_zmq.run.sampler_state import WHY_NOT, packed, unpacked
from spreeze_zmq.wire import Message


class Sampler:
    """The part of a component that a sampler's state needs."""

    name = "sampler-0"

    def __init__(self, checkpoint=None):
        run = SimpleNamespace(algorithm="sac", resume_from=checkpoint and str(checkpoint.path))
        self.plan, self.checkpoint, self.failures = SimpleNamespace(run=run), checkpoint, []

    def restore_point(self):
        """The checkpoint as it was read."""
        return self.checkpoint

    def report_failure(self, summary, traceback):
        """What the run shows."""
        self.failures.append(summary)


def kept(tmp_path, content):
    """A checkpoint with this state of sampler-0."""
    part = write_part(tmp_path / "0001", "sampler-0.state", lambda path: path.write_bytes(content))
    complete(tmp_path / "0001", [part], {})
    return SavedCheckpoint.read(tmp_path / "0001")


def made(seed):
    """Two pendulums that have been reset, their observations, a generator, and the stacks of a policy that
    remembers two numbers.
    """
    batch = envs.make("Pendulum-v1", 2, seed=seed, step_info=False)
    obs, frames = batch.reset()[0], FrameStack(memory_size=2)
    frames.begin(obs)
    return batch, np.random.default_rng(seed), obs, frames


def test_a_sampler_goes_on_with_its_episodes_its_noise_and_what_its_policy_remembers(tmp_path):
    """All as it would have been, what failing costs too."""
    batch, rng, obs, frames = made(1)
    obs = batch.step(rng.uniform(-2, 2, (2, 1)))[0]
    frames.add(obs, np.zeros(2, bool))
    frames.memory[:] = 0.5
    state = SamplerState(Sampler()).of(batch, rng, obs, frames, -16.25).tobytes()
    other, rng_2, obs_2, frames_2 = made(2)
    back = SamplerState(sampler := Sampler(kept(tmp_path, state)))
    obs_2 = back.restore(other, rng_2, obs_2)
    back.restore_frames(frames_2)
    assert obs_2.tolist() == obs.tolist()
    assert back.lowest == -16.25
    assert frames_2.memory.tolist() == frames.memory.tolist()
    assert (frames_2.seen == frames.seen).all()
    for _ in range(3):
        one, two = (batch.step(rng.uniform(-2, 2, (2, 1))), other.step(rng_2.uniform(-2, 2, (2, 1))))
        assert one[0].tolist() == two[0].tolist()
    assert sampler.failures == []


def test_the_generators_that_all_code_of_a_process_shares_go_on(tmp_path):
    """An environment may draw from them; a state of an earlier release has none, and is gone on with."""
    with shared_generators_seeded(1):
        batch, rng, obs, frames = made(1)
    state = SamplerState(Sampler()).of(batch, rng, obs, frames).tobytes()
    drawn = [random.gauss(0, 1), random.random(), np.random.rand()]
    without = unpacked(state)
    del without["shared"]
    for content in (packed(without), state):
        back = SamplerState(sampler := Sampler(kept(tmp_path / str(len(content)), content)))
        back.restore(batch, rng, obs)
        assert sampler.failures == []
    assert [random.gauss(0, 1), random.random(), np.random.rand()] == drawn


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "torn, or not a sampler's"),
        (b"\x80\x04\x95\x10cos\nsystem\n", "torn, or not a sampler's"),
        (packed({}), "KeyError: 'envs'"),
        (packed({"envs": {"batch": "WorkerBatch"}}), "its batch is WorkerBatch, not NativeBatch"),
        (packed({"envs": 7}), "TypeError"),
    ],
)
def test_a_state_of_somebody_else_is_one_line_and_new_episodes(tmp_path, content, said):
    """Whatever the file holds; the run shows the line."""
    batch, rng, obs, _ = made(1)
    sampler = Sampler(kept(tmp_path, content))
    assert SamplerState(sampler).restore(batch, rng, obs).tolist() == obs.tolist()
    [line] = sampler.failures
    assert line.startswith("this run is not exact: sampler-0 begins new episodes: ")
    assert said in line
    assert "\n" not in line


def test_without_a_state_episodes_are_new_and_nothing_has_failed(tmp_path):
    """The launcher has said it."""
    for content in (packed({WHY_NOT: "no reason"}), None):
        checkpoint = SavedCheckpoint(tmp_path, {}, {}) if content is None else kept(tmp_path, content)
        batch, rng, obs, _ = made(1)
        sampler = Sampler(checkpoint)
        assert SamplerState(sampler).restore(batch, rng, obs) is obs
        assert sampler.failures == []


class Hiding(gymnasium.Wrapper):
    """An environment that holds what is no plain value."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.simulator = object()


def test_why_a_state_is_not_kept_travels_in_its_place(caplog):
    """And is said once."""
    batch = envs.make(f"{__name__}:Hiding", 1, seed=1, step_info=False)
    obs = batch.reset()[0]
    frames = FrameStack()
    frames.begin(obs)
    state = SamplerState(Sampler())
    with caplog.at_level(logging.WARNING, "spreeze"):
        told = [state.of(batch, np.random.default_rng(1), obs, frames).tobytes() for _ in range(3)]
    assert unpacked(told[0])[WHY_NOT] == "Hiding.simulator is a builtins.object"
    assert told[0] == told[1] == told[2]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "content", [packed({}) + b"1", b"\xc1", b"\x81\xa6format\xc7\x00\x01", b"\x93" + packed({}) * 3, b"\xa0"]
)
def test_bytes_that_are_no_state_are_refused(content):
    """With more after them, of no type, of an extension, of another shape."""
    with pytest.raises(StateNotKept):
        unpacked(content)


def test_versions_that_the_run_before_has_taken_are_passed_over():
    """They come again, for others; the next one is taken."""
    waiting = [Message("policy", {"version": version}) for version in (3, 4, 5)]
    weights = Weights(SimpleNamespace(receive=lambda: waiting.pop(0) if waiting else None), in_turn=True)
    weights.go_on(4, 5)
    assert weights.take().fields["version"] == 5
    assert (weights.version, weights.num_taken) == (5, 6)
    assert weights.take() is None


@pytest.mark.parametrize("in_turn", [False, True])
def test_weights_that_are_refused_leave_the_version_as_it_was(in_turn):
    """Rollouts are no older by them; in turn the next version is still the one after them."""
    waiting = [Message("policy", {"version": version}) for version in (3, 4, 5)]
    refused = []
    subscriber = SimpleNamespace(refuse=lambda error, sender, kind: refused.append(kind))
    subscriber.receive = subscriber.newest = lambda: waiting.pop(0)
    weights = Weights(subscriber, in_turn=in_turn)
    weights.take()
    weights.refuse(weights.take(), WireError("bad_parameters", "another layout"))
    assert (weights.version, weights.num_taken, refused) == (3, 1, ["policy"])
    weights.take()
    assert (weights.version, weights.num_taken) == (5, 2)
