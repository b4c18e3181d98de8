"""Tests as another user, whom the modes of files concern; they do not concern root."""

import contextlib
import os

import pytest

#: A user who is neither root nor anybody else.
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@contextlib.contextmanager
def without_rights():
    """As ``NOBODY`` where this process is root's: a folder with mode 0 is closed for either."""
    was_root = os.geteuid() == 0
    if was_root:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        if was_root:
            os.setresuid(0, 0, 0)
