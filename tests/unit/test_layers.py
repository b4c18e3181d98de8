"""The house: imports point strictly down, and each dependency has its room."""

import ast
import configparser
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spreeze_zmq"

#: The rooms, lower floors first: a module imports from its own room and from floors below it alone.
FLOORS = (
    {"balance", "base"},
    {"envs", "nn", "supervisor"},
    {"policy", "replay"},
    {"algorithms", "data"},
    {"plan"},
    {"wire"},
    {"run"},
    {"broker", "component", "evaluation"},
    {"callbacks", "learner", "nodes", "screen"},
    {"launcher", "peers"},
    {"commands"},
)

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path):
    """The package directly below spreeze_zmq that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def folder(path):
    """The folder below spreeze_zmq that a file lies in, such as ``wire/channels``."""
    return path.parent.relative_to(PACKAGE).as_posix()


@cache
def imports(path):
    """Every module, or name of one, that a file imports, absolute, also inside functions."""
    return tuple(_imports(path))


def _imports(path):
    inside = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(inside[: len(inside) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def floor(name):
    """The floor of a room."""
    found = [number for number, rooms in enumerate(FLOORS) if name in rooms]
    assert found, f"{name} has no floor: give it one in this test"
    return found[0]


def breaches(path):
    """The imports of a module that point up or sideways, in words."""
    here = room(path)
    for module in imports(path) if here != "__init__" else ():
        if not module.startswith("spreeze_zmq.") or module == "spreeze_zmq.__version__":
            continue
        there = module.split(".")[1]
        if there == here:
            continue
        if there == "components" or floor(there) >= floor(here):
            yield f"{path.relative_to(ROOT)} imports {module}, which is not below it"


def test_imports_point_strictly_down():
    """A module imports from lower floors and from its own room alone; components are imported by none."""
    found = [breach for path in MODULES for breach in breaches(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("dependency", "folders"),
    [
        ("zmq", {"wire/channels", "commands/bench"}),
        (
            "torch",
            {
                *(
                    "algorithms",
                    "algorithms/distributions",
                    "nn",
                    "nn/device",
                    "nn/native",
                    "policy",
                    "replay",
                    "learner",
                ),
                *("commands/bench", "evaluation/export"),
            },
        ),
        ("gymnasium", {"envs", "envs/engines", "envs/mujoco", "envs/parallel", "envs/tasks"}),
        (
            "mujoco",
            {
                *("envs", "envs/engines", "envs/mujoco", "envs/tasks"),
                *("commands/bench", "evaluation/video", "screen/page"),
            },
        ),
        ("tensorboard", {"broker"}),
        ("rich", {"screen/terminal", "commands"}),
        ("websockets", {"screen/page"}),
    ],
)
def test_each_dependency_has_its_room(dependency, folders):
    """Only channels knows ZeroMQ, only learning knows torch; the benches compare with the bare library."""
    users = {
        folder(path) for path in MODULES for module in imports(path) if module.split(".")[0] == dependency
    }
    assert users <= folders


def test_topologies_are_read_by_who_starts_a_run():
    """A process of a live run reads its plan and no TOML; a component that stands alone imports the reader
    when it is given a topology.
    """
    users = {room(path) for path in MODULES if any("topology" in name.split(".") for name in imports(path))}
    assert users == {"plan", "component", "nodes", "commands"}
    code = "import sys, spreeze_zmq.component, spreeze_zmq.learner.learner, spreeze_zmq.broker.record; "
    code += "print('spreeze_zmq.plan.topology' in sys.modules, 'tomllib' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.split() == ["False", "False"]


def test_a_learner_imports_no_symbolic_mathematics():
    """torch brings sympy along for shapes that are not known, which take a second of each start."""
    code = """if True:
        import sys
        from spreeze_zmq import algorithms, envs
        kind = algorithms.get("sac")
        algorithms.make("critic", kind, kind.Options(), envs.probe("Pendulum-v1"), "cpu", 1)
        print("torch" in sys.modules, "sympy" in sys.modules)
    """
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.split() == ["True", "False"]


def test_a_run_imports_no_library_that_few_runs_need():
    """Neither its launcher nor a component on one machine: asyncio with ssl, which authentication needs, and
    email, in which the releases of packages are written, take as long as numpy.
    """
    code = (
        "import sys; from spreeze_zmq.commands import launch; from spreeze_zmq.component import component; "
    )
    code += "print(*{'asyncio', 'ssl', 'email', 'http'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_a_command_imports_the_modules_of_no_other():
    """All of them together take a second of each command's start."""
    code = "import sys; from spreeze_zmq.commands import spreeze; "
    code += "name, _ = spreeze.chosen(['--', 'keys', 'runs']); "
    code += "print(name, *{'keys', 'runs', 'compare'} & {each.rpartition('.')[2] for each in sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["keys", "keys"]


def test_nothing_is_pickled():
    """No module of the system imports pickle or asks another to use it."""
    for path in (*MODULES, *(ROOT / "components").rglob("*.py")):
        text = path.read_text()
        assert "pickle" not in {module.split(".")[0] for module in imports(path)}
        assert "weights_only=False" not in text
        assert "allow_pickle=True" not in text


def test_every_package_is_in_the_wheel():
    """setup.cfg names its packages one by one; none may be forgotten."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    named = set(config["options"]["packages"].split())
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    there |= {"spreeze_zmq.launch", "spreeze_zmq.components"}
    there |= {
        f"spreeze_zmq.components.{path.parent.name}"
        for path in (ROOT / "components").glob("*/component.toml")
    }
    assert named == there


def test_every_file_of_a_component_is_in_the_wheel():
    """setup.cfg lists what is no module of a package: sources in other languages, examples, TOML."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    data = config["options.package_data"]
    named = {
        path
        for package in data
        if package.startswith("spreeze_zmq.components")
        for pattern in data[package].split(",")
        for path in (ROOT / package.removeprefix("spreeze_zmq.").replace(".", "/")).glob(pattern.strip())
    }
    made = {"__pycache__", "node_modules", "package-lock.json"}
    there = {
        path for path in (ROOT / "components").rglob("*") if path.is_file() and not made & set(path.parts)
    }
    modules = {path for path in there if path.suffix == ".py" and "examples" not in path.parts}
    assert there - modules <= named
