"""Networks on the meta device, where a sampler measures those of a policy before it makes them, and the
arithmetic of updates, which a learner counts: neither imports torch's compiler.
"""

import subprocess
import sys

PROGRAM = """
import sys, torch
from dataclasses import replace
from spreeze_zmq.algorithms import get
from spreeze_zmq.learner.arithmetic import CountedProducts
from tests.unit.algorithms.shipped import BOX, DISCRETE, IN_PARTS
def say(name):
    print(name, *sorted({"sympy", "torch._dynamo"} & set(sys.modules)))
with CountedProducts() as counted:
    torch.nn.Linear(2, 3)(torch.ones(1, 2)).sum().backward()
assert counted.flops == 24, counted.flops
say("counted")
boxes = replace(BOX, obs_shape=IN_PARTS.obs_shape, obs_parts=IN_PARTS.obs_parts)
for name, env, options in (
    ("sac", boxes, {}), ("td3", boxes, {}), ("dqn", IN_PARTS, {}), ("ppo", IN_PARTS, {}),
    ("pqn", IN_PARTS, {}), ("discrete_sac", IN_PARTS, {}),
    ("sac", BOX, {"memory_size": 4, "layer_norm": True}), ("td3", BOX, {"memory_size": 4}),
    ("dqn", DISCRETE, {"memory_size": 4}), ("ppo", DISCRETE, {"memory_size": 4}),
):
    kind = get(name)
    with torch.device("meta"):
        kind(kind.Options(**options), env).networks()
    say(name)
"""


def test_networks_are_measured_and_updates_counted_without_torchs_compiler():
    """Its import takes four seconds of a core in a sampler that is running: on a full machine longer than a
    process may be silent, so that the broker ended samplers of images beside vectors at their first policy.
    Each learner would begin as much later.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if " " in line] == []
