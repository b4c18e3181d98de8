"""When a learner looks for rollouts and weights: a real one in this process, whose peers the test plays."""

import pytest

from spreeze_zmq.component import Component
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.learner import learn
from spreeze_zmq.peers.players import OtherLearner, Sampler
from spreeze_zmq.wire.channels import poll
from tests.component.conftest import DEADLINE_S

UPDATES = 200


class Watched:
    """A critic-learner to which these rollouts and a policy have come, while its sockets are not due to be
    served but after a publication. It calls ``before`` with the count of its updates before each one, and
    makes ``UPDATES`` at most.
    """

    def __init__(self, peers, num_rollouts, before=lambda count: None):
        peers.play("critic_learner")
        self.learner = Learner(Component("critic_learner", peers.plan, 0))
        self.other, self.update, self.before, self.count = OtherLearner(peers), self.learner.update, before, 0
        self.puller, self.policies = self.learner.experience.intake.puller, self.learner.others.subscriber
        self.learner.update = self.updated
        self.other.publish()
        Sampler(peers, 8, 16).push(num_rollouts)
        while len(poll([self.puller, self.policies], timeout_s=0.0)) < 2:
            peers.pump(0.01)

    def updated(self):
        """One update of the learner."""
        self.before(self.count)
        self.update()
        self.count += 1
        if self.count == UPDATES:
            self.learner.component.stop("enough")

    def learn(self):
        """Until it is stopped."""
        learn(self.learner.component, self.learner)
        for channel in self.learner.component._channels.values():
            channel.close()


@pytest.fixture(autouse=True)
def _hardly_served(monkeypatch):
    """Sockets are due once in a minute."""
    monkeypatch.setattr("spreeze_zmq.learner.learner.POLL_INTERVAL_S", 60.0)


OFF_POLICY = ["algorithm.learning_starts=128", "balance.replay_ratio=500", "algorithm.batch_size=64"]
OFF_POLICY += ["components.critic_learner.publish_interval_s=60", "algorithm.hidden_sizes=[8]"]


@pytest.mark.parametrize("peers", [OFF_POLICY], indirect=True)
def test_between_short_updates_nobody_looks_for_what_has_not_come(peers):
    """A look at an empty socket takes a fortieth of Pendulum's update."""
    watched, looks = Watched(peers, 2), []

    def counted(name, look):
        return lambda *args, **options: looks.append(name) or look(*args, **options)

    watched.puller.pull = counted("pull", watched.puller.pull)
    watched.policies.newest = counted("newest", watched.policies.newest)
    watched.learn()
    assert watched.count == UPDATES
    assert 1 <= looks.count("newest") <= 8
    assert 2 <= looks.count("pull") <= 8


ON_POLICY = ["run.algorithm=ppo", "algorithm={hidden_sizes=[8]}", "balance={}", "components.sampler.count=1"]


@pytest.mark.parametrize("peers", [ON_POLICY], indirect=True)
def test_a_round_begins_with_the_weights_that_came_during_the_one_before(peers):
    """Also where its rollouts have come by then, and nothing has to be waited for: they are not loaded in the
    middle of a round.
    """
    begun, next_had_come = {}, []

    def before(count):
        experience = watched.learner.experience
        if count == 0:
            watched.other.publish()
            for awaited in (watched.policies, watched.puller):  # of the two rollouts one has been taken
                assert poll([awaited], timeout_s=DEADLINE_S)
        begun.setdefault(experience.rounds, watched.learner.others.version)
        if experience.rounds:
            watched.learner.component.stop("enough")
        else:
            next_had_come.append(experience.replay.complete)

    watched = Watched(peers, 2, before)
    watched.learn()
    assert next_had_come[-1]
    assert begun == {0: 0, 1: 1}
