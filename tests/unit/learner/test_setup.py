"""What a run knows of its replays before any process starts."""

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.learner import setup
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import replay_of


@pytest.mark.parametrize("steps", [7, 300, 1500])
def test_the_memory_of_sequences_is_that_of_their_replay(steps):
    """Of any length: those of the sample may be few, and its only one longer than the sample."""
    told = {"memory_size": 8, "sequence_length": steps, "replay_capacity": 21_000, "batch_size": steps}
    plan = topology.load({"run": {"env": "CartPole-v1", "algorithm": "dqn"}, "algorithm": told})
    kind, options = setup.algorithm_of(plan)
    fields = kind.kept_fields("critic", options)
    made = replay_of(fields, plan.environment, options, "cpu", 0)
    assert setup.replay_bytes(plan)["critic_learner"] == made.ring.memory_bytes


GROUPS = ("groups.count=2", "placement.critic_learner=node")


@pytest.mark.parametrize(
    ("settings", "role", "fits"),
    [
        (("groups.count=1",), "", True),
        (("groups.count=2",), "", False),
        (GROUPS, "critic_learner", True),
        ((*GROUPS, "placement.member=node"), "critic_learner", True),
    ],
)
def test_replays_of_all_groups_count_where_all_of_them_are(monkeypatch, settings, role, fits):
    """On another machine there is that of the run's own group alone."""
    plan = topology.load("pendulum", settings, cores=8)
    size = sum(setup.replay_bytes(plan).values())
    monkeypatch.setattr(setup, "free_bytes", lambda device: 1.1 * size / setup.MEMORY_SHARE)
    if fits:
        assert sum(setup.check_memory(plan, role).values()) == size
        return
    with pytest.raises(InputError, match="of 2 groups take"):
        setup.check_memory(plan, role)
