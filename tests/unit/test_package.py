"""The package as an interactive Python shows it."""

import subprocess
import sys

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
