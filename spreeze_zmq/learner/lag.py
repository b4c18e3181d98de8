"""Versions of the published policies, and the limits of collection that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.run.versions import VersionFile, newest_version

#: Most streams whose positions or limits fit in a header of 64 KiB, beside a policy's description, and the
#: longest name of one: ``sampler-INDEX/INCARNATION``.
MOST_LIMITED, LONGEST_STREAM = 1400, 32


class Versions:
    """The version of the newest policy or critics, across restarts of the process that publishes it.

    A rollout names its policy by this number alone, and may arrive after the process that made the policy has
    died. A restarted process that counted from its checkpoint would reuse the numbers of rollouts in flight,
    and their lag would be unknown. The last number is therefore kept in a file, which survives a kill.

    Args:
        file: that file; None for critics, whose versions are counted in this process alone.
        begin: version of the first policy of the run.

    Attributes:
        newest: version of the policy published last; before that, of the first one to publish.
        first: the first version of this process.
        first_life: whether no earlier process has published in this run.
    """

    def __init__(self, file: VersionFile | None = None, begin: int = 0) -> None:
        self._file = file
        last = 0 if file is None else file.read()
        self.first_life = last == 0
        # Version 0 stands for random actions and may be published again; no other version may.
        self.newest = self.first = last + 1 if last else begin
        self._write()

    @property
    def since_first(self) -> int:
        """Number of versions of this process after its first."""
        return self.newest - self.first

    def restore(self, version: int, first: int | None = None) -> None:
        """Continue from a checkpoint's ``version``, or from a later one that has been published since; in
        order as a process whose ``first`` version was an earlier one.
        """
        self.newest = self.first = max(self.newest, version)
        if first is not None:
            self.first = first
        self._write()

    def advance(self) -> None:
        """Give the next policy a new version."""
        self.newest += 1
        self._write()

    def _write(self) -> None:
        if self._file is not None:
            self._file.write(self.newest)


class Published:
    """Reads the newest published version from the file of :class:`Versions`.

    Args:
        sockets: the run's folder of sockets, which holds that file; on another machine the file is missing,
            and every version is accepted.
    """

    def __init__(self, sockets: Path) -> None:
        self._sockets = sockets
        self._newest = 0

    def unknown(self, rollout: Rollout) -> str:
        """Why a rollout's policy version cannot exist yet; empty if it can."""
        if rollout.policy_version > self._newest and (newest := newest_version(self._sockets)) is not None:
            self._newest = newest
            if rollout.policy_version > self._newest:
                return f"policy_version is {rollout.policy_version}, the newest published is {self._newest}"
        return ""


class CollectionLimits:
    """Limits of collection that keep samplers within ``max_policy_lag``.

    In order, a limit follows from the version of the policy. Otherwise a sampler may be ``Schedule.share``
    transitions ahead of the position up to which the critic-learner has taken its stream; such limits must be
    published again when a share is used up, since the sampler waits at its limit. On-policy, it may be
    ``max_policy_lag`` rollouts beyond the next one ahead of the position up to which it has been trained on;
    where fewer samplers live than a round has rollouts, as many more as fill it.

    Attributes:
        schedule: the schedule of an off-policy run by count; None if none limits collection.
        by_position: whether limits follow from the positions taken.
        published: stream -> position taken, as last published; None if samplers may not have received it.
        before: transitions of each sampler in the run before that one in order goes on from exactly.
    """

    def __init__(self, plan: Plan) -> None:
        balance = plan.balance
        self._on_policy = plan.learning.on_policy
        self._rollout, self._rounds = balance.rollout_transitions, 1 + (balance.max_policy_lag or 0)
        self._samplers = self._per_round = plan.components[SAMPLER].count.initial
        self.schedule = None if self._on_policy else plan.balance.schedule(plan.components, plan.learning)
        self.by_position = self.schedule is not None and not balance.in_order
        self.published: Mapping[str, int] | None = {}
        self.before = 0

    @property
    def _round_share(self) -> int:
        """Transitions that each sampler may be ahead: together they fill a round, and those that may be
        collected meanwhile as far as they go. What is begun beyond them is too old when its round begins.
        """
        fill = math.ceil(self._per_round / self._samplers)
        return max(fill, self._rounds * self._per_round // self._samplers) * self._rollout

    def meet(self, samplers: int) -> bool:
        """On-policy: note how many samplers live, if any do; returns whether their limits have grown."""
        before = self._round_share
        self._samplers = min(samplers, self._per_round) if samplers > 0 else self._samplers
        return self._round_share > before

    def in_turn(self, since_first: int) -> int:
        """In order: the position up to which each sampler may begin rollouts under a version."""
        assert self.schedule is not None
        return max(0, self.schedule.collect_until(since_first) - self.before)

    def collect_until(self, taken: Mapping[str, int], versions: Versions) -> dict[str, int] | None:
        """Stream -> position up to which its sampler may begin rollouts, ``"*"`` for all others; None for no
        limit. On-policy, after a restart, streams without a rollout so far have no limit.

        Where not all streams fit, the newest have limits of their own, and all others the greatest of those.

        Args:
            taken: stream -> position up to which it has been taken, on-policy trained on, the newest last.
            versions: of the policy.
        """
        if self._on_policy:
            limits = _limits(taken, self._round_share)
            others = limits.get("*", self._round_share)
            return {**limits, "*": others} if versions.first_life else limits
        if self.schedule is None:
            return None
        self.published = taken
        if not self.by_position:
            return {"*": self.in_turn(versions.since_first)}
        return _limits(taken, self.schedule.share)

    def used_up(self, taken: Mapping[str, int]) -> bool:
        """Whether a sampler may be waiting for a limit that follows from ``taken``."""
        if self.schedule is None or not self.by_position:
            return False
        return self.published is None or self.schedule.used_up(taken, self.published)


def fitting(taken: Mapping[str, int]) -> dict[str, int]:
    """As many of these positions by stream as fit in a header, the newest lives of the newest streams.

    A restarted sampler has another stream, and the one before it needs no limit; nor does what is no
    sampler's.

    Args:
        taken: the newest last.
    """
    taken = {each: at for each, at in taken.items() if len(each) <= LONGEST_STREAM and each.isascii()}
    if len(taken) < MOST_LIMITED:
        return taken
    newest: dict[str, str] = {}
    for stream in reversed(list(taken)):
        newest.setdefault(stream.rpartition("/")[0], stream)
    return {stream: taken[stream] for stream in reversed(list(islice(newest.values(), MOST_LIMITED)))}


def _limits(taken: Mapping[str, int], share: int) -> dict[str, int]:
    """Positions ``share`` beyond those taken; with one for all others where those of some may be left out."""
    limits = {stream: position + share for stream, position in fitting(taken).items()}
    return {**limits, "*": max(limits.values())} if len(limits) >= MOST_LIMITED else limits
