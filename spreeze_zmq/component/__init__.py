"""The base of every component's process: it joins the run, connects, polls, reports and stops."""

from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import LAST_POLICY_S, Weights, last_policy, prepare_to_act

__all__ = ["LAST_POLICY_S", "Component", "Weights", "last_policy", "prepare_to_act", "run"]
