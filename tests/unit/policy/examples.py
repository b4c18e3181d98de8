"""Policies of one linear layer whose output is what a test says, for any observation."""

import numpy as np

from spreeze_zmq.policy import Policy

LOW, HIGH = np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32)
BOUNDS = {"action_low": LOW, "action_high": HIGH}


def giving(output, distribution, version=1, **arrays):
    """A policy for observations of one number, whose network always gives ``output``."""
    output = np.asarray(output, np.float32)
    fields = {
        "version": version,
        "description": {
            "observation": {"shape": [1], "normalize": False, "clip": 10.0},
            "layers": [{"kind": "linear", "in": 1, "out": output.size}],
            "distribution": distribution,
        },
    }
    parameters = np.concatenate([np.zeros(output.size, np.float32), output])
    return Policy(fields, {"parameters": parameters, **arrays})


def rows(num):
    """``num`` observations for it."""
    return np.zeros((num, 1), np.float32)
