"""Every error that the system raises on purpose, in one tree.

SpreezeError                exit code 1: the run failed
├── InputError              exit code 2: the user's input is at fault; one clear message, no traceback
│   ├── TopologyError       every mistake of one topology at once
│   ├── InvalidEnvironment  an environment that cannot be made, or that a policy cannot act in
│   │   └── InvalidRandomization  ranges of model parameters that it does not have
│   ├── AlgorithmError      an algorithm whose declarations or losses cannot be trained
│   │   └── Diverged        a loss or weights that are not finite any more
│   └── CheckpointError     nothing complete to go on from, or parts that do not fit
├── EnvironmentFailure      an environment raised, hung or gave NaN while it was stepped
├── WireError               a message that was refused; the reader counts it and goes on
├── ChannelError            an endpoint that cannot be bound or reached
├── PeerTimeout             a wait ran past its deadline; names who waited for whom
└── ComponentFailed         a process of the run crashed more often than it may
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class SpreezeError(Exception):
    """Base of all; ``exit_code`` is what a command ends with when it is not handled."""

    exit_code = 1


class InputError(SpreezeError):
    """The user's input is at fault; the message says what, where, what was expected and how to mend it."""

    exit_code = 2


@dataclass(frozen=True)
class Mistake:
    """One mistake of a topology: ``place`` is a dotted key or a file, ``hint`` how to mend it."""

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
    """An environment that cannot be made, or whose spaces no policy here can act in."""


class InvalidRandomization(InvalidEnvironment):
    """Ranges for parameters that an environment's model does not have, or that lead out of what it can be.

    Attributes:
        mistakes: of each the parameter's name, the problem, and how to mend it.
    """

    def __init__(self, env_id: str, mistakes: Sequence[tuple[str, str, str]]):
        self.mistakes = tuple(mistakes)
        lines = (f"{name}: {problem}" + (f" ({hint})" if hint else "") for name, problem, hint in mistakes)
        super().__init__(f"{env_id}: randomize: {'; '.join(lines)}")


class AlgorithmError(InputError):
    """An algorithm's networks, losses or targets are not what the library can train."""

    def __init__(self, algorithm: object, problem: str):
        kind = algorithm if isinstance(algorithm, type) else type(algorithm)
        name = algorithm if isinstance(algorithm, str) else f"{kind.__module__}:{kind.__qualname__}"
        super().__init__(f"{name}: {problem}")


class Diverged(AlgorithmError):
    """A loss or weights that are not finite any more; a learner goes back to its last checkpoint."""


class CheckpointError(InputError):
    """No complete checkpoint where one was asked for, or one whose parts do not fit this run."""


class EnvironmentFailure(SpreezeError):
    """An environment raised, hung or gave NaN while it was stepped; names the environment and the step."""


class WireError(SpreezeError):
    """A message that the decoder refuses. ``reason`` is a short stable word to count by, ``detail`` says what
    came and what was expected.
    """

    def __init__(self, reason: str, detail: str):
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


class ChannelError(SpreezeError):
    """An endpoint that cannot be bound or used: taken, too long, of the wrong kind."""


class PeerTimeout(SpreezeError):
    """A wait that ran past its deadline."""

    def __init__(self, waiter: str, peer: str, what: str, waited_s: float):
        super().__init__(f"{waiter} has waited {waited_s:.0f} s for {peer}: {what}")


class ComponentFailed(SpreezeError):
    """A process of the run crashed more often than its topology allows."""


def place_of(error: BaseException) -> str:
    """``file:line`` of the user's code at which an error arose, else of the innermost call.

    An error within an installed package, or here, is mended where that was called.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    place = next((frame for frame in reversed(frames) if is_users(frame.filename)), frames[-1])
    return f"{place.filename}:{place.lineno}"


def is_users(file: str) -> bool:
    """Whether a source file is neither Python's own nor of an installed package or this one."""
    packages = {"site-packages", "dist-packages"} & set(Path(file).parts)
    ours = str(Path(__file__).parent)
    return not packages and not file.startswith((ours, sysconfig.get_path("stdlib"), "<frozen"))
