"""What the learners' loop is made of: the order of samples, and when weights are published."""

import json

import pytest

from spreeze_zmq.errors import WireError
from spreeze_zmq.learner import Cadence, Record
from spreeze_zmq.learner.intake import Turns
from spreeze_zmq.rollout import Rollout


def rollout(sampler, sequence, incarnation=1):
    """One without arrays: only its place in the order matters."""
    return Rollout(sampler, incarnation, sequence, (sequence + 1) * 8, 0, 4, 2)


def test_rollouts_have_one_order_whoever_comes_first():
    """The first of each sampler by index, then the second of each."""
    turns = Turns(2)
    for sampler, sequence in (("sampler-1", 0), ("sampler-1", 1), ("sampler-0", 0)):
        assert not turns.ready
        turns.put(rollout(sampler, sequence))
    order = []
    while turns.ready:
        taken = turns.next()
        order.append((taken.sampler, taken.sequence))
    assert order == [("sampler-0", 0), ("sampler-1", 0)]
    assert [left.sequence for left in turns.left()] == [1]


@pytest.mark.parametrize(
    ("stranger", "why"),
    [(rollout("sampler-2", 0), "no place"), (rollout("sampler-0", 0, incarnation=2), "begun anew")],
)
def test_a_stranger_does_not_enter_the_order(stranger, why):
    """A sampler too many, or a second life: its samples are refused."""
    turns = Turns(2)
    turns.put(rollout("sampler-0", 0))
    with pytest.raises(WireError, match=why) as caught:
        turns.put(stranger)
    assert caught.value.reason == "misfit"


def test_a_counted_publication_is_due_once_for_each_crossing():
    """Every eight updates; who jumps over two crossings publishes once."""
    cadence = Cadence(interval_s=1e9, every=8)
    due = [updates for updates in (0, 7, 8, 8, 9, 15, 16, 40, 41, 47) if cadence.due(updates)]
    assert due == [8, 16, 40]
    cadence.restart()
    assert cadence.due(8)


def test_by_the_clock_a_publication_is_due_once_in_an_interval():
    """Whatever has been counted."""
    cadence = Cadence(interval_s=1e9, every=0)
    assert [cadence.due(updates) for updates in (1, 100, 1000)] == [True, False, False]


def test_losses_are_recorded_where_publications_are_counted(tmp_path):
    """One line for each, of counts and losses alone; nothing where the clock decides."""
    counted, timed = (
        Record(tmp_path / str(every) / "x.jsonl", Cadence(1.0, every=every)) for every in (8, 0)
    )
    for record in (counted, timed):
        record.write({"critic_updates": 8}, {"critic_loss": 0.5})
    assert json.loads((tmp_path / "8" / "x.jsonl").read_text()) == {"critic_updates": 8, "critic_loss": 0.5}
    assert not (tmp_path / "0").exists()
