"""What is done to an evaluator, and its clauses: figures that can be repeated, a file of the best."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from spreeze_zmq import envs
from spreeze_zmq.conform import life, policies
from spreeze_zmq.conform.clauses import Clause, NotSeen, expect
from spreeze_zmq.conform.life import end, hello_of
from spreeze_zmq.conform.peers import Peers
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.evaluation import play
from spreeze_zmq.wire import Message

VERSION, ENV_STEPS = 7, 4096


def evaluate(peers: Peers) -> None:
    """It gets one policy, and is told to stop once it has reported what it thinks of it."""
    peers.open()
    started, spec = peers.start(0), peers.plan.environment
    hello_of(peers)
    policy = policies.rich_policy(spec, policies.heads(spec)[0])
    fields = {**policy.fields, "version": VERSION, "extras": {"env_steps": ENV_STEPS}}
    policy = peers.notes["policy"] = peers.voices[POLICY].say(policy._replace(fields=fields))
    peers.until("E1", "an evaluation", lambda: peers.between(None, None, "evaluation"), 20.0)
    end(peers, started, "L5")
    if peers.folder.best_policy.exists():
        peers.notes["file"] = Policy.load(peers.folder.best_policy)
    peers.mark("ended")


def evaluations(peers: Peers) -> list[Message]:
    """What it reported in its whole life."""
    peers.reached("ended")
    return peers.between(None, None, "evaluation")


def _repeated(peers: Peers) -> str:
    about, spec = evaluations(peers)[0].fields, peers.plan.environment
    if "seed" not in about:
        raise NotSeen("it does not say its seed")
    with closing(envs.make(spec.id, about["num_episodes"], step_info=False, **spec.kwargs)) as batch:
        policy = peers.notes["policy"]
        score = play(batch, Policy.from_message(policy.fields, policy.arrays), about["seed"])
    mean = float(np.mean(score.returns))
    near = np.isclose(mean, about["mean_return"], rtol=1e-3, atol=1e-3)
    return expect(near, f"mean_return is {about['mean_return']:.3f}, the same episodes give {mean:.3f}")


def _origin(peers: Peers) -> str:
    came = {(message.fields["version"], message.fields["env_steps"]) for message in evaluations(peers)}
    return expect(came == {(VERSION, ENV_STEPS)}, f"{came}, played was {(VERSION, ENV_STEPS)}")


def _best(peers: Peers) -> str:
    best = [message for message in evaluations(peers) if message.fields["best"]]
    return expect(best, f"{len(best)} of {len(evaluations(peers))}")


def _file(peers: Peers) -> str:
    peers.reached("ended")
    expect("file" in peers.notes, "there is no such file")
    policy = peers.notes["file"]
    expect(policy.version == VERSION, f"it holds version {policy.version}, not {VERSION}")
    for name, array in policy.arrays.items():
        expect(np.array_equal(array, peers.notes["policy"].arrays[name]), f"its {name} are others")
    best = [m.fields["mean_return"] for m in evaluations(peers) if m.fields["best"]][-1:]
    said = [float(policy.metadata.get("mean_return", "nan"))]
    expect(np.allclose(said, best), f"mean_return is {said[0]}, reported was {best}")
    return f"version {policy.version}, mean return {said[0]:.2f}"


ACTS = {**life.ACTS, "evaluate": evaluate}
CLAUSES = (
    Clause("E1", "evaluate", _repeated),
    Clause("E2", "evaluate", _origin),
    Clause("E3", "evaluate", _best),
    Clause("F2", "evaluate", _file),
)
