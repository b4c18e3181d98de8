"""Returns of several methods on several tasks over env steps, transitions trained on, wall time and
core-seconds: one table of text for each axis, and one picture.

Used by ``published.py`` and ``contest.py``. A :class:`Line` is one method on one task. Its return at a place
is that of the last evaluation at or before it, by seed; the mean of the seeds counts, the worst one stands
beside it. Nothing is said of a place before which the last evaluation is at less than half of it.
"""

import textwrap
from dataclasses import dataclass

import numpy as np
import whole_runs

from spreeze_zmq.run.curves import AXES

#: Axis -> the places whose returns are in its table.
PLACES = {
    "env_steps": (1e5, 3e5, 1e6, 3e6, 1e7),
    "trained_transitions": (5.12e6, 1.536e7, 5.12e7, 1.536e8, 5.12e8),
    "wall_s": (60, 180, 300, 600, 1200, 3600),
    "core_s": (60, 180, 300, 600, 1200, 3600, 7200),
}
#: Where the pictures begin.
BEGIN = {"env_steps": 3e3, "trained_transitions": 3e5, "wall_s": 5, "core_s": 5}
#: Letters of a line of the legend.
LABEL = 50


@dataclass(frozen=True)
class Line:
    """One method on one task.

    Attributes:
        who: the method.
        env: the task's Gymnasium id.
        seeds: how many runs.
        over: axis -> places ``[K]``, mean return ``[K]`` and that of the worst seed ``[K]``, up to where the
            shortest run ends. An axis that is not known is not there.
    """

    who: str
    env: str
    seeds: int
    over: dict

    @property
    def task(self):
        """The id without its version."""
        return self.env.rpartition("-v")[0] or self.env

    def at(self, axis, place):
        """The mean return and that of the worst seed at a place; None where the line says nothing of it."""
        if axis not in self.over:
            return None
        x, mean, worst = self.over[axis]
        last = int(np.searchsorted(x, place, side="right")) - 1
        if last < 0 or place > x[-1] or x[last] < place / 2:
            return None
        return float(mean[last]), float(worst[last])


def line_of(who, env, curves):
    """The line of some runs, given as curves of ``spreeze_zmq.run.curves``, which may lack axes."""
    over = {}
    for axis in AXES:
        if any(axis not in curve.x or np.isnan(curve.x[axis]).any() for curve in curves):
            continue
        begin, end = max(curve.x[axis][0] for curve in curves), min(curve.x[axis][-1] for curve in curves)
        places = np.unique(np.concatenate([curve.x[axis] for curve in curves]))
        places = places[(places >= begin) & (places <= end)]
        if len(places):
            returns = np.array([curve.at(axis, places) for curve in curves])
            over[axis] = places, returns.mean(0), returns.min(0)
    return Line(who, env, len(curves), over)


def short(number):
    """``300k`` for 300,000."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def table(lines, axis, places=None):
    """The rows of a Markdown table: returns over an axis, those of the worst seed in brackets. Places that no
    line reaches are left out, so are lines that reach none.
    """
    found = {place: [line.at(axis, place) for line in lines] for place in places or PLACES[axis]}
    found = {place: cells for place, cells in found.items() if any(cells)}
    if not found:
        return []
    unit = " s" if axis.endswith("_s") else ""
    text = [f"| {AXES[axis]} | | seeds | " + " | ".join(f"{short(place)}{unit}" for place in found) + " |"]
    text += ["|---" * (3 + len(found)) + "|"]
    for number, line in enumerate(lines):
        cells = [each[number] for each in found.values()]
        if any(cells):
            shown = " | ".join("" if cell is None else _cell(line, *cell) for cell in cells)
            text.append(f"| {line.env} | {line.who} | {line.seeds} | {shown} |")
    return text


def _cell(line, mean, worst):
    return f"{mean:,.0f}" + (f" ({worst:,.0f})" if line.seeds > 1 else "")


def tables(lines, axes=tuple(PLACES)):
    """The tables of all axes, with an empty line between them."""
    found = [text for axis in axes if (text := table(lines, axis))]
    return "\n\n".join("\n".join(text) for text in found)


def draw(lines, path):
    """A row for each task, a column for each axis that is known; what has one place there is a cross."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, NullFormatter

    tasks = list(dict.fromkeys(line.task for line in lines))
    axes = [axis for axis in PLACES if any(axis in line.over for line in lines)]
    names = list(dict.fromkeys(line.who for line in lines))
    colours = {who: colormaps["tab20"](number % 20) for number, who in enumerate(names)}
    figure = Figure(figsize=(4 * len(axes) + 4, 3.6 * len(tasks)))
    panels = figure.subplots(len(tasks), len(axes), squeeze=False, sharey="row")
    for task, row in zip(tasks, panels, strict=True):
        labels = {}
        for axis, panel in zip(axes, row, strict=True):
            own = [line for line in lines if line.task == task and axis in line.over]
            for line in own:
                label = textwrap.fill(f"{line.who}, {line.env} ({line.seeds})", LABEL)
                labels[label] = _drawn(panel, line, axis, colours[line.who])
            panel.set(xlabel=AXES[axis], xscale="log")
            panel.set_xlim(left=BEGIN[axis])
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.grid(alpha=0.3)
            if not own:
                panel.set_axis_off()
        row[0].set(title=task, ylabel="return, mean of the seeds")
        beside = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
        row[-1].legend(labels.values(), labels, fontsize="x-small", **beside)
    whole_runs.draw(figure, path)


def _drawn(panel, line, axis, colour):
    """Draw a line, and the room to its worst seed; returns what the legend shows."""
    x, mean, worst = (values[line.over[axis][0] > BEGIN[axis] / 10] for values in line.over[axis])
    panel.fill_between(x, worst, mean, step="post", color=colour, alpha=0.1, linewidth=0)
    return panel.plot(x, mean, "x" if len(x) == 1 else "-", color=colour, drawstyle="steps-post")[0]
