"""The linter, the formatter and the type checker are part of the tests."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A public function with more lines than these, its docstring aside, has a docstring.
SHORT = 5
#: Class names that stand more than once, and mean one thing: an algorithm's options, and distributions in
#: torch, in NumPy and as ONNX.
SHARED = {"Options", "Categorical", "Deterministic", "EpsilonGreedy", "Normal", "TanhNormal"}


@pytest.mark.long("mypy reads the package and torch")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=lambda c: " ".join(c[:2]),
)
def test_the_tree_is_clean(command):
    """Whatever they say is shown."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def undocumented(node):
    """The public functions and methods in a syntax tree that are not short and have no docstring."""
    for inside in node.body:
        if isinstance(inside, ast.ClassDef | ast.FunctionDef) and not inside.name.startswith("_"):
            if isinstance(inside, ast.ClassDef):
                yield from undocumented(inside)
            elif inside.end_lineno - inside.lineno >= SHORT and ast.get_docstring(inside) is None:
                yield inside


def test_a_public_function_says_what_it_does_unless_it_is_short():
    """Ruff asks for the docstrings of modules and classes, and knows no length."""
    long = "    x = (\n        1,\n        2,\n    )\n    return x\n"
    example = f"def short(): return 1\ndef long():\n{long}def _own():\n{long}def said():\n    'That.'\n{long}"
    assert [found.name for found in undocumented(ast.parse(example))] == ["long"]
    paths = [path for top in ("spreeze_zmq", "components", "tests") for path in (ROOT / top).rglob("*.py")]
    places = [(path, found) for path in paths for found in undocumented(ast.parse(path.read_text()))]
    assert [f"{path.relative_to(ROOT)}:{found.lineno} {found.name}" for path, found in places] == []


def test_a_class_name_means_one_thing():
    """Examples are for other projects, and may use a name of this one."""
    paths = [*(ROOT / "spreeze_zmq").rglob("*.py"), *(ROOT / "components").glob("*/*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    times = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, number in times.items() if number > 1} == SHARED
