"""Each run has a folder of its own, even if several begin at once, and only its user can read it."""

import json
import multiprocessing
import os
import signal
import stat

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import append_text, append_to, write_json
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.broker.failures import FailureRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import SIGNALLED, RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.supervisor import GaveUp
from spreeze_zmq.supervisor.logs import open_log

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


def test_a_folder_that_exists_becomes_its_users_alone(tmp_path, capsys):
    """Others could read its logs and replace its checkpoints; a line says that its mode has changed."""
    place = tmp_path / "mine"
    place.mkdir()
    place.chmod(0o777)
    RunFolder.create("pendulum", str(place))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert capsys.readouterr().err == f"--run-dir {place}: its mode is 700 now and was 777\n"
    (place / "logs").rmdir()
    (place / "checkpoints").rmdir()
    RunFolder.create("pendulum", str(place))
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the folder of another user")
def test_the_folder_of_another_user_is_refused(tmp_path, monkeypatch, capsys):
    """Who owns it can read and replace all that the run writes; root is told so."""
    place = tmp_path / "theirs"
    place.mkdir()
    place.chmod(0o777)
    os.chown(place, 65_533, 65_533)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    with pytest.raises(InputError, match=r"theirs belongs to the user 65533, who can .*; choose another"):
        RunFolder.create("pendulum", str(place))
    monkeypatch.undo()
    RunFolder.create("pendulum", str(place))
    assert "belongs to the user 65533" in capsys.readouterr().err


def test_nothing_is_appended_through_a_link(tmp_path):
    """Whoever made it may have it lead to a file of the user's."""
    mine = tmp_path / "mine"
    mine.write_text("")
    (tmp_path / "log").symlink_to(mine)
    for opens in (append_to, append_text, Journal):
        with pytest.raises(OSError, match="symbolic"):
            opens(tmp_path / "log")
    with pytest.raises(InputError, match=r"its log .* cannot be written"):
        open_log("sampler-0", tmp_path / "log", ("true",))
    assert mine.read_text() == ""


def test_half_written_files_of_the_killed_are_removed(tmp_path):
    """Under every temporary name that this package uses, and no other files."""
    folder = RunFolder.create("run", str(tmp_path / "run"))
    videos, checkpoint = folder.path / "videos", folder.checkpoints / "000000000100-000001000"
    torn = [
        folder.path / f".{folder.summary.name}.123",
        folder.path / f".{folder.best_policy.name}.123",
        folder.outbox / ".sampler-0.123" / "want",
        videos / ".123.000001000.mp4",
        checkpoint / ".writing-0a1b2c3d-critic_learner.pt",
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


def test_a_run_whose_service_was_stopped_as_a_whole_has_ended(tmp_path):
    """The broker had the signal, too, before the launcher could say why; a run that failed has crashed."""
    folder = RunFolder(tmp_path)
    folder.run_file.write_text(topology.load("pendulum").to_json())
    for reason, state in (
        (SIGNALLED[signal.SIGTERM], "ended"),
        ("asks: SIGTERM came", "ended"),
        (str(GaveUp("sampler-0", "it has failed 5 times")), "crashed"),
        (str(GaveUp("sampler-0", "its disk is full", has_begun=False)), "crashed"),
    ):
        write_json(folder.summary, {"exit_reason": reason, "wall_s": 9.5, "failures": []})
        folder.end_summary("interrupted by SIGTERM", [])
        assert read_run(tmp_path).state == state
    write_json(folder.summary, {"exit_reason": "SIGTERM", "wall_s": 9.5, "failures": []})
    folder.end_summary("interrupted by SIGTERM", [])
    assert json.loads(folder.summary.read_text())["exit_reason"] == "interrupted by SIGTERM"


def test_the_failure_that_ended_a_run_is_in_its_summary(tmp_path):
    """Also where its process had survived another one before; what the broker knew is not there twice."""
    folder, failures = RunFolder(tmp_path), FailureRecord()
    environments = {"name": "sampler-0", "summary": "environment 3 raised", "traceback": "at step 7"}
    failures.take(environments, 4.0, survived=True)
    failures.take(
        {"name": "sampler-1", "summary": "exit code 1", "traceback": "exit code 1"}, 5.0, survived=False
    )
    write_json(folder.summary, {"exit_reason": "", "wall_s": 9.5, "failures": failures.first})
    ended = ("sampler-0", "killed by SIGSEGV\nits last words")
    folder.end_summary("a process failed", [("sampler-1", "exit code 1"), ended])
    summary = json.loads(folder.summary.read_text())
    assert summary["exit_reason"] == "a process failed"
    assert [(row["name"], row["summary"], row["survived"]) for row in summary["failures"]] == [
        ("sampler-0", "environment 3 raised", True),
        ("sampler-1", "exit code 1", False),
        ("sampler-0", "killed by SIGSEGV", False),
    ]
