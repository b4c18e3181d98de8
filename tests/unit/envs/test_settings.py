"""What the code of environments sets for its process has effect while that code runs."""

import logging
from contextlib import closing

import numpy as np
import pytest

from spreeze_zmq import envs

STRICT = "tests.unit.envs.odd_environments:Strict"
LOGS = tuple(map(logging.getLogger, ("spreeze", "spreeze.envs")))


@pytest.fixture(autouse=True)
def other_loggers():
    """They are as before after a test, too."""
    made = [log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)]
    enabled = [log for log in made if not log.disabled]
    yield
    for log in enabled:
        log.disabled = False


def state():
    """How this process handles errors of numbers, and whether it logs."""
    return np.geterr(), logging.root.manager.disable, [log.disabled for log in LOGS]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", ["made", "reset"])
def test_an_environment_that_has_numbers_raise_does_so_alone(at, num_workers):
    """A policy of which one weighs nothing ended its sampler, and the line of a failure was not logged."""
    before, noted = state(), []
    options = {"num_workers": num_workers, "max_failures": 99, "on_failure": noted.append}
    with closing(envs.make(STRICT, 2, at=at, **options)) as env:
        env.reset()
        rewards = [env.step(env.random_actions())[1].tolist() for _ in range(4)]
        env.reset()
        assert state() == before
    assert state() == before
    assert rewards == [[1, 1], [0, 0], [1, 1], [0, 0]]  # the second step fails, and begins another episode
    assert len(noted) == 4
    assert all("gave the observation [1.e+30" in failure.summary for failure in noted)
