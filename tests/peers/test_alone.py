"""Each mistake, made alone, is caught by its own clause and by no other; minutes for each role."""

import sys

import pytest

from tests.peers import broken, broken_broker, broken_learner
from tests.peers.broken import ACTS, ON
from tests.peers.test_brokers import found as found_of_a_broker
from tests.peers.test_conform import broken_of, judged
from tests.peers.test_learners import EVALUATING, LEARNING, LIVING
from tests.peers.test_learners import found as found_of_a_learner

pytestmark = [pytest.mark.thorough, pytest.mark.long("each act is played for each mistake")]
#: Role and mistake, as these are made in the tests of several at once.
OTHERS = sorted({(role, one) for role, *mistakes in (*LEARNING, *LIVING, *EVALUATING) for one in mistakes})
#: The example does not set SO_SNDBUF.
BESIDE = {"C4"}


def of(mistake):
    """The clause that a mistake breaks."""
    return mistake.partition("-")[0]


@pytest.mark.parametrize("mistake", broken.MISTAKES)
def test_of_a_sampler(mistake, tmp_path, forked):
    """The example with this line changed."""
    path = tmp_path / "sampler.py"
    path.write_text(broken.sampler([mistake]))
    act = ACTS.get(mistake, of(mistake))
    where = ON.get(mistake, {"on": "pendulum", "overrides": ()})
    overrides = ("components.sampler.start_timeout_s=10", *where["overrides"])
    rows, text = judged("sampler", [sys.executable, str(path)], [act], overrides, on=where["on"])
    assert broken_of(rows) - BESIDE == {of(mistake)}, text


@pytest.mark.parametrize(("role", "mistake"), OTHERS)
def test_of_a_learner_or_evaluator(role, mistake, native_layers, forked):
    """A shipped one with this thing changed."""
    broken_clauses, text = found_of_a_learner(role, (mistake,))
    assert set(broken_clauses) == {of(mistake)}, text


@pytest.mark.parametrize("mistake", broken_broker.MISTAKES)
def test_of_a_broker(mistake, forked):
    """Likewise."""
    broken_clauses, text = found_of_a_broker((mistake,))
    assert set(broken_clauses) == {of(mistake)}, text


def test_every_mistake_is_made_alone():
    """As many as there are."""
    made = [mistake for _, mistake in OTHERS]
    assert set(made) == set(broken_learner.MISTAKES)
