"""What a replayed process sends, beside what it had sent."""

import numpy as np
import pytest

from spreeze_zmq.peers.outputs import Outputs, unlike
from spreeze_zmq.wire import Message


def critic(version=1, value=1.0, dtype=np.float32, size=4):
    """A critic message."""
    fields = {"version": version, "critic_updates": 1, "env_steps": 1}
    return Message("critic", fields, {"parameters": np.full(size, value, dtype)})


@pytest.mark.parametrize(
    ("recorded", "sent", "said"),
    [
        (critic(), critic(), ""),
        (critic(1), critic(2), "field version is 2, recorded 1"),
        (critic(), critic(value=1.5), "array parameters differs in 4 of 4 numbers, by 0.5 at most"),
        (critic(value=0.0), critic(value=-0.0), "array parameters differs in 0 of 4 numbers"),
        (critic(), critic(size=3), "array parameters is float32 [3], recorded float32 [4]"),
        (critic(), critic()._replace(arrays={}), "array parameters is missing"),
        (critic(value=np.nan), critic(value=np.nan), ""),
        (
            Message("policy", {"extras": {"a": 0.5}, "wall_s": 1.0}),
            Message("policy", {"extras": {"a": 0.25}, "wall_s": 2.0}),
            "field extras is {'a': 0.25}, recorded {'a': 0.5}",
        ),
    ],
)
def test_the_first_difference_is_named(recorded, sent, said):
    """Without a tolerance every bit counts; the clock does not."""
    found = unlike(recorded, sent, 0.0)
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("value", "tolerance", "alike"),
    [(1.0 + 1e-6, 1e-5, True), (1.0 + 1e-4, 1e-5, False), (np.nan, 1e-5, False), (np.inf, 1.0, False)],
)
def test_another_implementation_may_differ_a_little(value, tolerance, alike):
    """Within the tolerance, and never by a NaN."""
    assert bool(unlike(critic(), critic(value=value), tolerance)) != alike


def test_pairs_are_made_in_order_and_what_is_missing_counts():
    """Process and recording may be ahead of each other."""
    outputs = Outputs()
    for version in (1, 2, 3):
        outputs.take("critic", critic(version))
    for version in (1, 9):
        assert outputs.expect("critic", critic(version)) is not None
    assert outputs.expect("report", Message("report", {})) is None
    assert not outputs.equal
    assert outputs.lines() == [
        "critic on critic: 3 sent, 2 recorded, 1 the same",
        "  the first that differs is number 1: field version is 2, recorded 9",
    ]


def test_a_process_may_go_on_after_the_end_of_its_recording():
    """A recording that was cut is no difference; a process that sends less than was recorded is one."""
    outputs = Outputs()
    outputs.expect("critic", critic(1))
    assert not outputs.equal
    outputs.take("critic", critic(1))
    outputs.take("critic", critic(2))
    assert outputs.equal
