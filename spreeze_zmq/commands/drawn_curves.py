"""Draws the joint curves of settings, for ``spreeze compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.commands import picture
from spreeze_zmq.commands.setting import Setting
from spreeze_zmq.run.curves import AXES, join, profile

#: Kinds of lines in a picture: the next one where all of its colours have been used.
LINES, COLOURS = ("solid", "dashed", "dotted", "dashdot"), 10


def draw(groups: Sequence[Setting], path: Path) -> None:
    """Draw joint curves with their interval, and single runs thin: a row an environment, a column an axis,
    and one for the profile of best returns where a setting has several runs.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    envs = list(dict.fromkeys(group.env for group in groups))
    width = len(AXES) + any(len(group.runs) > 1 for group in groups)
    figure = Figure(figsize=(5 * width, 4.2 * len(envs)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(envs), width, squeeze=False)
    for env, row in zip(envs, panels, strict=True):
        own = [group for group in groups if group.env == env]
        for axis, panel in zip(AXES, row, strict=False):
            for number, group in enumerate(own):
                _draw_group(panel, group, axis, _line(number))
            if panel is not row[0]:
                panel.sharey(row[0])
            panel.set_xlabel(AXES[axis])
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            panel.grid(alpha=0.3)
        if width > len(AXES):
            _draw_profile(row[-1], own)
        row[0].set_ylabel("return of evaluations")
        row[0].set_title(env, loc="left")
        row[0].legend(loc="best", fontsize="small")
    picture.save(figure, path)


def _line(number: int) -> dict[str, str]:
    """The colour and kind of line of a setting: no two of forty are alike."""
    return {"color": f"C{number % COLOURS}", "linestyle": LINES[number // COLOURS % len(LINES)]}


def _draw_group(panel: Any, group: Setting, axis: str, line: Mapping[str, str]) -> None:
    label = group.label + (f" ({len(group.runs)} runs)" if len(group.runs) > 1 else "")
    joint = join(group.curves, axis) if len(group.curves) > 1 else None
    for number, curve in enumerate(group.curves):
        style = {"alpha": 0.3, "linewidth": 0.8} if joint else {"label": label if number == 0 else None}
        panel.plot(curve.x[axis], curve.mean_return, drawstyle="steps-post", **line, **style)
    if joint:
        panel.plot(joint.x, joint.middle, label=label, **line)
        panel.fill_between(joint.x, joint.low, joint.high, color=line["color"], alpha=0.2, linewidth=0)


def _draw_profile(panel: Any, groups: Sequence[Setting]) -> None:
    """Draw which share of the runs of each setting has a higher best return than each level."""
    every = np.concatenate([group.best for group in groups])
    span = np.ptp(every) or 1.0
    levels = np.linspace(every.min() - 0.05 * span, every.max() + 0.05 * span, 500)
    for number, group in enumerate(groups):
        panel.plot(levels, profile(group.best, levels), **_line(number))
    panel.set_xlabel("best return")
    panel.set_ylabel("share of runs with more")
    panel.grid(alpha=0.3)
