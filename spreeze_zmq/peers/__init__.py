"""Plays all peers of one real component process, and checks the clauses of PROTOCOL.md."""

from spreeze_zmq.peers.clauses import Result
from spreeze_zmq.peers.run import ROLES, clauses_of, run
from spreeze_zmq.peers.unseen import is_for, unseen

__all__ = ["ROLES", "Result", "clauses_of", "is_for", "run", "unseen"]
