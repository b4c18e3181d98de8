"""Draws pictures of a MuJoCo model without a display."""

from __future__ import annotations

import importlib
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.evaluation.video.recorder import choose_gl

#: Effects that are switched off: without them a picture takes a quarter of the time in software.
COSTLY = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
#: Most shapes in a picture.
MAX_GEOMS = 10_000


class Camera:
    """The model's own first camera, or one that follows its first body if it has none.

    Args:
        model: the MjModel.
        width: of the pictures, even.
        height: of the pictures, even.

    Raises:
        InputError: OpenGL does not work without a display here.
    """

    def __init__(self, model: Any, width: int, height: int) -> None:
        self._model, self._data = model, mujoco.MjData(model)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, height)
        # mujoco.Renderer would use the OpenGL that MUJOCO_GL named when mujoco was imported.
        self._gl = importlib.import_module(f"mujoco.{choose_gl()}").GLContext(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene, self._option = mujoco.MjvScene(model, MAX_GEOMS), mujoco.MjvOption()
        for flag in COSTLY:
            self._scene.flags[flag] = 0
        if model.ncam:
            self._view = mujoco.MjvCamera()
            self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        else:
            self._view = following(model)
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._upside_down = np.empty((height, width, 3), np.uint8)

    def picture(self, qpos: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The picture ``[height, width, 3]`` uint8 at the positions ``qpos`` ``[nq]``."""
        self._data.qpos[:] = qpos
        mujoco.mj_fwdPosition(self._model, self._data)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            self._model, self._data, self._option, None, self._view, everything, self._scene
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._upside_down, None, self._rectangle, self._context)
        return self._upside_down[::-1].copy()

    def close(self) -> None:
        """Free the OpenGL context."""
        self._context.free()
        self._gl.free()


def following(model: Any) -> Any:
    """A camera that shows the whole model, and follows its first body if that moves freely."""
    view = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, view)
    # As integers: MuJoCo's own equal none of NumPy.
    free = {int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
    if model.njnt and int(model.jnt_type[0]) in free and not model.jnt_limited[0]:
        view.type, view.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, model.jnt_bodyid[0]
    return view
