"""Runs the launcher as a child of the user's process: shows its output, passes interrupts on to it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.command_line import handed_over
from spreeze_zmq.base.held_back import held_back
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.base.parent_death import bound_to_parent, exit_codes_kept

log = logging.getLogger("spreeze")

LAUNCHER = (*PROGRAM, "spreeze_zmq.commands.begin")
#: Variables that make programs write escape sequences to a pipe.
TERMINAL = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@dataclass(frozen=True)
class End:
    """How the launcher ended.

    Attributes:
        code: its exit code.
        message: what it wrote to standard error: the error, or what the run reached.
        interrupts: how often the user interrupted it.
    """

    code: int
    message: str
    interrupts: int


@exit_codes_kept(required=True)
def launch(arguments: Sequence[str], import_paths: Sequence[str], *, show: bool) -> End:
    """Run the launcher to its end.

    The first interrupt of this process makes the launcher end the run properly, a second one at once.

    Args:
        arguments: its command line, of any length.
        import_paths: more folders from which it and its processes import modules.
        show: whether to show its output: as a live view if this process has a terminal, else line by line.

    Raises:
        InputError: SIGCHLD is ignored, and this is not the main thread.
    """
    environment = dict(os.environ)
    show = show and not getattr(sys.stdout, "closed", sys.stdout is None)
    own = sys.__stdout__
    in_terminal = show and own is not None and sys.stdout is own and own.isatty()
    if not in_terminal:  # a notebook's server may have been started in a terminal
        environment = {name: value for name, value in environment.items() if name not in TERMINAL}
    paths = os.pathsep.join([*import_paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    output = None if in_terminal else subprocess.PIPE if show else subprocess.DEVNULL
    child: subprocess.Popen[str] | None = None
    lines, interrupts = _Lines(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        try:
            while child is None or child.returncode is None:  # one that has ended may have said more
                try:
                    if child is None:
                        with held_back([signal.SIGINT]):  # else one could have begun of which nobody knows
                            child = _started(arguments, environment, output, words)
                    for line in child.stdout or ():
                        lines.show(line.rstrip("\n"))
                    child.wait()
                except KeyboardInterrupt:
                    if child is None:
                        raise
                    interrupts += 1
                    child.send_signal(signal.SIGINT)
        finally:  # another exception must not leave the run behind
            if child is not None and child.returncode is None:
                child.terminate()
                child.wait()
        words.seek(0)
        message = words.read().strip()
    if show and child.returncode == 0:
        lines.end(message)
    return End(child.returncode, message, interrupts)


def _started(
    arguments: Sequence[str], environment: Mapping[str, str], output: int | None, words: IO[str]
) -> subprocess.Popen[str]:
    """The launcher's process; an interrupt comes to it as soon as it begins."""
    bind = bound_to_parent(signal.SIGTERM)

    def prepare() -> None:
        bind()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    with handed_over(arguments) as (given, passed):
        return subprocess.Popen(
            [*LAUNCHER, *given],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=words,
            text=True,
            errors="replace",
            pass_fds=passed,
            start_new_session=True,  # the terminal's Ctrl-C reaches only this process
            preexec_fn=prepare,
        )


class _Lines:
    """Prints plain lines; in a notebook a line of figures replaces the one before. Where one cannot be
    written, as where its reader has left or the disk is full, nothing is any more, and the run goes on.
    """

    def __init__(self) -> None:
        self._display: Any = None
        self._in_notebook = "ipykernel" in sys.modules and _has_kernel()
        self._fails = False

    def show(self, line: str) -> None:
        """Print a note, or replace the figures."""
        is_note = not self._in_notebook or line.startswith("note ")
        self._attempt(lambda: say(line, flush=True) if is_note else self._replace(line))

    def end(self, message: str) -> None:
        """Print what the run has reached."""
        self._attempt(lambda: say(message))

    def _replace(self, line: str) -> None:
        from IPython.display import display

        text = {"text/plain": line}
        if self._display is None:
            self._display = display(text, raw=True, display_id=True)
        else:
            self._display.update(text, raw=True)

    def _attempt(self, write: Callable[[], None]) -> None:
        if self._fails:
            return
        try:
            write()
        except Exception as error:  # of a stream that may be anybody's
            self._fails = True
            log.warning("the lines of this run are shown no more, the run itself is as it was: %r", error)


def _has_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
