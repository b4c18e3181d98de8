"""Output whose reader has left, as ``| head -1`` does."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ("launch", "--list"),
        ("launch", "--help"),
        ("spreeze", "runs", "."),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_left_is_no_error(words, tmp_path):
    """No traceback, also where all of the output fits into the buffer that is flushed at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = (sys.executable, "-m", f"spreeze_zmq.commands.{words[0]}", *words[1:])
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")
