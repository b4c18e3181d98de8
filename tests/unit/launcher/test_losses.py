"""What a run ended without: which of it is a failure of the run, and when that is judged."""

import json

import pytest

from spreeze_zmq.launcher.outcome import Losses
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.supervisor import GaveUp

PART = {"1": {"rounds": 3, "lost": False}}


def ended(folder, losses, *, stopped_whole=False):
    """The line at the end, and the names in summary.json."""
    (folder / "summary.json").write_text("{}")
    line = losses.write(RunFolder(folder), stopped_whole=stopped_whole)
    return line, list(json.loads((folder / "summary.json").read_text()).get("lost", {}))


@pytest.mark.parametrize(
    ("living", "groups", "lost"),
    [
        (["member-0"], PART, []),
        (["member-0"], {"1": {"rounds": 3, "lost": True}}, ["member-0"]),
        (["member-0"], {}, ["member-0"]),
        ([], PART, ["member-0"]),
    ],
)
def test_a_group_that_has_failed_is_lost_unless_it_is_part_of_the_rounds_again(
    tmp_path, living, groups, lost
):
    """Also while it is still started again and again."""
    losses = Losses()
    losses.fail("member-0", "group 1 has ended: ValueError: no")
    losses.settle(living, groups, {}, [])
    line, names = ended(tmp_path, losses)
    assert names == lost
    assert ("the run ended without group 1 (member-0): group 1 has ended: ValueError: no (" in line) == bool(
        lost
    )


def test_a_group_that_is_not_started_again_says_why_it_failed_last(tmp_path):
    """And the user hears of it at once."""
    losses, said = Losses(), []
    losses.fail("member-0", "ValueError: no")
    losses.add(GaveUp("member-0", "4 crashes within 1800 s"), said.append)
    assert said == [
        "group 1 (member-0) is lost, and the run goes on without it: 4 crashes within 1800 s, "
        "the last: ValueError: no"
    ]
    losses.settle([], PART, {}, [])
    assert "4 crashes within 1800 s, the last: ValueError: no (" in ended(tmp_path, losses)[0]


def test_the_page_is_no_loss(tmp_path):
    """An observer that stands for nothing; that it is gone for good is said."""
    losses, said = Losses(), []
    losses.fail("visualizer-0", "OSError")
    losses.add(GaveUp("visualizer-0", "4 crashes within 60 s"), said.append)
    losses.settle([], {}, {}, [])
    assert said == ["visualizer-0 is not started again: 4 crashes within 60 s; the page is gone"]
    assert (losses.gone, ended(tmp_path, losses)) == (said, ("", []))


def test_who_leaves_after_the_run_was_asked_to_end_is_not_missed(tmp_path):
    """And nobody is, where the signal to stop has reached all processes at once; a failure stays one."""
    losses = Losses()
    losses.fail("member-0", "ValueError")
    losses.settle([], {}, {"ssh desk2": "Connection refused"}, ["desk3 is gone"])
    losses.settle([], {}, {"ssh desk4": "Killed"}, [])
    line, names = ended(tmp_path, losses)
    assert names == ["ssh desk2", "member-0"]
    assert line.startswith("the run ended without ssh desk2: Connection refused; the run ended without group")
    assert losses.silent == ["desk3 is gone"]
    assert ended(tmp_path, losses, stopped_whole=True)[1] == ["member-0"]
