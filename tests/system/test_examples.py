"""The examples that a newcomer reads first do what they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "components" / "examples"


def test_one_process_swings_the_pendulum_up():
    """SAC in a plain loop reaches its goal, and its last line says so."""
    command = [sys.executable, EXAMPLES / "sac_in_one_process.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert float(done.stdout.split()[-1]) >= -200.0
