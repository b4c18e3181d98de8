"""Each run has a folder of its own, even if several begin at once, and only its user can read it."""

import multiprocessing
import os
import stat

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.run.folder import RunFolder

ROUNDS, RUNS = 50, 4


def _create(folder, chosen, barrier, made):
    os.chdir(folder)
    for number in range(ROUNDS):
        barrier.wait()
        try:
            made.put(str(RunFolder.create("pendulum", chosen and f"{chosen}-{number}").path))
        except InputError as error:
            made.put(str(error))


@pytest.mark.parametrize("chosen", [None, "mine"])
def test_runs_that_begin_in_one_instant_do_not_share_a_folder(tmp_path, chosen):
    """If several choose the same folder, one gets it and the others get an error."""
    context = multiprocessing.get_context("fork")
    barrier, made = context.Barrier(RUNS), context.Queue()
    runs = [context.Process(target=_create, args=(tmp_path, chosen, barrier, made)) for _ in range(RUNS)]
    for run in runs:
        run.start()
    said = [made.get(timeout=30) for _ in range(ROUNDS * RUNS)]
    for run in runs:
        run.join()
    paths = [path for path in said if os.path.isdir(path)]
    assert len(set(paths)) == len(paths) == (ROUNDS if chosen else ROUNDS * RUNS)
    assert all("holds something already" in path for path in said if path not in paths)


def test_a_runs_folder_is_its_users_alone(tmp_path, monkeypatch):
    """Whatever the umask is; the files inside follow the umask."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    try:
        for chosen in (None, "mine"):
            folder = RunFolder.create("pendulum", chosen)
            assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
            assert stat.S_IMODE(folder.logs.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_half_written_files_of_the_killed_are_removed(tmp_path):
    """Under every temporary name that this package uses, and no other files."""
    folder = RunFolder.create("run", str(tmp_path / "run"))
    videos, checkpoint = folder.path / "videos", folder.checkpoints / "000000000100-000001000"
    torn = [
        folder.path / f".{folder.summary.name}.123",
        folder.path / f".{folder.best_policy.name}.123",
        folder.path / ".replay-x1y2" / "float32.npy",
        videos / ".123.000001000.mp4",
        checkpoint / ".writing-123-critic_learner.pt",
        checkpoint / ".replay-abc" / "float32.npy",
    ]
    whole = [folder.summary, checkpoint / "critic_learner.pt", folder.path / ".mine"]
    for path in (*torn, *whole):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folder.tidy()
    assert [path.exists() for path in torn] == [False] * len(torn)
    assert [path.exists() for path in whole] == [True] * len(whole)


def test_a_folder_whose_name_is_no_text_is_refused_in_one_line(tmp_path):
    """Logs and other programs could not name it."""
    with pytest.raises(InputError, match=r"b\\udce9.* is no UTF-8 text.*--run-dir"):
        RunFolder.create("run", f"{tmp_path}/b\udce9")
    assert list(tmp_path.iterdir()) == []
