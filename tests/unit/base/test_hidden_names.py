"""A user's file by the name of one of Python's own modules is never imported."""

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.callbacks.named import kind_of
from spreeze_zmq.envs.source import find


@pytest.mark.parametrize("named", [algorithms.get, kind_of, find])
@pytest.mark.parametrize("module", ["sched", "queue", "xml.dom"])
def test_a_file_that_python_hides_is_named(named, module):
    """For an algorithm, a callback and an environment: who named it believes that it was read."""
    with pytest.raises(SpreezeError, match=f"; {module} is one of Python's own, which hides a file of that"):
        named(f"{module}:Mine")
