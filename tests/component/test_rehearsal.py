"""What a learner's updates cost, told while it waits for its first samples; the test is everybody else."""

import time

import pytest
import torch
from test_learners import ACTOR, CRITIC, Feed, publish_policy

from spreeze_zmq import algorithms, topology
from spreeze_zmq.learner import rehearsal
from spreeze_zmq.plan.roles import PART_OF

WAITING = ["algorithm.hidden_sizes=[16]", "algorithm.learning_starts=100000"]
CHANNELS = {"critic_learner": CRITIC, "actor_learner": ACTOR}


def reports(peers, halves, role, pushes):
    """The reports of a learner that is fed ``pushes`` rollouts, one in 0.2 s: too few to begin with."""
    feed, next_s = Feed(peers, CHANNELS[role], role), 0.0
    if role == "critic_learner":
        publish_policy(peers, halves[1], 0)
    peers.start(role)

    def feed_slowly():
        nonlocal next_s
        if feed.sequence < pushes and time.monotonic() >= next_s:
            next_s = time.monotonic() + 0.2
            feed.push()

    while True:
        yield peers.wait("report", role, "report", feed_slowly).fields


@pytest.mark.parametrize("role", CHANNELS)
@pytest.mark.parametrize("peers", [WAITING], indirect=True)
def test_a_learner_that_waits_tells_what_its_updates_cost(peers, halves, role):
    """Once: whole batches, in time that one thread spends on a core; it has made no update of its own."""
    told = (fields for fields in reports(peers, halves, role, pushes=20) if fields["rehearsal"])
    fields = next(told)
    found = fields["rehearsal"]
    assert found["transitions"] % peers.plan.algorithm["batch_size"] == 0
    assert found["transitions"] >= rehearsal.LEAST_UPDATES * peers.plan.algorithm["batch_size"]
    assert rehearsal.MEASURED_S * 0.9 <= found["seconds"] < 5.0
    assert found["cpu_s"] >= 0.9 * found["seconds"]
    assert next(told)["rehearsal"] == found
    assert not any(fields["counters"].get(name) for name in ("critic_updates", "actor_updates"))


@pytest.mark.parametrize("override", ["components.sampler.count=1", "balance.mode=lockstep"])
def test_a_run_that_does_not_begin_by_measuring_has_no_rehearsal(override, monkeypatch):
    """Its learners do what they did: nothing is rehearsed however long they wait."""

    class Waiting:
        """A learner's process, as far as a rehearsal knows it."""

        plan, figures = topology.load("pendulum", [override]), {}

    monkeypatch.setattr(rehearsal, "WAITED_S", 0.0)
    idle = rehearsal.Rehearsal(Waiting())
    assert not any(idle.due(sampled=True) for _ in range(3))
    assert Waiting.figures["rehearsal"]() == {}


@pytest.mark.parametrize("role", CHANNELS)
def test_random_updates_touch_nothing_of_the_run(peers, role):
    """Neither a half made of the same options and seed, nor torch's own random numbers."""
    plan = peers.plan
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    algorithm = algorithms.get("sac")
    options = algorithms.options_from(algorithm.Options, values)
    half = algorithms.make(PART_OF[role], algorithm, options, plan.environment, "cpu", 1)
    state = torch.get_rng_state()
    before = half.weights.clone()
    trial = rehearsal.RandomUpdates(plan, role, torch.device("cpu"), 256)
    trial.update(64, 3)
    assert trial.half.num_updates == 3
    assert torch.equal(half.weights, before)
    assert half.num_updates == 0
    assert torch.equal(torch.get_rng_state(), state)
