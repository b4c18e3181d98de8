"""The source files of the user's own modules, found and read without importing any."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from os.path import isdir, isfile
from pathlib import Path

from spreeze_zmq.base.errors import is_users
from spreeze_zmq.base.importing import searched_now

#: Bytes of code that are followed.
MOST_BYTES = 400_000
#: A text that names a class of a module, as Gymnasium's ``entry_point`` does.
ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
#: What runs when it is called.
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: This library, as others import it, and its function that begins a run.
LIBRARY, BEGINS = "spreeze_zmq", "train"


@dataclass(frozen=True)
class SourceFile:
    """One file of a module.

    Attributes:
        name: its path from the folder of imports on, as ``arm/env.py``.
        path: absolute.
        content: its bytes.
        statements: what it defines: all but what is the program's alone; None where it is no code of Python.
    """

    name: str
    path: Path
    content: bytes
    statements: Sequence[ast.stmt] | None

    @classmethod
    def of(cls, name: str, path: Path) -> SourceFile:
        """Read a file.

        Raises:
            OSError: it cannot be read.
        """
        content = path.read_bytes()
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return cls(name, path, content, _defining(_parsed(content)) if path.suffix == ".py" else None)
        return cls(name, path, content, None)

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """All parts of the statements."""
        return (node for statement in self.statements or () for node in ast.walk(statement))

    @property
    def code(self) -> bytes:
        """The lines of the statements, the same in each release of Python, without docstrings and comments on
        lines of their own; of what is no code all bytes.
        """
        if self.statements is None:
            return self.content
        numbers = {number for statement in self.statements for number in _lines(statement)}
        for owner in self.nodes:
            body = getattr(owner, "body", None)
            if isinstance(body, list) and body and _is_text(body[0]) and body[0].lineno > owner.lineno:  # type: ignore[attr-defined]
                numbers -= set(_lines(body[0]))
        lines = (
            line.rstrip() for number, line in enumerate(self.content.splitlines(), 1) if number in numbers
        )
        return b"\n".join(line for line in lines if line and not line.lstrip().startswith(b"#"))

    @property
    def imports(self) -> Iterator[str]:
        """The modules that it imports or names as an entry point; what comes from one may be another."""
        package = Path(self.name).parent.parts
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else ()
                if base := ".".join(filter(None, [*above, node.module or ""])):
                    yield from (f"{base}.{alias.name}" for alias in node.names)
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and ENTRY.fullmatch(node.value)
            ):
                yield node.value.partition(":")[0]


def followed(modules: Iterable[str]) -> Iterator[SourceFile]:
    """The files of modules that are the user's, and of those that these import, the nearest first; of code
    beyond ``MOST_BYTES`` what still fits.
    """
    waiting, seen, size = deque(filter(None, modules)), set[Path](), 0
    while waiting:
        for name, path in _files(waiting.popleft()):
            if path in seen or not is_users(str(path)):
                continue
            seen.add(path)
            with contextlib.suppress(OSError):
                source = SourceFile.of(name, path)
                size += (added := len(source.content) * (source.statements is not None))
                if size > MOST_BYTES:
                    size -= added
                    continue
                waiting += source.imports
                yield source


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
        if packages := [path for place in inner if isfile(path := place / "__init__.py")]:
            yield f"{name}/__init__.py", packages[0]
        elif files := [place.with_name(f"{part}.py") for place in inner if isfile(f"{place}.py")]:
            yield f"{name}.py", files[0]
            return
        folders = [place for place in inner if isdir(place)]


def _top(name: str) -> ModuleSpec | None:
    """Where a module without dots would be imported from, or has been."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    if (spec := PathFinder.find_spec(name, searched_now(sys.path))) is not None:
        return spec
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(name)  # of an editable installation, for instance
    return None


def _parsed(content: bytes) -> ast.Module:
    """The code of a file, parsed without a pause in which another thread could: CPython counts the depth of
    all that are parsed at once in one place, and raises SystemError in whoever finds another number there.
    """
    collects = gc.isenabled()
    gc.disable()  # finalizers are where threads change
    try:
        return ast.parse(content)
    finally:
        if collects:
            gc.enable()


def _defining(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a module but for texts and what is the program's: ``if __name__ == "__main__"`` with
    what is below, functions that begin a run, and from the first statement on that does what defines nothing.
    """
    begins, kept, is_over = _beginnings(tree), list[ast.stmt](), False
    for node in tree.body:
        if _is_text(node):
            continue
        if isinstance(node, ast.ClassDef) or not (begins(node) or is_over or _is_of_a_program(node)):
            kept.append(node)
        elif isinstance(node, FUNCTIONS):
            kept += [] if begins(node) else [node]
        else:
            is_over = is_over or begins(node)
    return kept


def _beginnings(tree: ast.Module) -> Callable[[ast.stmt], bool]:
    """Says whether a statement calls what begins a run, by the names under which the module has it."""
    names, libraries = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            libraries |= {alias.asname or alias.name for alias in node.names if alias.name == LIBRARY}
        elif isinstance(node, ast.ImportFrom) and node.module == LIBRARY:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == BEGINS}

    def is_one(called: ast.expr) -> bool:
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            return called.attr == BEGINS and called.value.id in libraries
        return isinstance(called, ast.Name) and called.id in names

    if not names | libraries:
        return lambda node: False
    return lambda node: any(is_one(each.func) for each in _run_by(node) if isinstance(each, ast.Call))


def _run_by(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement but for those of functions in it, which run later; of a function all."""
    waiting, is_function = [node], isinstance(node, FUNCTIONS)
    while waiting:
        yield (each := waiting.pop())
        if each is node or is_function or not isinstance(each, (*FUNCTIONS, ast.Lambda)):
            waiting += ast.iter_child_nodes(each)


def _is_of_a_program(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lines(node: ast.stmt) -> range:
    """The numbers of its lines, decorators included."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or node.lineno) + 1)
