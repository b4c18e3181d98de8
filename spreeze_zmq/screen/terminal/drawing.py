"""Draws a run in a terminal of any size; where it is too low, the least important panels are left out."""

from __future__ import annotations

from rich.text import Text

from spreeze_zmq.base.charset import fitted
from spreeze_zmq.screen.terminal.chart import Returns, curve
from spreeze_zmq.screen.terminal.panels import Line, Panel, Scene, panels_of

#: Greatest width of lines of figures and the curve: wider lines are hard to follow.
WIDEST = 120
LOWEST_CURVE, HIGHEST_CURVE = 5, 16
#: Empty lines that are kept beside a high curve.
GAPS = 4


def frame(scene: Scene, width: int, height: int, encoding: str = "utf-8") -> Text:
    """Draw the scene in at most ``height`` lines of at most ``width`` columns of an encoding's characters."""
    width = min(width, WIDEST)
    returns = Panel(6, [])
    panels = panels_of(scene, width, returns)
    room = _choose(panels, height)
    if scene.status and room >= LOWEST_CURVE:
        gaps = GAPS if room >= LOWEST_CURVE + 2 * GAPS else 0
        returns.lines = _curve(scene.returns, width, min(room - gaps, HIGHEST_CURVE))
        room -= len(returns.lines)
    return _text(panels, width, room, encoding)


def _choose(panels: list[Panel], height: int) -> int:
    """Cut the lines of the least important panels until all fit; returns the number of lines left over."""
    room = height
    for panel in sorted(panels, key=lambda panel: panel.rank):
        panel.lines = panel.lines[:room]
        room -= len(panel.lines)
    return room


def _text(panels: list[Panel], width: int, room: int, encoding: str) -> Text:
    """All lines, with empty ones between panels as far as ``room`` allows."""
    lines: list[Text] = []
    for panel in (panel for panel in panels if panel.lines):
        if lines and not panel.joined and room > 0:
            lines.append(Text())
            room -= 1
        for pieces in panel.lines:
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
