"""What is taken away from a run: videos and exported policies, read by the programs that others use."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import onnxruntime
import psutil
import pytest

import spreeze_zmq
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.evaluation.export.files import random_observations
from spreeze_zmq.evaluation.video.films import VideoSchedule
from spreeze_zmq.evaluation.video.recorder import choose_gl
from spreeze_zmq.run.folder import RunFolder
from tests.system.conftest import reached

pytestmark = pytest.mark.timeout(700)  # whichever is first waits for the run that is shared
SPREEZE = (sys.executable, "-m", "spreeze_zmq.commands.spreeze")


def spreeze(*arguments, **environment):
    """Run a command without a display; returns its exit code, output and errors."""
    hidden = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    command = [*SPREEZE, *map(str, arguments)]
    done = subprocess.run(command, env={**hidden, **environment}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def probed(path):
    """What ffprobe says of a video's picture stream, and one decoded picture ``[height, width, 3]``."""
    if not shutil.which("ffprobe"):
        pytest.skip("there is no ffprobe: apt install ffmpeg")
    entries = "stream=codec_name,width,height,r_frame_rate,nb_read_frames,pix_fmt,duration"
    ffprobe = ["ffprobe", "-v", "error", "-count_frames", "-show_entries", entries, "-of", "json", path]
    said = subprocess.run(ffprobe, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    (stream,) = json.loads(said.stdout)["streams"]
    decode = ["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(decode, capture_output=True, check=True).stdout
    return stream, np.frombuffer(raw, np.uint8).reshape(-1, stream["height"], stream["width"], 3)


def test_a_video_of_a_pendulum(trained, tmp_path):
    """Drawn by pygame without a display: a whole episode at twice its speed, standing upright at the end."""
    path = tmp_path / "pendulum.mp4"
    code, output, errors = spreeze("play", trained.folder, "--video", path, "--speed", 2, "--seed", 3)
    assert (code, errors) == (0, "")
    assert f"{path}: 500x500, 201 pictures, 60 a second, 3.4 s" in output
    stream, pictures = probed(path)
    assert (stream["codec_name"], stream["pix_fmt"], stream["r_frame_rate"]) == ("h264", "yuv420p", "60/1")
    assert (stream["width"], stream["height"], stream["nb_read_frames"]) == (500, 500, "201")
    red = pictures[-1, :, :, 0].astype(int) - pictures[-1, :, :, 1] > 60
    assert red[:250].sum() > 5 * red[250:].sum()


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_video_of_a_trained_halfcheetah(tmp_path):
    """Drawn by MuJoCo without a display: it runs, and the camera goes with it."""
    run = spreeze_zmq.train(
        topology="halfcheetah",
        stop={"return": 300.0, "minutes": 3.0},
        components={"evaluator": {"episodes": 2, "confirm_episodes": 2, "cost_share": 0.2}},
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert reached(run.summary, 300)
    try:
        choose_gl()
    except InputError as error:
        pytest.skip(str(error))
    path = tmp_path / "cheetah.mp4"
    code, output, errors = spreeze("play", run.folder, "--video", path, "--seconds", 2)
    assert (code, errors) == (0, "")
    assert f"{path}: 480x360, 40 pictures, 20 a second, 2.0 s" in output
    stream, pictures = probed(path)
    assert (stream["codec_name"], stream["pix_fmt"], stream["r_frame_rate"]) == ("h264", "yuv420p", "20/1")
    assert (stream["width"], stream["height"], stream["nb_read_frames"]) == (480, 360, "40")
    assert float(stream["duration"]) == pytest.approx(2.0)
    assert np.abs(np.diff(pictures.astype(int), axis=0)).mean((1, 2, 3)).min() > 0.1  # every picture moves
    skin = pictures[..., 0].astype(int) - pictures[..., 2] > 40
    assert skin.mean((1, 2)).min() > 0.005  # and shows the robot


@pytest.mark.thorough
def test_videos_at_stated_steps(trained, tmp_path):
    """Of the best policy that there is then, by a process that yields; a given up one leaves no file."""
    assert [path.name for path in (trained.folder / "videos").glob("*.safetensors")] == ["1.safetensors"]
    folder = RunFolder.create("run", str(tmp_path / "run"))
    videos = VideoSchedule(folder, [900, 500], tmp_path, ())
    videos.reached(600)  # nothing is evaluated yet
    assert not (folder.path / "videos").exists()
    shutil.copy(trained.folder / "policy.safetensors", folder.best_policy)
    others = psutil.Process().children()

    def writers():
        return [child for child in psutil.Process().children() if child not in others]

    videos.reached(600)
    assert [writer.nice() for writer in writers()] == [19]
    path, until_s = folder.path / "videos" / "500.mp4", time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until_s, (folder.logs / "videos.log").read_text()
        videos.reached(600)
        time.sleep(0.05)
    stream, _ = probed(path)
    assert stream["nb_read_frames"] == "201"
    while writers():
        videos.reached(600)
        assert time.monotonic() < until_s
    videos.reached(1000)
    assert len(writers()) == 1
    videos.close()
    assert not writers()
    names = sorted(path.name for path in (folder.path / "videos").iterdir())
    assert names == ["500.mp4", "500.safetensors", "900.safetensors"]


@pytest.mark.long("torch's exporter and onnxruntime are loaded")
def test_the_command_exports_what_it_says(trained, tmp_path, capsys):
    """1,000 observations in onnxruntime, which knows nothing of this package."""
    path = tmp_path / "pendulum.onnx"
    arguments = ("--onnx", str(path), "--torchscript", str(tmp_path / "pendulum.pt"))
    assert main(["export", str(trained.folder), *arguments]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert f"{path}: obs float32 [batch, 3] to action; on 1000 random observations at most" in output
    assert len(output.splitlines()) == 2
    obs = random_observations(trained.policy, 1000, "float32", seed=9)
    (action,) = onnxruntime.InferenceSession(path).run(None, {"obs": obs})
    np.testing.assert_allclose(action, trained.policy(obs), rtol=0, atol=2e-5)


#: The command and its arguments after RUN, and words of the one line.
MISTAKES = {
    "no display": (["play"], "there is no display to open a window on"),
    "no episode": (["play", "--episodes", "0"], "--episodes 0: expected at least 1"),
    "no speed": (["play", "--speed", "0"], "--speed 0.0: expected more than 0"),
    "no suffix": (["play", "--video", "pendulum.avi"], "a video's file ends in .mp4"),
    "no folder": (["play", "--video", "none/pendulum.mp4"], "there is no folder none"),
    "nothing to write": (["export"], "give --onnx FILE, --torchscript FILE or both"),
    "no place": (["export", "--onnx", "none/p.onnx"], "there is no folder none"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case, trained, monkeypatch, capsys):
    """Which says how to mend it."""
    (command, *arguments), message = MISTAKES[case]
    for display in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(display, raising=False)
    assert main([command, str(trained.folder), *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"spreeze {command}: ")
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_machine_without_opengl_names_the_package(monkeypatch):
    """EGL without any driver."""
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/none")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(
        InputError, match=r"cannot draw without a display here.*apt install libegl1"
    ) as raised:
        choose_gl()
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.skipif(not shutil.which("Xvfb"), reason="there is no Xvfb: apt install xvfb")
def test_a_window_shows_whole_episodes(trained, tmp_path):
    """On a real X server, which has no screen."""
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "800x600x24"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    try:
        os.close(write)
        display = os.read(read, 16).decode().strip()
        arguments = ("play", trained.folder, "--speed", "20", "--episodes", "2")
        code, output, errors = spreeze(*arguments, DISPLAY=f":{display}")
    finally:
        os.close(read)
        server.terminate()
        server.wait(30)
    assert (code, [line[:9] for line in output.splitlines()]) == (0, ["episode 0", "episode 1"]), errors
