"""Episodes that ``spreeze record`` keeps come back from their dataset as the batch gave them while they were
played.
"""

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple

from spreeze_zmq import data, envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs.recorded import recorded

IMAGE, SEVERAL = Box(0, 255, (4, 5, 3), np.uint8), MultiDiscrete([3, 4], start=[5, -1])
MASK = Box(0, 1, (3,), np.int8)
#: Observations and actions of odd environments.
SPACES = {
    "flags": (MultiBinary(3), MultiBinary(4)),
    "several in a tuple": (Tuple((Box(-1.0, 1.0, (2,), np.float64), SEVERAL)), SEVERAL),
    "nested": (
        Dict({"inner": Dict({"image": IMAGE, "kind": Discrete(3, start=7)}), "flag": MultiBinary(1)}),
        Discrete(3, start=7),
    ),
    "one of two": (OneOf((Box(-1.0, 1.0, (2,), np.float32), Discrete(3))), Discrete(3)),
    "mask": (Dict({"action_mask": MASK, "place": Box(-1.0, 1.0, (2,), np.float32)}), Discrete(3, start=7)),
}


class Odd(gymnasium.Env):
    """Five steps of random observations. A mask among them always allows the first action; infos have the
    numbers of the legal ones by the same name, which nothing reads then.
    """

    def __init__(self, spaces):
        self.observation_space, self.action_space = SPACES[spaces]

    def reset(self, *, seed=None, options=None):
        """Draw the first one."""
        super().reset(seed=seed)
        self.t = 0
        return self._drawn()

    def step(self, action):
        """Draw another, for an action of its own."""
        assert action in self.action_space
        self.t += 1
        obs, info = self._drawn()
        return obs, 1.0, self.t == 5, False, info

    def _drawn(self):
        obs = self.observation_space.sample()
        if not isinstance(obs, dict) or "action_mask" not in obs:
            return obs, {}
        obs["action_mask"][0] = 1
        return obs, {"action_mask": np.flatnonzero(obs["action_mask"])}


CASES = {name: (f"{__name__}:Odd", {"spaces": name}) for name in SPACES}
CASES.pop("one of two")
gymnasium.register("CalledToMake-v0", entry_point=lambda: Odd("flags"))
CASES["registered by a callable"] = ("CalledToMake-v0", {})
CASES["mask in info"] = ("tests.masked:Game", {"limit": True})


def played(batch, num_episodes):
    """Observations, actions and masks of whole episodes, as the batch gave and took them."""
    episodes = []
    obs, info = batch.reset(seed=3)
    for _ in range(num_episodes):
        seen, actions, masks, over = [obs[0]], [], [*info.get("action_mask", ())], False
        while not over:
            actions.append(batch.random_actions()[0])
            obs, _, terminated, truncated, info = batch.step(actions[-1][None])
            over = (terminated | truncated)[0]
            seen.append(info["final_obs"][0] if over else obs[0])
            masks += [*info.get("final_action_mask" if over else "action_mask", ())]
        episodes.append((np.stack(seen), np.stack(actions), masks))
    return episodes


@pytest.mark.parametrize("case", CASES)
def test_what_was_recorded_is_read_as_it_was_played(tmp_path, monkeypatch, case):
    """Bit by bit, whatever the spaces are and wherever a mask stands."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    spec, kept = envs.probe(*CASES[case]), []
    batch, env = recorded(spec, kept.append)
    with closing(batch):
        episodes = played(batch, 3)
        path = data.write("odd/again-v0", kept, env, "made for a test")
    found = list(data.rollouts_of(data.Dataset.open(path), spec, "own"))
    assert spec.action_mask == case.startswith("mask")
    for rollout, (obs, action, masks) in zip(found, episodes, strict=True):
        np.testing.assert_array_equal(rollout.obs[:, 0], obs.astype(spec.obs_dtype))
        np.testing.assert_array_equal(rollout.action[:, 0], action)
        if spec.action_mask:
            np.testing.assert_array_equal(rollout.action_mask[:, 0], masks)
            np.testing.assert_array_equal(rollout.final_action_mask[0], masks[-1])


def test_episodes_that_minari_cannot_store_are_refused_in_one_line(tmp_path, monkeypatch):
    """Such as those whose observations differ in form from step to step, which have no common array."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    spec, kept = envs.probe(f"{__name__}:Odd", {"spaces": "one of two"}), []
    batch, env = recorded(spec, kept.append)
    with closing(batch):
        played(batch, 3)
        with pytest.raises(InputError, match=r"Minari cannot store it: ValueError: .* same shape"):
            data.write("odd/again-v0", kept, env, "made for a test")
