"""Components of a run in this process, without their peers."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from strangers import Peers

from components.broker.__main__ import Broker
from spreeze_zmq.component import Component
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "components" / "examples" / "sampler_python" / "sampler.py"


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


@pytest.fixture
def start(request, tmp_path, monkeypatch):
    """Starts an example in a run; ``pendulum`` takes the place of the environment in JavaScript."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = []

    def begin(language, peers, pendulum=""):
        command = [sys.executable, str(EXAMPLE)]
        if language == "javascript":
            folder = request.getfixturevalue("new_node")
            if pendulum:
                folder = shutil.copytree(folder, tmp_path / "js", symlinks=True)
                (folder / "pendulum.js").write_text(pendulum)
            command = ["node", str(folder / "sampler.js")]
        log = (tmp_path / "log").open("w")
        started.append(subprocess.Popen([*command, peers.run_file, "0"], stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def played(tmp_path):
    """Makes the peers of a run of pendulum."""
    made = []

    def make(*overrides, env=None, away=(), change=lambda plan: plan):
        def changed(plan):
            plan = change(topology.load("pendulum", list(overrides)))
            return plan if env is None else replace(plan, environment=env)

        made.append(Peers(tmp_path / "run", changed, away))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def last_line(tmp_path):
    """What the example said last."""
    return lambda: (tmp_path / "log").read_text().splitlines()[-1]
