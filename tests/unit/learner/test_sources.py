"""The data of a run are read by each process of a learner: by the next one, too, after a crash."""

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base import kept_memory
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.delayed import DelayExperience
from spreeze_zmq.learner.setup import algorithm_of, rows_of
from spreeze_zmq.learner.sources import Sources
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import Relabelling, ReturnScale, replay_of, ring
from tests.unit.data.made import Eyes, dataset
from tests.unit.replay.test_reward_scale import paid


class Crash(BaseException):
    """The end of a process."""


@pytest.fixture
def memory():
    """New memory, as the launcher makes it."""
    descriptor = kept_memory.create("test")
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=[False, True])
def plan(tmp_path, monkeypatch, request):
    """Of five episodes of four steps, whose transitions are told apart by their reward."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    numbers = iter(range(1, 100))

    def number(episodes):
        for episode in episodes:
            episode.rewards[:] = [next(numbers) for _ in episode.rewards]

    dataset("some-v0", episodes=5, steps=4, change=number)
    run = {"env": "Pendulum-v1", "algorithm": "sac"}
    told = {"normalize_rewards": True, "prioritized": request.param}
    return topology.load({"run": run, "algorithm": told, "data": {"a": {"source": "minari:some-v0"}}})


def life(plan, memory, crash_after=None, how=None, seen=None):
    """A process's replay with the data; returns it and the number of transitions that it was filled with."""
    algorithm, options = algorithm_of(plan)
    env, breaths, seen = plan.environment, iter(range(100)), [] if seen is None else seen

    def breathe():
        if next(breaths) == crash_after:
            raise Crash

    component = SimpleNamespace(plan=plan, environment=env, options={"device": "cpu"}, breathe=breathe)
    half = algorithms.make("critic", algorithm, options, env, "cpu", 1)
    replay = replay_of(algorithm.kept_fields("critic", options), env, options, "cpu", 1)
    sources = Sources(component, half, replay, how)
    if how is not None:
        replay.relabel_by(how)
    replay.keep_in(memory)
    with suppress(Crash):
        sources.read(lambda rollout, source: seen.append(source))
    return replay, sources.num_filled


def rewards(replay):
    """Of all transitions that may be drawn."""
    return sorted({round(value * replay.scale.divisor) for value in replay.sample(2000).reward.tolist()})


def test_a_replay_that_was_filled_in_part_is_filled_again(plan, memory):
    """By the next process, wholly; the one after that finds all and adds nothing."""
    part, _ = life(plan, memory, crash_after=1)
    assert rewards(part) == [*range(1, 9)]
    whole, filled = life(plan, memory)
    assert (rewards(whole), len(whole), filled) == ([*range(1, 21)], 20, 20)
    again, filled = life(plan, memory)
    assert (rewards(again), len(again), filled) == ([*range(1, 21)], 20, 0)


def test_what_is_observed_of_a_source_is_known_by_what_it_is(plan, memory):
    """Not by its name in the run; a checkpoint says of which sources it holds the observations."""
    seen = []
    renamed = replace(plan, data={"b": plan.data["a"]})
    for each in (plan, renamed):
        life(each, memory, seen=seen)
    assert seen == ["minari:some-v0, 20 transitions"] * 10


def test_a_process_knows_how_much_was_sampled_of_what_outlived_the_one_before(plan, memory):
    """Data fill the replay and count for nothing, nor does what is kept once more of an episode."""
    twice = Relabelling(partial(many, 1), None, 1)
    first, filled = life(plan, memory, how=twice)
    assert (filled, first.num_sampled) == (40, 0)
    first.add(random_rollout(plan.environment))
    second, filled = life(plan, memory, how=twice)
    assert (len(second), filled, second.num_sampled) == (296, 0, 256)


def test_what_rewards_are_divided_by_outlives_a_process_as_its_replay_does(plan, memory):
    """Else all that is back would count as it came, beside a network that is new."""
    first, _ = life(plan, memory)
    second, _ = life(plan, memory)
    assert first.scale.divisor != 1.0
    assert second.scale.divisor == first.scale.divisor


@pytest.mark.parametrize(("share", "key"), [(None, "replay_capacity"), (0.5, "hindsight_goals")])
def test_more_than_a_replay_holds_of_a_source_is_named(tmp_path, monkeypatch, memory, share, key):
    """Else a relabelling of one's own would take the place of what was shown."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("some-v0", episodes=5, steps=4)
    source = {"source": "minari:some-v0"} | ({} if share is None else {"share": share})
    told = {"replay_capacity": 40, "learning_starts": 1, "batch_size": 8, "hindsight_goals": 1}
    run = {"env": "Pendulum-v1", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": told, "data": {"a": source}})
    plan = replace(plan, learning=replace(plan.learning, rows_each=2))  # as of a class that relabels
    twice, thrice = (Relabelling(partial(many, times), None, 1) for times in (1, 2))
    life(plan, memory, how=twice)
    fresh = kept_memory.create("test")
    with pytest.raises(InputError, match=f"^data.a: of 60 transitions .* holds .* raise algorithm.{key}"):
        life(plan, fresh, how=thrice)
    os.close(fresh)


def test_demonstrations_whose_images_the_replay_does_not_hold_are_named(tmp_path, monkeypatch, memory):
    """Each episode has images before its first and after its last transition."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("eyes-v0", Eyes(), episodes=8, steps=5)
    told = {"replay_capacity": 40, "learning_starts": 1, "batch_size": 8, "frame_stack": 4}
    run = {"env": "tests.unit.data.made:Eyes", "algorithm": "dqn"}
    source = {"a": {"source": "minari:eyes-v0"}}
    plan = topology.load({"run": run, "algorithm": told, "data": source})
    with pytest.raises(InputError, match=r"^data.a: of 40 transitions .* holds \d\d; raise .*replay_c"):
        life(plan, memory)


def test_a_source_that_has_no_room_of_its_own_is_named(tmp_path, monkeypatch, memory):
    """The capacity of the run's own replay has no part in its size."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("some-v0", episodes=5, steps=40)
    source = {"a": {"source": "minari:some-v0", "share": 0.5}}
    small = {"replay_capacity": 8, "learning_starts": 1, "batch_size": 8}
    run = {"env": "Pendulum-v1", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": small, "data": source})
    monkeypatch.setattr(ring, "free_bytes", lambda device: 3_000)
    with pytest.raises(
        InputError, match=r"^data.a: a replay of 2[01]\d .* free: read fewer by data.a.episodes$"
    ):
        life(plan, memory)


def test_a_source_with_a_share_has_room_for_what_is_read_of_it(tmp_path, monkeypatch):
    """Not for all episodes of its dataset: each has images before its first and after its last transition;
    and the check before the run counts the same room.
    """
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("eyes-v0", Eyes(), episodes=8, steps=5)
    dataset("some-v0", episodes=8, steps=5)
    told = {"replay_capacity": 40, "learning_starts": 1, "batch_size": 8}
    eyes = {"env": "tests.unit.data.made:Eyes", "algorithm": "dqn"}
    source = {"share": 0.5, "episodes": 2}
    plan = topology.load(
        {
            "run": eyes,
            "algorithm": {**told, "frame_stack": 4},
            "data": {"a": {"source": "minari:eyes-v0", **source}},
        }
    )
    assert rows_of(plan, plan.data["a"]) == 2 * 5 + 2 * (1 + 4)
    pendulum = {"env": "Pendulum-v1", "algorithm": "sac"}
    plan = topology.load(
        {"run": pendulum, "algorithm": told, "data": {"a": {"source": "minari:some-v0", **source}}}
    )
    assert rows_of(plan, plan.data["a"]) == 2 * 5


def many(times, batch, episode):
    """Every transition this many times more."""
    return batch.rows(np.tile(np.arange(len(batch)), times))


def test_an_actor_learner_knows_what_the_rewards_of_its_batch_are_divided_by(plan):
    """As a critic-learner does: each batch with what its own rewards were divided by."""
    algorithm, options = algorithm_of(plan)
    options = replace(options, prioritized=False, batch_size=8)
    made = DelayExperience.__new__(DelayExperience)
    made.replay = replay_of(algorithm.critic_fields, plan.environment, options, "cpu", 1)
    made.half = SimpleNamespace(algorithm=SimpleNamespace(reward_divisor=1.0), num_updates=0)
    made.sources, made.batch_size, made.cadence = None, 8, SimpleNamespace(every=0)
    made.outlet, made._received, made.refill = SimpleNamespace(observe=lambda rollout: None), 0, 0
    rollout = random_rollout(plan.environment, 8)
    made.add(replace(rollout, reward=np.full_like(rollout.reward, 100.0)))
    batch, _ = made.next()
    assert made.half.algorithm.reward_divisor > 1.0
    assert batch.reward.numpy() * made.half.algorithm.reward_divisor == pytest.approx(100.0)


def test_what_outlives_a_process_has_counted_further_than_a_checkpoint(plan, memory):
    """Its rewards are in the replay, which is back; sources that are read again count no second time."""
    first, _ = life(plan, memory)
    saved = {name: each.clone() for name, each in first.scale.state_dict().items()}
    first.scale.add(paid([400.0]))
    shared = {name: replace(source, share=0.5) for name, source in plan.data.items()}
    second, _ = life(replace(plan, data=shared), memory)
    assert second.scale.sums().tolist() == first.scale.sums().tolist()
    second.scale.load_state_dict(saved)
    assert second.scale.divisor == first.scale.divisor
    alone = ReturnScale(plan.algorithm["gamma"], 5.0)
    alone.load_state_dict(saved)
    assert alone.divisor < first.scale.divisor
