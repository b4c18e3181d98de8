"""Both learners of a run on data alone agree on the last critics, whatever went before."""

import math

import pytest

from spreeze_zmq.learner.offline import OfflineExperience, OfflineFollower
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC_LEARNER
from spreeze_zmq.wire import Message
from tests.unit.learner.test_refilled import learned_from

#: Updates that the critics had made in the run before, of batches of 256.
UPDATES, BATCH, ENOUGH, EVERY = 40, 256, 30_000, 10


def in_order(kind, role, batch):
    """What a learner of a run in lock-step has, which is resumed with this batch size."""
    more = ("balance.mode=lockstep", f"run.stop.trained_transitions={ENOUGH}")
    more += ("balance.replay_ratio=1", f"balance.publish_every_updates={EVERY}")
    made = learned_from(kind, role, "sac", *more, batch_size=batch)
    made.intake.taken, made.outlet.of_policy = dict, role == ACTOR_LEARNER
    return made


@pytest.mark.parametrize("batch", [128, 256, 512])
def test_the_actor_learner_follows_the_critics_to_their_end_with_another_batch(batch):
    """It is done with the last version that comes, and not before."""
    critic, actor = (
        in_order(OfflineExperience, CRITIC_LEARNER, batch),
        in_order(OfflineFollower, ACTOR_LEARNER, batch),
    )
    critic.half.num_updates, critic.counts.trained = UPDATES, UPDATES * BATCH
    last = math.ceil((ENOUGH - UPDATES * BATCH) / batch) // EVERY * EVERY
    done = []
    while critic._has_batch() or not done:
        made = critic.half.num_updates - UPDATES
        if made % EVERY == 0:
            news = critic.news()
            fields = {"env_steps": 0, "critic_updates": news["critic_updates"], "trained": news["trained"]}
            assert actor.wants_weights
            actor.meet(Message("critic", fields, {}, "critic_learner-0", 1))
            while actor.ready:
                actor.trained(None)
            done.append((made, actor.done))
        critic.half.num_updates += 1
        critic.counts.trained += batch
    assert done[-1] == (last, True)
    assert not any(is_done for _, is_done in done[:-1])


def test_critics_that_do_not_say_what_they_were_trained_on_had_the_same_batches():
    """As those of an earlier release."""
    actor = in_order(OfflineFollower, ACTOR_LEARNER, BATCH)
    fields = {"env_steps": 0, "critic_updates": UPDATES}
    actor.meet(Message("critic", fields, {}, "critic_learner-0", 1))
    assert actor._last_critics() == math.ceil(ENOUGH / BATCH - UPDATES) // EVERY * EVERY


def test_a_lone_learner_on_data_alone_publishes_no_count_with_its_policy():
    """Whose message has none."""
    alone = in_order(OfflineExperience, CRITIC_LEARNER, BATCH)
    alone.outlet.of_policy = True
    assert "trained" not in alone.news()
