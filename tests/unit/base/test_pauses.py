"""A process notices that it stood still, over a clock that the test moves."""

import pytest

from spreeze_zmq.base.pauses import STOOD_STILL_S, Pauses


def test_a_loop_that_did_not_turn_for_long_stood_still():
    """Once, for the whole time; a turn that is merely slow is none."""
    now_s = [100.0]
    pauses = Pauses(lambda: now_s[0])
    passed = []
    for seconds in (0.1, STOOD_STILL_S, 40.0, 0.1):
        now_s[0] += seconds
        passed.append(round(pauses.look(), 3))
    assert passed == [0.0, 0.0, 40.0, 0.0]
    assert pauses.all_s == pytest.approx(40.0)
    assert pauses.awake_s() == pytest.approx(100.0 + STOOD_STILL_S + 0.2)
