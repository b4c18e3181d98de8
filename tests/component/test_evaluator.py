"""The evaluator as a real process; the test trains the policies and keeps the books."""

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message

#: Evaluations in quick succession.
OFTEN = ["components.evaluator.cost_share=1.0", "components.evaluator.episodes=3"]


def publish(peers, version, seed):
    """A policy of the run's algorithm; ``seed`` decides how it behaves."""
    algorithm = algorithms.get("sac")
    half = algorithms.make(
        "policy", algorithm, algorithm.Options(hidden_sizes=(16,)), peers.plan.environment, "cpu", seed
    )
    fields = {
        "version": version,
        "critic_updates": version,
        "actor_updates": version,
        "description": half.description(),
        "extras": {**half.extras(), "env_steps": 100 * version},
    }
    peers.peer("policy", "evaluator").publish(Message("policy", fields, half.policy_arrays()))


@pytest.mark.parametrize("peers", [OFTEN], indirect=True)
def test_the_best_policy_is_kept_and_named(peers):
    """Each new version is played once; the file holds the best one with its score."""
    for channel in ("report", "control"):
        peers.peer(channel, "evaluator")
    process = peers.start("evaluator")
    scores = {}
    for version in (1, 2, 3):
        publish(peers, version, seed=version)
        evaluation = peers.wait("report", "evaluator", "evaluation").fields
        assert evaluation["version"] == version
        assert evaluation["env_steps"] == 100 * version
        assert evaluation["num_episodes"] == 3
        assert evaluation["mean_length"] == 200
        assert evaluation["min"] <= evaluation["mean_return"] <= evaluation["max"] < 0
        scores[version] = evaluation["mean_return"]
        assert evaluation["best"] == (scores[version] == max(scores.values()))
    best = max(scores, key=scores.get)
    kept = Policy.load(peers.folder.best_policy)
    assert kept.version == best
    assert float(kept.metadata["mean_return"]) == scores[best]
    stop = Message("stop", {"roles": ["evaluator"], "reason": "enough"})
    peers.peer("control", "evaluator").publish(stop)
    assert peers.wait("report", "evaluator", "bye").fields["reason"] == "enough"
    assert process.wait(30) == 0
