"""The tables of promises, in tests/README.md and of security in README.md, name tests that there are."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def shows(named):
    """Whether ``FILE`` or ``FILE::TEST`` is a test that every run of the suite has."""
    file, _, test = named.partition("::")
    path = TESTS / file
    functions = ast.parse(path.read_text()).body if path.exists() else []
    tests = [
        each for each in functions if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    marks = [each for each in functions if isinstance(each, ast.Assign) and "pytestmark" in ast.unparse(each)]
    return any(
        test in ("", each.name) and not any(map(is_thorough, [*marks, *each.decorator_list]))
        for each in tests
    )


def is_thorough(mark):
    """Whether a mark, or parameters of which none is kept, leave a test to ``pytest -m thorough``."""
    text = ast.unparse(mark)
    alone = text == "pytest.mark.thorough" or "thorough_but(of=" in text
    return alone or re.match("pytestmark.*thorough", text) is not None


def test_every_promise_names_a_test_that_runs():
    """In each row but the headings; none of them is for ``pytest -m thorough`` alone."""
    table = (TESTS / "README.md").read_text().split("| promise | test |\n")[1]
    rows = [line.split(" | ") for line in table.splitlines()[1:] if not line.startswith("| **")]
    assert len(rows) > 30
    for promise, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named, promise
        assert [name for name in named if not shows(name)] == [], promise


def test_every_boundary_of_what_is_trusted_names_its_test():
    """What is trusted because the user started it needs none; all else does."""
    table = (TESTS.parent / "README.md").read_text().split("## Security\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 7
    for about in rows:
        named = re.findall(r"`(\S+\.py\S*)`", about[-1])
        assert named, about
        assert [name for name in named if not shows(name)] == [], about
