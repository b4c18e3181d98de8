"""Components of a run in this process, without their peers."""

import pytest

from components.broker.__main__ import Broker
from spreeze_zmq.component import Component
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan


class House:
    """A run's folder and components in this process, without their peers."""

    def __init__(self, path, topology_name, *overrides):
        plan = self.plan_as_read = topology.load(topology_name, ["components.sampler.count=1", *overrides])
        self.plan, self.sockets = write_plan(plan, RunFolder.create(plan.name, str(path)))
        self.components = []

    def component(self, role):
        """One of them."""
        self.components.append(Component(role, self.plan, 0))
        return self.components[-1]

    def close(self):
        """Leave nothing behind."""
        for component in self.components:
            for channel in component._channels.values():
                channel.close()
        self.sockets.remove()


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """Makes houses, and leaves nothing of them."""
    made = []

    def make(topology_name, *overrides):
        made.append(House(tmp_path_factory.mktemp("house") / "run", topology_name, *overrides))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def house(houses):
    """Pendulum by SAC with small networks."""
    options = ("algorithm.hidden_sizes=[8]", "algorithm.learning_starts=64", "algorithm.batch_size=16")
    return houses("pendulum", *options)


@pytest.fixture(scope="module")
def broker(house):
    """A whole broker."""
    made = Broker(house.component("broker"))
    yield made
    made.notes.journal.close()
