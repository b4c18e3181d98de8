"""What observers ask of a run: what is granted, and what is refused in a line."""

import contextlib
import math

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import AT_ONCE, ROWS, Requests
from spreeze_zmq.plan import moves, topology


def plan_of(*overrides, source="pendulum"):
    """A run."""
    return topology.load(source, overrides)


def ask(requests, plan, what="set", **fields):
    """A request of the callback Plateau."""
    return requests.take(plan, {"who": "Plateau", "what": what, **fields}, 12.34567)


def test_what_is_set_is_written_down_with_who_and_when_and_what_was_before():
    """First what the topology says, then what the last one set."""
    requests, plan = Requests(), plan_of("algorithm.learning_rate=0.001")
    row = ask(requests, plan, option="learning_rate", value=5e-4)
    assert (row.t_s, row.who, row.before, row.value) == (12.346, "Plateau", 0.001, 5e-4)
    assert row.line == "Plateau: set learning_rate 0.001 -> 0.0005"
    row = ask(requests, plan, option="learning_rate", value=0)
    assert (row.before, row.value, requests.values) == (5e-4, 0.0, {"learning_rate": 0.0})
    assert ask(requests, plan, "note", text="x" * 9000).text == "x" * 500
    assert ask(requests, plan, "stop", text="solved").line == "Plateau: asks to stop: solved"


def test_the_status_has_what_holds_in_a_resumed_run_too():
    """Which inherits the values, not the requests; without any the status has nothing of it."""
    record, balance = RunRecord(plan_of()), {"movable": False, "settled": True, "last_change": ""}
    assert "values" not in record.status("training", balance, 1.0)
    record.requests.values = {"learning_rate": 5e-4}
    assert record.status("training", balance, 1.0)["values"] == {"learning_rate": 5e-4}


def test_a_schedule_ends_where_a_number_is_set():
    """Its line says what it was."""
    plan = plan_of("algorithm.learning_rate={ from = 1e-3, to = 1e-4 }")
    line = ask(Requests(), plan, option="learning_rate", value=1e-5).line
    assert line == "Plateau: set learning_rate 0.001 to 0.0001 -> 1e-05"


@pytest.mark.parametrize(
    ("source", "overrides", "option", "value", "line"),
    [
        (
            "pendulum",
            [],
            "batch_size",
            8,
            '"batch_size": it may not move while a run trains; these may: "learn',
        ),
        ("pendulum", [], "x" * 8, 8, "no option is called so; these may: "),
        (
            "pendulum",
            [],
            "learning_rate",
            math.inf,
            "learning_rate: expected a number of at least 0, got inf",
        ),
        ("pendulum", [], "learning_rate", 1e58, "got 1e+58 (no number of single precision is as large)"),
        ("pendulum", [], "replay_ratio", 1e9, "replay_ratio: expected a number above 0 and at most 10000"),
        ("pendulum", ["balance.mode=lockstep"], "tau", 0.1, "a run in order gives the same numbers again"),
        (
            "pendulum",
            ["balance.mode=bounded"],
            "replay_ratio",
            4,
            '"replay_ratio": policies are published',
        ),
        ("pendulum", ["groups.count=2"], "tau", 0.1, "each of the 2 groups has learners of its own"),
        (
            "cartpole",
            [],
            "replay_ratio",
            4,
            '"replay_ratio": an on-policy algorithm trains on each',
        ),
    ],
)
def test_what_may_not_be_set_is_refused_with_what_may(source, overrides, option, value, line):
    """In one line; nothing is kept of it."""
    requests = Requests()
    with pytest.raises(WireError, match="bad_request: Plateau: set ") as caught:
        ask(requests, plan_of(*overrides, source=source), option=option, value=value)
    assert line in caught.value.detail
    assert "\n" not in str(caught.value)
    assert (requests.values, requests.last) == ({}, [])


def test_what_a_run_does_not_do_is_refused():
    """With what it does."""
    with pytest.raises(WireError, match="bad_request: 'dance' of 'Plateau', expected one of stop, set, note"):
        ask(Requests(), plan_of(), "dance")


def test_a_flood_is_refused_but_for_one_that_stops_the_run():
    """Each that is granted is a line of log and journal. It goes on at its pace, also behind a clock that was
    put back, and what is refused for what it asks takes no place.
    """
    requests, plan = Requests(), plan_of()

    def granted(what, now_s, **fields):
        count = 0
        for number in range(5 * AT_ONCE):
            with contextlib.suppress(WireError):
                requests.take(plan, {"who": "x", "what": what, "text": str(number), **fields}, now_s)
                count += 1
        return count

    assert granted("set", 5.0, option="no such", value=1.0) == 0
    assert granted("note", 5.0) == AT_ONCE
    assert granted("set", 5.0, option="tau", value=0.5) == 0
    assert requests.values == {}
    assert granted("stop", 5.0) == 1
    assert granted("note", 4.0) == 0
    assert granted("note", 14.5) == 10
    assert granted("note", 1e6) == AT_ONCE
    with pytest.raises(WireError, match="too_many: Plateau: more than 100 requests, and 1 a second since"):
        ask(requests, plan, "note", text="x")


def test_a_status_has_the_last_ones_and_the_ratio_that_holds():
    """And without any it is as it always was."""
    plan = plan_of()
    record = RunRecord(plan)
    assert "requests" not in record.status("training", {}, 1.0)
    for number in range(ROWS + 3):
        ask(record.requests, plan, "note", text=str(number))
    ask(record.requests, plan, option="replay_ratio", value=2)
    status = record.status("training", {}, 1.0)
    assert [row["text"] for row in status["requests"]] == [*map(str, range(4, ROWS + 3)), ""]
    assert status["replay_ratio"]["target"] == 2.0


def test_a_restarted_broker_holds_what_was_set():
    """It is in the state that broker.json keeps."""
    plan = plan_of()
    before, after = RunRecord(plan), RunRecord(plan)
    ask(before.requests, plan, option="tau", value=0.5)
    after.restore(before.to_dict(), 2.0)
    assert after.requests.values == {"tau": 0.5}
    assert after.requests.last == before.requests.last


def test_each_learner_that_has_an_option_follows_it():
    """The ratio is the critic-learner's affair."""
    plan = plan_of()
    assert moves.followers(plan, "tau") == ("critic_learner", "actor_learner")
    assert moves.followers(plan, "replay_ratio") == ("critic_learner",)
