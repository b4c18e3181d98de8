"""A saved policy takes the environment's own observations, as Gymnasium gives them, alone or in a batch."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.policy import Policy
from tests.unit.envs.own_environments import Count
from tests.unit.evaluation.test_saved import save_for

#: Spaces that are flattened for the networks.
SPACES = {
    "dict": spaces.Dict(
        {
            "which": spaces.Discrete(4, start=1),
            "image": spaces.Box(0, 255, (3, 2, 1), np.uint8),
            "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(-9.0, 9.0, (), np.float64))),
        }
    ),
    "tuple": spaces.Tuple((spaces.Discrete(5, start=2), spaces.MultiDiscrete([3, 4], start=[-1, 2]))),
    "discrete": spaces.Discrete(6, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 4], start=[1, 0]),
    "unsigned": spaces.Tuple(
        (spaces.Discrete(5, start=2, dtype=np.uint64), spaces.MultiDiscrete([200, 100], dtype=np.uint8))
    ),
    "multi-binary": spaces.MultiBinary(3),
    "empty": spaces.Tuple(
        (spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-1.0, 1.0, (0, 3), np.float32))
    ),
    "text": spaces.Dict({"word": spaces.Text(3, min_length=3)}),
}


class Samples(Count):
    """Observes samples of one of ``SPACES``."""

    def __init__(self, space):
        super().__init__()
        self.observation_space = SPACES[space]

    def reset(self, *, seed=None, options=None):
        """One sample."""
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        """The next sample."""
        _, *rest = super().step(action)
        return self.observation_space.sample(), *rest


def load_for(path, space):
    """An untrained policy for ``Samples``, from its file."""
    save_for(path, envs.probe(f"{__name__}:Samples", {"space": space}).to_dict(), "td3")
    return Policy.load(path)


@pytest.mark.parametrize("space", [name for name in SPACES if name != "text"])
def test_own_observations_are_flattened_as_gymnasium_does(tmp_path, space):
    """One of ``reset``, and the batch of a vector environment; flattened ones are taken as before."""
    policy = load_for(tmp_path / "policy.safetensors", space)
    own = SPACES[space]
    own.seed(1)
    samples = [own.sample() for _ in range(20)]
    rows = np.array([spaces.flatten(own, sample) for sample in samples]).astype(np.float32)
    shape = policy.observation_shape
    np.testing.assert_array_equal([policy.own.observation(sample, shape) for sample in samples], rows)
    np.testing.assert_array_equal([policy(sample) for sample in samples], [policy(row) for row in rows])
    vector = gymnasium.vector.SyncVectorEnv([lambda: Samples(space)] * 4)
    batch, _ = vector.reset(seed=2)
    each = list(gymnasium.vector.utils.iterate(vector.observation_space, batch))
    np.testing.assert_allclose(policy(batch), [policy(sample) for sample in each], atol=1e-6)


@pytest.mark.parametrize(
    ("space", "obs", "said"),
    [
        ("dict", {"which": 1}, r"no obs\['image'\]"),
        ("dict", (1, 2), r"shape \(13,\), or a batch \(N, 13\), got \(2,\); gymnasium\.spaces\.flatten\("),
        ("tuple", (9, np.array([0, 2])), r"obs\[0\] is 9, expected integers \[2\] to \[6\]"),
        ("tuple", (np.array([2, 3]), np.array([0, 2])), r"different shapes: obs\[0\] \(2,\), obs\[1\] \(\)"),
        ("tuple", [2, [0, 2]], r"got list; gymnasium\.spaces\.flatten\(env\.observation_space, obs\)"),
        ("discrete", np.array([0, 1, 2, 3, 0, 0]), "not one-hot; flatten each observation of a batch of 6"),
        ("text", {"word": "abc"}, r"got dict; gymnasium\.spaces\.flatten\(env\.observation_space, obs\)"),
    ],
)
def test_an_observation_that_does_not_fit_is_one_line(tmp_path, space, obs, said):
    """It names the part, or what flattens where the file does not describe the space."""
    policy = load_for(tmp_path / "policy.safetensors", space)
    with pytest.raises(InputError, match=said):
        policy(obs)


def test_a_file_of_an_earlier_version_names_what_flattens(tmp_path):
    """It does not describe the parts."""
    path, spec = tmp_path / "policy.safetensors", envs.probe(f"{__name__}:Samples", {"space": "dict"})
    earlier = {name: value for name, value in spec.to_dict().items() if name != "obs_parts"}
    save_for(path, earlier, "td3")
    with pytest.raises(InputError, match=r"got dict; gymnasium\.spaces\.flatten"):
        Policy.load(path)(SPACES["dict"].sample())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([{"path": [], "shape": [], "sizes": [10**12], "start": [0]}], "1000000000000 numbers, the policy"),
        ([{"path": [0], "shape": [3]}], "obs_parts have 3 numbers, the policy observes"),
        ([{"path": [0.5], "shape": [13]}], "path is"),
        ([{"path": [], "shape": [2], "sizes": [13], "start": [0]}], "do not fit the shape"),
        ([{"shape": [13]}], "'path' is missing"),
        ([13], "not subscriptable"),
        (13, "not iterable"),
    ],
)
def test_parts_that_make_no_sense_are_refused(tmp_path, parts, said):
    """The file may be anybody's."""
    path = tmp_path / "policy.safetensors"
    spec = envs.probe(f"{__name__}:Samples", {"space": "dict"}).to_dict()
    save_for(path, {**spec, "obs_parts": []}, "td3")
    policy = Policy.load(path)
    spec["obs_parts"] = parts
    policy.save(path, {"environment": json.dumps(spec)})
    with pytest.raises(InputError, match=said):
        Policy.load(path)
