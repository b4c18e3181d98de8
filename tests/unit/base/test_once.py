"""What a machine makes once: whole, by one process, while the others wait."""

import errno
import os
import queue
import threading

import pytest

from spreeze_zmq.base.once import ELF, made_once


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


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_cache_on_a_file_system_without_locks_is_used(tmp_path, monkeypatch, number):
    """As Lustre's and some of NFS; a run would lose the native layers for it."""

    def flock(lock, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    made = made_once(tmp_path / "made", lambda beside: beside.write_bytes(ELF), "making it")
    assert made.read_bytes() == ELF


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
