"""What is claimed of a run is in its sums as far as it can be true, and the sums can always be told."""

import contextlib

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.claims import most_transitions
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.fields import MAX_COUNT
from tests.unit.broker.lived import BALANCE

FAILURE = {"name": "sampler-0", "summary": "step 3 raised ValueError", "traceback": ""}


@pytest.fixture
def run():
    """The record of a run."""
    return RunRecord(topology.load("pendulum"))


def told(run, now_s):
    """The status, as it travels."""
    status = run.status("training", BALANCE, now_s)
    encode(Message("status", status))
    return status


def test_failures_together_are_no_more_than_there_can_have_been(run):
    """Each message may stand for many of them; one that stands for itself is never refused."""
    now_s = 1e6
    most = most_transitions(now_s)
    for _ in range(1 + MAX_COUNT // most):
        with contextlib.suppress(WireError):
            run.take_failure("sampler-0", {**FAILURE, "count": most}, now_s)
    assert told(run, now_s)["num_failures"] == most
    with pytest.raises(WireError, match=r"false_account.*2 more failures"):
        run.take_failure("sampler-0", {**FAILURE, "count": 2}, now_s)
    run.take_failure("launcher", {**FAILURE, "summary": "was killed"}, now_s)
    assert told(run, now_s)["failures"][-1]["summary"] == "was killed"


def test_a_failure_of_nobody_is_refused(run):
    """It would be a row without a number."""
    with pytest.raises(WireError, match=r"false_account.*0"):
        run.take_failure("sampler-0", {**FAILURE, "count": 0}, 1.0)
    assert told(run, 1.0)["failures"] == []


def test_refusals_add_up_to_what_can_be_told(run):
    """However many rows, takers and lives claim as many as a number can hold."""
    row = {"sender": "sampler-0", "kind": "rollout", "word": "bad_shape", "first": "", "good": 2**64 - 1}
    for life in range(1, 9):
        for count in (2**64 - 1, 1, MAX_COUNT - 1):
            run.refusals.take("critic_learner-0", [{**row, "count": count}] * 3, 1.0, life)
    [refused] = told(run, 2.0)["refusals"]
    assert refused["count"] < MAX_COUNT
