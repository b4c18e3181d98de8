"""The acts of a sampler that gets policies of each distribution, one after the other."""

from __future__ import annotations

from spreeze_zmq.peers import policies
from spreeze_zmq.peers.every_role import begin
from spreeze_zmq.peers.peers import Peers, Stalled
from spreeze_zmq.peers.rollouts import produced
from spreeze_zmq.peers.sampler_acts import DRAWS, come_to, publish_policy
from spreeze_zmq.plan.roles import POLICY

#: Transitions whose actions are drawn beyond the bounds.
BEYOND = 200


def beyond(peers: Peers) -> None:
    """Actions that are drawn far beyond the bounds of a box; who does not know their distribution ends."""
    spec = peers.plan.environment
    if "normal" not in policies.heads(spec) or not spec.has_bounds:
        return
    peers.open()
    publish_policy(peers, 1, policies.constant_policy(spec, "normal", policies.WIDE), {"*": BEYOND})
    life = begin(peers, 10)
    peers.wait(peers.patience_s, lambda: life.ended or produced(peers) >= BEYOND)
    peers.mark("beyond")
    life.kill()


def other_heads(peers: Peers) -> None:
    """Every distribution of the environment's kind; one that ends the process is followed by another life."""
    peers.open()
    spec, started = peers.plan.environment, None
    played = peers.notes["played"] = {}
    makes = (policies.rich_policy, policies.constant_policy)
    for version, (head, make) in enumerate(((h, m) for h in policies.heads(spec) for m in makes), 1):
        if started is None or started.ended:
            peers.ends[POLICY].latest.clear()
            started = begin(peers, 7)
        at = produced(peers) + DRAWS
        played[head, make] = version, publish_policy(peers, version, make(spec, head), {"*": at})
        try:
            come_to(peers, "", "", at, "played")
        except Stalled as stalled:
            if stalled.clause == "M3":
                raise
            started.kill()


ACTS = {"beyond": beyond, "heads": other_heads}
