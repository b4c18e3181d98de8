"""The picture of ``--graph``."""

from spreeze_zmq.commands.check import graph
from spreeze_zmq.plan.topology import load


def test_the_picture_names_every_process_and_channel():
    """Who binds, who connects, how, where, and how many of each."""
    plan = load("pendulum", ["channels.policy.endpoint=tcp://127.0.0.1:5555"], without=["evaluator"], cores=8)
    text = graph(plan)
    assert [name for name in (*plan.components, *plan.channels) if name not in text] == []
    assert "x 6 (1 to 8)" in text
    assert "evaluator, 1 thread each, nice 5, not launched, its place is free" in text
    assert "actor_learner --> critic_learner, evaluator, sampler" in text
    assert "critic_learner <== sampler" in text
    assert "tcp://127.0.0.1:5555" in text


def test_the_picture_fits_a_terminal():
    """No line is wider than 100 columns, and none ends in a blank."""
    for line in graph(load("halfcheetah")).splitlines():
        assert len(line) <= 100
        assert line == line.rstrip()
