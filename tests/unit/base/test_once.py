"""What a machine makes once: whole, by one process, while the others wait."""

import fcntl
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from spreeze_zmq.base import once
from spreeze_zmq.base.once import ELF, POLL_S, made_once

#: One process is waited for as long.
LONG_S = 300.0


def test_a_file_is_made_once_and_whole(tmp_path):
    """Half of one is never seen, and a failure leaves nothing behind for the next attempt."""
    path = tmp_path / "new" / "made"

    def fail(beside):
        beside.write_text("half")
        raise OSError("no luck")

    with pytest.raises(OSError, match="no luck"):
        made_once(path, fail, "making it")
    assert [file.name for file in path.parent.iterdir()] == ["made.lock"]
    for text in (b"first", b"second"):
        made_once(path, lambda beside, text=text: beside.write_bytes(ELF + text), "making it")
    assert path.read_bytes() == ELF + b"first"


@pytest.mark.usefixtures("no_locks")
def test_a_cache_on_a_file_system_without_locks_is_used(tmp_path):
    """As Lustre's and some of NFS; a run would lose the native layers for it."""
    made = made_once(tmp_path / "made", lambda beside: beside.write_bytes(ELF), "making it")
    assert made.read_bytes() == ELF


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_first_file_is_whole_and_stays(tmp_path):
    """Processes of two containers have the same ids; and those who have loaded a library keep it."""
    path, writing, made = tmp_path / "made", threading.Event(), threading.Event()

    def late(beside):
        with beside.open("wb") as file:
            file.write(ELF)
            file.flush()
            writing.set()
            made.wait(30)
            file.write(b"second")

    with ThreadPoolExecutor(1) as elsewhere:
        later = elsewhere.submit(made_once, path, late, "making it")
        assert writing.wait(30)
        made_once(path, lambda beside: beside.write_bytes(ELF + b"first"), "making it")
        first = path.stat().st_ino
        made.set()
        assert later.result(30) == path
    assert path.read_bytes() == ELF + b"first"
    assert path.stat().st_ino == first


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("links", [True, False])
def test_what_was_torn_is_made_again(tmp_path, monkeypatch, links):
    """Also on a disk without hard links."""

    def refuse(*_):
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "made"
    path.write_bytes(bytes(8))
    for _ in range(2):
        made_once(path, lambda beside: beside.write_bytes(ELF), "making it")
        assert path.read_bytes() == ELF
        path.unlink()


def test_who_comes_while_a_file_is_made_says_so_and_waits_for_it(tmp_path):
    """It is made by one alone, however many begin at once."""
    making, finish, makers, found, said = threading.Event(), threading.Event(), [], [], queue.Queue()

    def make(beside):
        makers.append(threading.current_thread())
        making.set()
        finish.wait(30)
        beside.write_bytes(ELF)

    def take():
        found.append(made_once(tmp_path / "made", make, "making it", said.put).read_bytes())

    threads = [threading.Thread(target=take) for _ in range(3)]
    threads[0].start()
    assert making.wait(30)
    for thread in threads[1:]:
        thread.start()
    waiting = "waiting for another process of this user, which is making it"
    try:
        assert [said.get(timeout=30) for _ in threads[1:]] == [waiting] * 2
    finally:
        finish.set()
        for thread in threads:
            thread.join(30)
    assert found == [ELF] * 3
    assert makers == threads[:1]


def test_a_process_that_has_its_time_is_waited_for_no_longer(tmp_path, monkeypatch):
    """It is stopped, or its machine was lost and the lock stays. Each of three that make it one after another
    has its time.
    """
    clock_s, said, lock = [0.0], [], tmp_path / "made.lock"

    def sleep(wait_s):
        clock_s[0] += wait_s
        os.utime(lock, ns=(0, int(min(clock_s[0], 500.0) // 200.0) * 10**9))

    monkeypatch.setattr(once, "time", SimpleNamespace(monotonic=lambda: clock_s[0], sleep=sleep))
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        made_once(
            tmp_path / "made", lambda beside: beside.write_bytes(ELF), "making it", said.append, most_s=LONG_S
        )
    assert (tmp_path / "made").read_bytes() == ELF
    assert clock_s[0] == pytest.approx(400.0 + LONG_S, abs=2.0 * POLL_S)
    assert said == [
        "waiting for another process of this user, which is making it",
        f"another process of this user has had {lock} for 300 s and is not waited for any longer: end it if "
        "it is stopped, or delete that file",
    ]
