"""Videos at stated env steps, written by processes of their own."""

import sys
import time

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
