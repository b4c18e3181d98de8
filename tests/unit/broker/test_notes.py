"""The broker's notes in a long run and in a flood."""

from spreeze_zmq.base.files import read_journal
from spreeze_zmq.broker.notes import MANY_ROWS, MOST_NOTES, Notes
from spreeze_zmq.run.folder import RunFolder


class Feed:
    """Counts what is published."""

    count = 0

    def publish(self, message):
        """One entry."""
        self.count += 1


def test_a_long_run_notes_every_evaluation_and_a_flood_is_cut(tmp_path):
    """Two evaluations a second for three hours are all noted; a flood of refusals is not."""
    feed, folder = Feed(), RunFolder(tmp_path)
    notes = Notes(folder, feed)
    for number in range(2 * MOST_NOTES):
        notes.note("evaluation", {"mean_return": 1.0}, number / 2)
    assert feed.count == len(list(read_journal(folder.metrics))) == 2 * MOST_NOTES
    for _ in range(10 * MOST_NOTES):
        notes.note("refused", {}, 1.0)
    notes.close()
    assert feed.count < 3.1 * MOST_NOTES


def test_rows_of_many_processes_are_in_the_journal_once_in_ten_seconds(tmp_path):
    """All else is in each status; of fewer processes each status has all rows."""
    folder = RunFolder(tmp_path)
    notes = Notes(folder, Feed())
    for count in (MANY_ROWS, MANY_ROWS + 1):
        for t_s in range(25):
            status = {"env_steps": t_s, "processes": {f"sampler-{i}": {} for i in range(count)}}
            notes.journal.write("status", t_s, notes.kept(status, t_s))
    notes.close()
    lines = list(read_journal(folder.metrics))
    assert [line["env_steps"] for line in lines] == [*range(25), *range(25)]
    assert all(len(line["processes"]) == MANY_ROWS for line in lines[:25])
    assert [line["t_s"] for line in lines[25:] if line["processes"]] == [0, 10, 20]
