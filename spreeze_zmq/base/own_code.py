"""The code of the user's own that results depend on, as digests that a run keeps."""

from __future__ import annotations

import ast
import contextlib
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.once import digest
from spreeze_zmq.base.provenance import LEFT_BEHIND, OURS, PACKAGES, normal
from spreeze_zmq.base.sources import SourceFile, followed

#: How the names of files end that describe a robot or a task. Others may be what the code writes.
DESCRIBING = re.compile(
    r"[^\0\n]{1,200}\.(xml|mjcf|mjb|urdf|xacro|sdf|obj|stl|ya?ml|toml|ini|cfg)", re.IGNORECASE
)
#: The largest such file that counts.
MOST_OF_A_FILE = 64_000_000


def code_of(module: str, arguments: Any = None, before_s: float = math.inf) -> dict[str, str]:
    """What a module depends on beside this library and ``provenance.PACKAGES``, sorted by name. Nothing is
    imported, and of more than ``sources.MOST_BYTES`` of code the rest is left out.

    Digests of files of the user's, by their names from the folder of imports on, as ``arm/env.py``: of what
    the module, and those that it imports or names as an entry point, define; and of files that they or the
    arguments name and that describe a robot or a task. And the versions of installed packages that the module
    is of or imports, where the two have one name.

    Args:
        module: its dotted name; empty for none, where the arguments alone may name files.
        arguments: plain data in which texts may name files, in the current folder or beside the module.
        before_s: files that describe something and were written later, in seconds since 1970, are left out:
            the code itself may have written them.
    """
    found, texts = dict[str, str](), list(_texts(arguments))
    tops = {module.partition(".")[0]}
    named = [(Path(text).name, Path(text)) for text in texts]
    for source in followed([module]):
        tops |= {name.partition(".")[0] for name in source.imports}
        found[source.name] = digest(source.code)
        named += _beside(source, [*_paths(source), *texts])
    for name, path in named:
        with contextlib.suppress(OSError, ValueError):
            if name not in found and DESCRIBING.fullmatch(path.name) and path.is_file():
                about = path.stat()
                if about.st_size <= MOST_OF_A_FILE and about.st_mtime <= before_s:
                    found[name] = digest(path.read_bytes())
    return dict(sorted({**dict(_versions(tops)), **found}.items()))


def is_file(name: str) -> bool:
    """Whether a name of :func:`code_of` is that of a file, not of a package."""
    return "." in name


def changed(before: Any, here: Mapping[str, str]) -> list[str]:
    """The names that stand for other code in two results of :func:`code_of`. What is in one of them alone has
    not been looked at in the other: an import of more, or of less, has changed a file that both have.
    """
    known = before if isinstance(before, Mapping) else {}
    return [name for name in here if name in known and known[name] != here[name]]


def changed_files(before: Any, here: Mapping[str, str]) -> list[str]:
    """The files among what is :func:`changed`."""
    return [name for name in changed(before, here) if is_file(name)]


def _versions(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The installed packages that have the names of modules, and their versions."""
    known = {"", OURS, *PACKAGES, *sys.stdlib_module_names}
    for name in {normal(module) for module in modules} - known:
        from importlib import metadata  # with email, which takes as long as zmq

        with contextlib.suppress(metadata.PackageNotFoundError, *LEFT_BEHIND):
            yield name, metadata.version(name)


def _beside(source: SourceFile, texts: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Names and paths of what texts may name in the folder of a file or in one above, up to the folder of
    imports.
    """
    depth = len(Path(source.name).parts)
    root, folders = source.path.parents[depth - 1], source.path.parents[:depth]
    for text in filter(DESCRIBING.fullmatch, texts):
        for folder in folders:
            path = Path(os.path.normpath(folder / text.lstrip("/")))
            if path.is_relative_to(root):
                yield path.relative_to(root).as_posix(), path


def _paths(source: SourceFile) -> Iterator[str]:
    """The texts in code that may name a file, of calls and divisions those at the end together, as in
    ``os.path.join(here, "assets", "arm.xml")`` and ``HERE / "assets" / "arm.xml"``.
    """
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call):
            yield "/".join(_last(node.args))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield "/".join(_last(_divided(node)))


def _divided(node: ast.expr) -> list[ast.expr]:
    parts = list[ast.expr]()
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts.insert(0, node.right)
        node = node.left
    return [node, *parts]


def _last(nodes: Iterable[ast.expr]) -> list[str]:
    """The texts after the last node that is none."""
    texts = list[str]()
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        texts = [*texts, node.value] if is_text else []  # type: ignore[attr-defined]
    return texts


def _texts(data: Any) -> Iterator[str]:
    """All texts in plain data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        yield from (text for each in data.values() for text in _texts(each))
    elif isinstance(data, list | tuple):
        yield from (text for each in data for text in _texts(each))
