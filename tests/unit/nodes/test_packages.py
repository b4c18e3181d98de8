"""Which releases two machines must have in common."""

from dataclasses import replace

import pytest

from spreeze_zmq.nodes.packages import difference, installed
from spreeze_zmq.plan import topology


@pytest.mark.parametrize("key", ["env", "algorithm"])
def test_the_packages_of_a_users_own_modules_are_compared(key):
    """Of the algorithm as of the environment: the code of both runs there."""
    plan = topology.load("pendulum")
    own = replace(plan, run=replace(plan.run, **{key: "msgpack.of:Mine"}))
    older = {**installed(), "msgpack": "0.1"}
    assert difference(plan, installed(), older) == ""
    assert "it has msgpack 0.1, the run " in difference(own, installed(), older)
    without = {name: version for name, version in installed().items() if name != "msgpack"}
    assert "it has no msgpack" in difference(own, installed(), without)
