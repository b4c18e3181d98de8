"""The model that groups share: who is waited for, and where each round moves it, by hand."""

import numpy as np
import pytest

from spreeze_zmq.balance.fusing import GroupChange, SharedRounds


def change(number, *numbers, statistics=(), stepped=None):
    """What a group has learned; all of it is stepped unless the test says otherwise."""
    stepped = len(numbers) if stepped is None else stepped
    return GroupChange(number, np.array(numbers, np.float32), np.array(statistics, np.float64), stepped)


def founded(*numbers, count=2, stepped=None, statistics=(), **steps):
    """Rounds that begin with this model of group 0."""
    rounds = SharedRounds(count, patience_s=10.0, **steps)
    rounds.found(change(7, *numbers, stepped=stepped, statistics=statistics))
    return rounds


def test_the_mean_of_what_the_groups_have_learned_is_added():
    """1 + (2 + 4) / 2; 2 + (0 - 6) / 2."""
    rounds = founded(1.0, 2.0)
    rounds.take(0, change(8, 2.0, 0.0), 0.0)
    assert not rounds.is_due(9.0)
    rounds.take(1, change(5, 4.0, -6.0), 9.0)
    assert rounds.is_due(9.0)
    rounds.close()
    assert rounds.parameters.tolist() == [4.0, -1.0]
    assert (rounds.round, rounds.numbers) == (2, {0: 8, 1: 5})
    # group 0 stood at (3, 2), group 1 at (5, -4): both are (1, 3) away, and the model is sqrt(17) long
    assert rounds.distances == {0: pytest.approx((10 / 17) ** 0.5), 1: pytest.approx((10 / 17) ** 0.5)}


def test_momentum_carries_a_step_on_by_nesterovs_rule():
    """v = 0.5 v + d, step 0.1 (d + 0.5 v): 0.1 (4 + 2) first, then 0.1 (1 + 0.5 (0.5 * 4 + 1))."""
    rounds = founded(0.0, 0.0, count=1, stepped=1, learning_rate=0.1, momentum=0.5)
    rounds.take(0, change(8, 4.0, 4.0), 0.0)
    rounds.close()
    assert rounds.parameters == pytest.approx([0.6, 4.0])  # the second number, a buffer, is averaged
    rounds.take(0, change(9, 1.0, 1.0), 0.0)
    rounds.close()
    assert rounds.parameters == pytest.approx([0.6 + 0.25, 5.0])


def test_a_lost_group_is_waited_for_once_and_counts_again_when_it_is_back():
    """Patience counts from the first change of a round."""
    rounds = founded(0.0)
    rounds.take(0, change(8, 1.0), 5.0)
    assert not rounds.is_due(14.9)
    assert rounds.is_due(15.0)
    rounds.close()
    assert rounds.living == {0}
    rounds.take(0, change(9, 1.0), 20.0)
    assert rounds.is_due(20.0)  # nobody else is expected
    rounds.take(1, change(3, 5.0), 20.0)
    rounds.close()
    assert rounds.parameters.tolist() == [1.0 + 3.0]
    assert rounds.living == {0, 1}
    assert rounds.joined == {0: 2, 1: 1}


def test_a_slow_group_is_waited_for_at_its_own_pace():
    """It tells every 40 s: patience counts from two such intervals after its last change."""
    rounds = founded(0.0)
    for at_s in (0.0, 40.0):
        rounds.take(0, change(int(at_s), 1.0), at_s)
        rounds.take(1, change(int(at_s), 1.0), at_s)
        rounds.close()
    rounds.take(0, change(2, 1.0), 50.0)
    assert not rounds.is_due(129.9)
    assert rounds.is_due(130.0)


def test_how_long_a_group_was_away_is_not_its_pace():
    """It comes back after eight hours and dies soon after: the others wait for it as for any other."""
    rounds, back_s = founded(0.0), 8 * 3600.0
    for at_s in (0.0, 5.0, 10.0, back_s):
        for group in (0, 1):
            rounds.take(group, change(int(at_s), 1.0), at_s)
        rounds.close()
    rounds.take(0, change(2, 1.0), back_s + 5.0)
    assert not rounds.is_due(back_s + 19.9)
    assert rounds.is_due(back_s + 20.0)


def test_a_group_that_has_told_once_is_not_waited_for_for_as_long_as_it_was_away():
    """No interval of it is known."""
    rounds = founded(0.0)
    for at_s, groups in ((0.0, (0, 1)), (20.0, (0,)), (5000.0, (0, 1))):
        for group in groups:
            rounds.take(group, change(int(at_s), 1.0), at_s)
        rounds.close()
    rounds.take(0, change(2, 1.0), 5005.0)
    assert not rounds.is_due(5014.9)
    assert rounds.is_due(5015.0)


def test_a_group_that_was_too_slow_for_a_round_is_waited_for_once_its_pace_is_known():
    """A fast one closed the first rounds without it, every 20 s."""
    rounds = founded(0.0)
    for at_s in range(0, 140, 10):
        if at_s % 60 == 0:
            rounds.take(1, change(at_s, 1.0), float(at_s))
        rounds.take(0, change(at_s, 1.0), float(at_s))
        rounds.close()
    rounds.living = {0, 1}
    rounds.take(0, change(140, 1.0), 140.0)
    assert not rounds.is_due(120.0 + 2 * 60.0 + 9.9)
    assert rounds.is_due(120.0 + 2 * 60.0 + 10.0)


def test_a_change_that_comes_again_counts_once():
    """Its group took it for lost, in vain, before the round closed and after; its pace is still 40 s."""
    rounds = founded(0.0)
    for number, at_s in ((8, 0.0), (9, 40.0)):
        rounds.take(0, change(number, 2.0), at_s)
        rounds.take(0, change(number, 2.0), at_s + 1.0)
        rounds.take(1, change(number, 4.0), at_s + 2.0)
        rounds.close()
        rounds.take(0, change(number, 2.0), at_s + 3.0)
        assert not rounds.is_due(1000.0)
    assert rounds.parameters.tolist() == [3.0 + 3.0]
    rounds.take(1, change(10, 1.0), 50.0)
    assert not rounds.is_due(40.0 + 2 * 40.0 + 9.9)
    assert rounds.is_due(40.0 + 2 * 40.0 + 10.0)


def test_statistics_of_observations_add_up():
    """Each group has seen its own."""
    rounds = founded(0.0, statistics=(2.0, 1.0, 3.0))
    rounds.take(0, change(8, 0.0, statistics=(1.0, 0.5, 0.25)), 0.0)
    rounds.take(1, change(2, 0.0, statistics=(3.0, -1.0, 2.0)), 0.0)
    rounds.close()
    assert rounds.statistics.tolist() == [6.0, 0.5, 5.25]
