"""A full disk is said while it is waited for."""

from pathlib import Path

from spreeze_zmq.launcher.disk_watch import CHECK_S, ENOUGH_BYTES, DiskWatch, free_bytes


def test_a_full_disk_is_said_when_it_begins_and_when_it_is_over():
    """Once each, though a few bytes come and go; a folder that is gone says nothing."""
    now_s, free = [100.0], [10**9]

    def left(path):
        if free[0] is None:
            raise FileNotFoundError(path)
        return free[0]

    watch = DiskWatch(Path("/run"), "run", left, lambda: now_s[0])
    said = []
    for value in (10**9, 0, 0, 4096, 0, None, ENOUGH_BYTES, 10**9, 0):
        free[0] = value
        now_s[0] += CHECK_S
        said.append(watch.news())
        assert watch.news() == ""
    assert [bool(line) for line in said] == [False, True, False, False, False, False, True, False, True]
    assert said[1].startswith("run: its disk is full: each process waits 5 s for room")
    assert said[6] == "run: its disk has room again, after 2 s"


def test_the_room_on_a_disk_is_asked_of_the_system(tmp_path):
    """Where this test writes there is some."""
    assert free_bytes(tmp_path) > ENOUGH_BYTES
