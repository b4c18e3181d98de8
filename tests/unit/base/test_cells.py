"""A curve of a long run: it begins where the run began, however often it was thinned."""

import numpy as np
import pytest

from spreeze_zmq.broker.returns import EVALUATIONS_KEPT, Evaluations
from spreeze_zmq.screen.terminal.chart import MOST_POINTS, Returns

LOOK = {"env_steps": 1, "mean_return": 0.0, "best": False, "confirmed": False}


def of_the_broker(times_s):
    """The times of the looks that a broker keeps of these; the tenth was of the best policy."""
    kept = Evaluations()
    for number, t_s in enumerate(times_s):
        kept.take({**LOOK, "best": number == 10}, t_s)
    assert kept.best["t_s"] == times_s[10]
    return [look["t_s"] for look in kept.looks], EVALUATIONS_KEPT


def of_the_terminal(times_s):
    """The times of the points that a terminal keeps of these."""
    shown = Returns()
    for number, t_s in enumerate(times_s):
        episodes = {"count": number + 1, "recent_return": 0.0}
        shown.take({"evaluation": {"last": None}, "episodes": episodes, "t_s": t_s})
    return [t_s for t_s, _ in shown.points], MOST_POINTS


@pytest.mark.parametrize("kept_of", [of_the_broker, of_the_terminal])
def test_a_curve_is_thinned_evenly_over_the_whole_run(kept_of):
    """Two looks a second for half a day; the first ones are a few among many, and no gap is large."""
    times_s = np.arange(0.5, 50_000.0, 0.5).tolist()
    kept_s, most = kept_of(times_s)
    assert most / 4 <= len(kept_s) <= most
    assert kept_s[0] <= 4 * times_s[-1] / most
    assert kept_s[-1] == times_s[-1]
    assert np.diff(kept_s).max() <= 4 * times_s[-1] / most


@pytest.mark.parametrize("kept_of", [of_the_broker, of_the_terminal])
def test_what_comes_at_one_time_is_thinned_too(kept_of):
    """As of a clock that stands still."""
    kept_s, most = kept_of([7.0] * 9000)
    assert set(kept_s) == {7.0}
    assert len(kept_s) <= most
