"""The lines of a README are understood as they are meant."""

import re
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.commands import conform, replay, spreeze
from spreeze_zmq.plan import topology

ROOT = Path(__file__).parents[3]
README = ROOT / "components" / "README.md"
LINES = re.findall(r"^    spreeze ((?:replay|conform) .*?)(?: {2,}#.*)?$", README.read_text(), re.MULTILINE)
BLOCKS = re.findall(r"(?:^    .*\n|^\n(?=    ))+", (ROOT / "launch" / "README.md").read_text(), re.MULTILINE)
TABLES = [
    textwrap.dedent(block).strip() for block in BLOCKS if re.search(r"^    \[[a-z]+\]", block, re.MULTILINE)
]


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


def fits(tables, algorithm):
    """Whether a topology that has these tables trains with an algorithm."""
    run = {"env": "Pendulum-v1", "algorithm": algorithm, "stop": {"env_steps": 300_000}}
    try:
        topology.load({**tables, "run": {**run, **tables.get("run", {})}})
    except TopologyError:
        return False
    return True


@pytest.mark.parametrize("block", [block for block in TABLES if "[data." not in block])
def test_the_tables_of_a_block_stand_together(block):
    """Some shipped algorithm takes all of them as they are printed; those of data need their datasets."""
    tables = tomllib.loads(block)
    assert any(fits(tables, algorithm) for algorithm in algorithms.names())


def test_blocks_that_set_options_are_found():
    """Else the test above would prove nothing."""
    assert len([block for block in TABLES if block.startswith("[algorithm]")]) >= 3
