"""Runs are chosen by what they were, and deleted only if the user says so."""

import errno
import io
import json
import os
import re
import shutil
import time
from dataclasses import replace
from datetime import datetime

import pytest

from spreeze_zmq.commands import runs as commands
from spreeze_zmq.commands.runs import STILL_S
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology
from spreeze_zmq.run.checkpoint import complete
from spreeze_zmq.run.folder import CLAIMED
from spreeze_zmq.run.history import find_runs, read_run
from spreeze_zmq.wire.channels import SocketFolder

DAY = 86_400.0


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def runs(tmp_path):
    """Folders of four runs that are over: of two environments, old and new, ended and crashed."""
    for name, task, age, reason in (
        ("old", "pendulum", 9 * DAY, "minutes 1"),
        ("new", "pendulum", 0.0, "minutes 1"),
        ("broken", "pendulum", 0.0, ""),
        ("other", "cartpole", 0.0, "minutes 1"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text(topology.load(task).to_json())
        (folder / "summary.json").write_text(json.dumps({"exit_reason": reason}))
        for file in folder.iterdir():
            os.utime(file, (time.time() - max(age, STILL_S + 1.0),) * 2)
    return tmp_path


def begin(folder, given=None):
    """Begin a run, which has written no figures yet; perhaps one that goes on from a checkpoint."""
    folder.mkdir(exist_ok=True)
    plan = topology.load("pendulum")
    plan = plan if given is None else plan.resuming(given, ("id",))
    (folder / "run.json").write_text(replace(plan, began_s=time.time()).to_json())
    (folder / "summary.json").unlink(missing_ok=True)


def left(folder):
    """The names of the runs that are there."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (["--older-than", "7d"], {"old"}),
        (["--state", "crashed"], {"broken"}),
        (["--env", "Cart*"], {"other"}),
        (["--algorithm", "sac", "--state", "ended"], {"old", "new"}),
    ],
)
def test_runs_are_chosen(runs, capsys, flags, chosen):
    """The same ones are listed and deleted."""
    assert main(["runs", str(runs), "--json", *flags]) == 0
    assert {row["run"] for row in json.loads(capsys.readouterr().out)} == chosen
    before = left(runs)
    assert main(["runs", str(runs), "--delete", "--yes", *flags]) == 0
    assert left(runs) == before - chosen


@pytest.mark.parametrize("asked", ["Pendulum", "Pendulum-v1", "*-v1"])
def test_a_run_is_chosen_by_the_name_that_was_typed_and_by_the_one_that_it_stood_for(tmp_path, capsys, asked):
    """The table shows the latter, by which runs are compared, with the version."""
    plan = topology.load("pendulum", ["run.env=Pendulum"])
    (tmp_path / "run.json").write_text(plan.to_json())
    assert main(["runs", str(tmp_path), "--json", "--env", asked]) == 0
    assert [row["env"] for row in json.loads(capsys.readouterr().out)] == ["Pendulum-v1"]


@pytest.mark.parametrize(("typed", "gone"), [("yes\n", {"old"}), ("y\n", set()), ("", set())])
def test_nothing_is_deleted_unless_the_user_types_yes(runs, monkeypatch, typed, gone):
    """A word that nobody types by accident."""
    monkeypatch.setattr("sys.stdin", Typed(typed))
    before = left(runs)
    assert main(["runs", str(runs), "--delete", "--older-than", "7d"]) == 0
    assert left(runs) == before - gone


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "say which runs, by --env, --algorithm, --state or --older-than"),
        (["--older-than", "7d"], "nobody can be asked: add --yes"),
        (["--older-than", "soon", "--yes"], "expected an age such as 30min, 12h or 7d, got 'soon'"),
    ],
)
def test_what_is_not_clear_deletes_nothing(runs, monkeypatch, capsys, flags, said):
    """One line, exit code 2."""
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    before = left(runs)
    try:
        code = main(["runs", str(runs), "--delete", *flags])
    except SystemExit as left_by:
        code = left_by.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert left(runs) == before


@pytest.mark.parametrize("seen_by", ["its lock", "its figures", "its beginning"])
def test_a_run_that_lives_elsewhere_is_not_deleted(runs, seen_by, capsys):
    """On another machine or in a container: the folder of its sockets is not seen from here. Where the file
    system has no locks, from its first second on.
    """
    live, is_locked = runs / "broken", seen_by == "its lock"
    sockets = SocketFolder.create("elsewhere")
    if is_locked:
        sockets.hold(live / CLAIMED)
    elif seen_by == "its figures":
        (live / "metrics.recent.jsonl").write_text("{}\n")
    else:
        begin(live)
    assert read_run(live).state == ("running" if is_locked else "crashed")
    assert main(["runs", str(runs), "--delete", "--yes", "--algorithm", "sac"]) == 0
    assert left(runs) == {"broken", "other"}
    assert is_locked or f"{live} stays: it was written to less than 60 s ago" in capsys.readouterr().out
    sockets.remove()
    assert read_run(live).state == "crashed"


def test_a_run_that_holds_a_live_one_is_not_deleted(runs, capsys):
    """As where a run's folder was named for the next one."""
    (runs / "broken").rename(runs / "old" / "below")
    sockets = SocketFolder.create("below")
    sockets.hold(runs / "old" / "below" / CLAIMED)
    assert main(["runs", str(runs), "--delete", "--yes", "--older-than", "7d"]) == 0
    assert f"{runs / 'old'} stays: a run below it is live" in capsys.readouterr().out
    assert (runs / "old" / "below" / "run.json").exists()
    sockets.remove()
    assert main(["runs", str(runs), "--delete", "--yes", "--older-than", "7d"]) == 0
    assert left(runs) == {"new", "other"}


def test_a_copy_began_when_its_run_did(runs, capsys):
    """Whatever time its files have; and a run is no older than what it wrote last."""
    plan = replace(topology.load("pendulum"), began_s=time.time() - 16 * DAY)
    (runs / "broken" / "run.json").write_text(plan.to_json())
    assert main(["runs", str(runs), "--json", "--state", "crashed"]) == 0
    began = datetime.fromisoformat(json.loads(capsys.readouterr().out)[0]["began"])
    assert began.timestamp() == pytest.approx(plan.began_s, abs=2.0)
    assert main(["runs", str(runs), "--json", "--older-than", "7d"]) == 0
    assert {row["run"] for row in json.loads(capsys.readouterr().out)} == {"old"}


@pytest.mark.parametrize("ends_by", ["live", "killed"])
def test_a_run_stays_whose_checkpoint_another_one_needs(runs, capsys, ends_by):
    """In the first minutes of a resumed run, or after it was killed in them; not once it has one of its own,
    nor where both go.
    """
    given = runs / "old" / "checkpoints" / "10"
    given.mkdir(parents=True)
    complete(given, [], {})
    plan = topology.load("pendulum").resuming(given, ("id",))
    (runs / "broken" / "run.json").write_text(plan.to_json())
    os.utime(runs / "broken" / "run.json", (time.time() - STILL_S - 1.0,) * 2)
    sockets = SocketFolder.create("child")
    if ends_by == "live":
        sockets.hold(runs / "broken" / CLAIMED)
    delete = ["runs", str(runs), "--delete", "--yes"]
    assert main([*delete, "--state", "ended"]) == 0
    stays = f"{runs / 'old'} stays: {runs / 'broken'} goes on from its checkpoint, and has none of its own"
    assert stays in capsys.readouterr().out
    assert left(runs) == {"old", "broken"}
    if ends_by == "live":
        own = runs / "broken" / "checkpoints" / "20"
        own.mkdir(parents=True)
        complete(own, [], {})
        assert main([*delete, "--state", "ended"]) == 0
        assert left(runs) == {"broken"}
    else:
        assert main([*delete, "--env", "Pendulum*"]) == 0
        assert left(runs) == set()
    sockets.remove()


@pytest.mark.parametrize("meanwhile", ["it is live", "another run needs it", "it is gone"])
def test_runs_are_looked_at_again_once_the_user_has_agreed(runs, monkeypatch, capsys, meanwhile):
    """What has happened since the question was asked counts; the others go."""
    given = runs / "broken" / "checkpoints" / "10"
    given.mkdir(parents=True)
    complete(given, [], {})
    sockets = SocketFolder.create("meanwhile")

    class Slow(Typed):
        def readline(self):
            if meanwhile == "it is live":
                sockets.hold(runs / "broken" / CLAIMED)
            elif meanwhile == "it is gone":
                shutil.rmtree(runs / "broken")
            else:
                begin(runs / "child", given)
            return "yes\n"

    monkeypatch.setattr("sys.stdin", Slow())
    assert main(["runs", str(runs), "--delete", "--algorithm", "sac"]) == 0
    says = {
        "it is live": "stays: it is live",
        "another run needs it": f"stays: {runs / 'child'} goes on from its checkpoint",
        "it is gone": "is no run's folder any more",
    }[meanwhile]
    said = capsys.readouterr().out
    assert f"{runs / 'broken'} {says}" in said
    assert re.sub(r" \(.*?\)", "", said).endswith("\n2 runs deleted\n")
    assert left(runs) - {"child"} == ({"other"} if meanwhile == "it is gone" else {"other", "broken"})
    sockets.remove()


@pytest.mark.parametrize(("each_s", "looks"), [(600.0, 1), (-1.0, 4)])
def test_all_folders_are_looked_at_once_for_all_that_goes_within_a_second(runs, monkeypatch, each_s, looks):
    """And not for each run: thousands, of a search, would take hours."""
    looked = []

    def find(place, but=()):
        looked.append(place)
        return find_runs(place, but)

    monkeypatch.setattr(commands, "find_runs", find)
    monkeypatch.setattr(commands, "LOOK_AGAIN_S", each_s)
    assert main(["runs", str(runs), "--delete", "--yes", "--env", "*"]) == 0
    assert left(runs) == set()
    assert looked.count(runs) == 1 + looks  # and once to find them


def test_a_run_that_is_deleted_in_part_is_said_to_be(runs, monkeypatch, capsys):
    """As where a file system keeps a name of a file that somebody has open, which is named from the run's
    folder; with what was deleted before.
    """
    remove, parts = os.unlink, [runs / "old" / "checkpoints" / "10" / name for name in ("a.pt", "b.pt")]
    parts[0].parent.mkdir(parents=True)
    for part in parts:
        part.write_bytes(b"weights")

    def unlink(path, **about):
        if os.path.basename(path).endswith(".pt") and not all(part.exists() for part in parts):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        remove(path, **about)

    monkeypatch.setattr(os, "unlink", unlink)
    assert main(["runs", str(runs), "--delete", "--yes", "--state", "ended", "--env", "Pend*"]) == 2
    said = capsys.readouterr()
    [kept] = (part.name for part in parts if part.exists())
    what = f"{runs / 'old'} is deleted in part: Device or resource busy (checkpoints/10/{kept})"
    assert said.err == f"spreeze runs: {what}\n"
    assert "1 run deleted" in re.sub(r" \(.*?\)", "", said.out)


def test_a_link_to_a_run_is_left_alone(runs, capsys):
    """Its run is elsewhere, and perhaps somebody else's."""
    link = runs / "links"
    link.mkdir()
    (link / "there").symlink_to(runs / "old")
    assert main(["runs", str(link), "--delete", "--older-than", "7d", "--yes"]) == 2
    assert "there stays: Cannot call rmtree on a symbolic link" in capsys.readouterr().err
    assert (runs / "old" / "run.json").exists()


def test_the_groups_of_a_run_are_parts_of_it(runs, capsys):
    """Where the run itself is named, too: it is one line of the table, and goes as a whole."""
    for life in ("1", "1-2"):
        member = runs / "old" / "groups" / life
        member.mkdir(parents=True)
        for name in ("run.json", "summary.json"):
            (member / name).write_bytes((runs / "old" / name).read_bytes())
    assert [run.folder.name for run in find_runs(runs / "old")] == ["old"]
    assert [run.folder.name for run in find_runs(runs / "old" / "groups")] == ["1", "1-2"]
    assert main(["runs", str(runs / "old"), "--algorithm", "sac", "--delete", "--yes"]) == 0
    assert "1 run deleted" in re.sub(r" \(.*?\)", "", capsys.readouterr().out)
    assert left(runs) == {"new", "broken", "other"}
