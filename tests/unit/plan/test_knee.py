"""Where a curve of rates stops growing, on recorded curves and on ones made to mislead."""

import itertools

import pytest

from spreeze_zmq.plan.knee import KNEE_SHARE, TURNS, climb, doublings, grows, knee

#: Recorded on a Xeon with AMX, one thread: HalfCheetah-v5, two layers of 256, bf16; Hopper-v5 with 51 atoms.
CHEETAH = {
    **{64: 51_813, 128: 88_416, 256: 141_269, 512: 205_907, 1024: 264_423, 2048: 310_121},
    **{4096: 320_201, 8192: 312_708},
}
HOPPER = {64: 31_426, 128: 53_591, 256: 71_808, 512: 89_892, 1024: 98_126, 2048: 81_142, 4096: 90_089}
SIZES = list(doublings(64, 32_768))


def always():
    """Time without end."""
    return True


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (CHEETAH, 2048),
        (HOPPER, 512),
        ({64: 5.0}, 64),
        (dict.fromkeys(SIZES, 7.0), 64),
        ({size: float(size) for size in SIZES}, 32_768),
        ({size: 1.0 / size for size in SIZES}, 64),
        ({64: 1.0, 128: 9.0, 256: 3.0, 512: 8.0, 1024: 9.5}, 128),
        ({64: 89.0, 128: 100.0}, 128),
        ({64: 90.0, 128: 100.0}, 64),
        ({1024: 10.0, 64: 2.0, 256: 9.5}, 256),
    ],
)
def test_the_smallest_size_near_the_best_rate_is_chosen(curve, expected):
    """Recorded, single, flat, growing, falling, dented, just below the share, at it, and in no order."""
    assert knee(curve) == expected


def test_noise_of_a_few_percent_moves_the_choice_by_one_doubling_at_most():
    """Every combination of 4 % up and down on the recorded curve."""
    sizes = sorted(CHEETAH)
    chosen = set()
    for signs in itertools.product((0.96, 1.04), repeat=len(sizes)):
        chosen.add(knee({size: sign * CHEETAH[size] for size, sign in zip(sizes, signs, strict=True)}))
    assert chosen <= {1024, 2048, 4096}


@pytest.mark.parametrize("curve", [{}, {64: 0.0}, {64: float("nan")}, {64: 1.0, 128: float("inf")}])
def test_a_curve_of_nonsense_is_a_programming_error(curve):
    """Rates are positive and finite, and there is one."""
    with pytest.raises(AssertionError):
        knee(curve)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((), True),
        ((5.0, 5.0), True),
        ((5.0, 5.0, 5.0), False),
        ((5.0, 1.0, 5.5), True),
        ((5.0, 10.0, 10.0, 10.0), False),
        ((5.0, 10.0, 10.0, 11.0), True),
    ],
)
def test_one_weak_size_does_not_end_the_climb_and_two_do(rates, expected):
    """Two more sizes must raise the best by 5 %."""
    assert grows(dict(zip(SIZES, rates, strict=False))) is expected


def test_a_climb_ends_where_nothing_is_gained():
    """Two sizes beyond the last gain; each is measured in every turn."""
    measured = []

    def rate(size):
        measured.append(size)
        return float(min(size, 512))

    curve, ended = climb(SIZES, rate, always)
    assert (sorted(curve), ended) == ([64, 128, 256, 512, 1024, 2048], "flat")
    assert all(measured.count(size) == TURNS for size in curve)


def test_a_disturbance_of_one_turn_is_forgotten():
    """Two sizes were slow the first time, where the climb stopped; it goes on when they turn out well."""
    seen = set()

    def rate(size):
        first = size not in seen
        seen.add(size)
        return 50.0 if first and size in (256, 512) else float(min(size, 4096))

    curve, ended = climb(SIZES, rate, always)
    assert (curve[256], curve[512]) == (256.0, 512.0)
    assert (knee(curve), ended) == (4096, "flat")


def test_a_climb_says_what_ended_it():
    """The last size that may be, or the time; one size is measured even without any."""
    assert climb([64, 128], float, always) == ({64: 64.0, 128: 128.0}, "last")
    times = iter([True, True] + [False] * 100)
    assert climb(SIZES, float, lambda: next(times)) == ({64: 64.0, 128: 128.0, 256: 256.0}, "time")
    assert climb(SIZES, float, lambda: False) == ({64: 64.0}, "time")


def test_the_share_leaves_room_for_noise():
    """What the texts say of it."""
    assert KNEE_SHARE == 0.9
    assert list(doublings(64, 300)) == [64, 128, 256]
    assert list(doublings(64, 63)) == []
