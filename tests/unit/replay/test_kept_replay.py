"""A replay outlives its process, whenever that is killed: real processes, killed while they write."""

import itertools
import multiprocessing
import os
import random
import time
from contextlib import suppress

import numpy as np
import pytest
import torch

from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay import ObservationReplay, Replay
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from tests.unit.replay.made import options, save, spec

CAPACITY = 3_000
#: As wide as takes a while to copy, so that kills fall into it.
WIDTH = 400
ENVIRONMENT = spec((WIDTH,), action_shape=(), action_kind="discrete")


IMAGES = spec((64, 64), obs_dtype="uint8", action_shape=(), action_kind="discrete")


def made(environment=ENVIRONMENT, **others):
    """An empty replay of two dtypes: discrete actions are integers."""
    kind = PrioritizedReplay if "prioritized" in others else Replay
    return kind(environment, options(CAPACITY, gamma=1.0, **others), "cpu", 0)


def rollout(number, steps=16, envs=16, environment=ENVIRONMENT):
    """Transitions whose numbers are all ``number`` modulo 100."""
    value, shape = number % 100, (steps, envs)
    obs_shape, dtype = environment.obs_shape, environment.obs_dtype
    return Rollout(
        sampler="sampler-0",
        incarnation=1,
        sequence=0,
        produced=steps * envs,
        policy_version=1,
        num_steps=steps,
        num_envs=envs,
        obs=np.full((steps + 1, envs, *obs_shape), value, dtype),
        action=np.full(shape, value, np.int64),
        reward=np.full(shape, value, np.float32),
        terminated=np.zeros(shape, np.bool_),
        truncated=np.zeros(shape, np.bool_),
        final_obs=np.empty((0, *obs_shape), dtype),
        final_index=np.empty((0, 2), np.int32),
        history=np.full((1, envs, *obs_shape), value, dtype) if dtype == "uint8" else None,
    )


@pytest.fixture
def memory():
    """New memory, as the launcher makes it."""
    descriptor = kept_memory.create("test")
    yield descriptor
    os.close(descriptor)


def rows(replay):
    """Of each row that may be drawn: the least and the greatest of its numbers."""
    ring = replay.ring
    place = np.arange(ring.first, ring.num_added) % ring.capacity
    _, discount = ring._places["discount"]
    floats, actions = (ring._tables[dtype].numpy()[place] for dtype in ("float32", "int64"))
    numbers = np.concatenate([np.delete(floats, discount, 1), actions], 1)
    return numbers.min(1), numbers.max(1)


def write(memory, found, kind):
    """Go on with the replay until killed."""
    replay = made(**kind)
    replay.keep_in(memory)
    found.send(len(replay))
    environment = kind.get("environment", ENVIRONMENT)
    for one in itertools.cycle([rollout(number, environment=environment) for number in range(8)]):
        replay.add(one)


def killed_in_a_write(memory, kind, header_at=0):
    """Replays that were killed at random moments, each with the number of torn writes so far."""
    context, chance, torn, before = multiprocessing.get_context("fork"), random.Random(1), 0, 0
    for _ in range(300):
        said, found = context.Pipe(duplex=False)
        writer = context.Process(target=write, args=(memory, found, kind))
        writer.start()
        assert said.recv() == before
        time.sleep(chance.uniform(0.005, 0.03))
        writer.kill()
        writer.join()
        _, begun, written = np.frombuffer(os.pread(memory, 24, header_at), np.int64)
        torn += begun > written
        replay = made(**kind)
        replay.keep_in(memory)
        before = len(replay)
        yield replay, torn
        if torn >= 3 and replay.ring.num_stored == CAPACITY:
            return
    raise AssertionError(f"only {torn} of the kills fell into a write")


def test_a_replay_killed_at_any_moment_is_back_without_a_torn_transition(memory, one_thread):
    """Each process goes on where the one before was killed; the numbers of a transition belong together."""
    before = 0
    for replay, _ in killed_in_a_write(memory, {}):
        least, greatest = rows(replay)
        np.testing.assert_array_equal(least, greatest)
        assert len(replay) >= before
        before = len(replay)


def test_a_replay_of_images_killed_at_any_moment_is_back_without_a_torn_stack(memory, one_thread):
    """Of each transition both stacks, the reward and the action have one number: frames that were written
    over, or that the kill has torn, belong to no transition that is drawn.
    """
    frames_at = kept_memory._bytes_of(made(IMAGES, stack=2).ring._shapes())
    kind = {"environment": IMAGES, "stack": 2}
    for replay, _ in killed_in_a_write(memory, kind, frames_at):
        if not len(replay):
            continue
        ring = replay.ring
        found = ring.take(torch.arange(ring.first, ring.num_added) % CAPACITY)
        number = found["reward"].flatten()
        assert (found["action"].flatten() == number).all()
        for name in ("obs", "next_obs"):
            assert (found[name].flatten(1) == number[:, None]).all(), name
    for number in range(12):
        replay.add(rollout(number, environment=IMAGES))
    assert len(replay) == 11 * 256  # the frames of as many fit, each rollout with its history


def test_what_is_back_is_what_was_there(memory):
    """The same batches from the same seed, and both replays go on alike."""
    one = made()
    one.keep_in(memory)
    for number in range(100):
        one.add(rollout(number))
    two = made()
    two.keep_in(memory)
    two.ring.set_random_state(one.ring.random_state())
    for _ in range(3):
        batches = one.sample(64), two.sample(64)
        for name in ("obs", "action", "reward", "discount", "next_obs"):
            assert (getattr(batches[0], name) == getattr(batches[1], name)).all()


@pytest.mark.parametrize("kind", [{}, {"prioritized": True}, {"environment": IMAGES, "stack": 2}])
def test_transitions_that_are_nothing_without_others_are_back_with_all_of_them_alone(memory, kind):
    """Data of which an earlier process has read a part are not there; a later one reads all of them."""
    environment = kind.get("environment", ENVIRONMENT)
    one = made(**kind)
    one.keep_in(memory)
    with suppress(KeyboardInterrupt), one.ring.filling():
        one.add(rollout(1, environment=environment))
        raise KeyboardInterrupt
    two = made(**kind)
    two.keep_in(memory)
    assert len(two) == 0
    with two.ring.filling():
        for number in (2, 3):
            two.add(rollout(number, environment=environment))
    three = made(**kind)
    three.keep_in(memory)
    batch = three.sample(1000)
    assert (len(three), set(batch.reward.tolist())) == (2 * 256, {2.0, 3.0})
    assert (batch.obs.flatten(1) == batch.reward[:, None]).all()


def test_a_replay_of_images_killed_while_it_is_loaded_is_loaded_again(memory, tmp_path, monkeypatch):
    """As that of a run that goes on, where memory runs out: its rows were there, and not yet their frames."""

    def end_here(*_):
        raise KeyboardInterrupt

    saved, replay, back = (made(IMAGES, stack=2) for _ in range(3))
    saved.add(rollout(1, environment=IMAGES))
    save(saved, tmp_path)
    replay.keep_in(memory)
    monkeypatch.setattr(replay.ring._frames, "load", end_here)
    with pytest.raises(KeyboardInterrupt):
        replay.load(tmp_path)
    back.keep_in(memory)
    assert len(back) == 0  # a learner loads a replay that is empty
    back.load(tmp_path)
    recovered = made(IMAGES, stack=2)
    recovered.keep_in(memory)
    assert len(recovered) == len(back) == len(saved) == 256


def test_memory_of_another_layout_is_not_read(memory):
    """As where a run's options have changed: the replay begins empty."""
    one = made()
    one.keep_in(memory)
    one.add(rollout(1))
    other = made(n_step=3)
    other.keep_in(memory)
    assert len(other) == 0


def test_prioritized_transitions_are_back_and_all_are_drawn(memory):
    """As new ones: their priorities are learned again."""
    one = made(prioritized=True)
    one.keep_in(memory)
    for number in range(8):
        one.add(rollout(number))
    two = made(prioritized=True)
    two.keep_in(memory)
    assert len(two) == len(one) == 8 * 256
    assert set(two.sample(1000).reward.tolist()) == set(range(8))


def test_observations_are_back_too(memory):
    """Of an actor-learner."""
    one = ObservationReplay(spec((WIDTH,)), options(CAPACITY))
    one.keep_in(memory)
    one.add(rollout(7))
    two = ObservationReplay(spec((WIDTH,)), options(CAPACITY))
    two.keep_in(memory)
    assert (two.sample(10) == 7).all()


def test_memory_that_is_kept_counts_as_free_for_its_own_replay(memory, monkeypatch):
    """A restarted learner would else find its own table in its way."""
    os.ftruncate(memory, 1 << 24)
    os.pwrite(memory, bytes(1 << 24), 0)
    monkeypatch.setenv(kept_memory.VARIABLE, str(memory))
    assert kept_memory.held_bytes() == 1 << 24
