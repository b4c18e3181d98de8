"""Shows a run: a frame that is redrawn in place in a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from spreeze_zmq.base.charset import all_printable, fitted, printable, spell_out
from spreeze_zmq.screen.terminal.drawing import frame
from spreeze_zmq.screen.terminal.panels import ENDED, LABEL, Scene
from spreeze_zmq.screen.terminal.words import RUNNING, plain_line

#: Time between two plain lines: at first, at most, and in between as a share of the run's time.
PLAIN_INTERVAL_S, LONGEST_PLAIN_INTERVAL_S, PLAIN_SHARE = 5.0, 60.0, 0.05
#: A process that waits longer than this gets a plain line.
PATIENCE_S = 5.0
#: A write that takes longer is abandoned: a stalled connection must not hold up the run.
STALLED_S = 2.0
#: Interval at which a terminal is redrawn without news: its size may have changed, and seconds pass.
REDRAW_S = 1.0
#: Least height of the last frame, and lines that stay free below it for the last words.
LAST_ROWS, WORDS_ROWS = 5, 14
#: Facts that a frame shows, from this height on.
FRAMED, FRAMED_ROWS = ("run", "run folder", "page"), 24
#: Notes that are kept, to be shown again after a change of the terminal's size, or once it takes output.
KEPT_LINES = 100


class View:
    """The display of a launcher; this base class shows nothing."""

    def begin(self, facts: Mapping[str, str]) -> None:
        """Show facts about the run, by title; called first."""

    def show_processes(self, stages: Mapping[str, str]) -> None:
        """Show the stage of each of the launcher's processes, by name; called several times a second."""

    def update(self, status: Mapping[str, Any]) -> None:
        """Show the broker's newest status."""

    def note(self, line: str) -> None:
        """Show one event."""

    def suspend(self) -> None:
        """Give the terminal back for a while; whatever is shown next takes it again."""

    def close(self) -> None:
        """End the display with the run."""


class StatusView(View):
    """Shows a run on a console. If the console is gone, the view goes silent and the run continues.

    Args:
        console: by default standard output.
        clock: returns monotonic seconds.
        plain: write plain lines even in a terminal, for a debugger that shares it.
    """

    def __init__(
        self,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        plain: bool = False,
    ) -> None:
        self._console = console or _console()
        self._clock = clock
        self._began_s = clock()
        self._scene = Scene()
        self._written_s = self._drawn_s = -math.inf
        self._written: Mapping[str, Any] = {}
        self._since_s: dict[str, float] = {}
        self._noted: dict[str, str] = {}
        self._said, self._unsaid = (deque[str](maxlen=KEPT_LINES) for _ in range(2))
        self._num_left_out = 0
        self._gone = self._complained = False
        self._draws = not plain and self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._size: ConsoleDimensions | None = None

    # --- the launcher's calls

    def begin(self, facts: Mapping[str, str]) -> None:
        """Show facts about the run, by title; called first."""
        facts = {title: printable(fact) for title, fact in facts.items()}
        self._scene.facts = {title: fitted(fact, self._console.encoding) for title, fact in facts.items()}
        for title, fact in facts.items():
            if self._draws and title in FRAMED and self._console.size.height >= FRAMED_ROWS:
                continue  # the frame shows it
            self._say(f"{title:{LABEL}}{fact}" if self._draws else f"note {title}: {fact}")

    def show_processes(self, stages: Mapping[str, str]) -> None:
        """Show the stage of each of the launcher's processes, by name; called several times a second."""
        now_s, before = self._clock(), self._scene.stages
        for name, stage in stages.items():
            if before.get(name) != stage:
                self._since_s[name] = now_s
        stages = {name: printable(stage) for name, stage in stages.items()}
        self._scene.stages = dict(stages)
        self._scene.lasted_s = {name: now_s - self._since_s[name] for name in stages}
        self._catch_up()
        if not self._draws:
            self._note_waits()
        elif before != stages or now_s - self._drawn_s >= REDRAW_S:
            self._attempt(self._draw)

    def update(self, status: Mapping[str, Any]) -> None:
        """Show the broker's newest status."""
        status = all_printable(status)
        self._scene.status = status
        self._catch_up()
        self._attempt(lambda: self._scene.returns.take(status))
        if self._draws:
            self._attempt(self._draw)
        elif status.get("state") != self._written.get("state") or self._is_time():
            self._attempt(self._write_line)

    def note(self, line: str) -> None:
        """Show one event, such as a restart; it stays above the figures."""
        self._say(line if self._draws else f"note {line}")

    def suspend(self) -> None:
        """Give the terminal back for a while; whatever is shown next takes it again."""
        if self._live is not None:
            self._attempt(self._live.stop)
            self._live = None
        self.note("suspended: the run goes on, without restarts; fg returns to it, Ctrl-C then ends it")

    def close(self) -> None:
        """Show the last figures and restore the terminal."""
        if not self._gone and not _takes_more(self._console.file):
            self._leave()
        if self._live is not None:
            self._scene.status = {**self._scene.status, "state": ENDED} if self._scene.status else {}
            self._attempt(self._draw)
            self._attempt(self._live.stop)
        elif not self._draws and self._scene.status and self._scene.status is not self._written:
            self._attempt(self._write_line)
        self._live, self._draws = None, False
        self._scene = Scene()

    # --- a terminal

    def _draw(self) -> None:
        size = self._console.size
        if self._live is not None and size != self._size:
            self._clear()
        drawn = frame(self._scene, size.width, self._height(size.height), self._console.encoding)
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(drawn, refresh=True)
        self._drawn_s, self._size = self._clock(), size

    def _height(self, rows: int) -> int:
        """Greatest height of a frame: a note fits above it, and at the end the last words below it."""
        if self._scene.status.get("state") == ENDED:
            return max(LAST_ROWS, rows - WORDS_ROWS)
        return rows - 1 if rows >= 16 else rows

    def _clear(self) -> None:
        """After a change of size the old frame may be anywhere: empty the screen, show the last notes."""
        assert self._live is not None
        self._live.update(Text())
        self._console.clear()
        self._live.stop()
        self._console.clear()
        self._live = None
        for line in list(self._said)[-max(1, self._console.size.height // 4) :]:
            self._console.print(Text(line))

    # --- plain lines

    def _is_time(self) -> bool:
        now_s = self._clock()
        interval_s = max(PLAIN_INTERVAL_S, PLAIN_SHARE * (now_s - self._began_s))
        return now_s - self._written_s >= min(interval_s, LONGEST_PLAIN_INTERVAL_S)

    def _note_waits(self) -> None:
        """Note each process that waits or starts for long, once."""
        for name, stage in self._scene.stages.items():
            if self._noted.get(name, RUNNING) != stage and self._scene.lasted_s[name] >= PATIENCE_S:
                self._noted[name] = stage
                if stage != RUNNING:
                    self.note(f"{name} {stage}")

    def _write_line(self) -> None:
        self._written_s, self._written = self._clock(), self._scene.status
        self._say(plain_line(self._scene.status, self._scene.stages))

    # --- both

    def _say(self, line: str) -> None:
        line = printable(line)
        self._said.append(line)
        self._num_left_out += len(self._unsaid) == KEPT_LINES
        self._unsaid.append(line)
        self._catch_up()

    def _catch_up(self) -> None:
        """Print what the console has not taken yet, of many lines the newest and the number of the others."""
        if self._num_left_out and self._takes_output:
            left_out = f"{self._num_left_out:,} lines are left out here, as the terminal took none"
            self._num_left_out = 0
            self._attempt(lambda: self._print(left_out if self._draws else f"note {left_out}"))
        while self._unsaid and self._takes_output:
            self._attempt(partial(self._print, self._unsaid.popleft()))

    def _print(self, line: str) -> None:
        """Print a line, a plain one without wraps, however narrow the console is."""
        self._console.print(Text(line), soft_wrap=not self._draws)

    @property
    def _takes_output(self) -> bool:
        return not self._gone and _takes_more(self._console.file)

    def _attempt(self, show: Callable[[], Any]) -> None:
        """Call ``show`` if the console takes output now; a console that is gone ends the view only."""
        if not self._takes_output:
            return
        try:
            with _at_most(STALLED_S):
                show()
        except TimeoutError:
            self._size = None  # half a frame may have been written
        except OSError:
            self._leave()
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            # no field of a status is required: a foreign broker may leave any out
            if not self._complained:
                self._complained = True
                self._say(f"the figures of this run cannot be shown: {error!r}")

    def _leave(self) -> None:
        self._gone, self._console.quiet = True, True
        discard(self._console.file)
        if self._live is not None:
            self._live.stop()  # gives standard error back


class _Console(Console):
    """Standard output that raises OSError when its reader is gone; rich itself would exit."""

    def on_broken_pipe(self) -> None:
        raise


def _console() -> Console:
    spell_out(sys.stdout)
    return _Console(highlight=False)


def _takes_more(stream: IO[str]) -> bool:
    """Whether a write would begin at once; not after Ctrl-S or into the full pipe of a paused pager."""
    try:
        return bool(select.select([], [stream], [], 0)[1])
    except (OSError, ValueError):  # not a file of the operating system, or one that is gone
        return True


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a write that takes longer, as to the terminal of a sleeping laptop."""

    def end(*_: object) -> None:
        raise TimeoutError

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def discard(stream: IO[str]) -> None:
    """Redirect a stream whose reader is gone to /dev/null, so that writes do not fail."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
