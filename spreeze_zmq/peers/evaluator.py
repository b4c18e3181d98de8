"""The act and the clauses of an evaluator: repeatable returns, and the file of the best policy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.evaluation.arena import randomized
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.peers import clauses, policies
from spreeze_zmq.peers.clauses import Broken, Clause, expect
from spreeze_zmq.peers.every_role import begin, begin_again, end
from spreeze_zmq.peers.peers import NotSeen, Peers
from spreeze_zmq.peers.physics import made_here
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.plan.roles import EVALUATOR, POLICY
from spreeze_zmq.policy import Policy
from spreeze_zmq.wire import Message

VERSION, ENV_STEPS = 7, 4096
#: For how long its episodes are repeated here.
REPEATED_S = 60.0
#: The incarnation of a publisher that has started again.
OTHER_LIFE = 2**52


def evaluate(peers: Peers) -> None:
    """It gets one policy, and is stopped after its first evaluation."""
    peers.open()
    started = begin(peers, 0)
    peers.notes["policy"] = publish(peers, VERSION)
    heard_of(peers, "E1")
    end(peers, started, "L5")
    peers.mark("ended")


def publish(peers: Peers, version: int, **more: Any) -> Message:
    """Publish the policy of the act as this version, with further fields. Its parameters act otherwise than
    their average.
    """
    spec = peers.plan.environment
    policy = policies.rich_policy(spec, policies.heads(spec)[0])
    fields = {**policy.fields, "version": version, "extras": {"env_steps": ENV_STEPS}, **more}
    arrays = {**policy.arrays, "average": policy.arrays["parameters"]}
    arrays["parameters"] = -arrays["average"]
    return peers.publish(POLICY, "policy", arrays, **fields)


def heard_of(peers: Peers, clause: str, version: int = VERSION) -> None:
    """Wait for an evaluation of a version."""

    def came() -> bool:
        return any(m.fields["version"] == version for m in peers.between("begun", None, "evaluation"))

    peers.until(clause, f"an evaluation of version {version}", came)


def again(peers: Peers) -> None:
    """It gets a policy of a newer sender, then one of a publisher that has started again; it is killed, and
    its next life is stopped by a message.
    """
    peers.open()
    first = begin(peers, 0)
    publish(peers, VERSION, mood="calm")
    heard_of(peers, "M5")
    peers.mark("newer")
    peers.restart(POLICY, OTHER_LIFE)
    publish(peers, VERSION + 1)
    heard_of(peers, "C6", VERSION + 1)
    peers.mark("restarted")
    second = begin_again(peers, first, 0, "second")
    end(peers, second, "L6", stops="*")


def evaluations(peers: Peers) -> list[Message]:
    """Every evaluation that it reported."""
    peers.reached("ended")
    return peers.between(None, None, "evaluation")


def _played(policy: Message, about: Mapping[str, Any]) -> Policy:
    """What an ``evaluation`` says that it played of a policy message."""
    make = Policy.of_average if about.get("averaged") else Policy.from_message
    return make(policy.fields, policy.arrays)


def _repeated(peers: Peers) -> str:
    about, plan, policy = evaluations(peers)[0].fields, peers.plan, peers.notes["policy"]
    if "seed" not in about:
        raise NotSeen("it does not say its seed")
    if drawn := randomized(plan):
        raise NotSeen(f"components.evaluator.randomize draws other models: {', '.join(drawn)}")
    if cut := about.get("num_truncated", 0):
        raise NotSeen(f"it cut {cut} of {about['num_episodes']} episodes itself")
    acts = _played(policy, about)
    until_s, first = time.monotonic() + REPEATED_S, first_index(plan, EVALUATOR)
    with made_here(plan.environment, about["num_episodes"], first_index=first) as batch:
        score = play(batch, acts, about["seed"], until_s=until_s)
    if score.timed_out:
        raise NotSeen(f"its episodes take longer than {REPEATED_S:.0f} s here")
    mean = float(np.mean(score.returns))
    near = np.isclose(mean, about["mean_return"], rtol=1e-3, atol=1e-3)
    return expect(near, f"mean_return is {about['mean_return']:.3f}, the same episodes give {mean:.3f}")


def _origin(peers: Peers) -> str:
    came = {(message.fields["version"], message.fields["env_steps"]) for message in evaluations(peers)}
    due = {(VERSION, ENV_STEPS)}
    return expect(came == due, f"version and env_steps are {came}, expected {due}")


def _best(peers: Peers) -> str:
    best = [message for message in evaluations(peers) if message.fields["best"]]
    return expect(best, f"{len(best)} of {len(evaluations(peers))}")


def _file(peers: Peers) -> str:
    peers.reached("ended")
    file = peers.folder.best_policy
    expect(file.exists(), "there is no such file")
    try:
        policy = Policy.load(file)
    except SpreezeError as error:
        raise Broken(f"it cannot be read: {error}") from None
    expect(policy.version == VERSION, f"it holds version {policy.version}, not {VERSION}")
    best = [message.fields for message in evaluations(peers) if message.fields["best"]]
    if not best:
        raise NotSeen("no evaluation was best")
    for name, array in _played(peers.notes["policy"], best[-1]).arrays.items():
        same = name in policy.arrays and np.array_equal(array, policy.arrays[name])
        expect(same, f"its {name} differ")
    said, due = float(policy.metadata.get("mean_return", "nan")), best[-1]["mean_return"]
    expect(np.isclose(said, due), f"mean_return is {said}, the last best evaluation said {due}")
    return f"version {policy.version}, mean return {said:.2f}"


ACTS = {"evaluate": evaluate, "again": again}
CLAUSES = (
    Clause("L6", "again", clauses.exits_with_0),
    Clause("L9", "again", clauses.another_incarnation),
    Clause("C6", "again", "restarted"),
    Clause("M5", "again", "newer"),
    Clause("E1", "evaluate", _repeated),
    Clause("E2", "evaluate", _origin),
    Clause("E3", "evaluate", _best),
    Clause("F2", "evaluate", _file),
)
