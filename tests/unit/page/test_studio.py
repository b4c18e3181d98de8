"""MuJoCo's viewer: what it is given to draw."""

import copy
import json
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np

from spreeze_zmq.page.studio import with_endless_floors


def test_a_runner_never_leaves_the_floor_that_is_drawn():
    """Infinite where it was 40 m, elsewhere as it was; the environment's own model stays as it is."""
    model = gymnasium.make("HalfCheetah-v5").unwrapped.model
    before = copy.copy(model)
    drawn = with_endless_floors(model)
    floor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "floor")
    others = np.arange(model.ngeom) != floor
    assert before.geom_size[floor, 0] == 40.0
    np.testing.assert_array_equal(drawn.geom_size[floor, :2], 0.0)  # MuJoCo's word for a plane without end
    np.testing.assert_array_equal(drawn.geom_size[others], before.geom_size[others])
    np.testing.assert_array_equal(model.geom_size, before.geom_size)


VIEWER = """
import json, sys, time
from pathlib import Path
import gymnasium, psutil
from spreeze_zmq.page.studio import Studio

viewer = Studio(gymnasium.make("HalfCheetah-v5").unwrapped.model, *map(Path, sys.argv[1:]))
time.sleep(1.0)
sockets = [(one.laddr.port, one.status) for one in psutil.Process().net_connections("tcp")]
print(json.dumps(sockets), flush=True)
"""


def test_the_viewer_leaves_no_port_open(tmp_path):
    """Its panels' port knows no token. In a process of its own: two viewers in one crash."""
    folders = [tmp_path / "logs", tmp_path / "sockets"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", VIEWER, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = [status for _, status in json.loads(done.stdout.splitlines()[-1])]
    assert found == ["ESTABLISHED", "ESTABLISHED"]  # both ends of the panels' connection, in this process
