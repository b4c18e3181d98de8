"""Cases that try every pair of values, where the whole product of several parameters takes too long.

Most defects need one value or the meeting of two (Kuhn, Wallace and Gallo, IEEE TSE 30(6), 2004).
"""

from itertools import combinations, product


def pairwise(*axes):
    """Cases, each with one value of every axis, so that any two values of two axes meet in one of them; none
    if an axis is empty.

    The same ones in every call: each begins with a pair that is left, and takes the values that cover most.
    """
    axes = [list(axis) for axis in axes]
    left = {
        ((i, a), (j, b)): None
        for i, j in combinations(range(len(axes)), 2)
        for a, b in product(range(len(axes[i])), range(len(axes[j])))
    }
    cases = []
    while left and all(axes):
        case = dict(next(iter(left)))
        for i in sorted(set(range(len(axes))) - case.keys(), key=lambda i: -len(axes[i])):
            gains = [sum(_pair(i, a, at) in left for at in case.items()) for a in range(len(axes[i]))]
            case[i] = gains.index(max(gains))
        for pair in combinations(sorted(case.items()), 2):
            left.pop(pair, None)
        cases.append(tuple(axis[case[i]] for i, axis in enumerate(axes)))
    return cases


def _pair(i, a, at):
    return tuple(sorted(((i, a), at)))
