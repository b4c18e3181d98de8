"""The cover of pairs by which long products of cases are cut short."""

from itertools import combinations, product

import pytest

from tests.pairwise import pairwise


@pytest.mark.parametrize("sizes", [(4, 21, 6), (3, 5, 4, 2, 4), (2, 2), (1, 3), (3, 0, 2)])
def test_any_two_values_meet_in_a_case(sizes):
    """In few more cases than the two longest axes need."""
    axes = [[f"{name}{value}" for value in range(size)] for name, size in zip("abcde", sizes, strict=False)]
    cases = pairwise(*axes)
    for i, j in combinations(range(len(axes) * all(axes)), 2):
        assert {(case[i], case[j]) for case in cases} == set(product(axes[i], axes[j]))
    least = min(sizes) and sorted(sizes)[-1] * sorted(sizes)[-2]
    assert least <= len(cases) <= 1.3 * least
    assert cases == pairwise(*axes)
