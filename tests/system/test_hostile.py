"""A peer that sends anything over every socket of a run neither ends nor fills nor misleads it."""

import pytest

from tests.system.hostile import attack


@pytest.mark.long("thousands of messages are made and refused, and memory is watched")
def test_a_hostile_peer_changes_nothing(tmp_path):
    """Five thousand messages here; ``python -m tests.system.hostile --count 1000000`` sends millions."""
    found = attack(tmp_path / "run", 2500)
    assert found["exit_code"] == 0, found
    assert found["nobody_restarted"], found
    assert sum(found["refused"].values()) > 1000, found
    for samples in found["samples_by_channel"].values():
        assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    for name, (before_mb, after_mb) in found["memory_mb"].items():
        assert after_mb < before_mb + 50, (name, found["memory_mb"])
