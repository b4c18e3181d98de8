"""A worker that dies while it resets an environment costs no episode that had not begun."""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq import envs
from tests.unit.envs.own_environments import Count

HERE = "tests.unit.envs.parallel.test_dying_in_reset"


class Dies(Count):
    """Ends after three steps for each of the ``index``; its process ends once, at a reset with seed 77."""

    def __init__(self, index, mark):
        super().__init__(length=3 * (1 + index))
        self.mark = Path(mark)

    def reset(self, *, seed=None, options=None):
        """Die as a simulator does."""
        if seed == 77 and not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return super().reset(seed=seed)


@pytest.fixture
def batch(tmp_path):
    """Two environments in two workers, of three and six steps."""
    kwargs = {"index": "{index}", "mark": str(tmp_path / "mark")}
    with closing(
        envs.make("tests.unit.envs.parallel.test_dying_in_reset:Dies", 2, num_workers=2, **kwargs)
    ) as made:
        yield made


def test_an_episode_that_begins_with_the_death_of_a_worker_counts_whole(batch):
    """When the other one ends, it is in its midst and has not failed; at its own end it has six steps."""
    batch.reset(seed=1)
    obs, _ = batch.reset(seed=76)
    assert batch.failures.count == 1
    assert obs[:, 0].tolist() == [0, 0]
    for step in range(1, 7):
        *_, info = batch.step(np.zeros((2, 1)))
        assert "failed" not in info
        assert ("episode" in info) == (step in (3, 6))
    assert info["episode"]["l"].tolist() == [3, 6]
    assert info["episode"]["r"].tolist() == [3.0, 6.0]
