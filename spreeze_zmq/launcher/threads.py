"""Runs components as threads of the launcher's process: a whole run in one debugger."""

from __future__ import annotations

import bdb
import importlib.util
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import IO, Any

from spreeze_zmq.base.files import append_text
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import live, log_to
from spreeze_zmq.supervisor import GroupSpawner, Process, ProcessSpec

Trace = Callable[[FrameType, Any, Any], Any]
#: The name by which pdb traces one thread with ``sys.monitoring``, in ``python -m pdb`` from Python 3.14 on.
OF_ONE_THREAD = "bdbtracer"


def why_untraced() -> str:
    """Why a debugger does not trace the threads of components, in a line; empty where it does, or is none."""
    monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12
    if sys.gettrace() or not monitoring or monitoring.get_tool(monitoring.DEBUGGER_ID) != OF_ONE_THREAD:
        return ""
    begun = "import pdb; from spreeze_zmq.commands.launch import main; pdb.run('main()')"
    return (
        "python -m pdb stops in the main thread alone, in no component; one that stops in all begins by "
        f'python -c "{begun}" {shlex.join(sys.argv[1:])}'
    )


class ThreadSpawner:
    """Starts each Python component that is built on ``spreeze_zmq.component`` as a thread, and any other
    program, or one that inherits a port, as a process.

    Create it in the main thread, which a debugger traces: its trace function then traces the threads too.
    """

    def __init__(self) -> None:
        self._groups = GroupSpawner()
        self._stderr = _ThreadsStderr(sys.stderr)
        self._trace = _SharedTrace(trace) if (trace := sys.gettrace()) is not None else None
        sys.stderr = self._stderr
        log_to(self._stderr)  # type: ignore[arg-type]

    def spawn(self, spec: ProcessSpec) -> Process:
        program = Path(spec.command[1], "__main__.py") if len(spec.command) == 4 else Path()
        if spec.descriptors or not _is_ours(program):
            return self._groups.spawn(spec)
        return ComponentThread(spec, program, self._stderr, self._trace)

    def attend(self) -> None:
        self._groups.attend()

    def close(self) -> None:
        """End the processes; threads go on."""
        self._groups.close()


class ComponentThread:
    """One component in a thread, which can be asked to stop, but not be killed. It prints to the terminal."""

    has_printed = False

    def __init__(
        self, spec: ProcessSpec, program: Path, stderr: _ThreadsStderr, trace: _SharedTrace | None
    ) -> None:
        self._spec, self._program, self._stderr, self._trace = spec, program, stderr, trace
        self._component: Component | None = None
        self._code: int | None = None
        self._asked = ""
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_start = spec.log_path.stat().st_size if spec.log_path.exists() else 0
        threading.Thread(target=self._run, name=spec.name, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id, the same for all threads."""
        return os.getpid()

    def poll(self) -> int | None:
        return self._code

    def signal(self, number: int) -> None:
        self._asked = signal.Signals(number).name
        if self._component is not None:
            self._component.stop(self._asked)

    def _run(self) -> None:
        if self._trace is not None:
            sys.settrace(self._trace.call)
        role, _, index = self._spec.name.rpartition("-")
        with append_text(self._spec.log_path) as log:
            self._stderr.own.stream, code = log, 1
            try:
                code = live(role, self._main, [self._spec.command[2], index], self._joined)
            finally:
                self._code = code

    def _main(self, component: Component) -> None:
        _module_of(self._program).main(component)

    def _joined(self, component: Component) -> None:
        self._component = component
        if self._asked:
            component.stop(self._asked)


class _ThreadsStderr:
    """Standard error by thread: each component's goes to its log. Standard output stays with the terminal,
    for ``print`` and a debugger's prompt.
    """

    def __init__(self, terminal: IO[str]) -> None:
        self.own = threading.local()
        self._terminal = terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self.own, "stream", self._terminal), name)


class _SharedTrace:
    """One debugger's trace function for several threads: while it waits for its user, all of them stop at
    their next traced line, and ``step`` stays in the thread that it was entered for.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._debugger = trace, getattr(trace, "__self__", None)
        self._lock = threading.RLock()
        self._stepping: int | None = None

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace one event; breakpoints count in every thread."""
        with self._lock:
            here = threading.get_ident()
            if self._stepping not in (None, here):
                return self.call
            try:
                again = self._trace(frame, event, argument)
            except bdb.BdbQuit:  # the debugger's user ends the run
                signal.raise_signal(signal.SIGINT)
                raise
            self._stepping = here if getattr(self._debugger, "stopframe", self) is None else None
            return self.call if again is not None else None


_loading = threading.Lock()


def _module_of(program: Path) -> ModuleType:
    """The module of a component's ``__main__.py``, executed once for all of its threads."""
    name = f"spreeze_component_{program.parent.name}"
    with _loading:
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, program)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[name]


def _is_ours(program: Path) -> bool:
    """Whether a program has a ``main(component)`` that it hands to ``component.run``."""
    try:
        text = program.read_text(encoding="utf-8")
    except OSError:
        return False
    return "from spreeze_zmq.component" in text and "def main(component" in text
