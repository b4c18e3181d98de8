"""The sampler as a real process whose environments fail: what learners and the broker get of it."""

import numpy as np
import pytest

from spreeze_zmq.wire import rollout_from
from tests.component.conftest import DEADLINE_S
from tests.component.samplers import CRITIC, start

BROKEN = (
    "run.env=tests.unit.envs.own_environments:Costs",
    "run.env_kwargs={ length = 50, fails_at = 20 }",
    "components.sampler.envs=2",
)


def arrived(peers):
    """Transitions up to the newest rollout that has come."""
    return peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"]


@pytest.mark.parametrize("peers", [BROKEN, (*BROKEN, "components.sampler.workers=2")], indirect=True)
def test_an_environment_that_fails_is_reported_and_cut_off(peers):
    """The broker hears of it with its traceback; learners see a truncation, not the bad step, which has the
    lowest reward of all: 0 would be the best.
    """
    start(peers)
    _, rollout = (rollout_from(peers.next("rollout", CRITIC)) for _ in range(2))
    failure = peers.next("failure").fields
    assert failure["name"] == "sampler-0"
    assert "of 2 raised in step: ZeroDivisionError: the floor is gone" in failure["summary"]
    assert "own_environments.py" in failure["traceback"]
    assert np.flatnonzero(rollout.truncated[:, 0]).tolist() == [3]  # the 20th step
    assert not rollout.terminated.any()
    assert rollout.reward[3].tolist() == [-19.0, -19.0] == rollout.reward.min(0).tolist()
    np.testing.assert_array_equal(rollout.final_obs, rollout.obs[3])
    assert rollout.obs[4, :, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("peers", [(*BROKEN, "components.sampler.rollout_steps=1")], indirect=True)
def test_what_a_failed_step_costs_is_known_from_earlier_rollouts(peers):
    """One that holds this step alone knows no other reward, and 0 would be the best of all."""
    start(peers)
    lowest = 0.0
    while not (rollout := rollout_from(peers.next("rollout", CRITIC))).truncated.any():
        lowest = min(lowest, rollout.reward.min())
    assert rollout.reward.tolist() == [[lowest, lowest]] == [[-19.0, -19.0]]


WITHOUT_END = (*BROKEN, "components.sampler.max_failures=1000000000")


@pytest.mark.parametrize("peers", [WITHOUT_END], indirect=True)
def test_failures_without_end_are_few_messages_that_count_them_all(peers):
    """Those alike twice a second; else they would take the place of its reports."""
    process = start(peers)

    def failed():
        return sum(int(m.arrays["truncated"].sum()) for m in peers.between(None, None, "rollout", CRITIC))

    peers.until("", "many failures", lambda: failed() > 200)
    process.terminate()
    pushed = peers.next("bye").fields["pushed"]["critic_learner"]
    told = [message.fields for message in peers.between(None, None, "failure")]
    assert len(told) <= 2 * (1 + len(peers.between(None, None, "report")))
    assert any("own_environments.py" in fields["traceback"] for fields in told if "count" in fields)
    assert peers.wait(
        DEADLINE_S, lambda: peers.between(None, None, "rollout", CRITIC)[-1].fields["produced"] >= pushed
    )
    assert 0 <= sum(fields.get("count", 1) for fields in told) - failed() <= 2  # of a rollout without a place
