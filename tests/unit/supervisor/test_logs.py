"""What a run prints does not fill the disk, however long it prints."""

import errno
import os

from spreeze_zmq.supervisor import LogWatch, last_words, logs
from spreeze_zmq.supervisor.logs import CHECK_S

MOST = 4 << 20


class Printing:
    """A log with a first and a last line, of a process that is there, and its watch with a clock by hand."""

    def __init__(self, folder):
        self.path, self.now_s = folder / "sampler-0.log", 0.0
        self.path.write_text("the first line\n")
        self.watch = LogWatch(folder, MOST, lambda: self.now_s)

    def prints(self, size):
        """Append lines, ``size`` bytes of them and a last one, and look; returns what is said."""
        with self.path.open("ab") as log:
            log.write(b"an episode has ended\n" * (size // 21) + b"the last line\n")
        self.now_s += CHECK_S
        return self.watch.news()

    @property
    def on_disk(self):
        """Bytes."""
        return self.path.stat().st_blocks * 512


def test_a_log_that_never_ends_keeps_its_beginning_and_its_end(tmp_path):
    """No byte of it moves, so places in it stay, and what is appended comes behind; it is said once."""
    log = Printing(tmp_path)
    said = [line for _ in range(10) if (line := log.prints(MOST // 2))]
    assert len(said) == 1
    assert said[0].startswith(f"{log.path} has more than 4 MiB: its middle is dropped now and then")
    assert log.path.stat().st_size > 4.9 * MOST
    assert log.on_disk <= MOST
    text = log.path.read_bytes()
    assert text.startswith(b"the first line\nan episode")
    assert text.endswith(b"an episode has ended\nthe last line\n")
    life = text.index(b"\0\0") + 10  # of a process that began where nothing is left
    words = last_words(log.path, life)
    assert words.endswith("the last line")
    assert "\0" not in words


def test_it_looks_now_and_then(tmp_path):
    """Not at each turn of a launcher."""
    log = Printing(tmp_path)
    assert log.prints(2 * MOST)
    with log.path.open("ab") as more:
        more.write(b"x" * 2 * MOST)
    assert log.watch.news() == ""
    assert log.on_disk > 2 * MOST


def test_a_disk_that_cannot_drop_a_part_is_said(tmp_path, monkeypatch):
    """As NFS before 4.2: the log is left as it is."""

    def cannot(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(logs, "punch_hole", cannot)
    log = Printing(tmp_path)
    assert "its disk cannot free a part of it (Operation not supported)" in log.prints(2 * MOST)
    assert log.prints(0) == ""
    assert b"\0" not in log.path.read_bytes()
