"""Videos of a policy at work, written without a display."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.errors import InputError
from spreeze_zmq.page.stage import Stage, open_stage
from spreeze_zmq.policy import Policy
from spreeze_zmq.video.episode import Episode
from spreeze_zmq.video.gl import PACKAGES, choose_gl

#: Of pictures of MuJoCo models; other environments draw in a size of their own.
WIDTH, HEIGHT = 480, 360
#: Most pictures a second of a video; an environment of finer steps is shown at every second one, and so on.
MAX_FPS = 60.0
#: What pygame is to use in place of a window and of loudspeakers.
HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


@dataclass(frozen=True)
class Recording:
    """What a video shows.

    Attributes:
        path: of the file.
        size: width and height.
        fps: pictures a second.
        num_frames: pictures.
        returns: of each episode, as far as it was played.
        lengths: steps of each episode.
    """

    path: Path
    size: tuple[int, int]
    fps: float
    num_frames: int
    returns: list[float]
    lengths: list[int]


def record(
    policy: Policy,
    spec: EnvironmentSpec,
    path: Path | str,
    *,
    episodes: int = 1,
    seed: int = 0,
    speed: float = 1.0,
    max_s: float | None = None,
) -> Recording:
    """Play whole deterministic episodes and write them to an MP4 file (H.264), whole or not at all.

    Args:
        policy: acts.
        spec: of the environment.
        path: of the file, ending in ``.mp4``.
        episodes: how many, one after another.
        seed: episode ``i`` begins with ``seed + i``.
        speed: times the environment's own.
        max_s: seconds of video after which it ends.

    Raises:
        InputError: there is no encoder, nothing to see, no OpenGL for MuJoCo, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".mp4":
        raise InputError(f"{path}: a video's file ends in .mp4")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    os.environ.update({name: value for name, value in HEADLESS.items() if name not in os.environ})
    with _drawing(spec) as (stage, draw), _encoder(path) as begin:
        every = max(1, math.ceil(speed / (stage.step_s * MAX_FPS) - 1e-6))
        fps = speed / (stage.step_s * every)
        most = None if max_s is None else max(1, round(max_s * fps))
        returns, lengths, num = [], [], 0
        size, write = (0, 0), None
        for number in range(episodes):
            episode = Episode(stage, policy, seed + number)
            for _ in episode.moments():
                if episode.steps % every:
                    continue
                picture = np.ascontiguousarray(draw()[..., :3])
                if write is None:
                    size = (picture.shape[1], picture.shape[0])
                    write = begin(size, fps)
                write(picture)
                num += 1
                if num == most:
                    break
            returns.append(episode.total)
            lengths.append(episode.steps)
            if num == most:
                break
    return Recording(path, size, fps, num, returns, lengths)


@contextlib.contextmanager
def _drawing(spec: EnvironmentSpec) -> Iterator[tuple[Stage, Callable[[], NDArray[np.uint8]]]]:
    """The environment, and what draws it."""
    if os.environ.get("MUJOCO_GL", "") in PACKAGES:
        choose_gl()  # or else importing MuJoCo would fail with a traceback
    stage = open_stage(spec)
    with closing(stage.env):
        if stage.model is None and stage.draw is None:
            raise InputError(f"there is nothing to see: {stage.why_not}")
        if stage.draw is not None:
            yield stage, stage.draw
            return
        from spreeze_zmq.video.camera import Camera

        qpos = stage.qpos
        assert qpos is not None
        with closing(Camera(stage.model, WIDTH, HEIGHT)) as camera:
            yield stage, lambda: camera.picture(qpos())


@contextlib.contextmanager
def _encoder(path: Path) -> Iterator[Callable[[tuple[int, int], float], Callable[[Any], Any]]]:
    """Begins a file, given size and pictures a second; the file takes its place when all is written."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise InputError(
            "videos need imageio-ffmpeg, which is not installed: pip install 'spreeze_zmq[video]'"
        ) from None
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    with contextlib.ExitStack() as stack:

        def begin(size: tuple[int, int], fps: float) -> Callable[[Any], Any]:
            writer = imageio_ffmpeg.write_frames(
                str(partial), size, fps=fps, macro_block_size=2, ffmpeg_log_level="error"
            )
            stack.callback(writer.close)
            writer.send(None)
            send: Callable[[Any], Any] = writer.send
            return send

        try:
            yield begin
            stack.close()
            partial.replace(path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}") from error
        finally:
            stack.close()
            partial.unlink(missing_ok=True)
