"""The gates of the balance: when a learner may pull, when it may update, and how stale its samples are.

Pure arithmetic: no clock, no socket. The learners ask the gates; the sockets do the waiting: while a learner
does not pull, the high-water mark blocks the samplers.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Rollouts whose lag is the present one: a curve of all of them so far hardly moves after an hour.
RECENT = 200


@dataclass
class RatioGate:
    """Holds ``trained = replay_ratio * counted`` within a slack (samples-to-inserts of Reverb, 2102.04736).

    All counts are transitions. Production may run ahead of the ratio by ``slack``; consumption never does.
    The two gates are never both shut: a learner that may not update may pull. As in Reverb, the first
    ``learning_starts`` are not counted: to make up for them at once would be a burst of updates on random
    data (the primacy bias, 2205.07802).

    Attributes:
        replay_ratio: transitions trained on for each transition counted.
        batch_size: transitions that one update trains on.
        learning_starts: transitions received before the ratio counts.
        slack: transitions that may have been received beyond what the ratio asks for.
        received: transitions received since the replay was last empty.
        trained: transitions trained on since then; those that are counted as if they had been are among them.
    """

    replay_ratio: float
    batch_size: int
    learning_starts: int
    slack: int
    received: int = 0
    trained: int = 0
    _measured_from: tuple[int, int] = (0, 0)

    @property
    def counted(self) -> int:
        """Transitions received beyond ``learning_starts``."""
        return max(0, self.received - self.learning_starts)

    @property
    def may_update(self) -> bool:
        """Whether one more batch keeps consumption within the ratio."""
        return self.trained + self.batch_size <= self.replay_ratio * self.counted

    @property
    def may_pull(self) -> bool:
        """Whether production is not ahead of the ratio by more than the slack."""
        return self._ahead <= self.replay_ratio * self.slack or not self.may_update

    def retarget(self, replay_ratio: float) -> None:
        """Hold another ratio from now on: what production is ahead by stays, and nothing is made up for."""
        ahead, self.replay_ratio = self._ahead, replay_ratio
        if self.trained:
            self.count_as_trained(max(0, math.ceil(replay_ratio * self.counted - ahead)))

    def count_as_trained(self, trained: int) -> None:
        """Go on as if so many transitions had been trained on; the ratio is measured from now on."""
        self.trained, self._measured_from = trained, (self.counted, trained)

    @property
    def _ahead(self) -> float:
        return self.replay_ratio * self.counted - self.trained

    @property
    def measured(self) -> float | None:
        """Transitions that were trained on for each one counted, of those since the gate was last told to
        count from elsewhere; None before the first.
        """
        counted, trained = self._measured_from
        return (self.trained - trained) / (self.counted - counted) if self.counted > counted else None


@dataclass
class DelayGate:
    """Makes the actor follow the critic: one actor update for each ``policy_delay`` critic updates (TD3,
    1802.09477).

    The actor may be ahead of the critic that it has received last by ``slack`` critic updates, since many
    critic updates pass between two publications. Both counts start at 0 when the two processes meet: after a
    restart from a checkpoint, neither half makes up for earlier updates or waits for them.
    """

    policy_delay: int
    slack: int
    critic_updates: int = 0
    actor_updates: int = 0
    _met_at: int = 0

    def meet(self, critic_updates: int) -> None:
        """Start to follow a critic that has made ``critic_updates``; both counts start at 0."""
        self._met_at, self.critic_updates, self.actor_updates = critic_updates, 0, 0

    def meet_again(self) -> None:
        """Follow the same critic from where it is now, after a time in which the actor could not."""
        self.meet(self._met_at + self.critic_updates)

    def state(self) -> dict[str, int]:
        """What to go on from as if nobody had restarted."""
        return {"critic": self.critic_updates, "actor": self.actor_updates, "met_at": self._met_at}

    def restore(self, state: Mapping[str, int]) -> None:
        """Continue from :meth:`state`."""
        self.critic_updates, self.actor_updates = state["critic"], state["actor"]
        self._met_at = state["met_at"]

    def hear(self, critic_updates: int) -> None:
        """Note that the critic has made ``critic_updates`` by now."""
        self.critic_updates = critic_updates - self._met_at

    @property
    def may_update(self) -> bool:
        """Whether one more actor update stays within the slack."""
        if self.critic_updates == 0:
            return False
        return (self.actor_updates + 1) * self.policy_delay <= self.critic_updates + self.slack

    @property
    def followed(self) -> int:
        """Critic updates that the actor has followed with its own."""
        done = self.actor_updates * self.policy_delay
        return done if self.may_update else max(done, self.critic_updates)


@dataclass
class LagHistogram:
    """Counts received transitions by the age of their policy in versions.

    Attributes:
        transitions: all of them, by lag.
        recent: lag and transitions of each of the last ``RECENT`` rollouts.
    """

    transitions: Counter[int] = field(default_factory=Counter)
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, lag: int, transitions: int) -> None:
        """Count ``transitions`` of a policy ``lag`` versions old; a negative lag (newer than known) is 0."""
        lag = max(0, lag)
        self.transitions[lag] += transitions
        self.recent.append((lag, transitions))

    def summary(self) -> dict[str, int]:
        """In policy versions: quantiles ``p50`` and ``p99`` and the ``max`` of all, ``recent_p50`` and
        ``recent_p99`` of the last rollouts.
        """
        recent: Counter[int] = Counter()
        for lag, transitions in self.recent:
            recent[lag] += transitions
        named = {"": self.transitions, "recent_": recent}
        found = {
            f"{which}{name}": _quantile(counts, q)
            for which, counts in named.items()
            for name, q in (("p50", 0.5), ("p99", 0.99))
        }
        return {**found, "max": max(self.transitions, default=0)}


def _quantile(transitions: Counter[int], q: float) -> int:
    """Smallest lag that at least a share ``q`` of the transitions does not exceed; 0 without any."""
    need, seen = math.ceil(q * transitions.total()), 0
    for lag in sorted(transitions):
        seen += transitions[lag]
        if seen >= need:
            return lag
    return 0
