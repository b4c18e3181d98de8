"""Batches in worker processes, which end with the test."""

import pytest

from spreeze_zmq import envs


@pytest.fixture
def make():
    """Makes batches and closes them."""
    made = []

    def make_one(*args, **kwargs):
        made.append(envs.make(*args, **kwargs))
        return made[-1]

    yield make_one
    for env in made:
        env.close()
