"""What each group of a run has sampled and trained on, whoever was started again meanwhile."""

from spreeze_zmq.broker.groups import Groups
from spreeze_zmq.broker.rows import restore, state_of
from spreeze_zmq.plan.form import to_plain


def told(groups, life, env_steps):
    """The counts of group 1 once the fuser has told of it."""
    row = {"life": life, "env_steps": env_steps, "trained_transitions": 8 * env_steps, "distance": 0.5}
    groups.take({"0": {"env_steps": 7}, "1": row, "odd": row})
    rows = to_plain(groups.rows)
    assert (list(rows), rows["0"]["env_steps"], rows["1"]["distance"]) == (["0", "1"], 7, 0.5)
    assert "life" not in rows["1"]
    return rows["1"]["env_steps"], rows["1"]["trained_transitions"]


def test_each_life_of_a_member_adds_to_the_counts_of_its_group():
    """It counts from 0. Within one a learner that is started again counts on from its checkpoint, and a model
    of the life before may come late.
    """
    groups = Groups()
    assert told(groups, 11, 500) == (500, 4000)
    assert told(groups, 22, 30) == (530, 4240)
    assert told(groups, 11, 510) == (540, 4320)
    assert told(groups, 22, 20) == (540, 4320)
    assert told(groups, 22, 600) == (1110, 8880)


def test_a_fuser_or_broker_that_is_started_again_forgets_no_life():
    """The next fuser hears of the newest life alone; broker.json hands the others on."""
    groups = Groups()
    told(groups, 11, 500)
    told(groups, 22, 30)
    assert told(groups, 0, 0) == (530, 4240)  # before it has heard of the group
    again = Groups()
    restore(again, state_of(groups))
    assert again.rows == {}
    assert told(again, 22, 40) == (540, 4320)


def test_counts_beyond_all_bounds_stay_in_a_status():
    """Whoever tells them: a greater number cannot be sent on."""
    groups = Groups()
    for life in (1, 2):
        assert told(groups, life, 2**53 - 1)[0] == 2**53 - 1
