"""What an algorithm has in samplers beside the networks that are published."""

import copy

import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms import Networks
from spreeze_zmq.base.errors import AlgorithmError
from tests.unit.algorithms.test_acting import Modelled, checked, drawn, published

#: An encoder that was trained before, as a file has it.
OF_FILE = torch.arange(9.0).reshape(3, 3) / 9.0


class Encoded(Modelled):
    """Acts on what such an encoder gives, which nothing trains."""

    of = staticmethod(lambda: OF_FILE.clone())
    frozen = True

    def networks(self):
        """With the encoder among the targets."""
        made, encoder = super().networks(), torch.nn.Linear(3, 3, bias=False)
        encoder.weight.data = self.of()
        encoder.requires_grad_(not self.frozen)
        return Networks(made.critic, made.policy, {"encoder": encoder})

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.policy(self.encoder(obs))[:, :1]

    def policy_loss(self, batch):
        """Of the same."""
        return self.policy(self.encoder(batch.obs)).square().mean()

    def after_critic_step(self):
        """Moves nothing."""


class Learned(Encoded):
    """Has one that begins at random."""

    of = staticmethod(lambda: torch.randn(3, 3))


class Loose(Encoded):
    """Has not said that it stays."""

    frozen = False


class Within(Encoded):
    """Has the frozen one in the policy's part."""

    def networks(self):
        """See above."""
        made = super().networks()
        return Networks(made.critic, {**made.policy, **made.targets})


def remarks_of(kind):
    """Those of an actor-learner after its first update."""
    half = algorithms.make("policy", kind, kind.Options(), envs.probe("Pendulum-v1", {}), "cpu", 1)
    half.update({"obs": torch.randn(8, 3)})
    return half.remarks.lines


def test_a_frozen_network_that_every_process_reads_acts_in_samplers():
    """They read the same file; the actor-learner has nothing to say of it either."""
    checked(Encoded)
    assert drawn(published(Encoded)).shape == (4, 1)
    assert remarks_of(Encoded) == []


def test_a_target_that_may_be_another_in_each_process_is_refused():
    """With the two ways out, neither of which is refused in its turn."""
    said = (
        r"uses 'encoder', a network of targets=.*; make it a part of 'policy', run under torch\.no_grad\(\)"
    )
    for kind in (Learned, Loose):
        with pytest.raises(AlgorithmError, match=rf"{said} .*freeze it by requires_grad_\(False\)"):
            checked(kind)
    assert "reads the target 'encoder'" in remarks_of(Learned)[0]
    with pytest.raises(
        AlgorithmError, match=r"leave it, and run .* under torch\.no_grad\(\) in forward, with"
    ):
        checked(Within)


class Asking(Modelled):
    """Plans where it can, as in a script of one's own."""

    def act(self, obs, greedy):
        """``[N, 1]``; without the model by the policy."""
        plans = hasattr(self, "q") or vars(self).get("model") is not None or getattr(self, "q", None)
        return self.q(obs) if plans else self.policy(obs)[:, :1]


class Holding(Modelled):
    """Has made an attribute of a network itself."""

    def networks(self):
        """By its own name."""
        made = super().networks()
        self.model, self.also = made.critic["model"], copy.copy(made.critic)
        return made

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.also["model"](torch.cat([obs, obs[:, :1]], 1))[:, :1]


def test_code_that_asks_whether_a_network_is_there_acts_without_it():
    """Only what is used is refused, by whichever name."""
    checked(Asking)
    assert drawn(published(Asking)).shape == (4, 1)
    with pytest.raises(AlgorithmError, match=r"act\(\) uses 'model', a network of critic="):
        checked(Holding)
    with pytest.raises(AlgorithmError, match=r"act\(\) uses 'model', a network of critic="):
        drawn(published(Holding))
