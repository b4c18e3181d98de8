"""What callbacks are told of a run, each in a dataclass, and how an entry of the feed becomes one.

``t_s`` counts the seconds since the run began, ``env_steps`` the transitions that have been sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import is_failure


@dataclass(frozen=True)
class Event:
    """Something that happened ``t_s`` seconds after the run began."""

    t_s: float = 0.0


@dataclass(frozen=True)
class Started(Event):
    """The run has been launched.

    Attributes:
        env: the environment's name.
        algorithm: the algorithm's name.
        seed: of the run.
        options: the algorithm's options, by name.
        stop: its limits: ``return``, ``env_steps``, ``minutes``, ``trained_transitions``; None for no limit.
    """

    env: str = ""
    algorithm: str = ""
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    stop: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Status(Event):
    """The figures of the run, about twice a second; a slow callback hears the newest alone.

    Attributes:
        state: ``starting``, ``warming up``, ``training`` or ``stopping``.
        env_steps: transitions sampled.
        critic_updates: made so far.
        actor_updates: likewise.
        trained_transitions: a batch for each critic update.
        env_steps_per_s: now.
        mean_return: of the last training episodes; None before the first.
        gauges: the learners' newest figures by name: losses, ``learning_rate``, ``replay_size``.
        figures: all of the message ``status``, as PROTOCOL.md has it.
    """

    state: str = ""
    env_steps: int = 0
    critic_updates: int = 0
    actor_updates: int = 0
    trained_transitions: int = 0
    env_steps_per_s: float = 0.0
    mean_return: float | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Episodes(Event):
    """Training episodes that ended, gathered once a second.

    Attributes:
        count: how many.
        mean: of their returns; likewise ``std``, ``min`` and ``max``.
    """

    count: int = 0
    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0


@dataclass(frozen=True)
class Evaluation(Event):
    """Whole episodes of one policy by its deterministic action.

    Attributes:
        version: of the policy.
        env_steps: transitions that had been sampled when it was made.
        mean_return: over the episodes; likewise ``std_return``, ``min``, ``max`` and ``mean_length``.
        num_episodes: how many.
        timed_out: a limit of time cut some, so that the mean compares with no other.
        confirmed: the policy had been chosen before these episodes were played; only such figures are to be
            believed. The last policy's are those of its look, which did not choose it, and of its race.
        best: the policy is the best so far.
        final: they are the last ones, of the best policy.
        info: means of the numbers in the environment's last infos, such as ``is_success``.
        wall_s: seconds that they took.
    """

    version: int = 0
    env_steps: int = 0
    mean_return: float = 0.0
    std_return: float = 0.0
    min: float = 0.0
    max: float = 0.0
    mean_length: float = 0.0
    num_episodes: int = 0
    timed_out: bool = False
    confirmed: bool = False
    best: bool = False
    final: bool = False
    info: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0


@dataclass(frozen=True)
class Best(Event):
    """A new best policy, which is in its file.

    Attributes:
        path: the file; ``Policy.load(path)`` reads it.
        version: of the policy; likewise ``env_steps``, ``mean_return``, ``std_return`` and ``num_episodes``
            of its evaluation.
    """

    path: Path = Path()
    version: int = 0
    env_steps: int = 0
    mean_return: float = 0.0
    std_return: float = 0.0
    num_episodes: int = 0


@dataclass(frozen=True)
class Checkpoint(Event):
    """A checkpoint is complete.

    Attributes:
        path: its folder; the newest two stay.
        env_steps: transitions sampled.
    """

    path: Path = Path()
    env_steps: int = 0


@dataclass(frozen=True)
class Failure(Event):
    """Something failed, and the run goes on.

    Attributes:
        name: the process.
        summary: one line.
        traceback: what it said, several lines.
        count: how many alike this one stands for.
    """

    name: str = ""
    summary: str = ""
    traceback: str = ""
    count: int = 1


@dataclass(frozen=True)
class Ended(Event):
    """The run is over; nothing follows.

    Attributes:
        reason: why it ended.
        failed: it was given up, or nobody has said why.
        env_steps: transitions sampled.
        best_return: of the best policy; None where nothing was evaluated.
    """

    reason: str = ""
    failed: bool = field(default=False, kw_only=True)
    env_steps: int = 0
    best_return: float | None = None


EventT = TypeVar("EventT", bound=Event)


def _made(kind: type[EventT], t_s: float, about: Mapping[str, Any], **more: Any) -> EventT:
    """An event from those fields of an entry that it has."""
    found = {item.name: about[item.name] for item in fields(kind) if item.name in about}
    return kind(**{**found, "t_s": t_s, **more})


class Story:
    """Turns the entries of a run's feed into the calls that callbacks get.

    Args:
        plan: of the run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._folder = plan, RunFolder(Path(plan.run_dir))
        self._status, self._reason = Status(), ""
        self._best_return: float | None = None

    def started(self) -> Started:
        """What is known at the start."""
        run = self._plan.run
        stop = {"return": run.stop.mean_return, **{name: getattr(run.stop, name) for name in _LIMITS}}
        options = {name: value for name, value in self._plan.algorithm.items() if name != "name"}
        return Started(0.0, run.env, run.algorithm, run.seed, options, stop)

    def calls(self, topic: str, t_s: float, about: Mapping[str, Any]) -> Iterator[tuple[str, Event]]:
        """The methods that an entry calls, with their events; none for a topic that callbacks do not hear.

        Raises:
            AttributeError, TypeError: the figures are not those of the topic.
        """
        if topic == "status":
            mean_return = about.get("episodes", {}).get("mean_return")
            best = about.get("evaluation", {}).get("best") or {}  # of the runs before, too
            self._best_return = best.get("mean_return", self._best_return)
            self._status = _made(Status, t_s, about, mean_return=mean_return, figures=about)
            yield "on_status", self._status
        elif topic == "episodes":
            yield "on_episodes", _made(Episodes, t_s, about)
        elif topic == "evaluation":
            if about.get("rescored") != 0:  # else nothing was played: an evaluator has taken up a file
                yield "on_evaluation", _made(Evaluation, t_s, about)
            if about.get("best"):
                self._best_return = float(about["mean_return"])
            if about.get("best") and "rescored" not in about:
                yield "on_best", _made(Best, t_s, about, path=self._folder.best_policy)
        elif topic == "checkpoint":
            path = self._folder.checkpoints / str(about["folder"])
            yield "on_checkpoint", _made(Checkpoint, t_s, about, path=path)
        elif topic == "failure":
            yield "on_failure", _made(Failure, t_s, about)
        elif topic == "end":
            self._reason = str(about["reason"])

    def ended(self) -> Ended:
        """What is known at the end."""
        reason, failed = self._reason or "the run is gone", is_failure(self._reason)
        return Ended(self._status.t_s, reason, self._status.env_steps, self._best_return, failed=failed)


_LIMITS = ("env_steps", "minutes", "trained_transitions")
