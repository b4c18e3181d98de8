"""What a search has found: tables, a picture, and the topology that did best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import output
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.commands import picture, table
from spreeze_zmq.commands.search.phases import Finalist, shown
from spreeze_zmq.commands.search.space import Choices, Varied, overrides
from spreeze_zmq.commands.search.study import Row
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.topology.document import read_source
from spreeze_zmq.screen.terminal.numbers import decimal


def show_trials(rows: Sequence[Row], space: Sequence[Varied]) -> None:
    """Print a line for each trial, the best one first."""
    headings = ("trial", *(varied.key for varied in space), "return", "")
    cells = [
        (str(row.number), *row.values.values(), "" if row.score is None else decimal(row.score), row.state)
        for row in rows
    ]
    say("")
    table.show(headings, cells, wrapping=0)


def show_finalists(finalists: Sequence[Finalist]) -> None:
    """Print a line for each setting that ran with fresh seeds; in brackets what compares with no other."""
    rows = []
    for one in finalists:
        returns = [decimal(run.result) for run in one.runs]
        returns = [f"({text})" if run.cut else text for run, text in zip(one.runs, returns, strict=True)]
        mean = one.mean_return
        rows.append(
            (one.name, decimal(mean if mean > -math.inf else None), " ".join(returns), shown(one.values))
        )
    say("")
    table.show(("setting", "mean return", "with fresh seeds", "values"), rows)


def draw(rows: Sequence[Row], space: Sequence[Varied], path: Path) -> None:
    """Draw the return of each trial over each key.

    Raises:
        InputError: the file cannot be written, or not as a picture of its kind.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(space), 3.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(space), squeeze=False, sharey=True)[0]
    for varied, panel in zip(space, panels, strict=True):
        for style, own in (
            ("C0o", [row for row in rows if not row.state]),
            ("C1x", [row for row in rows if row.state and row.score is not None]),
        ):
            panel.plot([_place(varied, row) for row in own], [row.score for row in own], style, alpha=0.7)
        if isinstance(varied, Choices):
            panel.set_xticks(range(len(varied.texts)), varied.texts)
        elif varied.log:
            panel.set_xscale("log")
        panel.set_xlabel(varied.key)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("return (crosses: ended early, or cut by time)")
    try:
        with output(path) as file:
            picture.save(figure, file)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def _place(varied: Varied, row: Row) -> float:
    """Where a trial stands on the axis of a key."""
    text = row.values[varied.key]
    return varied.texts.index(text) if isinstance(varied, Choices) else float(text)


def write(
    source: Any, stated: Sequence[str], best: Mapping[str, str], plan: Plan, folder: Path, found_by: str
) -> Path:
    """Write a topology with the values that were found into a new file.

    Args:
        source: of ``topology.load``.
        stated: overrides of every run.
        best: the values.
        plan: of the topology as it is.
        folder: of a topology that comes with the package, which holds no file of the user's; another one is
            written beside its source, where its relative paths hold.
        found_by: the command.

    Returns:
        The path of the file.
    """
    import tomli_w

    own = Path(plan.topology_file).parent
    parent = folder if own == shipped_folder("launch") else own
    values = read_source(source, [*stated, *overrides(best)]).values
    names = (f"{plan.name}_found{number}.toml" for number in ("", *map(str, range(2, 10_000))))
    path = next(parent / name for name in names if not (parent / name).exists())
    path.write_text(f"# Found by {found_by}\n{tomli_w.dumps(values)}", encoding="utf-8")
    return path
