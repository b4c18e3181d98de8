"""Tables for people: every cell whole at any width."""

import pytest

from spreeze_zmq.commands.table import UNLIMITED, lines

HEADINGS = ("run", "best", "why it ended")
ROWS = [("pendulum-20261122-092756", "-1234.5", "return -150.2 >= -200"), ("b", "", "")]


def test_another_program_gets_a_line_for_each_row():
    """However long."""
    long = [("a", "1", "word " * 100)]
    assert len(lines(HEADINGS, long, UNLIMITED)) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(width):
    """Only the last column wraps."""
    shown = lines(HEADINGS, ROWS, width)
    assert max(map(len, shown)) <= width
    text = " ".join(" ".join(shown).split())
    assert "pendulum-20261122-092756" in text
    assert "-1234.5" in text
    assert [word for word in ROWS[0][2].split() if word not in text] == []


def test_columns_line_up():
    """Two spaces between them."""
    assert lines(("a", "b"), [("xx", "y"), ("z", "ww")], 80) == ["a   b", "xx  y", "z   ww"]


def test_in_a_narrow_terminal_each_row_is_a_paragraph():
    """It names what the headings would have, and leaves out what is empty."""
    assert lines(HEADINGS, ROWS, 40) == [
        "pendulum-20261122-092756",
        "  best -1234.5, why it ended return",
        "  -150.2 >= -200",
        "b",
    ]


def test_where_no_column_may_wrap_the_whole_table_fits_or_none_of_it():
    """Figures and their intervals belong together."""
    assert lines(("a", "b"), [("x", "1 [0, 2]")], 11, wrapping=0) == ["a  b", "x  1 [0, 2]"]
    assert lines(("a", "b"), [("x", "1 [0, 2]")], 10, wrapping=0) == ["x", "  b 1 [0,", "  2]"]


def test_several_columns_share_what_is_left():
    """The shorter one keeps its width."""
    [_, *shown] = lines(("k", "takes", "meaning"), [("key", "short", "word " * 20)], 60, wrapping=2)
    assert shown[0] == "key  short  " + " ".join(["word"] * 9)
