"""A run whose processes are killed, hung and sent away at random: a few times here, hundreds by hand."""

import os

import pytest

from tests.system import chaos


@pytest.mark.timeout(600)
def test_a_harassed_run_still_learns_and_leaves_nothing(tmp_path):
    """Whoever is hit comes back; at the end the account closes, and no process or socket is left."""
    num_events = int(os.environ.get("SPREEZE_CHAOS", "8"))
    summary, hits, _ = chaos.whole(tmp_path / "run", num_events, seed=1)
    assert hits.total() == num_events
    assert summary["restarts"] > 0
