"""The lines of a README are understood as they are meant."""

import re
import shlex
from pathlib import Path

import pytest

from spreeze_zmq.commands import conform, replay, spreeze

README = Path(__file__).parents[3] / "components" / "README.md"
LINES = re.findall(r"^    spreeze ((?:replay|conform) .*?)(?: {2,}#.*)?$", README.read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_no_option_of_the_command_goes_to_the_program(line, monkeypatch):
    """Each option before ``--`` is the command's own, and what follows is a program with its words."""
    heard = []
    for module in (conform, replay):
        monkeypatch.setattr(module, "main", lambda arguments: heard.append(arguments) or 0)
    assert spreeze.main(shlex.split(line)) == 0
    own = {"--tolerance", "--tier", "--html", "--topology", "--set", "--only", "--pace", "--by-hand"}
    assert not own & set(heard[0].program)
    if "--tolerance" in line:
        assert heard[0].tolerance == 1e-5


def test_both_commands_are_in_the_readme():
    """Else the test above would prove nothing."""
    assert len([line for line in LINES if line.startswith("replay") and "--tolerance" in line]) == 1
    assert len([line for line in LINES if line.startswith("conform")]) >= 2
