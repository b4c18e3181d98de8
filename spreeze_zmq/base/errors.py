"""Every error that the system raises on purpose, in one tree.

SpreezeError                exit code 1: the run failed
├── InputError              exit code 2: the user's input is at fault; one clear message, no traceback
│   ├── TopologyError       every mistake of one topology at once
│   ├── InvalidEnvironment  an environment that cannot be made, or that no policy can act in
│   │   └── InvalidRandomization  ranges of parameters that its model does not have
│   ├── AlgorithmError      an algorithm whose declarations or losses cannot be trained
│   │   └── Diverged        a loss or weights became NaN or infinite
│   ├── NoHome              (an OSError too) this user has no home folder
│   ├── DiskFull            no space is left for a run's files
│   ├── EndpointTaken       another process has the port that the topology names
│   ├── Unguarded           (an OSError too) nothing would end what this process starts
│   └── CheckpointError     no complete checkpoint, or one that does not fit the run
├── EnvironmentFailure      an environment raised, hung or gave NaN while it was stepped
├── PolicyFailure           a policy's own code raised while it acted
├── StateNotKept            what an environment is in the middle of cannot be kept, or put back
├── WireError               a refused message; the reader counts it and continues
├── ChannelError            an endpoint that cannot be bound or reached
├── PeerTimeout             a wait ran past its deadline; names both processes
└── ComponentFailed         a process of the run crashed more often than it may
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import logging
import re
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_NUMBER = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?")


class SpreezeError(Exception):
    """Base of all errors; ``exit_code`` is the exit code of a command that does not handle it."""

    exit_code = 1


class InputError(SpreezeError):
    """The user's input is at fault; the message says what is wrong, where, what was expected and the fix."""

    exit_code = 2


@dataclass(frozen=True)
class Mistake:
    """One mistake of a topology: ``place`` is a dotted key or a file, ``hint`` names the fix."""

    place: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" + (f" ({self.hint})" if self.hint else "")


class TopologyError(InputError):
    """All mistakes of one topology, each on a line of its own."""

    def __init__(self, source: str, mistakes: Sequence[Mistake]):
        self.source = source
        self.mistakes = tuple(mistakes)
        count = f"{len(self.mistakes)} mistake" + ("s" if len(self.mistakes) != 1 else "")
        super().__init__(f"{source}: {count}\n" + "\n".join(f"  {mistake}" for mistake in self.mistakes))


class InvalidEnvironment(InputError):
    """An environment cannot be made, or no policy here can act in its spaces."""


class InvalidRandomization(InvalidEnvironment):
    """Ranges for parameters that an environment's model does not have, or that exceed its limits.

    Attributes:
        mistakes: (name of the parameter, problem, hint) of each.
    """

    def __init__(self, env_id: str, mistakes: Sequence[tuple[str, str, str]]):
        self.mistakes = tuple(mistakes)
        lines = (f"{name}: {problem}" + (f" ({hint})" if hint else "") for name, problem, hint in mistakes)
        super().__init__(f"{env_id}: randomize: {'; '.join(lines)}")


class AlgorithmError(InputError):
    """An algorithm's networks, losses or targets are not what the library can train."""

    def __init__(self, algorithm: object, problem: str):
        super().__init__(f"{_name_of(algorithm)}: {problem}")


class Diverged(AlgorithmError):
    """A loss or weights became NaN or infinite; the learner returns to its last checkpoint."""


class CheckpointError(InputError):
    """No complete checkpoint at the given place, or one whose parts do not fit this run."""


class NoHome(InputError, OSError):
    """This user has no home folder. A cache that would be there is done without, as on other ``OSError``."""

    def __init__(self) -> None:
        super().__init__("this user has no home folder: set HOME to a folder that can be written")


class DiskFull(InputError):
    """No space is left, or none of the user's quota, where a run's files are written.

    Args:
        folder: the run's.
        elsewhere: whether it is the one that a machine has which joined the run.
    """

    def __init__(self, folder: Path, *, elsewhere: bool = False):
        option = "XDG_RUNTIME_DIR" if elsewhere else "--run-dir"
        super().__init__(
            f"{folder}: its disk is full; make room there, or choose a folder on another disk with {option}"
        )

    @staticmethod
    def cause(error: BaseException | None) -> OSError | None:
        """The full disk that led to an error, if one did: torch and checkpoints raise errors of their own
        after it.
        """
        while error is not None:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                return error
            error = error.__cause__ or error.__context__
        return None


class EndpointTaken(InputError):
    """Another process has the port of a tcp endpoint."""

    def __init__(self, endpoint: str):
        super().__init__(
            f"{endpoint} cannot be bound: another process has it; end that process, or choose another port"
        )


class Unguarded(InputError, OSError):
    """The shell that ends what this process starts, should it be killed, cannot be started itself."""

    def __init__(self, shell: str, why: object):
        super().__init__(
            f"{shell} cannot be started, which ends with this process all that it starts: {why}; "
            "needed are that program and room for a process more and a few open files (ulimit -u, ulimit -n)"
        )


class PolicyFailure(SpreezeError):
    """An algorithm's own network or ``act`` raised while it acted in a run, perhaps in a rare state alone."""

    def __init__(self, algorithm: object, problem: str):
        super().__init__(f"{_name_of(algorithm)}: {problem}")


class StateNotKept(SpreezeError):
    """What an environment is in the middle of cannot be kept, or a new one be brought there; says why."""


class EnvironmentFailure(SpreezeError):
    """An environment raised, hung or gave NaN while it was stepped; names the environment and the step."""


class WireError(SpreezeError):
    """A refused message: ``reason`` is a short stable word, ``detail`` says what came and what was
    expected.
    """

    def __init__(self, reason: str, detail: str):
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


class ChannelError(SpreezeError):
    """An endpoint cannot be bound or used: it is taken, too long or of the wrong kind."""


class PeerTimeout(SpreezeError):
    """A wait ran past its deadline."""

    def __init__(self, waiter: str, peer: str, what: str, waited_s: float):
        super().__init__(f"{waiter} has waited {waited_s:.0f} s for {peer}: {what}")


class ComponentFailed(SpreezeError):
    """A process of the run crashed more often than its topology allows."""


def _name_of(algorithm: object) -> str:
    """``module:Class`` of an algorithm's class or instance; a name stays as it is."""
    if isinstance(algorithm, str):
        return algorithm
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    return f"{kind.__module__}:{kind.__qualname__}"


def place_of(error: BaseException) -> str:
    """``file:line`` of the user's innermost call that led to the error, else of the innermost call.

    An error in an installed package, or in this one, is fixed in the user's call of it.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    place = next((frame for frame in reversed(frames) if is_users(frame.filename)), frames[-1])
    return f"{place.filename}:{place.lineno}"


def in_one_line(error: BaseException) -> str:
    """Type and message of an error, in one line; of one without a message the line of code that raised it."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # its message is somebody else's code too
        said = ""
    if not said and (frames := traceback.extract_tb(error.__traceback__)):
        line = frames[-1].line or ""
        said = "" if line.startswith("raise") else line
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def kind_of(summary: str) -> str:
    """What the summaries of failures have in common that differ in their numbers only."""
    return _NUMBER.sub("#", summary)


def is_installed(path: str | Path) -> bool:
    """Whether a file or folder is of Python's library or of an installed package."""
    packages = {"site-packages", "dist-packages"} & set(Path(path).parts)
    return bool(packages) or Path(path).is_relative_to(sysconfig.get_path("stdlib"))


def is_users(file: str) -> bool:
    """Whether a source file is in neither Python's library nor an installed package nor this one."""
    return not is_installed(file) and not file.startswith((str(Path(__file__).parents[1]), "<frozen"))


def definition_of(thing: Callable[..., Any] | None) -> str:
    """``file:line`` of a method or class of the user's; empty for one that is not the user's."""
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
    return f"{file}:{line}" if file and is_users(file) else ""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, as the programs of this package raise it: other code may raise a KeyboardInterrupt itself."""


def interrupt(*_: object) -> NoReturn:
    """The handler of SIGINT in a program that Ctrl-C ends. Raises Interrupted."""
    raise Interrupted


def let_interrupts_pass(error: BaseException) -> None:
    """Raise ``error``, which somebody else's code led to, if it came from Ctrl-C.

    Python's own handler of SIGINT raises the same KeyboardInterrupt in the main thread as such code may;
    where it is in place, every one of them counts as Ctrl-C. Of the handlers here only ``interrupt`` raises.
    """
    if isinstance(error, Interrupted):
        raise error
    if (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error


@contextlib.contextmanager
def hushed(logger: str, level: int = logging.ERROR) -> Iterator[None]:
    """Let a logger say only what is at ``level`` or above meanwhile."""
    quiet = logging.getLogger(logger)
    before = quiet.level
    quiet.setLevel(level)
    try:
        yield
    finally:
        quiet.setLevel(before)
