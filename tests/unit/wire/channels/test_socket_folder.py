"""A run's sockets are its own: nobody enters, nobody steals, and nothing outlives the run."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq.base import patience
from spreeze_zmq.base.endpoints import MAX_IPC_BYTES
from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.plan.roles import CHANNELS
from spreeze_zmq.run.versions import VersionFile, newest_version
from spreeze_zmq.wire import channels
from spreeze_zmq.wire.channels import Claim, Puller, SocketFolder, is_locked, open_channel
from tests.rights import NOBODY, root_only, without_rights

HOLD_FOLDER = """
import sys, time
from spreeze_zmq.wire.channels import SocketFolder
folder = SocketFolder.create("victim")
print(folder.path, flush=True)
time.sleep(60)
"""
COME_AND_GO = """
from spreeze_zmq.wire.channels import SocketFolder
for _ in range(500):
    SocketFolder.sweep()
    SocketFolder.create("guest").remove()
"""

HOLD_ENDPOINT = """
import sys, time
from spreeze_zmq.wire.channels import Puller
puller = Puller(sys.argv[1], bind=True)
print("bound", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder():
    """A folder of this test's."""
    made = SocketFolder.create("test")
    yield made
    made.remove()


def test_a_claim_waits_for_room(folder, monkeypatch):
    """A healthy run starts a process while somebody else has filled the disk of its sockets. Its lock says
    who has had it until then, and gives nobody its block.
    """
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    refused, written, holders = iter([]), [], []

    def at_last(write):
        def tried(*arguments):
            if next(refused, False):
                holders.append(SocketFolder.holder(folder.path, "sampler-0"))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written.append(write.__name__)
            return write(*arguments)

        return tried

    for write in (os.write, os.pwrite):
        monkeypatch.setattr(os, write.__name__, at_last(write))
    refused = iter([True, True])
    claim = Claim.take(folder.path / "sampler-0", 7)
    assert SocketFolder.holder(folder.path, "sampler-0") == (os.getpid(), 7)
    refused = iter([True, True])
    claim.lend(8)
    assert SocketFolder.holder(folder.path, "sampler-0") == (0, 8)
    refused = iter([True, True])
    VersionFile(folder.path).raise_to(9)
    assert newest_version(folder.path) == 9
    assert holders == [(0, 0)] * 2 + [(os.getpid(), 7)] * 2 + [(0, 8)] * 2
    assert (next(refused, None), written) == (None, ["pwrite"] * 3)
    claim.release()


class Holder:
    """Another process that holds something until it is killed."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
        )
        self.said = self.process.stdout.readline().strip()

    def kill(self):
        """As the kernel's out-of-memory killer would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def test_the_folder_is_private_and_its_sockets_fit(folder):
    """Mode 0700, and every channel of the table within the length that Linux allows."""
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700
    for name in CHANNELS:
        assert len(folder.endpoint(name).removeprefix("ipc://")) <= MAX_IPC_BYTES


def test_runs_of_one_name_have_different_folders(folder):
    """However long or odd the name is."""
    other = SocketFolder.create("test")
    odd = SocketFolder.create("my topology/../" + "x" * 300)
    assert len({folder.path, other.path, odd.path}) == 3
    assert odd.path.parent == folder.path.parent
    for made in (other, odd):
        made.remove()
        assert not made.path.exists()


def test_a_place_that_is_too_deep_is_passed_over(tmp_path, monkeypatch):
    """A long XDG_RUNTIME_DIR would make every socket's path too long."""
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    made = SocketFolder.create("test")
    assert made.path.parent.parent.as_posix() == "/tmp"
    made.remove()


def test_a_place_that_others_can_enter_is_passed_over(tmp_path_factory, monkeypatch):
    """Somebody else may have made the folder first, to look inside."""
    runtime = tmp_path_factory.mktemp("r")
    (runtime / f"spreeze-{os.getuid()}").mkdir(mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made = SocketFolder.create("test")
    assert made.path.parent.parent.as_posix() == "/tmp"
    made.remove()


def test_a_fit_runtime_folder_is_used(monkeypatch):
    """Where the system gives one."""
    with pytest.MonkeyPatch.context() as patch:
        short = f"/tmp/rt-{os.getpid()}"
        os.mkdir(short, 0o700)
        patch.setenv("XDG_RUNTIME_DIR", short)
        made = SocketFolder.create("test")
        assert made.path.as_posix().startswith(short)
        made.remove()
        made.path.parent.rmdir()
        os.rmdir(short)


@pytest.fixture
def closed():
    """A folder in which everybody may go to one that its user alone may enter, or nobody."""
    with tempfile.TemporaryDirectory() as made:
        inner = Path(made, f"spreeze-{NOBODY if os.getuid() == 0 else os.getuid()}")
        inner.mkdir(mode=0o700 if os.getuid() == 0 else 0)
        Path(made).chmod(0o755)
        yield inner
        inner.chmod(0o700)


def test_what_another_user_has_closed_stops_no_run(closed, monkeypatch):
    """After ``su`` the runtime folder is that of the user before, and anybody can make one of our name."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(closed))
    monkeypatch.setenv("TMPDIR", str(closed.parent))
    with without_rights():
        SocketFolder.sweep()
        made = SocketFolder.create("test")
        made.remove()
    assert made.path.parent.parent.as_posix() == "/tmp"


@root_only
def test_root_leaves_the_runtime_folder_of_another_user_alone(closed, monkeypatch):
    """As with ``sudo -E``: it is removed when that user logs out."""
    os.chown(closed, NOBODY, NOBODY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(closed))
    made = SocketFolder.create("test")
    made.remove()
    assert made.path.parent.parent.as_posix() == "/tmp"


@pytest.fixture
def short(monkeypatch):
    """A folder that everybody may write, beside which nothing can be made, as in a read-only container."""
    make = Path.mkdir

    def mkdir(path, *how, **kinds):
        if path.parent == Path("/tmp"):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        make(path, *how, **kinds)

    for variable in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.delenv(variable, raising=False)
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        Path(made).chmod(0o777)
        monkeypatch.setattr(Path, "mkdir", mkdir)
        yield made


@pytest.mark.parametrize("variable", ["TMPDIR", pytest.param("XDG_RUNTIME_DIR", marks=root_only)])
def test_where_nothing_else_can_be_written_a_folder_of_another_user_is_used(short, monkeypatch, variable):
    """As root's in a container that does not run as root."""
    monkeypatch.setenv(variable, short)
    with without_rights():
        made = SocketFolder.create("test")
        made.remove()
        assert made.path.parent.parent.as_posix() == short


@pytest.mark.usefixtures("short")
def test_where_nothing_can_be_written_each_place_is_named(tmp_path, monkeypatch):
    """With what to do."""
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/{'d' * 80}")
    with pytest.raises(ChannelError, match=r"/tmp/.*Read-only.*ddd/.*: sockets in.*set XDG_RUNTIME_DIR to"):
        SocketFolder.create("test")


def test_dead_runs_are_swept_and_live_ones_are_not(folder):
    """The lock goes with the process, however it ends."""
    holder = Holder(HOLD_FOLDER)
    path = type(folder.path)(holder.said)
    assert path not in SocketFolder.sweep()
    assert path.exists()
    holder.kill()
    SocketFolder.sweep()  # unless a run beside this test has swept it
    assert not path.exists()
    assert folder.path.exists()


def test_runs_that_start_and_end_at_once_leave_each_other_alone():
    """Each looks through the folders while the others make, rename and remove theirs."""
    command = [sys.executable, "-c", COME_AND_GO]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [run.communicate()[1] for run in runs] == [""] * len(runs)


def test_a_folder_that_was_removed_in_part_is_swept():
    """A process that dies while its run's folder is removed may leave a lock of its own in it."""
    left = SocketFolder.create("removed")
    claim = Claim.take(left.path / "feed")
    (left.path / "lock").unlink()  # a run beside this test may sweep it from now on
    SocketFolder.sweep()
    assert not left.path.exists()
    claim.release()


def test_an_endpoint_that_is_taken_names_its_holder(folder):
    """ZeroMQ alone would let the second one steal it."""
    endpoint = folder.endpoint("report")
    holder = Holder(HOLD_ENDPOINT, endpoint)
    assert holder.said == "bound"
    with pytest.raises(ChannelError, match=f"taken by process {holder.process.pid}"):
        Puller(endpoint, bind=True)
    holder.kill()
    puller = Puller(endpoint, bind=True)
    puller.close()


def test_an_endpoint_can_be_bound_again_after_terminate(folder):
    """And its files are gone."""
    endpoint = folder.endpoint("report")
    for _ in range(2):
        puller = Puller(endpoint, bind=True)
        puller.close()
        with pytest.raises(ChannelError, match="taken"):
            Puller(endpoint, bind=True)
        channels.terminate()
    assert [path.name for path in folder.path.iterdir()] == ["lock"]


def test_a_released_claim_is_free(folder):
    """Released twice does no harm."""
    claim = Claim.take(folder.path / "sampler-0")
    with pytest.raises(ChannelError, match=str(os.getpid())):
        Claim.take(folder.path / "sampler-0")
    claim.release()
    claim.release()
    Claim.take(folder.path / "sampler-0").release()


def test_a_lock_whose_file_is_removed_as_it_is_taken_is_taken_again(folder, monkeypatch):
    """The last holder removes the file between another's open and lock: that lock would keep nobody out."""
    path, lock, removed = folder.path / "report", fcntl.flock, []

    def flock(descriptor, how):
        if not removed:
            removed.append(path.with_name("report.lock").unlink())
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    claim = Claim.take(path)
    with pytest.raises(ChannelError, match=f"is taken by process {os.getpid()}"):
        Claim.take(path)
    claim.release()


def test_closing_is_bounded_when_nobody_takes_what_was_sent(folder):
    """Linger is a second, not for ever."""
    plan = replace(CHANNELS["report"], endpoint=folder.endpoint("report"))
    pusher = open_channel(plan, "push", "sampler-0", 1)
    hello = {"role": "sampler", "name": "sampler-0", "pid": 1, "protocol": 1, "host": "here"}
    from spreeze_zmq.wire import Message

    assert pusher.try_push(Message("hello", hello))
    began_s = time.monotonic()
    pusher.close()
    channels.terminate()
    assert 0.5 < time.monotonic() - began_s < 30.0


def test_a_path_is_held_as_long_as_the_folder_whoever_was_forked_meanwhile(tmp_path):
    """A child of a pool inherits what is open, and may outlive the run."""
    folder = SocketFolder.create("holds")
    folder.hold(tmp_path / "run")
    lock = tmp_path / "run.lock"
    assert is_locked(lock)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        folder.remove()
        assert not is_locked(lock)
        assert list(tmp_path.iterdir()) == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
