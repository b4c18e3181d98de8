"""What all shipped algorithms promise."""

import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.schema import options_of

IMPORTS = """
import importlib, sys
for name in {kinds}:
    module, _, name = name.partition(":")
    kind = getattr(importlib.import_module("spreeze_zmq.algorithms." + module), name)
    kind.Options(), kind.fields_of("critic"), kind.has_policy_loss()
    print(name, "torch" in sys.modules)
"""


def test_importing_a_shipped_algorithm_costs_no_torch():
    """Its options and what it can act in are read by launchers and samplers."""
    kinds = ["sac:SAC", "td3:TD3", "dqn:DQN", "pqn:PQN", "ppo:PPO", "discrete_sac:DiscreteSAC"]
    code = [sys.executable, "-c", IMPORTS.format(kinds=kinds)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{each.partition(':')[2]} False" for each in kinds]


@pytest.mark.parametrize("name", algorithms.names())
def test_a_shipped_algorithm_is_at_most_200_lines(name):
    """As its readers were promised."""
    path = Path(algorithms.__file__).with_name(f"{name}.py")
    assert len(path.read_text().splitlines()) <= 200


@pytest.mark.parametrize("name", algorithms.names())
def test_every_option_says_what_it_is_for(name):
    """In one line, and its defaults are within its own limits."""
    options = algorithms.get(name).Options()
    assert len(options_of(type(options))) == len(type(options).__dataclass_fields__)
    for option in options_of(type(options)):
        assert option.help, option.name
