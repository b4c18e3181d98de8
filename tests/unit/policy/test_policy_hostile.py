"""Whatever a description says, a policy is made of it or it is refused with a word."""

import copy
from contextlib import suppress

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.policy import Policy

DESCRIPTIONS = [
    {
        "observation": {"shape": [3], "normalize": True, "clip": 10.0},
        "layers": [
            {"kind": "linear", "in": 3, "out": 4},
            {"kind": "layer_norm", "size": 4, "eps": 1e-5},
            {"kind": "elu"},
            {"kind": "dueling", "actions": 3, "atoms": 1},
            {"kind": "append", "size": 1},
        ],
        "distribution": distribution,
    }
    for distribution in (
        {"kind": "tanh_normal", "log_std": "tanh", "log_std_min": -5.0, "log_std_max": 2.0},
        {"kind": "normal", "log_std_min": -5.0, "log_std_max": 2.0},
        {"kind": "categorical", "sizes": [2, 2]},
        {
            "kind": "epsilon_greedy",
            "num_actions": 2,
            "epsilon": 0.5,
            "spread": 7.0,
            "atoms": 2,
            "v_min": 0.0,
            "v_max": 1.0,
        },
    )
]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
ARRAYS = {
    "parameters": np.ones(25, np.float32),
    "action_low": -np.ones(2, np.float32),
    "action_high": np.ones(2, np.float32),
    "observation_mean": np.zeros(3, np.float32),
    "observation_std": np.ones(3, np.float32),
}


def test_the_untouched_descriptions_are_policies():
    """Else the next test would prove nothing."""
    for description in DESCRIPTIONS:
        policy = Policy({"version": 1, "description": description}, ARRAYS)
        assert len(policy.mode(np.zeros((2, 3)))) == 2


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(range(len(DESCRIPTIONS))), st.data())
def test_well_formed_nonsense_is_refused_with_a_word(which, data):
    """A value somewhere is exchanged for any other, or left out."""
    description = copy.deepcopy(DESCRIPTIONS[which])
    place = description
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        if data.draw(st.booleans()):
            place[key] = data.draw(PLAIN)
        else:
            del place[key]
        break
    with suppress(WireError), np.errstate(all="ignore"):
        policy = Policy({"version": 1, "description": description}, ARRAYS)
        action, _ = policy.act(np.zeros((2, 3)), np.random.default_rng(0))
        assert len(policy.env_action(action)) == 2
