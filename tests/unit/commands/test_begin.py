"""A command ends with its exit code, whatever the user's code has left running."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_that_an_environment_leaves_keeps_no_command(daemon):
    """What was printed is shown, and what is registered for the end is done."""
    code = (
        "import atexit, sys, threading, time; from spreeze_zmq.commands.begin import leave\n"
        f"threading.Thread(target=time.sleep, args=(1000,), daemon={daemon}).start()\n"
        "atexit.register(print, 'and goodbye')\n"
        "print('done'); sys.exit(leave(3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nand goodbye\n", "")
