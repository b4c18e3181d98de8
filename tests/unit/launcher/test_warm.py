"""Which command lines have servers that fork their processes."""

import os
import resource
from contextlib import closing

import pytest

from spreeze_zmq.launcher import warm
from spreeze_zmq.supervisor import ForkSpawner


@pytest.fixture(autouse=True)
def no_servers_left():
    """Those of a test end with it."""
    yield
    warm.stop()


@pytest.mark.parametrize(("arguments", "served"), [(["pendulum"], True), (["pendulum", "--check"], False)])
def test_only_what_starts_processes_has_servers(arguments, served):
    """Real ones, which are ended before they have loaded anything."""
    warm.start(arguments)
    with closing(warm.spawner([], [])) as spawner:
        assert isinstance(spawner, ForkSpawner) == served


def test_a_machine_that_allows_no_server_is_no_mistake():
    """No file may be opened any more: the processes start by their commands, as long as these can."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        warm.start(["pendulum"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with closing(warm.spawner([], [])) as spawner:
        assert not isinstance(spawner, ForkSpawner)
