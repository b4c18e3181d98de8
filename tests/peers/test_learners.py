"""``spreeze conform`` of learners: each must-clause has a broken learner that breaks it and no other."""

import sys
from functools import partial

import pytest

from spreeze_zmq import peers as conform
from tests.forked import BROKEN_LEARNER
from tests.peers.broken_learner import MISTAKES
from tests.peers.test_conform import broken_of, clauses_of, judged
from tests.peers.together import LATE, together

pytestmark = LATE
CRITIC, ACTOR, EVALUATOR = "critic_learner", "actor_learner", "evaluator"

#: Starts of broken learners: mistakes that do not hide each other, the first of which chooses the act. One of
#: rounds is made in a run on-policy, one alone in a run without an actor-learner.
LEARNING = (
    (CRITIC, "T1", "C3"),
    (ACTOR, "T6"),
    (ACTOR, "C6-rounds"),
    (CRITIC, "T3", "T4", "T5", "T7", "L9", "C10"),
    (CRITIC, "T8"),
    (CRITIC, "T2-alone"),
    (ACTOR, "T2", "T3", "T5", "T7", "T8"),
)
#: Of an evaluator.
EVALUATING = ((EVALUATOR, "E1", "E2"), (EVALUATOR, "E3"), (EVALUATOR, "F2"), (EVALUATOR, "L6"))
EVALUATING += ((EVALUATOR, "F2-torn"), (EVALUATOR, "E1-newest"), (EVALUATOR, "F2-newest"))
EVALUATING += ((EVALUATOR, "C6-policies"), (EVALUATOR, "L9"), (EVALUATOR, "M5"))
#: Of every role's life, whose checks the broken samplers try too.
LIVING = (
    (CRITIC, "L6", "L14", "H3"),
    (ACTOR, "M5"),
    (ACTOR, "C6"),
    (CRITIC, "L1", "L8", "M2", "H4", "L10"),
    (ACTOR, "L2", "H1", "H8"),
    (CRITIC, "L3", "L5", "H2"),
    (CRITIC, "C7"),
    (ACTOR, "L7"),
    (CRITIC, "C1"),
    (ACTOR, "M3"),
    (CRITIC, "M4"),
)


def found(role, mistakes):
    """The clauses that a broken learner breaks, and all that was seen."""
    overrides = ["components.sampler.count=1", "algorithm.hidden_sizes=[16]"]
    overrides += [
        f"components.{role}.start_timeout_s={20 if 'L2' in mistakes else 60}",
        f"components.{role}.stop_grace_s=3",
    ]
    on_policy = mistakes[0].endswith("rounds")
    overrides += [] if on_policy else ["algorithm.batch_size=128", "balance.replay_ratio=1"]
    program = [sys.executable, str(BROKEN_LEARNER), role, ",".join(mistakes)]
    on = "cartpole" if on_policy else "cartpole_dqn" if mistakes[0].endswith("alone") else "pendulum"
    rows, text = judged(role, program, clauses_of(mistakes[:1]), overrides, on=on, tier="must")
    return sorted(broken_of(rows)), text


def test_every_must_clause_has_a_broken_learner_or_evaluator():
    """No check is in vain."""
    judges = [about for role in (CRITIC, ACTOR, EVALUATOR) for about in conform.clauses_of(role)]
    starts = (*LEARNING, *LIVING, *EVALUATING)
    assert set(MISTAKES) == {mistake for _, *mistakes in starts for mistake in mistakes}
    assert clauses_of(MISTAKES) == {about.number for about in judges if about.tier == "must"}


@pytest.fixture(scope="module")
def learning(tmp_path_factory, native_layers, forked, request):
    """The verdict of a start, of those that are selected."""
    name = test_a_broken_learner_breaks_its_clauses_and_no_others.__name__
    chosen = [one.callspec.params["start"] for one in request.session.items if one.originalname == name]
    jobs = {start: partial(found, start[0], start[1:]) for start in LEARNING if start in chosen}
    with together(tmp_path_factory, "learning", jobs, threads=2) as result:
        yield result


@pytest.fixture(scope="module")
def living(tmp_path_factory, native_layers, forked):
    """Likewise."""
    jobs = {start: partial(found, start[0], start[1:]) for start in LIVING}
    with together(tmp_path_factory, "living", jobs, threads=2) as result:
        yield result


@pytest.mark.parametrize("start", EVALUATING, ids="-".join)
def test_a_broken_evaluator_breaks_its_clauses_and_no_others(start, forked):
    """Of its figures and of its file."""
    broken, text = found(start[0], start[1:])
    assert set(broken) == clauses_of(start[1:]), text


@pytest.mark.long("each act of a learner starts it anew")
@pytest.mark.parametrize(
    "start",
    [*LEARNING[:4], *(pytest.param(start, marks=pytest.mark.thorough) for start in LEARNING[4:])],
    ids="-".join,
)
def test_a_broken_learner_breaks_its_clauses_and_no_others(learning, start):
    """Of what it learns from, publishes and saves."""
    broken, text = learning(start)
    assert set(broken) == clauses_of(start[1:]), text


@pytest.mark.thorough
@pytest.mark.parametrize("start", LIVING, ids="-".join)
def test_a_broken_learner_breaks_the_clauses_of_its_life_and_no_others(living, start):
    """The same checks as of a sampler, on a learner's process."""
    broken, text = living(start)
    assert set(broken) == clauses_of(start[1:]), text
