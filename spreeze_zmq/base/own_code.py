"""The code of the user's own that results depend on: what its modules define, and those beside it that they
import.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import is_users
from spreeze_zmq.base.importing import searched_now
from spreeze_zmq.base.once import digest
from spreeze_zmq.base.provenance import LEFT_BEHIND, OURS, PACKAGES, normal

#: Bytes of code that are followed, and of the largest other file that counts.
MOST_BYTES, MOST_OF_A_FILE = 1_000_000, 64_000_000
#: How the names of files end that describe a robot or a task. Others may be what the code writes.
DESCRIBING = re.compile(
    r"[^\0\n]{1,200}\.(xml|mjcf|mjb|urdf|xacro|sdf|obj|stl|ya?ml|toml|ini|cfg)", re.IGNORECASE
)
#: Whose call begins a run: the settings of one stand in a topology or a script, and in run.json.
BEGINS = "train"


def code_of(modules: Sequence[str], arguments: Any = None) -> dict[str, str]:
    """What modules depend on beside this library and ``provenance.PACKAGES``, sorted by name. Nothing is
    imported, and of more than ``MOST_BYTES`` of code the rest is left out.

    Digests of files of the user's, by their names from the folder of imports on, as ``arm/env.py``: of what
    the modules, and those that they import, define, without docstrings, comments on lines of their own and
    what only begins a run;
    and of files beside them that they or the arguments name and that describe a robot or a task. And the
    versions of installed packages that the modules are of or import, where the two have one name.

    Args:
        modules: dotted names; empty ones are passed over.
        arguments: plain data in which texts may name files.
    """
    found, named = dict[str, str](), list(_texts(arguments))
    tops = {module.partition(".")[0] for module in modules}
    for name, path, content, tree in _followed(modules):
        if tree is not None:
            tops |= {module.partition(".")[0] for module in _imports(tree, "")}
            named += [str(path.parent / text) for text in _paths(tree) if DESCRIBING.fullmatch(text)]
        found[name] = digest(content if tree is None else _defining(content, tree))
    for text in dict.fromkeys(named):
        with contextlib.suppress(OSError, ValueError):
            path = Path(text)
            if DESCRIBING.fullmatch(text) and path.is_file() and path.stat().st_size <= MOST_OF_A_FILE:
                found[path.name] = digest(found.get(path.name, ""), path.read_bytes())
    return dict(sorted({**dict(_versions(tops)), **found}.items()))


def is_file(name: str) -> bool:
    """Whether a name of :func:`code_of` is that of a file, not of a package."""
    return "." in name


def edited(before: Mapping[str, Mapping[str, str]], modules: Sequence[str], arguments: Any = None) -> str:
    """The files of modules that were edited since a plan had ``before`` as its ``own_code``, with a comma
    between two; empty for none. Of what is found in one of the two places alone nothing is said.
    """
    known = {name: made for code in before.values() for name, made in code.items() if is_file(name)}
    here = code_of(modules, arguments) if known else {}
    return ", ".join(name for name in here if name in known and here[name] != known[name])


def changed_files(before: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The files of an environment's code that are :func:`changed` between the ``own_code`` of two plans, with
    a comma between two; empty for none.
    """
    names = changed(before.get("environment"), here.get("environment", {}))
    return ", ".join(name for name in names if is_file(name))


def changed(before: Any, here: Mapping[str, str]) -> list[str]:
    """The names that stand for other code in two results of :func:`code_of`, or in one alone; none where what
    was before is not stated.
    """
    if not isinstance(before, Mapping):
        return []
    return [name for name in sorted({*before, *here}) if before.get(name) != here.get(name)]


def _versions(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The installed packages that have the names of modules, and their versions."""
    from importlib import metadata  # with email, which takes as long as zmq

    for name in {normal(module) for module in modules} - {OURS, *PACKAGES, *sys.stdlib_module_names}:
        with contextlib.suppress(metadata.PackageNotFoundError, *LEFT_BEHIND):
            yield name, metadata.version(name)


def _followed(modules: Iterable[str]) -> Iterator[tuple[str, Path, bytes, ast.Module | None]]:
    """Name, place and content of the files of modules that are the user's, and of those that these import,
    the nearest first, with their code where it can be read.
    """
    waiting, seen, size = deque(filter(None, modules)), set[str](), 0
    while waiting:
        module = waiting.popleft()
        for name, path in _files(module):
            if str(path) in seen or not is_users(str(path)):
                continue
            seen.add(str(path))
            with contextlib.suppress(OSError):
                content, tree = path.read_bytes(), None
                size += len(content)
                if size > MOST_BYTES:
                    return
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    tree = ast.parse(content)
                    waiting += _imports(tree, ".".join(Path(name).parent.parts))
                yield name, path, content, tree


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """The files of a module and of the packages that it is in, the outermost first."""
    top, *parts = module.split(".")
    if (spec := _top(top)) is None:
        return
    folders = [Path(place).absolute() for place in spec.submodule_search_locations or ()]
    if spec.has_location and spec.origin:
        path = Path(spec.origin).absolute()
        yield (f"{top}/{path.name}" if folders else path.name), path
    name = top
    for part in parts:
        name, inner = f"{name}/{part}", [folder / part for folder in folders]
        if packages := [place / "__init__.py" for place in inner if (place / "__init__.py").is_file()]:
            yield f"{name}/__init__.py", packages[0]
        elif files := [place.with_name(f"{part}.py") for place in inner if Path(f"{place}.py").is_file()]:
            yield f"{name}.py", files[0]
            return
        folders = [place for place in inner if place.is_dir()]


def _top(name: str) -> ModuleSpec | None:
    """Where a module without dots would be imported from, or has been."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    if (spec := PathFinder.find_spec(name, searched_now(sys.path))) is not None:
        return spec
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(name)  # of an editable installation, for instance
    return None


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The modules that the code of one in ``package`` imports; what is imported from one may be another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*above, node.module or ""]))
            if base:
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _defining(content: bytes, tree: ast.Module) -> bytes:
    """The lines of code, the same in each release of Python, without docstrings, comments on lines of their
    own and what is the program's alone: from the first call on that begins a run only definitions count.
    """
    left_out, is_over = list[ast.stmt](), False
    for node in tree.body:
        is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef)
        is_over = is_over or (not is_definition and _begins_a_run(node))
        left_out += [node] if not is_definition and (is_over or _is_of_a_program(node)) else []
    for owner in ast.walk(tree):
        body = getattr(owner, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            left_out += [body[0]] if body[0].lineno > getattr(owner, "lineno", 0) else []
    numbers = {line for node in left_out for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    kept = (line.rstrip() for number, line in enumerate(content.splitlines(), 1) if number not in numbers)
    return b"\n".join(line for line in kept if line and not line.lstrip().startswith(b"#"))


def _is_of_a_program(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def _begins_a_run(node: ast.stmt) -> bool:
    called = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(BEGINS in (getattr(each, "id", ""), getattr(each, "attr", "")) for each in called)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _paths(tree: ast.Module) -> Iterator[str]:
    """The texts in code that may name a file beside it, of calls and divisions those at the end together, as
    in ``os.path.join(here, "assets", "arm.xml")`` and ``HERE / "assets" / "arm.xml"``.
    """
    for node in ast.walk(tree):
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
