"""Writes videos of a policy at work, without a display, where MuJoCo needs an OpenGL that works so."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import check_output, output
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.evaluation.stage import ShownEpisode, Stage, open_stage
from spreeze_zmq.plan.plan import FILM
from spreeze_zmq.policy import Policy

#: Size of pictures of MuJoCo models; other environments draw in their own size.
WIDTH, HEIGHT = 480, 360
#: Most pictures per second; a video of an environment with finer steps skips some.
MAX_FPS = 60.0
#: What is said where the encoder is not installed.
NO_ENCODER = "videos need imageio-ffmpeg, which is not installed: pip install 'spreeze_zmq[video]'"
#: Makes pygame work without a window and loudspeakers.
HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
#: Backends of OpenGL -> the packages of Debian and Ubuntu that contain them.
PACKAGES = {"egl": "libegl1 libgl1-mesa-dri", "osmesa": "libosmesa6"}
#: Longest time to make a context, which usually takes a second; a broken driver may hang.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Video:
    """A video that was written.

    Attributes:
        path: of the file.
        size: width and height.
        fps: pictures per second.
        num_frames: number of pictures.
        episodes: as far as they were played.
    """

    path: Path
    size: tuple[int, int]
    fps: float
    num_frames: int
    episodes: list[ShownEpisode]


def record(
    policy: Policy,
    spec: EnvironmentSpec,
    path: Path | str,
    *,
    episodes: int = 1,
    seed: int = 0,
    speed: float = 1.0,
    max_s: float | None = None,
) -> Video:
    """Play deterministic episodes and write them to an MP4 file (H.264), which is complete or does not exist.

    Args:
        policy: acts.
        spec: of the environment.
        path: of the file, ending in ``.mp4``.
        episodes: number of episodes, one after another.
        seed: episode ``i`` begins with ``seed + i``.
        speed: multiple of the environment's own speed.
        max_s: longest duration of the video in seconds.

    Raises:
        InputError: there is no encoder, nothing to draw, no OpenGL for MuJoCo, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".mp4":
        raise InputError(f"{path}: a video's file ends in .mp4")
    check_output(path)
    file = path.absolute()  # an environment may change the folder
    os.environ.update({name: value for name, value in HEADLESS.items() if name not in os.environ})
    played: list[ShownEpisode] = []
    with _drawing(spec) as (stage, draw):
        every = max(1, math.ceil(speed / (stage.step_s * MAX_FPS) - 1e-6))
        fps = speed / (stage.step_s * every)
        most = None if max_s is None else max(1, round(max_s * fps))

        def pictures() -> Iterator[NDArray[np.uint8]]:
            for number in range(episodes):
                episode = ShownEpisode(stage, policy, seed + number)
                played.append(episode)
                for _ in episode.moments():
                    if episode.steps % every == 0 or episode.whole:
                        yield draw()

        shown = _of_one_size(spec.id, itertools.islice(pictures(), most))
        first, num = next(shown), 1
        size = (first.shape[1], first.shape[0])
        with _encoder(file, size, fps) as write:
            write(first)
            for picture in shown:
                write(picture)
                num += 1
    return Video(path, size, fps, num, played)


def _of_one_size(env_id: str, pictures: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    """The pictures. Raises InputError for one of another size than the first: the encoder checks none."""
    first = next(pictures)
    yield first
    for number, picture in enumerate(pictures, 1):
        if picture.shape != first.shape:
            (height, width, _), (high, wide, _) = picture.shape, first.shape
            raise InputError(
                f"{env_id}: render() drew picture {number} in {width}x{height} and the first in "
                f"{wide}x{high}; those of a video have one size"
            )
        yield picture


@contextlib.contextmanager
def _drawing(spec: EnvironmentSpec) -> Iterator[tuple[Stage, Callable[[], NDArray[np.uint8]]]]:
    """The environment and a function that draws it, ``[height, width, 3]`` uint8."""
    if os.environ.get("MUJOCO_GL", "") in PACKAGES:
        choose_gl()  # if it does not work, importing MuJoCo would fail with a traceback
    stage = open_stage(spec, FILM)
    with closing(stage.env):
        if stage.model is None and stage.draw is None:
            raise InputError(f"there is nothing to see: {stage.why_not}")
        if stage.draw is not None:
            yield stage, stage.draw
            return
        from spreeze_zmq.evaluation.video.camera import Camera

        qpos = stage.qpos
        assert qpos is not None
        with closing(Camera(stage.model, WIDTH, HEIGHT)) as camera:
            yield stage, lambda: camera.picture(qpos())


@contextlib.contextmanager
def _encoder(path: Path, size: tuple[int, int], fps: float) -> Iterator[Callable[[Any], Any]]:
    """A function that writes a picture to a new file, which appears at ``path`` when it is complete."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise InputError(NO_ENCODER) from None
    look: dict[str, Any] = {"fps": fps, "macro_block_size": 2, "ffmpeg_log_level": "error"}
    try:
        with (
            output(path) as temporary,
            closing(imageio_ffmpeg.write_frames(str(temporary), size, **look)) as writer,
        ):
            writer.send(None)
            yield writer.send
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error


def choose_gl() -> str:
    """A backend that works without a display: the one in ``MUJOCO_GL`` if that is one of ``PACKAGES``, else
    the first that can.

    Raises:
        InputError: none works; names the package to install.
    """
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    problems = []
    for name in (asked,) if asked in PACKAGES else tuple(PACKAGES):
        problem = _try(name)
        if not problem:
            return name
        problems.append(f"{name}: {problem}")
    wanted = PACKAGES[asked if asked in PACKAGES else "egl"]
    raise InputError(
        f"MuJoCo cannot draw without a display here ({'; '.join(problems)}); install what is missing: "
        f"apt install {wanted}"
    )


def _try(name: str) -> str:
    """Why a backend cannot make a context; empty if it can. Tried in another process, as a failure may crash
    or leave half-loaded libraries behind.
    """
    code = f"from mujoco.{name} import GLContext; context = GLContext(64, 64); context.make_current()"
    environment = {**os.environ, "MUJOCO_GL": name, "PYOPENGL_PLATFORM": name}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"hangs for {TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return ""
    words = [line for line in done.stderr.splitlines() if line[:1].strip() and ": " in line]
    return words[-1][:120] if words else f"ended with code {done.returncode}"
