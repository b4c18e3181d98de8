"""What "auto" becomes on machines of every size."""

import pytest

from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.topology.resolve import (
    resolve_count,
    resolve_threads,
)


@pytest.mark.parametrize(
    ("written", "cores", "expected"),
    [
        ("auto", 1, Count(1, 1, 8)),
        ("auto", 2, Count(1, 1, 8)),
        ("auto", 8, Count(6, 1, 8)),
        ("auto", 128, Count(126, 1, 128)),
        ("auto", 256, Count(195, 1, 195)),
        (3, 2, Count(3, 3, 3)),
        ([1, 4], 2, Count(1, 1, 4)),
        ([1, 4], 8, Count(4, 1, 4)),
        ([3, 4], 2, Count(3, 3, 4)),
    ],
)
def test_samplers_take_what_the_learners_leave(written, cores, expected):
    """Two cores are the learners', the range of the topology is kept, and a run has room for 195."""
    assert resolve_count("sampler", written, cores, 2, 195) == expected


def test_every_other_role_has_one_process():
    """Whatever the machine."""
    assert resolve_count("evaluator", "auto", 64, 2) == Count(1, 1, 1)


@pytest.mark.parametrize(
    ("role", "written", "cores", "num_samplers", "expected"),
    [
        ("critic_learner", "auto", 2, 1, 1),
        ("critic_learner", "auto", 8, 2, 3),
        ("actor_learner", "auto", 8, 6, 1),
        ("actor_learner", "auto", 2, 9, 1),
        ("actor_learner", 5, 2, 1, 5),
        ("sampler", "auto", 64, 2, 1),
        ("broker", "auto", 64, 2, 1),
    ],
)
def test_learners_share_the_threads_that_samplers_leave(role, written, cores, num_samplers, expected):
    """Never fewer than one, and a written number stands."""
    assert resolve_threads(role, written, cores, num_samplers, 2) == expected
