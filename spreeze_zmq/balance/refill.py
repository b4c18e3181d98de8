"""What must come before a learner trains again that has lost its replay."""

from __future__ import annotations

#: Share of the lost transitions that must come again: a few fresh ones would spoil trained networks.
REFILL_SHARE = 0.1


def refill(learning_starts: int, env_steps: int, replay_capacity: int, rows_each: int) -> int:
    """Transitions that must come before the next update.

    Args:
        learning_starts: of a run from its beginning.
        env_steps: transitions that had come when the replay was lost.
        replay_capacity: rows that it held at most.
        rows_each: rows of one transition, with those that are kept in hindsight.
    """
    return max(learning_starts, int(REFILL_SHARE * min(env_steps, replay_capacity // rows_each)))
