"""What a sampler has pushed to the peers that play its learners."""

from __future__ import annotations

import numpy as np

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.packed import OBSERVATIONS, Packing
from spreeze_zmq.peers.clauses import expect
from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.plan.roles import experience_of
from spreeze_zmq.wire import Message


def rollouts(peers: Peers, start: str | None = None, stop: str | None = None) -> list[Message]:
    """The rollouts to the first learner between two marks."""
    return peers.between(start, stop, "rollout", experience_of(peers.plan.learning.learners[0]))


def flat(env: EnvironmentSpec, found: list[Message]) -> list[Message]:
    """Rollouts with observations as the environment's spec says, whether they came packed or not."""
    packing = Packing.of(env)
    if packing is None:
        return found
    flattened = []
    for message in found:
        arrays = dict(message.arrays)
        for name in arrays.keys() & set(OBSERVATIONS):
            array = arrays[name]
            fits = array.shape[-1] == (packing.width if array.dtype == np.uint8 else packing.size)
            expect(
                fits, f"{name} is {array.dtype} {list(array.shape)}, packed rows have {packing.width} bytes"
            )
            expect(not (odd := packing.odd_choice(array)), f"{name} holds {odd}")
            arrays[name] = packing.flat(array)
        flattened.append(message._replace(arrays=arrays))
    return flattened


def transitions(message: Message) -> int:
    """The number of transitions of a rollout, ``T * N``."""
    return int(message.fields["num_steps"] * message.fields["num_envs"])


def produced(peers: Peers) -> int:
    """The position that the streams to all learners have reached in the present life."""
    channels = map(experience_of, peers.plan.learning.learners)
    streams = [peers.between("begun", None, "rollout", channel) for channel in channels]
    return min(max((m.fields["produced"] for m in stream), default=0) for stream in streams)


def arrived(peers: Peers) -> dict[str, int]:
    """Learner -> the position that its stream has reached in the present life."""
    streams = {
        learner: peers.between("begun", None, "rollout", experience_of(learner))
        for learner in peers.plan.learning.learners
    }
    return {learner: int(found[-1].fields["produced"]) if found else 0 for learner, found in streams.items()}
