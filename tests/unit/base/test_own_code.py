"""The digests of a user's own code: what changes one of them, and what does not."""

import json
import os
import sys
import time
from dataclasses import replace
from importlib import metadata

import pytest

from spreeze_zmq.base import sources
from spreeze_zmq.base.own_code import changed_files, code_of
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.launcher.edits import Edits
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
    monkeypatch.setattr(sys, "path", [*sys.path])
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
    found = code_of("bike_of_mine")
    assert list(found) == ["assets/bike.xml", "bike_of_mine.py", "pluggy", "rewards_of_mine.py"]
    assert found["pluggy"] == metadata.version("pluggy")
    assert not {"bike_of_mine", "rewards_of_mine"} & set(sys.modules)


IN_A_FUNCTION = """def main():
    print(train(Bike, stop={"minutes": 1}, topology="bike.toml"))

if __name__ == "__main__":
    main()
"""
GUARDED = ENV[ENV.index("if __name__") :]


@pytest.mark.parametrize(
    ("name", "old", "new", "files"),
    [
        ("bike_of_mine.py", "1.5", "1.6", ["bike_of_mine.py"]),
        ("rewards_of_mine.py", "2", "3", ["rewards_of_mine.py"]),
        ("assets/bike.xml", "<mujoco/>", "<mujoco model='x'/>", ["assets/bike.xml"]),
        ("bike_of_mine.py", '"""Rides."""', '"""Rides well."""', []),
        ("bike_of_mine.py", '"""A bike."""', '"""A bicycle."""', []),
        ("bike_of_mine.py", "HERE =", "# a remark\n\nHERE =", []),
        ("bike_of_mine.py", '"minutes": 1', '"minutes": 9', []),
        ("bike_of_mine.py", "if __name__", "run = train(Bike, seed=5)\nprint(run)\nif __name__", []),
        ("bike_of_mine.py", GUARDED, IN_A_FUNCTION, []),
        ("bike_of_mine.py", GUARDED, "import spreeze_zmq as sz\nsz.train(Bike)\n", ["bike_of_mine.py"]),
        ("bike_of_mine.py", "class Bike", "teacher.train(False)\nclass Bike", ["bike_of_mine.py"]),
        ("bike_of_mine.py", GUARDED, f"async {IN_A_FUNCTION}SCALE = 3\n", ["bike_of_mine.py"]),
        ("bike_of_mine.py", GUARDED, "go = lambda: train(Bike)\nSCALE = 3\n", ["bike_of_mine.py"]),
    ],
    ids=[
        *("reward", "imported", "robot", "docstring", "module's docstring", "comment", "program"),
        *("script without a guard", "a main function", "another import", "a train of something else"),
        *("what follows an async main function", "what follows a lambda"),
    ],
)
def test_what_is_defined_changes_it_and_what_only_begins_a_run_does_not(project, name, old, new, files):
    """The file that has changed is named."""
    before = code_of("bike_of_mine")
    edit(project, name, old, new)
    (project / "bike.toml").write_text("")  # what the program names is none of the environment's
    assert changed_files(before, code_of("bike_of_mine")) == files
    assert "bike.toml" not in code_of("bike_of_mine")


@pytest.mark.parametrize(
    "imports",
    [
        "from . import terms",
        "from .terms import SCALE",
        "import own_of_mine.terms",
        "X = 'own_of_mine.terms:Bike'",
    ],
)
def test_modules_of_a_package_are_followed(project, imports):
    """However one imports another, or names it as an entry point, and the files of the packages that they are
    in.
    """
    package = project / "own_of_mine"
    (package / "inner" / "out").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "terms.py").write_text("SCALE = 1")
    (package / "envs.py").write_text(f"{imports}\nfrom own_of_mine.inner.out.robot import x")
    (package / "inner" / "out" / "robot.py").write_text("x = 1")  # of folders without an __init__.py
    names = ("__init__.py", "envs.py", "terms.py", "inner/out/robot.py")
    assert set(code_of("own_of_mine.envs")) == {f"own_of_mine/{name}" for name in names}


@pytest.mark.parametrize(
    "named",
    [
        *('HERE + "/terms.yaml"', 'f"{HERE}/terms.yaml"', 'Path(__file__).parents[1] / "terms.yaml"'),
        *('os.path.join(HERE, "..", "out", "terms.yaml")', '"terms.yaml"'),
    ],
)
def test_a_robot_is_found_beside_the_code_that_names_it_or_above(project, named):
    """Up to the folder of imports; two files of one name are two."""
    for place in ("", "inner_of_mine", "inner_of_mine/out"):
        folder = project / place
        folder.mkdir(exist_ok=True)
        (folder / "terms.yaml").write_text(f"place: {place}")
        (folder / "env.py").write_text(f"ARM = {named}")
    (project / "top_of_mine.py").write_text(f"import inner_of_mine.out.env\nARM = {named}")
    before = code_of("top_of_mine")
    (project / "inner_of_mine" / "out" / "terms.yaml").write_text("changed")
    assert changed_files(before, code_of("top_of_mine")) == ["inner_of_mine/out/terms.yaml"]


def test_what_the_code_itself_has_written_does_not_count(project):
    """A task that makes its robot anew each time would be another at each start."""
    generated = project / "generated.xml"
    (project / "bike_of_mine.py").write_text(f"ARM = {str(generated)!r}\nTERMS = 'assets/bike.xml'")
    began_s = time.time()
    os.utime(project / "assets" / "bike.xml", (began_s - 9, began_s - 9))
    generated.write_text("<mujoco/>")
    os.utime(generated, (began_s + 1, began_s + 1))
    assert list(code_of("bike_of_mine", before_s=began_s)) == ["assets/bike.xml", "bike_of_mine.py"]


def test_a_file_that_an_argument_names_counts_from_wherever_the_run_is_looked_at(project, monkeypatch):
    """Gymnasium's own environments take a robot as ``xml_file``; a name may be that of a file beside the
    module.
    """
    arguments = {"xml_file": str(project / "assets" / "bike.xml"), "terms": [1, {"name": "x.yaml"}]}
    (project / "x.yaml").write_text("a: 1")
    before = code_of("bike_of_mine", arguments)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.chdir(project.parent)
    assert code_of("bike_of_mine", arguments) == before
    for name in ("assets/bike.xml", "x.yaml"):
        (project / name).write_text("other")
        assert changed_files(before, code_of("bike_of_mine", arguments))[-1].endswith(name.rpartition("/")[2])


@pytest.mark.parametrize(
    "content",
    [b"def broken(", b"\0", b"x = " + b"(" * 9000, b"import bike_of_mine", bytes(range(128, 227))],
    ids=["torn", "nul", "deep", "itself", "bytes"],
)
def test_code_that_cannot_be_read_counts_by_its_bytes(project, content):
    """And what imports itself is followed once."""
    (project / "bike_of_mine.py").write_bytes(content)
    assert list(code_of("bike_of_mine")) == ["bike_of_mine.py"]
    assert code_of("bike_of_mine.nowhere") == code_of("bike_of_mine")
    assert code_of("nowhere_of_mine") == {}


def test_of_very_much_code_what_fits_counts(project, monkeypatch):
    """The nearest first, the same each time."""
    monkeypatch.setattr(sources, "MOST_BYTES", len(ENV) - 1)
    assert code_of("bike_of_mine") == {}
    monkeypatch.setattr(sources, "MOST_BYTES", len(ENV) + 3)
    assert [name for name in code_of("bike_of_mine") if name.endswith(".py")] == ["bike_of_mine.py"]


def test_a_process_that_begins_after_an_edit_has_it_said(project):
    """Once for each file, of who imports it: those before it have what was there as the run began."""
    tables = {"run": {"env": "bike_of_mine:Bike", "algorithm": "sac"}}
    notes = []
    edits = Edits(topology.load(tables), notes.append)
    edits.look({"sampler-0": 1, "critic_learner-0": 2})
    edit(project, "rewards_of_mine.py", "2", "3")
    edits.look({"sampler-0": 1, "critic_learner-0": 3})  # it plays nothing
    assert notes == []
    edits.look({"sampler-0": 1, "sampler-1": 4, "evaluator-0": 5})
    assert notes == ["edited since the run began: rewards_of_mine.py; sampler-1 has what is there now"]
    edit(project, "bike_of_mine.py", "1.5", "1.6")
    edits.look({"sampler-0": 6})
    said = "edited since the run began: bike_of_mine.py, rewards_of_mine.py; sampler-0 has what is there now"
    assert notes[1:] == [said]


#: A goal environment.
GOALS = """import gymnasium as gym
import numpy as np
from rewards_of_mine import SCALE

class Goals(gym.Env):
    observation_space = gym.spaces.Dict({
        name: gym.spaces.Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")
    })
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        return {name: np.zeros(2, np.float32) for name in self.observation_space}, {}

    def step(self, action):
        return self.reset()[0], float(SCALE), False, False, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return np.full(np.shape(achieved_goal)[:-1], float(SCALE))
"""


@pytest.mark.parametrize("hindsight", ["future", "off"], ids=["option", "own relabel"])
def test_a_learner_that_judges_goals_imports_the_environment(project, hindsight):
    """Also by a relabelling of one's own, which leaves the option as it is."""
    (project / "goals_of_mine.py").write_text(GOALS)
    run = {"env": "goals_of_mine:Goals", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": {"hindsight": "future"}})
    plan, notes = replace(plan, algorithm={**plan.algorithm, "hindsight": hindsight}), []
    edits = Edits(plan, notes.append)
    edits.look({"critic_learner-0": 2})
    edit(project, "rewards_of_mine.py", "2", "3")
    edits.look({"critic_learner-0": 3})
    assert notes == ["edited since the run began: rewards_of_mine.py; critic_learner-0 has what is there now"]


def test_a_learner_that_relabels_without_goals_needs_no_environment(project):
    """Its relabelling sees the episodes alone."""
    plan, notes = topology.load({"run": {"env": "bike_of_mine:Bike", "algorithm": "sac"}}), []
    edits = Edits(replace(plan, learning=replace(plan.learning, rows_each=5)), notes.append)
    edits.look({"critic_learner-0": 2})
    edit(project, "rewards_of_mine.py", "2", "3")
    edits.look({"critic_learner-0": 3})
    assert notes == []


def test_the_launcher_of_a_further_group_compares_with_the_run_that_it_is_of(project):
    """It is started again with its group, after the edit."""
    tables = {"run": {"env": "bike_of_mine:Bike", "algorithm": "sac"}}
    plan, notes = topology.load(tables), []
    edit(project, "rewards_of_mine.py", "2", "3")
    for number in (0, 1):
        Edits(replace(plan, groups=replace(plan.groups, count=2, number=number)), notes.append).look(
            {"sampler-0": 1}
        )
    assert notes == ["edited since the run began: rewards_of_mine.py; sampler-0 has what is there now"]


def test_a_robot_that_is_made_anew_at_each_start_makes_no_run_another(project):
    """Nor each seed of a command, which looks at the environment once."""
    made = "def __init__(self):\n        open(self.model, 'w').write(str(np.random.rand()))\n\n"
    edit(project, "bike_of_mine.py", "def reset", f"{made}    def reset")
    look, tables = FirstLook(), {"run": {"env": "bike_of_mine:Bike", "algorithm": "sac"}}
    codes = [topology.load(tables, look=one).own_code for one in (look, look, FirstLook())]
    assert list(codes[0]["environment"]) == ["bike_of_mine.py", "pluggy", "rewards_of_mine.py"]
    assert codes == [codes[0]] * 3


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
