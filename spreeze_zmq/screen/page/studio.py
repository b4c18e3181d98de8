"""MuJoCo's web viewer behind the page's own port: the browser draws the model, this side streams its state.

The viewer checks neither tokens nor origins and would listen on every interface. So it gets a unix socket in
a folder that only the user can enter, and this module forwards its files, its model and its two streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes
import http.client
import os
import socket
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import psutil
from mujoco.studio import launch_web, messages, plugin, viewer_protocol, web_viewer
from numpy.typing import NDArray
from websockets.asyncio.client import unix_connect
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Response

from spreeze_zmq.screen.page.delivery import exchange

#: The streams that are forwarded; the viewer's ``drop`` would accept a stranger's model.
STREAMS = ("state", "ui")
FORWARDED = ("Content-Type", "Cache-Control")
#: Content security policy; the viewer's page generates scripts at run time.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; worker-src 'self' blob:; "
    "connect-src 'self' blob: data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
PR_SET_TIMERSLACK = 29
#: The viewer's thread for panels wakes 2,700 times a second and takes 5 % of a core. No panels are shown, and
#: with a longer timer slack it wakes less often.
USUAL_SLACK_NS, LONG_SLACK_NS = 50_000, 4_000_000
#: Frames a second of the viewer while nobody watches.
RESTING_PER_S = 5.0
STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


def set_timer_slack(nanoseconds: int) -> None:
    """Set how late the calling thread may wake from a sleep; threads that it starts inherit the value."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0)


class FollowingCamera(plugin.ViewerPlugin):  # type: ignore[misc]
    """Shows the whole model, and follows a body that can travel.

    Attributes:
        per_s: frames a second of the viewer.
    """

    def __init__(self) -> None:
        self.per_s = RESTING_PER_S

    @messages.handler  # type: ignore[untyped-decorator]
    def on_init(self, event: viewer_protocol.ViewerInitEvent) -> None:
        """Slow the viewer's loop down to ``per_s``; by itself it makes 60 frames a second at all times."""
        prepare = event.viewer.prepare_next_frame
        due_s = time.monotonic()

        def prepare_when_due() -> Any:
            nonlocal due_s
            due_s = max(due_s + 1.0 / self.per_s, time.monotonic() - 0.1)
            time.sleep(max(0.0, due_s - time.monotonic()))
            set_timer_slack(LONG_SLACK_NS)
            ready = prepare()
            set_timer_slack(USUAL_SLACK_NS)
            return ready

        event.viewer.prepare_next_frame = prepare_when_due

    @messages.handler  # type: ignore[untyped-decorator]
    def on_model(self, event: messages.PostModelEvent) -> None:
        """Set the camera for a new model."""
        model, camera = event.model, self.viewer.camera
        travels = model.nbody > 1 and model.body_dofnum[1] > 0 and not _is_a_cart(model)
        camera.azimuth, camera.elevation = 90.0, -15.0
        if travels:
            camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            camera.trackbodyid = 1
            camera.distance = 1.6 * _height(model)
        else:
            camera.type = mujoco.mjtCamera.mjCAMERA_FREE
            camera.lookat[:] = model.stat.center
            camera.distance = 1.6 * model.stat.extent


def _is_a_cart(model: Any) -> bool:
    """Whether the first body moves along a bounded rail, as a pendulum's cart does."""
    return bool(model.jnt_limited[model.body_jntadr[1]])


def _height(model: Any) -> float:
    """The size of the moving parts, from the bodies' distances to the first one, without floor and sky."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    reach = np.linalg.norm(data.xipos[1:] - data.xipos[1], axis=1).max(initial=0.0)
    return float(max(2.2 * reach, 1.2))


def with_endless_floors(model: Any) -> Any:
    """A copy with infinite planes: a trained runner leaves the 40 m of its model's floor."""
    model = copy.copy(model)
    model.geom_size[model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE, :2] = 0.0
    return model


class Studio:
    """The viewer of one model; a process can have only one.

    Args:
        model: the MjModel.
        logs: folder of MuJoCo's log; becomes the process's working directory.
        sockets: a folder that only the user can enter, for the viewer's socket.
    """

    def __init__(self, model: Any, logs: Path, sockets: Path) -> None:
        model = with_endless_floors(model)
        self._model, self._data = model, mujoco.MjData(model)
        self._path = str(sockets / "viewer")
        Path(self._path).unlink(missing_ok=True)  # left by a process that was killed
        self._camera = FollowingCamera()
        os.chdir(logs)
        with self._own_sockets():
            self._handle = launch_web.launch(
                viewer_protocol.ViewerConfig(gfx="web", open_browser=False), plugins=[self._camera]
            )
            self._handle.set_model(model)
            self._listening.wait(10.0)

    @contextlib.contextmanager
    def _own_sockets(self) -> Any:
        """Make the viewer start with sockets that no stranger can reach, and print no address."""
        self._listening = threading.Event()
        server = web_viewer.web_server
        kept = server.bind_public_socket, server.bind_loopback_socket, web_viewer._print_url_banner
        server.bind_public_socket = lambda *_: _listening_at(self._path)
        server.bind_loopback_socket = lambda *_: _ForOwnThreads()
        web_viewer._print_url_banner = lambda *_: self._listening.set()
        try:
            yield
        finally:
            server.bind_public_socket, server.bind_loopback_socket, web_viewer._print_url_banner = kept

    def move(
        self,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
        step_s: float,
        until_s: float,
        per_s: float,
    ) -> None:
        """Stream the motion between two positions ``[nq]``, and return at ``until_s``.

        Args:
            before: positions before the step.
            after: positions after the step.
            step_s: duration of the step in seconds.
            until_s: end of the step on the monotonic clock.
            per_s: states a second.
        """
        self._camera.per_s = per_s
        num = max(1, round(step_s * per_s))
        velocity = np.zeros(self._model.nv)
        mujoco.mj_differentiatePos(self._model, velocity, 1.0, before, after)
        for k in range(1, num + 1):
            self._data.qpos[:] = before
            mujoco.mj_integratePos(self._model, self._data.qpos, velocity, k / num)
            state = np.empty(mujoco.mj_stateSize(self._model, STATE))
            mujoco.mj_getState(self._model, self._data, state, STATE)
            self._handle.send_to_viewer(messages.StateSnapshot(state=state, state_sig=int(STATE)))
            time.sleep(max(0.0, until_s - (num - k) * step_s / num - time.monotonic()))

    def rest(self) -> None:
        """Slow down, since nobody watches any more."""
        self._camera.per_s = RESTING_PER_S

    # --- what browsers request

    async def fetch(self, path: str) -> Response | None:
        """A file of the viewer, or its model."""
        status, kind, body = await asyncio.to_thread(self._get, path)
        if path.partition("?")[0] == "index.html":
            text = body.decode().replace('return "/model"', 'return "model"')
            body = text.replace("<head>", '<head><script src="../viewer.js"></script>', 1).encode()
        headers = Headers({**kind, "Content-Length": str(len(body)), "Connection": "close"})
        headers["Content-Security-Policy"] = POLICY
        for name in ("Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy"):
            headers[name] = "same-origin"
        headers["Cross-Origin-Embedder-Policy"] = "require-corp"
        return Response(status, HTTPStatus(status).phrase, headers, body)

    def _get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("viewer", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(self._path)
        try:
            connection.request("GET", f"/{path}")
            answer = connection.getresponse()
            kind = {name: value for name in FORWARDED if (value := answer.getheader(name)) is not None}
            return answer.status, kind, answer.read()
        finally:
            connection.close()

    async def connect(self, path: str, visitor: ServerConnection) -> None:
        """One of the viewer's streams, in both directions.

        Raises:
            ConnectionClosed: an end has gone meanwhile.
            TimeoutError: one takes nothing.
        """
        if path.partition("?")[0] not in STREAMS:
            return
        async with unix_connect(
            self._path, f"ws://viewer/{path}", compression=None, ping_interval=None, max_size=2**24
        ) as viewer:
            await exchange(visitor, viewer)


def _listening_at(path: str) -> socket.socket:
    """A unix socket in place of the port for browsers."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own.bind(path)
    own.listen(16)
    return own


class _ForOwnThreads(socket.socket):
    """A loopback port that accepts connections of this process only; others are closed at once.

    The viewer draws its panels in a thread of its own, which opens a connection for each browser.
    """

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.bind(("127.0.0.1", 0))
        self.listen(4)

    def accept(self) -> Any:
        """The next connection of this process.

        Raises:
            BlockingIOError: there is none, or it was a stranger's; the viewer waits for the next one.
        """
        accepted, address = super().accept()
        both_ends = (address, self.getsockname())
        if any((one.laddr, one.raddr) == both_ends for one in psutil.Process().net_connections("tcp4")):
            return accepted, address
        accepted.close()
        raise BlockingIOError
