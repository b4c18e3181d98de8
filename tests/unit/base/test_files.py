"""A file appears when it is complete, or not at all."""

import ctypes
import errno
import mmap
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import memory_file, output, replacing, write_json


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_appears_when_it_is_complete(tmp_path, sync):
    """Until the block ends, readers see the earlier file; the suffix stays."""
    path = tmp_path / "policy.mp4"
    path.write_text("earlier")
    with replacing(path, sync=sync) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == path.suffix
        assert path.read_text() == "earlier"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "new"


def fill(path):
    """Write half of a file to a disk that is full then."""
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError("the disk is full")


def test_nothing_is_left_of_a_file_that_failed(tmp_path):
    """An error while it is written leaves the earlier file alone, and no other."""
    path = tmp_path / "run.json"
    path.write_text("earlier")
    with pytest.raises(OSError, match="full"):
        fill(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "earlier"


def test_the_mode_of_the_written_file_stays(tmp_path):
    """A file that only its user may read is never readable for others."""
    path = tmp_path / "keys"
    with replacing(path) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text("secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("sync", "order"), [(True, ["file", "folder"]), (False, [])])
def test_what_must_outlive_a_power_failure_is_on_the_disk_first(tmp_path, monkeypatch, sync, order):
    """The file is synchronised before it takes its place, its folder afterwards."""
    synced, fsync = [], os.fsync

    def recorded(descriptor):
        synced.append("folder" if (tmp_path / "kept").exists() else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    with replacing(tmp_path / "kept", sync=sync) as temporary:
        temporary.write_text("whole")
    assert synced == order


@pytest.mark.parametrize("said", [errno.EINVAL, errno.EBADF, errno.ENOTSUP])
def test_a_disk_that_synchronises_no_folders_keeps_files_all_the_same(tmp_path, monkeypatch, said):
    """As those of some virtual machines and networks; a file that is not synchronised is a failure."""
    fsync, refused = os.fsync, [stat.S_ISDIR]

    def refuse(descriptor):
        if refused[0](os.fstat(descriptor).st_mode):
            raise OSError(said, os.strerror(said))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with replacing(tmp_path / "kept", sync=True) as temporary:
        temporary.write_text("whole")
    assert (tmp_path / "kept").read_text() == "whole"
    refused[0] = stat.S_ISREG
    with (
        pytest.raises(OSError, match=os.strerror(said)),
        replacing(tmp_path / "kept", sync=True) as temporary,
    ):
        temporary.write_text("later")


def test_what_a_user_has_named_and_is_no_file_stays(tmp_path):
    """A link is followed, a pipe and a device are written into: /dev/stdout would be a file from then on, for
    everybody.
    """
    pipe, device, link, whole = (tmp_path / name for name in ("pipe", "device", "link", "whole.json"))
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    link.symlink_to(whole)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    for path in (pipe, device, link):
        write_json(path, {"a": 1}, output)
    reader.join(30)
    assert read == [whole.read_text()] == ['{\n "a": 1\n}\n']
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert device.is_symlink()
    assert link.is_symlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["device", "link", "pipe", "whole.json"]


@pytest.mark.parametrize(
    ("name", "said"), [("", "is a folder, the name of a file is expected"), ("none/a", "there is no folder ")]
)
def test_a_place_for_no_file_is_named_before_the_work(tmp_path, name, said):
    """Nothing is written first."""
    with pytest.raises(InputError, match=said), output(tmp_path / name):
        raise AssertionError("the work")


def test_a_link_that_leads_nowhere_is_named_with_its_end(tmp_path):
    """To a folder that is missing, or to itself; a file is made at the end of one that leads somewhere."""
    lost, loop, fresh = (tmp_path / name for name in ("lost", "loop", "fresh"))
    lost.symlink_to(tmp_path / "missing" / "file")
    loop.symlink_to(loop)
    fresh.symlink_to(tmp_path / "made.json")
    with pytest.raises(
        InputError, match=f"lost leads to {tmp_path}/missing/file: there is no folder {tmp_path}"
    ):
        write_json(lost, {}, output)
    with pytest.raises(InputError, match=f"^{loop} is a link that leads to itself"):
        write_json(loop, {}, output)
    write_json(fresh, {"a": 1}, output)
    assert fresh.is_symlink()
    assert (tmp_path / "made.json").read_text() == '{\n "a": 1\n}\n'


@pytest.mark.parametrize("is_in_libc", [True, False])
def test_a_python_of_an_older_glibc_has_files_in_memory(monkeypatch, is_in_libc):
    """Those of conda and uv have no ``os.memfd_create``, and an old system none in its library either."""
    monkeypatch.delattr(os, "memfd_create")
    if not is_in_libc:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
    descriptor = memory_file("kept")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    with mmap.mmap(descriptor, mmap.PAGESIZE) as memory:
        memory[:4] = b"rows"
    assert os.pread(descriptor, 4, 0) == b"rows"
    assert not os.get_inheritable(descriptor)
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)


def test_a_file_in_memory_that_has_no_room_says_so(monkeypatch):
    """As ``os.memfd_create`` does: whoever asks for one waits, or does without, on OSError."""
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        memory_file("n" * 300)  # the kernel takes fewer than 250 letters


def test_files_in_memory_are_made_in_one_place():
    """Another module that calls ``os.memfd_create`` would fail in the Pythons that lack it."""
    root = Path(__file__).parents[3]
    modules = [path for top in ("spreeze_zmq", "components") for path in (root / top).rglob("*.py")]
    naming = [path for path in modules if "os.memfd_create(" in path.read_text()]
    assert [str(path.relative_to(root)) for path in naming] == ["spreeze_zmq/base/files.py"]
