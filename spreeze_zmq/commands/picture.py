"""Pictures that commands draw: their kind is what the name of their file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import check_output

#: Kind of a picture whose name has no ending.
DEFAULT = "png"


def check(path: Path) -> None:
    """Raise InputError where the name is that of no kind of picture, or no file can be written there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    if _kind_of(path) not in kinds:
        raise InputError(
            f"--png {path}: no kind of picture is called {_kind_of(path)}; expected a name that ends in "
            f".{DEFAULT}, or in one of {', '.join(sorted(kinds))}"
        )
    check_output(path)


def save(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib into exactly this file.

    Raises:
        InputError: this kind of picture cannot be made here, as one that needs TeX.
        OSError: it cannot be written.
    """
    try:
        figure.savefig(path, format=_kind_of(path))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"--png: a picture of kind {_kind_of(path)} cannot be made: {error}") from None


def _kind_of(path: Path) -> str:
    return path.suffix[1:].lower() or DEFAULT
