"""How long the end of a run waits for its last checkpoint: the broker for the learners, then the launcher."""

from __future__ import annotations

from spreeze_zmq.plan.plan import Plan

#: Longest wait for the parts; where they hold the replay, or come after the last update of a run in order.
LAST_CHECKPOINT_S, LAST_AND_LARGE_S = 5.0, 60.0
#: In order: how long the end of a run that somebody stops waits before the learners write where they are.
COUNT_S = 4.0
#: Within this time of its start the learners hear a broker, the first one too; what it says before may be
#: lost.
RECONNECTED_S = 2.0
#: Longest wait at the end of a run for a learner that starts again, to ask it for the last checkpoint.
LEARNERS_BACK_S = 2.5
#: For messages on the way.
WAY_S = 1.0


def parts_s(plan: Plan) -> float:
    """Longest wait for the parts of the last checkpoint, in seconds."""
    large = plan.balance.in_order or plan.run.save_replay
    return LAST_AND_LARGE_S if large else LAST_CHECKPOINT_S


def end_s(plan: Plan) -> float:
    """Longest time from the request to end a run to the broker's stop, in seconds."""
    counting_s = COUNT_S if plan.balance.in_order else 0.0
    return RECONNECTED_S + LEARNERS_BACK_S + counting_s + parts_s(plan) + WAY_S
