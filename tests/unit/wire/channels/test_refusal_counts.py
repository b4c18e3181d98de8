"""The counts of taken and refused messages, and their bounds."""

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire.channels.refusals import MOST_REFUSALS, MOST_SENDERS, Refusals

MISFIT = WireError("misfit", "obs is [5], expected [3]")


def test_a_message_that_was_taken_first_is_no_good_one():
    """One of two, so that one is left."""
    refusals = Refusals("ipc:///x")
    for _ in range(2):
        refusals.take("sampler-0", "rollout")
    refusals.refuse(MISFIT, "sampler-0", "rollout", taken=True)
    (row,) = refusals.rows()
    assert (row["sender"], row["kind"], row["word"]) == ("sampler-0", "rollout", "misfit")
    assert (row["count"], row["good"]) == (1, 1)
    assert row["first"] == MISFIT.detail


def test_a_peer_with_ever_new_names_fills_no_memory():
    """Whether its messages are refused at once or after they were taken."""
    refusals = Refusals("ipc:///x")
    for number in range(10 * MOST_SENDERS):
        refusals.take(f"sampler-{number}", "rollout")
        refusals.refuse(MISFIT, f"sampler-{number}", "rollout", taken=True)
    assert len(refusals._good) <= MOST_SENDERS + 1
    assert len(refusals.rows()) <= MOST_REFUSALS + 1


def test_a_sender_among_thousands_is_not_said_to_be_kept_out():
    """Whether its messages that were taken are counted apart or with those of others."""
    refusals = Refusals("ipc:///x")
    for number in range(MOST_SENDERS + 1):
        refusals.take(f"sampler-{number}", "report")
    for number in (2000, MOST_SENDERS):
        refusals.refuse(MISFIT, f"sampler-{number}", "report")
    assert [row["good"] for row in refusals.rows()] == [1, 1]


def test_what_is_too_old_takes_no_place_of_a_mistake():
    """Nor is it one, of whomever."""
    refusals = Refusals("ipc:///x")
    for number in range(2 * MOST_REFUSALS):
        refusals.refuse(WireError("stale", "21 versions behind"), f"sampler-{number}", "rollout")
    refusals.refuse(MISFIT, "sampler-3", "rollout")
    rows = refusals.rows()
    assert sum(row["count"] for row in rows if row["word"] == "stale") == 2 * MOST_REFUSALS
    assert [(row["sender"], row["word"]) for row in rows if row["word"] != "stale"] == [
        ("sampler-3", "misfit")
    ]
