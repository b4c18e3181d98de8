"""``spreeze conform`` of brokers: each clause has a broken broker that breaks it and no other."""

from functools import partial

import pytest

from spreeze_zmq import peers as conform
from tests.peers.broken_broker import MISTAKES
from tests.peers.test_conform import RUN, broken_of, clauses_of, judged
from tests.peers.together import LATE, together

pytestmark = LATE
#: Starts of broken brokers: mistakes that do not hide each other, the first of which chooses the act.
STARTS = (
    ("L1", "L4", "L8", "L10", "L14", "C10", "M2", "B4-asked"),
    ("B3", "B2", "B4", "B5", "B7", "B8", "B9", "B10", "B11", "B12"),
    ("B7-account", "B2-left", "B5-torn", "L9"),
    ("B1", "L2"),
    ("L3", "L5", "C9"),
    ("B6",),
    ("M3",),
    ("M4",),
    ("M5",),
)


def found(mistakes):
    """The clauses that a broken broker breaks, and all that was seen."""
    program = [*RUN, "tests.peers.broken_broker", ",".join(mistakes)]
    overrides = ["components.broker.start_timeout_s=30", "components.broker.stop_grace_s=5"]
    rows, text = judged("broker", program, clauses_of(mistakes[:1]), overrides)
    return sorted(broken_of(rows)), text


def test_every_clause_of_a_broker_has_a_broken_broker():
    """No check is in vain."""
    assert {mistake for start in STARTS for mistake in start} == set(MISTAKES)
    assert clauses_of(MISTAKES) == {about.number for about in conform.clauses_of("broker")}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory, forked, request):
    """The verdict of a start, of those that are selected."""
    name = test_a_broken_broker_breaks_its_clauses_and_no_others.__name__
    chosen = [one.callspec.params["start"] for one in request.session.items if one.originalname == name]
    jobs = {start: partial(found, start) for start in STARTS if start in chosen}
    with together(tmp_path_factory, "brokers", jobs, threads=2) as result:
        yield result


@pytest.mark.long("what a broken broker does not do is waited for")
@pytest.mark.parametrize(
    "start",
    [*STARTS[:2], *(pytest.param(start, marks=pytest.mark.thorough) for start in STARTS[2:])],
    ids="-".join,
)
def test_a_broken_broker_breaks_its_clauses_and_no_others(verdicts, start):
    """Of its life, and of what it says and writes of a run."""
    broken, text = verdicts(start)
    assert set(broken) == clauses_of(start), text
