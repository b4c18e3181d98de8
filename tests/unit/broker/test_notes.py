"""The broker's notes in a long run and in a flood."""

import json
import tracemalloc

import numpy as np
import pytest

from spreeze_zmq.base import journal
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.broker import notes as module
from spreeze_zmq.broker.notes import (
    BYTES_PER_S,
    LONGEST_NOTE,
    MANY_ROWS,
    MOST_BYTES,
    MOST_NOTES,
    WHOLE_S,
    Notes,
    Thinning,
    bounded,
)
from spreeze_zmq.run.folder import RunFolder


class Feed:
    """Counts what is published."""

    count = 0

    def publish(self, message):
        """One entry."""
        self.count += 1


WEEK_S = 7 * 86_400


def test_a_flood_of_notes_is_cut(tmp_path):
    """What a run needs is far below: two evaluations a second for three hours are all told."""
    feed, folder = Feed(), RunFolder(tmp_path)
    notes = Notes(folder, feed)
    for number in range(2 * MOST_NOTES):
        notes.note("evaluation", {"mean_return": 1.0}, number / 2)
    assert feed.count == 2 * MOST_NOTES
    for _ in range(10 * MOST_NOTES):
        notes.note("refused", {}, 1.0)
    notes.close()
    assert feed.count < 3.1 * MOST_NOTES


@pytest.mark.parametrize(
    ("topic", "about"),
    [
        ("failure", {"name": "sampler-0", "summary": "x" * 8000, "traceback": "\U0001f4a5" * 8000}),
        ("request", {"who": "me", "text": "\x01" * 500, "line": "\x01" * 600}),
        ("evaluation", {"best": True, "info": {"\U0001f4a5" * 75 + f"{key:05}": 1.0 for key in range(64)}}),
        ("hello", {"name": "sampler-0", "host": "\u1234" * 8000}),
    ],
)
def test_a_flood_of_long_notes_does_not_fill_the_disk(tmp_path, topic, about):
    """All are published and among the recent lines; the journal takes so many bytes at first, and then so
    many more in each second.
    """
    feed, folder = Feed(), RunFolder(tmp_path)
    notes, hour_s = Notes(folder, feed), 3600
    for second in range(hour_s):
        notes.note(topic, about, second)
        notes.note(topic, about, second)
    notes.close()
    assert feed.count == 2 * hour_s
    assert folder.metrics.stat().st_size < 1.1 * (MOST_BYTES + BYTES_PER_S * hour_s)
    assert max(map(len, folder.metrics.read_bytes().splitlines())) < 1.1 * LONGEST_NOTE
    assert sum(file.stat().st_size for file in tmp_path.glob("metrics.recent*")) <= journal.RECENT_BYTES
    lines = list(read_journal(folder.metrics, (topic,)))
    assert lines[-1]["t_s"] == hour_s - 1
    assert lines[-1].keys() == {*about, "t_s", "kind"}


def test_a_long_note_keeps_what_is_short_of_it_and_the_end_of_its_traceback():
    """Each field keeps its type."""
    about = {"name": "a-0", "count": 7, "traceback": "x" * 40_000 + "ValueError", "info": {"a": "y" * 9000}}
    cut, size = bounded(about)
    assert (cut["name"], cut["count"], cut["info"]) == ("a-0", 7, {})
    assert cut["traceback"].endswith("xValueError")
    assert size < 1000
    assert bounded({"traceback": "x" * 8000})[0] == {"traceback": "x" * 8000}


def test_a_week_of_figures_has_few_more_lines_than_its_first_hours():
    """Every second of the first half hour, then about as many for each doubling of the run's age."""
    thinning = Thinning()
    kept = [second for second in range(WEEK_S) if thinning.keeps("status", second)]
    assert kept[: int(WHOLE_S)] == [*range(int(WHOLE_S))]
    assert len(kept) < 12_500
    assert kept[-1] - kept[-2] <= WEEK_S / WHOLE_S + 1


def test_a_resumed_run_is_as_young_as_itself():
    """Its clock goes on from the first run's."""
    thinning = Thinning()
    thinning.began_s = WEEK_S
    assert all(thinning.keeps("status", WEEK_S + second) for second in range(100))


def test_what_the_journal_leaves_out_is_there_for_some_minutes(tmp_path, monkeypatch):
    """Both are read as one; best policies, the end and every episode are in the journal itself."""
    monkeypatch.setattr(module, "WHOLE_S", 10.0)
    monkeypatch.setattr(journal, "RECENT_BYTES", 4000)
    folder = RunFolder(tmp_path)
    notes = Notes(folder, Feed())
    for second in range(400):
        notes.figures("status", second, 1, lambda rows: {"processes": {}})
        notes.note("evaluation", {"mean_return": 1.0, "best": second == 333}, second)
        notes.episodes_ended(np.array([second, -second], np.float32))
        notes.note_episodes(second)
    assert (tmp_path / "metrics.recent.jsonl").stat().st_size <= 4000
    before = [line["t_s"] for line in read_journal(folder.metrics, ("status",))]
    assert before[-10:] == [*range(390, 400)]
    assert before == sorted(set(before))
    notes.figures("status", 400, 1, lambda rows: {}, last=True)
    notes.note_episodes(400, last=True)
    notes.close()
    kept = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [line["t_s"] for line in kept if line.get("best")] == [333]
    assert kept[-2]["t_s"] == kept[-1]["t_s"] == 400
    episodes = [line for line in kept if line["kind"] == "episodes"]
    assert (sum(line["count"] for line in episodes), len(episodes) < 100) == (800, True)
    assert (min(line["min"] for line in episodes), max(line["max"] for line in episodes)) == (-399, 399)


def test_training_episodes_are_told_at_most_once_a_second(tmp_path):
    """However often the run's files are written, and all of them."""
    feed, folder = Feed(), RunFolder(tmp_path)
    notes = Notes(folder, feed)
    for tenth in range(50):
        notes.episodes_ended(np.ones(3, np.float32))
        notes.note_episodes(tenth / 10)
    notes.note_episodes(5.0, last=True)
    notes.close()
    written = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert feed.count == len(written) == 6
    assert sum(line["count"] for line in written) == 150


def test_a_flood_of_episodes_is_counted_and_not_kept(tmp_path):
    """In a run of a week the journal has a line of them each five minutes, and a peer may send a gigabyte."""
    folder, rng = RunFolder(tmp_path), np.random.default_rng(1)
    notes, every = Notes(folder, Feed()), rng.normal(1e6, 3, (20, 100_000)).astype(np.float32)
    notes.note_episodes(WEEK_S)
    tracemalloc.start()
    for second, returns in enumerate(every):
        notes.episodes_ended(returns.copy())
        notes.episodes_ended(returns[:0])
        notes.note_episodes(WEEK_S + second)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < every.nbytes / 20
    notes.note_episodes(WEEK_S + 20, last=True)
    notes.close()
    first, rest = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert (first["count"], rest["count"]) == (100_000, every[1:].size)
    figures = [getattr(every[1:], name)() for name in ("min", "max")]
    figures += [getattr(every[1:], name)(dtype=float) for name in ("mean", "std")]
    np.testing.assert_allclose([rest[name] for name in ("min", "max", "mean", "std")], figures, rtol=1e-9)


def test_rows_of_many_processes_are_in_the_journal_once_in_ten_seconds(tmp_path):
    """All else is in each status; of fewer processes each status has all rows."""
    folder = RunFolder(tmp_path)
    notes = Notes(folder, Feed())
    for count in (MANY_ROWS, MANY_ROWS + 1):
        for t_s in range(25):
            rows = {f"sampler-{i}": {} for i in range(count)}
            notes.figures("status", t_s, count, lambda has, rows=rows: {"processes": rows if has else {}})
    notes.close()
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert all(len(line["processes"]) == MANY_ROWS for line in lines[:25])
    assert [line["t_s"] for line in lines[25:] if line["processes"]] == [0, 10, 20]
