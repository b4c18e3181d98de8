"""The digests of a user's own code: what changes one of them, and what does not."""

import json
import os
import sys
from importlib import metadata

import pytest

from spreeze_zmq.base import own_code
from spreeze_zmq.base.own_code import changed_files, code_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import differing

ENV = '''"""A bike."""
import os
import pluggy
import gymnasium as gym
import numpy as np
from spreeze_zmq import train
from rewards_of_mine import SCALE
HERE = os.path.dirname(__file__)

class Bike(gym.Env):
    """Rides."""
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    model = os.path.join(HERE, "assets", "bike.xml")

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), SCALE * 1.5, False, False, {}

if __name__ == "__main__":
    print(train(Bike, stop={"minutes": 1}))
'''
#: Contents by file; the environment imports one and names another.
FILES = {"bike_of_mine.py": ENV, "rewards_of_mine.py": "SCALE = 2\n", "assets/bike.xml": "<mujoco/>"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with ``FILES``, which is the current one; whatever is imported from it is forgotten."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if "of_mine" in name:
            del sys.modules[name]


def edit(folder, name, old, new):
    """Replace a text that a file has."""
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def test_it_is_that_of_a_module_and_of_what_it_needs_but_for_this_library(project):
    """By file, packages by version."""
    found = code_of(["bike_of_mine"])
    assert list(found) == ["bike.xml", "bike_of_mine.py", "pluggy", "rewards_of_mine.py"]
    assert found["pluggy"] == metadata.version("pluggy")
    assert not {"bike_of_mine", "rewards_of_mine"} & set(sys.modules)


@pytest.mark.parametrize(
    ("name", "old", "new", "files"),
    [
        ("bike_of_mine.py", "1.5", "1.6", "bike_of_mine.py"),
        ("rewards_of_mine.py", "2", "3", "rewards_of_mine.py"),
        ("assets/bike.xml", "<mujoco/>", "<mujoco model='x'/>", "bike.xml"),
        ("bike_of_mine.py", '"""Rides."""', '"""Rides well."""  # a remark', ""),
        ("bike_of_mine.py", '"minutes": 1', '"minutes": 9', ""),
        ("bike_of_mine.py", "if __name__", "run = train(Bike, seed=5)\nprint(run)\nif __name__", ""),
    ],
    ids=["reward", "imported", "robot", "docstring and comment", "program", "script without a guard"],
)
def test_what_is_defined_changes_it_and_what_only_begins_a_run_does_not(project, name, old, new, files):
    """The file that has changed is named."""
    before = {"environment": code_of(["bike_of_mine"])}
    edit(project, name, old, new)
    assert changed_files(before, {"environment": code_of(["bike_of_mine"])}) == files


@pytest.mark.parametrize(
    "imports", ["from . import terms", "from .terms import SCALE", "import own_of_mine.terms"]
)
def test_modules_of_a_package_are_followed(project, imports):
    """However one imports another, and the files of the packages that they are in."""
    package = project / "own_of_mine"
    (package / "inner" / "out").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "terms.py").write_text("SCALE = 1")
    (package / "envs.py").write_text(f"{imports}\nfrom own_of_mine.inner.out.robot import x")
    (package / "inner" / "out" / "robot.py").write_text("x = 1")  # of folders without an __init__.py
    names = ("__init__.py", "envs.py", "terms.py", "inner/out/robot.py")
    assert set(code_of(["own_of_mine.envs"])) == {f"own_of_mine/{name}" for name in names}


def test_a_file_that_an_argument_names_counts(project):
    """Gymnasium's own environments take a robot as ``xml_file``."""
    arguments = {"xml_file": str(project / "assets" / "bike.xml"), "terms": [1, {"name": "x"}]}
    before = code_of([""], arguments)
    edit(project, "assets/bike.xml", "/>", " />")
    assert list(before) == ["bike.xml"]
    assert code_of([""], arguments) != before


@pytest.mark.parametrize(
    "content", [b"def broken(", b"\0", b"x = " + b"(" * 9000, b"import bike_of_mine", os.urandom(99)]
)
def test_code_that_cannot_be_read_counts_by_its_bytes(project, content):
    """And what imports itself is followed once."""
    (project / "bike_of_mine.py").write_bytes(content)
    assert list(code_of(["bike_of_mine"])) == ["bike_of_mine.py"]
    assert code_of(["nowhere_of_mine", "bike_of_mine.nowhere"]) == code_of(["bike_of_mine"])


def test_of_very_much_code_the_nearest_counts(project, monkeypatch):
    """What is further is left out, the same each time."""
    monkeypatch.setattr(own_code, "MOST_BYTES", len(ENV) + 3)
    assert "rewards_of_mine.py" not in code_of(["bike_of_mine"])
    assert "bike_of_mine.py" in code_of(["bike_of_mine"])


def test_a_plan_names_what_has_changed_since_another(project):
    """A run that goes on in order with it is not exact."""
    tables = {"run": {"env": "bike_of_mine:Bike", "algorithm": "sac"}}
    before = json.loads(topology.load(tables).to_json())
    assert not differing(before, topology.load(tables))
    edit(project, "rewards_of_mine.py", "2", "3")
    before["own_code"]["environment"]["pluggy"] = "0.1"
    words = differing(before, topology.load(tables))
    assert words == [f"pluggy 0.1 (here {metadata.version('pluggy')})", "rewards_of_mine.py has changed"]
    del before["own_code"]
    assert not differing(before, topology.load(tables))
