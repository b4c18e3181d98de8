"""What must come before a learner trains again that has lost its replay."""

from __future__ import annotations

#: Share of the lost transitions that must come again: a few fresh ones would spoil trained networks.
REFILL_SHARE = 0.1


def refill(learning_starts: int, env_steps: int, replay_capacity: int, num_goals: int) -> int:
    """Transitions that must come before the next update.

    Args:
        learning_starts: of a run from its beginning.
        env_steps: transitions that had come when the replay was lost.
        replay_capacity: most that it held, with those kept in hindsight.
        num_goals: in hindsight, of each transition beside its own.
    """
    return max(learning_starts, int(REFILL_SHARE * min(env_steps, replay_capacity // (1 + num_goals))))
