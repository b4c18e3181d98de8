"""Draws a run in a terminal of any size; where it is too low, the least important sections are left out."""

from __future__ import annotations

from rich.text import Text

from spreeze_zmq.base.charset import fitted
from spreeze_zmq.screen.terminal.chart import Returns, curve
from spreeze_zmq.screen.terminal.sections import Line, Scene, Section, sections_of

#: Greatest width of lines of figures and the curve: wider lines are hard to follow.
WIDEST = 120
LOWEST_CURVE, HIGHEST_CURVE = 5, 16
#: Empty lines that are kept beside a high curve.
GAPS = 4


def frame(scene: Scene, width: int, height: int, encoding: str = "utf-8") -> Text:
    """Draw the scene in at most ``height`` lines of at most ``width`` columns of an encoding's characters."""
    width = min(width, WIDEST)
    returns = Section(6, [])
    sections = sections_of(scene, width, returns)
    room = _choose(sections, height)
    if scene.status and room >= LOWEST_CURVE:
        gaps = GAPS if room >= LOWEST_CURVE + 2 * GAPS else 0
        returns.lines = _curve(scene.returns, width, min(room - gaps, HIGHEST_CURVE))
        room -= len(returns.lines)
    return _text(sections, width, room, encoding)


def _choose(sections: list[Section], height: int) -> int:
    """Cut the lines of the least important sections until all fit; returns the number of lines left over."""
    room = height
    for section in sorted(sections, key=lambda section: section.rank):
        section.lines = section.lines[:room]
        room -= len(section.lines)
    return room


def _text(sections: list[Section], width: int, room: int, encoding: str) -> Text:
    """All lines, with empty ones between sections as far as ``room`` allows."""
    lines: list[Text] = []
    for section in (section for section in sections if section.lines):
        if lines and not section.joined and room > 0:
            lines.append(Text())
            room -= 1
        for pieces in section.lines:
            line = Text.assemble(*((fitted(text, encoding), style) for text, style in pieces))
            if line.cell_len > width:
                line.truncate(width - 1)
                line.append(fitted("…", encoding))
            lines.append(line)
    return Text("\n", end="").join(lines)


def _curve(returns: Returns, width: int, height: int) -> list[Line]:
    points = returns.points
    if len(points) < 2:
        return []
    lines: list[Line] = [[(returns.title, "dim")]]
    for line in curve(points, width, height - 1):
        label, axis, dots = line.partition("│")
        lines.append([(label + axis, "dim"), (dots, "cyan")])
    return lines
