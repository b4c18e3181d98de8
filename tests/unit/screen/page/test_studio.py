"""MuJoCo's viewer: what it is given to draw."""

import copy
import json
import socket
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np

from spreeze_zmq.screen.page.studio import with_endless_floors


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
from websockets.sync.client import unix_connect
from spreeze_zmq.screen.page.studio import Studio

logs, sockets = map(Path, sys.argv[1:])
viewer = Studio(gymnasium.make("HalfCheetah-v5").unwrapped.model, logs, sockets)

def say():
    for _ in range(200):
        time.sleep(0.1)
        connections = psutil.Process().net_connections("tcp")
        if sum(one.status == "ESTABLISHED" for one in connections) == 2:
            break
    print(json.dumps([(one.status, one.laddr, one.raddr) for one in connections]), flush=True)

say()
sys.stdin.readline()
with unix_connect(str(sockets / "viewer"), uri="ws://viewer/ui?sid=one", compression=None):
    say()
"""


def test_the_viewers_own_port_is_for_its_threads_alone(tmp_path):
    """It knows no token: strangers are hung up on. A browser that comes has the panels connect once more.

    In a process of its own: two viewers in one crash.
    """
    folders = [tmp_path / "logs", tmp_path / "sockets"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", VIEWER, *map(str, folders)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as viewer:
        before = said_by(viewer)
        [address] = [own for status, own, _ in before if status == "LISTEN"]
        for _ in range(3):
            with socket.create_connection(tuple(address), timeout=10) as stranger:
                assert stranger.recv(1) == b""
        viewer.stdin.write("\n")
        viewer.stdin.flush()
        after = said_by(viewer)
        viewer.kill()
    # both ends of the panels' connection, another one for the browser
    ports = [{own[1] for status, own, _ in each if status == "ESTABLISHED"} for each in (before, after)]
    assert [len(each) for each in ports] == [2, 2]
    assert ports[0] & ports[1] == {address[1]}


def said_by(viewer):
    """The connections of the viewer's process: status, own address, the other's."""
    while not (line := viewer.stdout.readline()).startswith("[["):
        assert line, "the viewer ended"
    return json.loads(line)
