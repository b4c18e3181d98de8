"""Shows the agent in a window: MuJoCo's viewer, or the environment's own window."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.evaluation.stage import ShownEpisode, Stage, open_stage, steps_per_s
from spreeze_zmq.plan.plan import FILM
from spreeze_zmq.policy import Policy

#: Longest wait for the viewer's threads to end.
VIEWER_ENDS_S = 5.0


def show(
    policy: Policy, spec: EnvironmentSpec, *, episodes: int = 1, seed: int = 0, speed: float = 1.0
) -> Iterator[ShownEpisode]:
    """Play deterministic episodes in a window until it is closed; yields each episode at its end.

    Args:
        policy: acts.
        spec: of the environment.
        episodes: number of episodes, one after another.
        seed: episode ``i`` begins with ``seed + i``.
        speed: multiple of the environment's own speed.

    Raises:
        InputError: there is no display, or no window for this environment.
    """
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise InputError(
            "there is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set); write a "
            "video instead: --video FILE.mp4"
        )
    stage = open_stage(spec, FILM)
    if stage.model is None:
        stage.env.close()
        stage = _own_window(spec)
    with closing(stage.env):
        yield from (
            _in_viewer(stage, policy, episodes, seed, speed)
            if stage.model is not None
            else _played(stage, policy, episodes, seed, keeps_pace(stage, speed))
        )


def _own_window(spec: EnvironmentSpec) -> Stage:
    """The environment with ``render_mode="human"``, which draws itself."""
    drawn = replace(spec, kwargs={**spec.kwargs, "render_mode": "human"})
    env = envs.remade(drawn, 1, backend="gymnasium", step_info=False, first_index=FILM)
    return Stage(env, 1.0 / steps_per_s(env.metadata))


def keeps_pace(stage: Stage, speed: float) -> Callable[[], bool]:
    """Makes the environment, or another one after it has failed, draw itself at this speed."""
    per_s = max(1, round(speed / stage.step_s))

    def keep_pace() -> bool:
        own = stage.env.envs[0].unwrapped
        metadata = own.metadata or {}
        if metadata.get("render_fps") != per_s:
            own.metadata = {**metadata, "render_fps": per_s}
        return True

    return keep_pace


def _in_viewer(
    stage: Stage, policy: Policy, episodes: int, seed: int, speed: float
) -> Iterator[ShownEpisode]:
    import mujoco
    import mujoco.viewer

    from spreeze_zmq.evaluation.video.camera import following

    data, threads = mujoco.MjData(stage.model), set(threading.enumerate())
    assert stage.qpos is not None
    qpos, due_s = stage.qpos, time.monotonic()
    with mujoco.viewer.launch_passive(stage.model, data, show_left_ui=False, show_right_ui=False) as viewer:
        view = following(stage.model)
        for name in ("type", "trackbodyid", "distance", "azimuth", "elevation"):
            setattr(viewer.cam, name, getattr(view, name))

        def draw() -> bool:
            nonlocal due_s
            with viewer.lock():
                data.qpos[:] = qpos()
                mujoco.mj_fwdPosition(stage.model, data)
            viewer.sync()
            due_s = max(due_s + stage.step_s / speed, time.monotonic() - 0.1)
            time.sleep(max(0.0, due_s - time.monotonic()))
            return bool(viewer.is_running())

        yield from _played(stage, policy, episodes, seed, draw)
    for thread in set(threading.enumerate()) - threads:  # the viewer's must not draw after this process ends
        thread.join(VIEWER_ENDS_S)


def _played(
    stage: Stage, policy: Policy, episodes: int, seed: int, draw: Callable[[], bool]
) -> Iterator[ShownEpisode]:
    for number in range(episodes):
        episode = ShownEpisode(stage, policy, seed + number)
        for _ in episode.moments():
            if not draw():
                return
        yield episode
