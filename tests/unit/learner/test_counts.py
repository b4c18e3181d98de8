"""What a learner has counted outlives it in its checkpoint."""

import pytest

from spreeze_zmq.learner.experience import Counts


def test_counts_go_on_from_a_checkpoint():
    """Each of them."""
    saved = Counts(version=3, env_steps=400, trained=3200, sampled=390, trained_version=2)
    restored = Counts(env_steps=7)
    restored.restore(saved.state())
    assert restored == saved


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"version": 9, "env_steps": 5, "trained": 40, "sampled": 5}, Counts(9, 5, 40, 5)),
        ({"version": 9, "env_steps": 5, "trained": 40}, Counts(9, 5, 40)),
        (
            {"version": 9, "env_steps": 5, "trained": 40, "sampled": 5, "policy_version": 6},
            Counts(6, 5, 40, 5),
        ),
        (
            {"rounds": 4, "env_steps": 5, "trained": 40, "sampled": 5, "trained_version": 8},
            Counts(0, 5, 40, 5, 8),
        ),
        (
            {
                "rounds": 4,
                "env_steps": 5,
                "trained": 40,
                "sampled": 5,
                "trained_version": 8,
                "policy_version": 6,
            },
            Counts(6, 5, 40, 5, 8),
        ),
    ],
    ids=["critics", "policy", "alone", "critics-rounds", "policy-rounds"],
)
def test_counters_of_an_older_checkpoint_are_understood(saved, expected):
    """Each learner saved its own, and a policy's version apart from that of its publications."""
    restored = Counts()
    restored.restore(saved)
    assert restored == expected
