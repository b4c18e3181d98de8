"""A whole update that is recorded does what the call does, whatever of its modules is switched."""

import logging
import re
import sys
from pathlib import Path

import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions, gradient_steps
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.commands.bench.trial import random_batch
from spreeze_zmq.learner.at_hand import random_batch_of
from spreeze_zmq.nn.device import taped
from spreeze_zmq.nn.native import recording
from tests.unit.nn.device.test_guards import is_replayed

pytestmark = pytest.mark.usefixtures("one_thread")


class Trained(Algorithm):
    """A network with all that a module can have switched."""

    class Options(ReplayOptions):
        """None of its own."""

    def networks(self):
        """A network of torch's layers, and one that is not trained."""
        batch_norm = torch.nn.BatchNorm1d(8)
        layers = torch.nn.Linear(4, 8, bias=False), torch.nn.Dropout(0.5), batch_norm, torch.nn.Linear(8, 2)
        return Networks(critic={"q": torch.nn.Sequential(*layers)}, targets={"t": nn.mlp([4, 2])}, acting="q")

    def distribution(self):
        """Of two actions."""
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        """A regression."""
        return Loss((self.q(batch.obs) - self.t(batch.obs) - 1.0).square().mean())

    def after_critic_step(self):
        """Nothing, but an author's own."""


SWITCHES = {
    "eval": lambda a: a.q.eval(),
    "eval of a layer": lambda a: a.q[1].eval(),
    "p": lambda a: setattr(a.q[1], "p", 0.1),
    "momentum": lambda a: setattr(a.q[2], "momentum", 0.5),
    "requires_grad": lambda a: a.q[0].requires_grad_(False),
    "hook": lambda a: a.q[0].register_forward_hook(lambda module, given, output: output * 2.0),
    "hook of a tensor": lambda a: a.q[0].weight.register_hook(lambda gradient: gradient * 0.0),
    "global hook": lambda a: HANDLES.append(
        torch.nn.modules.module.register_module_forward_hook(lambda module, given, output: output * 1.5)
    ),
    "layer": lambda a: a.q.__setitem__(1, torch.nn.ReLU()),
    "parameter": lambda a: setattr(a.q[3], "weight", torch.nn.Parameter(torch.ones(2, 8))),
    "buffer": lambda a: setattr(a.q[2], "running_mean", torch.ones(8)),
    "forward": lambda a: setattr(a.q[1], "forward", lambda x: x * 3.0),
    "network": lambda a: setattr(a, "t", nn.mlp([4, 2]).requires_grad_(False)),
}
HANDLES = []


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_switch_of_a_module_holds_at_the_next_update(monkeypatch, switch):
    """The weights are those of the plain updates, up to how batch normalisation sums, and are others without
    the switch.
    """
    spec, weights = envs.probe("CartPole-v1"), {}
    batch = random_batch(spec, 16)
    for how in ("recorded", "plain", "without"):
        if how != "recorded":
            monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
        half = algorithms.make("critic", Trained, Trained.Options(precision="fp32"), spec, "cpu", 1)
        for count in range(12):
            if count == 7 and how != "without":
                assert how == "plain" or is_replayed(half._launch[True])
                switch(half.algorithm)
            half.update(batch)
        while HANDLES:
            HANDLES.pop().remove()
        weights[how] = torch.cat([half.state_dict()[name] for name in ("own", "targets")])
    far = (weights["without"] - weights["plain"]).abs().max()
    assert (weights["recorded"] - weights["plain"]).abs().max() < 0.1 * far


class Counted(Trained):
    """After each update a number moves that no loss reads."""

    name = ""

    def after_critic_step(self):
        """One more."""
        vars(self)[self.name] = vars(self).get(self.name, 0) + 1


@pytest.mark.parametrize("name", ["num_updates", "loss", "priorities", "metrics", "step", "level", "part"])
def test_a_name_that_only_the_library_reads_is_free_to_move(name):
    """In objects of its own: the updates are recorded."""
    spec = envs.probe("CartPole-v1")
    kind = type("Kind", (Counted,), {"name": name})
    half = algorithms.make("critic", kind, kind.Options(precision="fp32"), spec, "cpu", 1)
    batch = random_batch(spec, 16)
    for _ in range(12):
        half.update(batch)
    assert vars(half.algorithm)[name] == 12
    assert is_replayed(half._launch[True])


class Keeping(SAC):
    """Assigns what it never reads; the class that it inherits reads one of that name from another object."""

    def critic_loss(self, batch):
        """As the class says."""
        found = super().critic_loss(batch)
        self.loss = found
        return found


def test_a_name_that_an_inherited_loss_reads_is_told_with_that_place(caplog):
    """Its author finds it nowhere else: another name in its place has the updates recorded."""
    spec = envs.probe("Pendulum-v1")
    half = algorithms.make("critic", Keeping, Keeping.Options(hidden_sizes=(8,)), spec, "cpu", 1)
    batch = random_batch_of(Keeping.fields_of("critic"), spec, Keeping.Options(hidden_sizes=(8,)), 16, "cpu")
    with caplog.at_level(logging.INFO):
        for _ in range(4):
            half.update(batch)
    said = r"changes Keeping\.loss \(\S+_updates\.py:\d+\), which it also reads \(\S+sac\.py:\d+\), or a"
    assert re.search(said, caplog.text)


def test_what_runs_a_loss_is_no_part_of_it():
    """Else the names of its own attributes would count as what the loss reads."""
    spec, outside = envs.probe("CartPole-v1"), set()
    half = algorithms.make("critic", Trained, Trained.Options(precision="fp32"), spec, "cpu", 1)
    batch, folder = random_batch(spec, 16), Path(algorithms.__file__).parent

    def see(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.parent == folder and recording.origin(str(file)) != recording.INTERNAL:
            above = frame.f_back
            while above.f_code.co_filename not in (taped.__file__, __file__):
                above = above.f_back
            if above.f_code.co_filename == taped.__file__:  # and no author's code is between
                outside.add(f"{file.name}: {frame.f_code.co_name}")

    sys.setprofile(see)
    try:
        half.update(batch)
    finally:
        sys.setprofile(None)
    assert not outside


class Sparse(Trained):
    """An embedding with sparse gradients, a sparse matrix as an attribute, and one that a loss leaves."""

    is_sparse = has_matrix = leaves = False

    def networks(self):
        """The embedding is of the observation's parts."""
        self.edges = torch.eye(4).to_sparse() if self.has_matrix else None
        layers = {"q": torch.nn.Linear(4, 2), "table": torch.nn.Embedding(2, 4, sparse=self.is_sparse)}
        return Networks(critic=layers, acting="q", targets={})

    def critic_loss(self, batch):
        """Reads all of them."""
        rows = batch.obs + self.table((batch.obs[:, 0] > 0).long())
        if self.edges is not None:
            rows = torch.sparse.mm(self.edges, rows.T).T
        if self.leaves:
            self.left = torch.eye(4).to_sparse()
        return Loss((self.q(rows) - 1.0).square().mean())


@pytest.mark.parametrize("what", ["is_sparse", "has_matrix", "leaves"])
def test_updates_with_sparse_tensors_are_not_recorded(what):
    """They do what dense ones do."""
    spec, weights = envs.probe("CartPole-v1"), []
    batch = random_batch(spec, 16)
    for is_here in (False, True):
        kind = type(
            "Kind", (Sparse,), {"is_sparse": False, "has_matrix": False, "leaves": False, what: is_here}
        )
        half = algorithms.make("critic", kind, kind.Options(precision="fp32"), spec, "cpu", 1)
        for _ in range(12):
            half.update(batch)
        assert is_replayed(half._launch[True]) is not is_here
        weights.append(half.state_dict()["own"])
    assert torch.allclose(*weights, atol=1e-5)
