"""An algorithm of one's own takes one update before any process starts."""

import pytest

from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.learner.setup import rehearse
from spreeze_zmq.plan import topology

MINE = """
from copy import deepcopy
from spreeze_zmq import nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy

class Q(Algorithm):
    Options = ReplayOptions
    def networks(self):
        q = nn.mlp([4, 8, 2])
        return Networks(critic={{"q": q}}, targets={{"target": deepcopy(q)}}, acting="q")
    def distribution(self):
        return EpsilonGreedy(self.env, 0.1)
    def critic_loss(self, batch):
        q = self.q(batch.obs).gather(1, batch.action.unsqueeze(1)){squeezed}
        next_q = self.target(batch.next_obs).amax(1).detach()
        return (q - batch.reward - batch.discount * next_q).square().mean()
    def after_critic_step(self):
        {after}
"""


@pytest.fixture
def rehearsed(tmp_path, monkeypatch, request):
    """Write ``MINE`` and rehearse it on CartPole."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(squeezed=".squeeze(1)", after="nn.polyak(self.target, self.q, 0.01)", size=256):
        name = f"mine_{abs(hash(request.node.name))}"
        (tmp_path / f"{name}.py").write_text(MINE.format(squeezed=squeezed, after=after))
        options = f"[algorithm]\nbatch_size = {size}"
        (tmp_path / "own.toml").write_text(f'[run]\nenv = "CartPole-v1"\nalgorithm = "{name}:Q"\n{options}')
        return rehearse(topology.load(tmp_path / "own.toml"))

    return run


def test_a_good_algorithm_gets_no_word(rehearsed):
    """Its loss and what follows it run once."""
    assert rehearsed() == ()


@pytest.mark.parametrize("size", [256, 16_384])
def test_rows_beside_every_other_row_are_named(rehearsed, size):
    """A missing squeeze(1) trains each action's value towards the targets of all others; of a large batch the
    machine may not have the memory for these.
    """
    (line,) = rehearsed(squeezed="", size=size)
    assert "py:17: rows of shape [32, 1]" in line
    assert "squeeze(1) the first" in line


def test_what_nothing_trains_or_moves_is_named(rehearsed):
    """Half of the networks would keep their first weights, and the run would go on."""
    (line,) = rehearsed(after="pass\n    after_critic_step = Algorithm.after_critic_step")
    assert line == "Q has no after_critic_step: the targets target keep their first weights"


def test_what_follows_an_update_is_tried(rehearsed):
    """Its error comes before the first process, with its place."""
    with pytest.raises(AlgorithmError, match=r"after_critic_step: /.*py:19: AttributeError: .*'qq'"):
        rehearsed(after="nn.polyak(self.target, self.qq, 0.01)")


def test_a_loss_may_rely_on_the_size_of_its_batches(rehearsed):
    """As one that contrasts each row with all others does."""
    assert rehearsed(squeezed=".squeeze(1)[list(range(self.options.batch_size))]") == ()


WEIGHED = """
from spreeze_zmq.algorithms import sac
from spreeze_zmq.algorithms.declarations import TRANSITION_FIELDS

class Weighed(sac.SAC):
    policy_fields = TRANSITION_FIELDS
    def policy_loss(self, batch):
        return super().policy_loss(batch).loss * batch.weight.mean()
"""


def test_an_actor_learners_loss_is_rehearsed_on_batches_without_weights(tmp_path, monkeypatch):
    """As it gets them: priorities are the critics', so that it draws evenly."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "weighed.py").write_text(WEIGHED)
    run = {"env": "Pendulum-v1", "algorithm": "weighed:Weighed"}
    plan = topology.load({"run": run, "algorithm": {"prioritized": True}})
    with pytest.raises(AlgorithmError, match=r"batch.weight is None .* policy_loss of replays"):
        rehearse(plan)
