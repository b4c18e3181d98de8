"""Videos at stated env steps, written by processes of their own."""

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spreeze_zmq.base.machine import program
from spreeze_zmq.evaluation.video import films
from spreeze_zmq.run.folder import RunFolder


def test_a_video_that_cannot_be_written_is_a_failure_of_the_run(tmp_path, monkeypatch):
    """By its env steps, with the last line of what its writer said; the next one is tried all the same."""
    code = "import sys; print('an earlier line'); print('videos need an encoder'); sys.exit(2)"
    monkeypatch.setattr(films, "WRITER", (sys.executable, "-c", code))
    folder, failures, made = RunFolder.create("run", str(tmp_path / "run")), [], []
    folder.best_policy.write_bytes(b"a policy")
    told = {"made": made.append, "failed": lambda *about: failures.append(about)}
    videos = films.VideoSchedule(folder, [1500, 2000], tmp_path, (), **told)
    until_s = time.monotonic() + 60
    while len(failures) < 2 and time.monotonic() < until_s:
        videos.reached(2500)
        time.sleep(0.05)
    videos.close()
    log = folder.logs / "videos.log"
    assert [summary for summary, _ in failures] == [
        f"the video at {steps} env steps failed: videos need an encoder ({log})"
        for steps in ("1,500", "2,000")
    ]
    assert "an earlier line" in failures[0][1]
    assert [path.name for path in made] == ["1500.safetensors", "2000.safetensors"]


def test_a_video_that_fails_last_is_named_too(tmp_path, monkeypatch):
    """When the run is over before anybody has looked again."""
    monkeypatch.setattr(films, "WRITER", (sys.executable, "-c", "import sys; sys.exit('no room')"))
    folder, failures = RunFolder.create("run", str(tmp_path / "run")), []
    folder.best_policy.write_bytes(b"a policy")
    told = {"failed": lambda *about: failures.append(about)}
    videos = films.VideoSchedule(folder, [1500], tmp_path, (), **told)
    videos.reached(1500)
    videos._writer.wait(30)
    videos.close()
    assert len(failures) == 1


@pytest.fixture
def schedule(tmp_path, monkeypatch):
    """Makes schedules of one run, whose best policy the test writes; a video is the bytes of its policy."""
    folder, said = RunFolder.create("run", str(tmp_path / "a run")), []

    def make(*steps, slow=0, trust=(), **about):
        code = f"import shutil, sys, time; shutil.copy(*sys.argv[1:3]); time.sleep({slow})"
        monkeypatch.setattr(films, "WRITER", (sys.executable, "-c", code))
        told = {"failed": lambda line, _: said.append(line), **about}
        return films.VideoSchedule(folder, steps, tmp_path, trust, **told)

    return make, folder, said


def shown(videos, folder, env_steps):
    """Let a schedule write what is due; the policy in each video, by its name."""
    videos.reached(env_steps)
    while videos._writer is not None or videos._waiting:
        videos.reached(env_steps)
        time.sleep(0.01)
    return {path.name: path.read_text() for path in sorted((folder.path / "videos").glob("*.mp4"))}


def test_a_video_is_of_the_policy_of_its_time_also_after_a_restart(schedule):
    """What was kept stays; a video that is missing is written from it."""
    make, folder, said = schedule
    folder.best_policy.write_text("early")
    expected = {"100.mp4": "early", "200.mp4": "early"}
    assert shown(make(100, 200, 900), folder, 300) == expected
    folder.best_policy.write_text("late")
    (folder.path / "videos" / "200.mp4").unlink()
    assert shown(make(100, 200, 900), folder, 500) == expected
    assert shown(make(100, 200, 900), folder, 900) == {**expected, "900.mp4": "late"}
    assert not said


def test_a_policy_that_was_kept_in_half_is_none_of_the_next_life(schedule, monkeypatch):
    """Its process was killed in the middle; the policy is kept once more, as it then is."""
    make, folder, said = schedule
    folder.best_policy.write_text("early")

    def copy_half(source, target):
        Path(target).write_text(Path(source).read_text()[:2])
        raise KeyboardInterrupt

    videos = make(100)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", copy_half)
        with pytest.raises(KeyboardInterrupt):
            videos.reached(100)
    folder.best_policy.write_text("late")
    assert shown(make(100), folder, 100) == {"100.mp4": "late"}
    assert not said


def test_a_run_that_goes_on_shows_nothing_of_what_the_one_before_has_shown(schedule):
    """Up to the checkpoint; what comes after is shown, however late the first status is, or the evaluator."""
    make, folder, _ = schedule
    folder.best_policy.write_text("late")
    videos = make(100, 300, 310, after=300)
    assert shown(videos, folder, 2400) == {"310.mp4": "late"}


def test_videos_that_the_end_of_a_run_abandons_are_named(schedule):
    """With the command that writes each from the policy that stays; a signal to the group of the evaluator is
    not for the one that writes, which would be gone before it is abandoned.
    """
    make, folder, said = schedule
    folder.best_policy.write_text("early")
    videos = make(1000, 2000, 9000, slow=60)
    videos.reached(2000)
    videos._writer.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        videos._writer.wait(0.5)
    videos.close()
    assert said == [
        f"the video at {steps:,} env steps is abandoned, as the run ends: "
        f"{program('spreeze')} play '{folder.path / 'videos' / str(steps)}.safetensors' "
        f"--video {steps}.mp4 writes it"
        for steps in (1000, 2000)
    ]


@pytest.mark.parametrize("here", [True, False])
def test_the_command_for_a_video_of_ones_own_environment_says_what_is_trusted(
    schedule, tmp_path, monkeypatch, here
):
    """The file may be anybody's; and where the module is, unless it is the current directory."""
    make, folder, said = schedule
    monkeypatch.chdir(tmp_path if here else "/")
    folder.best_policy.write_text("early")
    videos = make(1000, slow=60, trust=("mine", "a.b"))
    videos.reached(1000)
    videos.close()
    command = said[0].partition("as the run ends: ")[2].removesuffix(" writes it")
    *path, spreeze, play, policy, video, name = shlex.split(command)[:-4]
    assert shlex.split(command)[-4:] == ["--trust", "mine", "--trust", "a.b"]
    assert path == ([] if here else [f"PYTHONPATH={tmp_path}"])
    assert policy == str(folder.path / "videos" / "1000.safetensors")
    assert (spreeze, play, video, name) == (program("spreeze"), "play", "--video", "1000.mp4")
