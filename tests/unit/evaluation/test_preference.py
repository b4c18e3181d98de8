"""Which weights of a policy an evaluator looks at: those that play better, by looks at both now and then."""

import numpy as np
import pytest

from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import Score
from spreeze_zmq.evaluation.preference import MOST_SPAN, Preference
from tests.unit.policy.examples import giving

FAIR = [10.0, 12.0, 11.0, 13.0, 9.0]
BETTER = [each + 5 for each in FAIR]


def look(returns, *, averaged, timed_out=False):
    """A look at weights with these returns."""
    num = len(returns)
    policy = giving([0.0, 0.0], {"kind": "categorical", "sizes": [2]})
    policy.averaged = averaged
    cut = np.full(num, timed_out)
    score = Score(np.array(returns), np.full(num, 200), np.arange(num), cut, timed_out, {})
    one = Contestant(policy, seed=100, fresh=False)
    one.take(score, 0.5)
    return one


def test_the_better_weights_are_looked_at_from_then_on():
    """In either direction; a lead within its standard error changes nothing."""
    preference = Preference()
    first, other = look(FAIR, averaged=True), look(BETTER, averaged=False)
    assert preference.settle(first, other) is other
    assert not preference.averaged
    luck = look([10.0, 12.5, 11.0, 12.6, 9.0], averaged=True)
    assert preference.settle(look(FAIR, averaged=False), luck) is not luck
    assert not preference.averaged
    back = look(BETTER, averaged=True)
    assert preference.settle(look(FAIR, averaged=False), back) is back
    assert preference.averaged


def test_both_are_looked_at_ever_less_often_while_nothing_changes():
    """At the second look, then after two, four and eight more; after a change at the next but one."""
    preference, both = Preference(), []
    for number in range(40):
        if preference.is_due():
            both.append(number)
            preference.settle(look(FAIR, averaged=True), look(FAIR, averaged=False))
    assert both == [1, 4, 9, 18, 27, 36]
    assert max(np.diff(both)) == MOST_SPAN + 1
    preference.settle(look(FAIR, averaged=True), look(BETTER, averaged=False))
    assert [preference.is_due() for _ in range(2)] == [False, True]


@pytest.mark.parametrize("cut", [True, False])
def test_a_look_that_time_cut_is_no_better_than_a_whole_one(cut):
    """Whatever their means are; among those that are cut, or of one episode, the means decide."""
    preference = Preference()
    high, low = look(BETTER, averaged=False, timed_out=True), look(FAIR, averaged=True, timed_out=cut)
    assert (preference.settle(low, high) is high) == cut
    assert Preference().settle(look([1.0], averaged=True), single := look([2.0], averaged=False)) is single
