"""The broker's notes in a long run and in a flood."""

from spreeze_zmq.base.files import read_journal
from spreeze_zmq.broker.notes import MOST_NOTES, Notes
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
