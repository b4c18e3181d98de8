"""The other ends of the channels of a sampler that is written in any language."""

import time

import numpy as np
from golden_messages import MESSAGES

from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import Message, channels
from spreeze_zmq.wire.channels import poll

DEADLINE_S = 60.0


def policy(version, numbers=8, **others):
    """The message of one linear layer for Pendulum-v1; ``others`` in place of what its description holds."""
    description = {
        "layers": [{"kind": "linear", "in": 3, "out": 2}],
        "distribution": MESSAGES["policy"].fields["description"]["distribution"],
        "observation": {"shape": [3], "normalize": False, "clip": 10.0},
        **others,
    }
    fields = {**MESSAGES["policy"].fields, "version": version, "description": description}
    bounds = {"action_low": np.array([-2.0], np.float32), "action_high": np.array([2.0], np.float32)}
    return Message("policy", fields, {"parameters": np.ones(numbers, np.float32), **bounds})


class Peers:
    """Everybody else of a run: the other ends of a sampler's channels, held by the test.

    Args:
        folder: of the run.
        change: of its plan.
        away: channels whose other end is not there yet.
    """

    def __init__(self, folder, change=lambda plan: plan, away=()):
        plan = change(topology.load("pendulum", []))
        self.plan, self.sockets = write_plan(plan, RunFolder.create("run", str(folder)))
        self.run_file = str(RunFolder(folder).run_file)
        self.ends = {}
        for name in plan.channels.keys() - set(away):
            self.open(name)

    def open(self, name):
        """The other end of a channel."""
        spec = self.plan.channels[name]
        end = "pull" if spec.pattern == "push_pull" else "pub"
        self.ends[name] = channels.open_channel(spec, end, "peer-0", 1)

    def publish_policy(self, version, **others):
        """Publish the message that :func:`policy` makes."""
        self.ends["policy"].publish(policy(version, **others))

    def pull(self, channel, wanted=lambda message: True):
        """The next message that is wanted; publishers are served meanwhile."""
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            poll(self.ends.values(), timeout_s=0.1)
            while (message := self.ends[channel].pull()) is not None:
                if wanted(message):
                    return message
        raise AssertionError(f"nothing of what was wanted came on {channel} in {DEADLINE_S} s")

    def ended(self, process):
        """The exit code of a process that ends by itself; publishers are served meanwhile."""
        until_s = time.monotonic() + DEADLINE_S
        while process.poll() is None and time.monotonic() < until_s:
            poll(self.ends.values(), timeout_s=0.1)
        return process.poll()

    def close(self):
        """Leave nothing behind."""
        for end in self.ends.values():
            end.close()
        self.sockets.remove()
