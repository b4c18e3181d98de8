"""Supervisors of real processes, and of fake ones over time."""

from contextlib import closing

import pytest

from spreeze_zmq.supervisor import ProcessSpec, Supervisor
from tests.unit.supervisor.lives import FakeClock, FakeSpawner


@pytest.fixture
def spec(tmp_path):
    """A process that sleeps."""
    return ProcessSpec("sampler-0", ("sleep", "60"), tmp_path / "logs" / "sampler-0.log")


@pytest.fixture
def supervisor():
    """A supervisor of real processes."""
    with closing(Supervisor()) as supervisor:
        yield supervisor


@pytest.fixture
def fake():
    """A supervisor, its spawner and its clock, with nothing real behind them."""
    spawner, clock = FakeSpawner(), FakeClock()
    return Supervisor(spawner, clock), spawner, clock
