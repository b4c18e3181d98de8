"""Learners of two groups share their model over real sockets, by the fuser that a run has."""

import contextlib
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from spreeze_zmq.components.fuser.__main__ import Fuser

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.observations import RunningStatistics
from spreeze_zmq.base.errors import Diverged, WireError
from spreeze_zmq.learner import fusing
from spreeze_zmq.learner.experience import Counts
from spreeze_zmq.learner.fusing import Fusion
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.groups import plan_of_member
from spreeze_zmq.plan.roles import BINDING_END, OTHER_END
from spreeze_zmq.replay import RewardScale
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import channels, encode
from tests.protocol.golden_messages import MESSAGES
from tests.unit.algorithms.shipped import BOX, transitions

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = ["groups.count=2", "groups.every_updates=4", "algorithm.hidden_sizes=[8]", "groups.patience_s=1"]


class Process:
    """What a learner or the fuser has of its component: the plan, and its ends of real channels."""

    def __init__(self, plan, role, incarnation):
        self.plan, self.role, self.incarnation = plan, role, incarnation
        self.ends, self.reported = {}, []

    def open(self, name, kind):
        """Its end of a channel."""
        channel = self.plan.channels[name]
        end = BINDING_END[channel.pattern] if channel.binds == self.role else None
        end = end or OTHER_END[BINDING_END[channel.pattern]]
        self.ends[name] = channels.open_channel(channel, end, f"{self.role}-0", self.incarnation)
        assert isinstance(self.ends[name], kind)
        return self.ends[name]

    def report(self, kind, fields):
        """Keep a report."""
        self.reported.append(fields)

    def close(self):
        """Close its ends."""
        for end in self.ends.values():
            end.close()


class Group:
    """A learner without experience of its own: the test says when it updates."""

    def __init__(self, plan, incarnation):
        self.process = Process(plan, "critic_learner", incarnation)
        kind = algorithms.get(plan.run.algorithm)
        options = algorithms.options_from(
            kind.Options, {k: v for k, v in plan.algorithm.items() if k != "name"}
        )
        self.half = algorithms.make("critic", kind, options, plan.environment, "cpu", plan.run.seed)
        self.acts_on, self.joined = 0, []
        counts, told = Counts(env_steps=64, trained=128), {"act_on": self.act_on, "join": self.joined.append}
        self.experience = SimpleNamespace(may_change=True, pooled=(), counts=counts, **told)
        self.fusion = Fusion(self.process, self.half, self.experience, of_policy=True)
        self.env = plan.environment

    def learn(self, updates):
        """Updates on random transitions."""
        for _ in range(updates):
            self.half.update(vars(transitions(self.env, 16, seed=self.process.incarnation)))

    def act_on(self):
        """Count that its policy is published without an update."""
        self.acts_on += 1

    @property
    def weights(self):
        """All that it shares."""
        return self.fusion._model.snapshot().parameters


class World:
    """A fuser and two groups."""

    def __init__(self, folder, *options):
        plan = topology.load("cartpole_dqn", [*OPTIONS, *options], cores=2)
        self.plan, self.sockets = write_plan(plan, RunFolder.create("run", str(folder)))
        self.fuser = Fuser(Process(self.plan, "fuser", 11))
        member = plan_of_member(self.plan, 1, 1)
        self.groups = [Group(self.plan, 101), Group(replace(member, socket_dir="/nowhere"), 202)]

    def until(self, condition, deadline_s=20.0):
        """Serve everybody until something is so."""
        until_s = time.monotonic() + deadline_s
        while not condition():
            assert time.monotonic() < until_s
            channels.poll([self.fuser.models, self.fuser.fused], timeout_s=0.01)
            self.fuser.listen()
            self.fuser.close_rounds()
            for group in self.groups:
                group.fusion.serve()

    def round(self):
        """The number of rounds of the critics."""
        return self.fuser.parts["critic"].round

    def close(self):
        """Close its sockets; the process may have others."""
        for process in (self.fuser.component, *(group.process for group in self.groups)):
            process.close()
        self.sockets.remove()


@pytest.fixture
def world(tmp_path):
    """Two groups, of which the second has begun from other weights and has taken over the first's."""
    with contextlib.closing(World(tmp_path / "run")) as made:
        first, second = made.groups
        assert not np.array_equal(first.weights, second.weights)
        made.until(lambda: second.fusion._base is not None and first.fusion._base is not None)
        yield made
    channels.terminate()


def test_a_group_begins_with_the_model_of_the_run(world):
    """Whatever its own first weights were."""
    first, second = world.groups
    np.testing.assert_allclose(first.weights, second.weights, atol=1e-6)


def test_both_groups_are_equal_after_a_round_but_for_what_they_have_learned_since(world):
    """The fused model is the mean of what both sent; what came after is kept, to the last number."""
    first, second = world.groups
    for group in world.groups:
        group.learn(4)
    sent = [group.weights for group in world.groups]
    assert not np.allclose(*sent)
    first.fusion.serve()  # sends, and trains on
    first.learn(3)
    learned_since = first.weights - sent[0]
    world.until(lambda: all(group.fusion._round == 2 for group in world.groups))
    np.testing.assert_allclose(second.weights, np.mean(sent, axis=0), atol=1e-6)
    np.testing.assert_allclose(first.weights - learned_since, second.weights, atol=1e-6)


def test_a_model_that_waits_long_for_a_slow_group_is_learned_from_once(world, monkeypatch):
    """Its group sends it again meanwhile, as it may be lost; what it learned since is kept, and no more."""
    first, second = world.groups
    clock = SimpleNamespace(passed_s=0.0)
    clock.monotonic = lambda: time.monotonic() + clock.passed_s
    monkeypatch.setattr(fusing, "time", clock)
    for group in world.groups:
        group.learn(4)
    sent = [group.weights for group in world.groups]
    first.fusion.serve()
    first.learn(3)
    learned_since = first.weights - sent[0]
    clock.passed_s += 2 * fusing.LOST_AFTER * world.plan.groups.patience_s
    first.fusion.serve()
    world.until(lambda: all(group.fusion._round == 2 for group in world.groups))
    np.testing.assert_allclose(second.weights, np.mean(sent, axis=0), atol=1e-6)
    np.testing.assert_allclose(first.weights - learned_since, second.weights, atol=1e-6)


def test_a_schedule_is_in_every_group_where_it_is_in_the_run(tmp_path):
    """Group 0 counts; a group that comes later, whose own counts are nothing, is there too."""
    rate = "algorithm.learning_rate={from=1e-3, to=1e-5}"
    with contextlib.closing(World(tmp_path / "run", rate, "run.stop.env_steps=100000")) as world:
        first, second = world.groups
        first.half.follow({"env_steps": 100_000, "run": 1.0})
        world.until(lambda: second.fusion._base is not None and first.fusion._base is not None)
        for group in world.groups:
            group.learn(4)
        world.until(lambda: second.fusion._round == 2)
        rates = [float(group.half.learning_rate) for group in world.groups]
    channels.terminate()
    assert rates == pytest.approx([1e-5, 1e-5])


def test_a_schedule_that_the_run_has_gone_on_with_is_there_in_every_group(tmp_path):
    """Its end is later than when it was begun: group 0 does not go back, so no other group does."""
    rate = "algorithm.learning_rate={from=1e-3, to=1e-5}"
    with contextlib.closing(World(tmp_path / "run", rate, "run.stop.env_steps=200000")) as world:
        first, second = world.groups
        first.half.go_on({"env_steps": 100_000, "run": 0.5}, [[1e-3, 1e-5, "linear", 1.0]])
        world.until(lambda: second.fusion._base is not None and first.fusion._base is not None)
        rates = [float(group.half.learning_rate) for group in world.groups]
    channels.terminate()
    assert rates == pytest.approx([1e-5, 1e-5])


@pytest.mark.parametrize("shares", [0, [0.5], [[1e-3, 1e-5, "linear"]], [[1e-3, 1e-5, "linear", 1.5]]])
@pytest.mark.parametrize("kind", ["model", "fused"])
def test_shares_that_are_none_are_refused(kind, shares):
    """And name what came."""
    message = MESSAGES[kind]
    with pytest.raises(WireError, match=rf"{kind}\.shares is .*, expected a list of \[first, last, shape"):
        encode(message._replace(fields={**message.fields, "shares": shares}))


def test_a_lost_group_comes_back_with_the_fused_model(world):
    """The others go on without it; a new life of its learner takes over what they have learned."""
    first, second = world.groups
    world.groups = [first]
    first.learn(4)
    world.until(lambda: world.round() == 2)  # after the patience
    world.fuser.next_tell_s = 0.0
    world.fuser.tell()
    rows = world.fuser.component.reported[-1]["groups"]
    assert (rows["0"]["lost"], rows["1"]["lost"]) == (False, True)
    second.process.close()
    again = Group(second.process.plan, 303)
    world.groups = [first, again]
    world.until(lambda: again.fusion._base is not None)
    np.testing.assert_allclose(first.weights, again.weights, atol=1e-6)
    for group in world.groups:
        group.learn(4)
    world.until(lambda: world.fuser.parts["critic"].joined[1] == 1)


def test_a_row_of_a_group_is_of_its_newest_life(world):
    """A member that is started again counts from 0; within its group a learner does from a checkpoint."""

    def row_after(group, env_steps):
        """The row once that learner has sent."""
        group.experience.counts.env_steps, group.experience.counts.trained = env_steps, 2 * env_steps
        world.groups, received = [group], world.fuser.rows[1].received_bytes
        world.until(lambda: group.fusion._base is not None)
        group.learn(4)
        world.until(lambda: world.fuser.rows[1].received_bytes > received)
        group.process.close()
        row = world.fuser.rows[1]
        return row.life, row.env_steps, row.trained_transitions

    plan = world.groups[1].process.plan
    assert row_after(world.groups[1], 500) == (0, 500, 1000)
    member = replace(plan, launcher=7)
    assert row_after(Group(member, 606), 300) == (7, 300, 600)
    assert row_after(Group(member, 707), 250) == (7, 300, 600)


def test_a_later_life_explores_as_the_run_does_and_acts_by_the_fused_model(world):
    """Not with the epsilon of a run that begins: its own samples are none, those of group 0 count."""
    first, second = world.groups
    first.half.env_steps = first.experience.counts.env_steps = 100_000
    for group in world.groups:
        group.learn(4)
    world.until(lambda: world.round() == 2)
    second.process.close()
    again = Group(second.process.plan, 404)
    assert again.half.description()["distribution"]["epsilon"] == again.half.options.initial_epsilon
    world.groups = [first, again]
    world.until(lambda: again.fusion._base is not None)
    epsilon = again.half.description()["distribution"]["epsilon"]
    assert epsilon == pytest.approx(again.half.options.final_epsilon)
    assert (again.half.env_steps, again.acts_on) == (0, 1)


def test_a_learner_joins_the_others_once_in_its_life(world):
    """Then it may have few samples for what they have trained; not after a fuser that was started again, or
    where it has gone back.
    """
    first, second = world.groups
    assert first.joined == second.joined == [64]
    first.experience.counts.env_steps = 100_000
    for group in world.groups:
        group.learn(4)
    world.until(lambda: second.fusion._round == 2)
    second.fusion.forget()
    second.fusion.serve()
    assert second.fusion._base is not None
    assert (second.joined, second.half.run_env_steps) == ([64], 100_000)
    second.process.close()
    again = Group(second.process.plan, 505)
    world.groups = [first, again]
    world.until(lambda: again.fusion._base is not None)
    assert again.joined == [100_000]


def test_a_recorded_update_goes_on_from_the_moved_weights(world):
    """They move in place: the next updates are those of a learner that was given these weights."""
    first, _ = world.groups
    first.learn(6)  # recorded by now
    model = first.fusion._model
    move = model.snapshot()
    model.shift(move)
    batch = vars(transitions(first.env, 16))
    state = first.half.state_dict()
    first.half.update(batch)
    moved = model.snapshot().parameters
    first.half.load_state_dict(state)
    first.half.leave_to_torch()
    first.half.update(batch)
    np.testing.assert_allclose(moved, model.snapshot().parameters, atol=1e-5)


def test_a_model_of_another_layout_is_refused(world):
    """A group with other options harms nobody."""
    first, second = world.groups
    second.fusion._model.layout = "another"
    second.learn(4)
    second.fusion.serve()
    first.learn(4)
    world.until(lambda: world.round() == 2)
    words = [row["word"] for row in world.fuser.models.refusals.rows()]
    assert words == ["bad_parameters"]
    assert torch.isfinite(torch.tensor(first.weights)).all()


def test_weights_that_are_not_finite_have_diverged_and_the_fused_model_replaces_them(world):
    """Of a device whose losses are looked at late: nothing of them reaches the others, and the learner, which
    goes back to its checkpoint, goes on from what all have.
    """
    _, second = world.groups
    good = second.half.state_dict()
    second.learn(4)
    second.half.weights[1] = float("nan")
    with pytest.raises(Diverged, match=r"model\.change holds nan .*; a lower learning_rate"):
        second.fusion.serve()
    second.half.load_state_dict(good)
    second.fusion.forget()
    second.fusion.serve()
    np.testing.assert_allclose(second.weights, world.groups[0].weights, atol=1e-6)
    for group in world.groups:
        group.learn(4)
    world.until(lambda: world.fuser.parts["critic"].joined[1] == 1)


def test_pooled_statistics_are_those_of_one_who_has_seen_everything():
    """Of observations, and of the returns that rewards are divided by; within rounding."""
    seen = np.random.default_rng(1).normal([3.0, -50.0, 0.1], [1.0, 20.0, 0.01], (300, 3))
    one, parts = RunningStatistics(BOX), [RunningStatistics(BOX), RunningStatistics(BOX)]
    one.add(seen)
    for part, rows in zip(parts, (seen[:100], seen[100:]), strict=True):
        part.add(rows)
    parts[0].adopt(parts[0].sums() + parts[1].sums())
    for name, array in one.arrays().items():
        np.testing.assert_allclose(parts[0].arrays()[name], array, rtol=1e-6)
    scale, other = RewardScale(0.9), RewardScale(0.9)
    scale._add(seen)
    for half in (seen[:100], seen[100:]):
        other._add(half)
    again = RewardScale(0.9)
    again.adopt(other.sums())
    assert again.state_dict() == pytest.approx(scale.state_dict())
