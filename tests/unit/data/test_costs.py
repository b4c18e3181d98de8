"""What a run without data pays for it."""

import subprocess
import sys

PROGRAM = """
import sys
import spreeze_zmq.commands.launch, spreeze_zmq.learner
print([name for name in ("minari", "h5py") if name in sys.modules])
import spreeze_zmq.data
print([name for name in ("minari", "h5py", "gymnasium") if name in sys.modules])
"""


def test_a_run_without_data_imports_nothing_for_it():
    """Neither where it is launched nor in a learner."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
