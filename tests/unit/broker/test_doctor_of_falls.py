"""Policies that run faster and fall are named, by the looks at them that real runs have had."""

import pytest

from spreeze_zmq.broker.doctor.learning_rules import early_ends
from spreeze_zmq.broker.doctor.vitals import Vitals

#: Mean return and length of looks: Hopper-v5 at a discount of 0.99, Walker2d-v5 likewise, Hopper at 0.995.
FELL = [(39, 23), (288, 202), (1645, 554), (3086, 966), (3205, 1000), (2806, 767), (1689, 448), (1494, 399)]
FELL += [(1450, 385), (2380, 616), (1602, 424), (1732, 453), (1853, 467), (1640, 414), (1654, 407)]
ROSE = [(83, 99), (339, 266), (414, 221), (803, 305), (1020, 359), (2667, 707), (4133, 952), (4361, 949)]
HELD = [(155, 96), (1054, 1000), (486, 260), (1061, 1000), (1020, 420), (512, 205), (1049, 328), (987, 307)]
HELD += [(3022, 1000), (3436, 1000), (2756, 745), (1615, 434), (3573, 1000), (2042, 529), (3614, 1000)]
#: Steps whose pay is the same: nothing is gained by an early end.
SHORT = [(500, 500), (200, 200), (150, 150), (210, 210), (90, 90), (100, 100), (120, 120)]


def looked(looks, limit, gamma):
    """What is found at the end of a run with these looks."""
    vitals = Vitals({"environment": {"max_episode_steps": limit}, "algorithm": {"gamma": gamma}})
    for t_s, (mean_return, steps) in enumerate(looks):
        vitals.take("evaluation", float(t_s), {"mean_return": mean_return, "mean_length": steps})
    return early_ends(vitals)


def test_faster_until_they_fall_is_named():
    """With what they earn, and the discount that counts a fall twice as far."""
    found = looked(FELL, 1000, 0.99)
    assert "after 424 steps with 1654, the best one lasted 1000 for 3205" in found.seen
    assert "3.96 beside 3.2" in found.why
    assert found.remedy == "algorithm.gamma = 0.995"


@pytest.mark.parametrize(
    ("looks", "limit", "gamma"),
    [
        (ROSE, 1000, 0.99),
        (HELD, 1000, 0.995),
        (SHORT, 500, 0.99),
        (FELL, None, 0.99),
        (FELL, 1000, 0.999),  # nothing longer is left to try
        (FELL[:8], 1000, 0.99),  # too few to tell
    ],
)
def test_what_learns_or_lasts_gets_no_word(looks, limit, gamma):
    """Nor does a task without a time limit, where no length is whole."""
    assert looked(looks, limit, gamma) is None
