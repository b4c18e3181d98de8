"""The releases that a run is begun with, as ``packages`` of its run.json has them, beside those of today."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base import provenance
from spreeze_zmq.base.files import read_whole
from spreeze_zmq.base.own_code import changed, is_file
from spreeze_zmq.base.trust import MOST_BYTES, RUN_FILE
from spreeze_zmq.nn.native import library as native

#: Characters of a version that another file states.
MOST = 60


def releases() -> dict[str, str]:
    """Of Python, this library and the packages that results depend on, and the name of the native layers that
    learners on a CPU load; "none" for what is missing.
    """
    return {
        "python": platform.python_version(),
        **provenance.versions(),
        "native": native.expected() or "none",
    }


def other_releases(before: Any) -> list[str]:
    """A word on each release that is another one here, as ``torch 2.12.0 (here 2.13.0)``; none on what is not
    stated, as in a run.json of earlier.

    Args:
        before: the ``packages`` of a run.json, of whoever wrote it.
    """
    stated, here = before if isinstance(before, Mapping) else {}, releases()
    unlike = (name for name in here if name in stated and stated[name] != here[name])
    return [f"{name} {str(stated[name])[:MOST]} (here {here[name]})" for name in unlike]


def other_code(before: Any, here: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A word on each file of the user's, and each package that it needs, that is another one here; none on
    what is not stated, as in a run.json of earlier.

    Args:
        before: the ``own_code`` of a run.json, of whoever wrote it.
        here: that of a plan.
    """
    stated = before if isinstance(before, Mapping) else {}
    words = list[str]()
    for table, code in here.items():
        for name in changed(stated.get(table), code):
            was, now = (str(each[name])[:MOST] for each in (stated[table], code))
            words.append(f"{name[:MOST]} " + ("has changed" if is_file(name) else f"{was} (here {now})"))
    return list(dict.fromkeys(words))


def version_of(run: Path) -> str:
    """The version of this library that the run in a folder was begun with, after a comma; empty where its
    run.json, whoever wrote it, does not say it.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        stated = json.loads(read_whole(run / RUN_FILE, MOST_BYTES))["packages"]["spreeze_zmq"]
        return f", {str(stated)[:MOST]}"
    return ""
