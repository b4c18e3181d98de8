"""The package as an interactive Python shows it."""

import configparser
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import spreeze_zmq


def test_the_names_that_are_imported_late_are_listed_too():
    """For tab completion and ``from spreeze_zmq import *``, without importing torch for it."""
    assert set(spreeze_zmq.__all__) == {"Callback", "Policy", "Run", "__version__", "train"}
    assert set(spreeze_zmq.__all__) <= set(dir(spreeze_zmq))
    for name in spreeze_zmq.__all__:
        assert getattr(spreeze_zmq, name) is not None
    code = "import sys, spreeze_zmq; "
    code += "print(set(spreeze_zmq.__all__) <= set(dir(spreeze_zmq)), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True False\n"


def test_what_draws_classic_control_is_what_gymnasium_asks_for():
    """Of two packages that are imported by one name, either overwrites the other."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    lines = [line for line in metadata.requires("gymnasium") if "classic-control" in line]
    asked, ours = (
        {re.match(r"[\w.-]+", line)[0] for line in each}
        for each in (lines, setup["options"]["install_requires"].split())
    )
    assert asked
    assert asked <= ours
