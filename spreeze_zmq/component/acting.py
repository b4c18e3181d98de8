"""What a process that acts gets ready before its first policy comes."""

from __future__ import annotations

import importlib

from spreeze_zmq.component.component import Component


def prepare_to_act(component: Component) -> None:
    """Import torch where the policies of the run need it: convolutions do, those that remember, and those of
    an algorithm of the user's. It may take longer than a process may be silent once it is ready.
    """
    plan = component.plan
    remembers = any("memory" in channel.fields for channel in plan.channels.values())
    if plan.environment.obs_dtype == "uint8" or remembers or ":" in plan.run.algorithm:
        importlib.import_module("spreeze_zmq.policy.torch_network")
