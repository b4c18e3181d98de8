"""Publishes the policy of a learner, with its version, description and the limits of collection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.component import Component
from spreeze_zmq.learner.lag import VERSION_FILE, Versions
from spreeze_zmq.learner.publication import Cadence, Outbox
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.wire import Message


class PolicyOutlet:
    """The policy channel's publishing end.

    Args:
        component: the learner.
        half: holds the policy.
        cadence: accounts the cost of publications.
        device: of the half.
        first_version: of the first policy of the run; 0 stands for uniformly random actions.

    Attributes:
        versions: of the published policies.
        outbox: copies the weights off the device.
        published: whether this process has published a policy.
    """

    def __init__(
        self, component: Component, half: AutogradHalf, cadence: Cadence, device: str, first_version: int = 0
    ) -> None:
        self.half = half
        self.versions = Versions(Path(component.plan.socket_dir, VERSION_FILE), first_version)
        self.outbox = Outbox(component.open(POLICY), cadence, device)
        self.published = False

    def publish(
        self,
        *,
        critic_updates: int,
        env_steps: int,
        collect_until: Mapping[str, int] | None,
        wait: bool,
    ) -> None:
        """Publish the present weights under the newest version.

        Args:
            critic_updates: number of critic updates that the policy has followed.
            env_steps: transitions sampled so far.
            collect_until: stream -> position up to which its sampler may begin rollouts under this version;
                ``"*"`` for every stream that is not named. None sets no limit.
            wait: finish before this returns.
        """
        self.half.env_steps = env_steps
        fields: dict[str, Any] = {
            "version": self.versions.newest,
            "critic_updates": critic_updates,
            "actor_updates": self.half.num_updates,
            "description": self.half.description(),
            "extras": {"env_steps": env_steps},
        }
        if collect_until is not None:
            fields["collect_until"] = dict(collect_until)

        def message(weights: Any) -> Message:
            return Message("policy", fields, self.half.policy_arrays(weights))

        self.outbox.put(self.half.weights, message, wait=wait)
        self.published = True
