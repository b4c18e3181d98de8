"""Parts of a Dict with an encoder each: their layers, and that they learn what no part tells alone."""

from collections import Counter
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, flatten, flatten_space

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms.class_policy import loader_of_modules
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.algorithms.encoders import part_encoders, takes_parts
from spreeze_zmq.algorithms.observations import CLIP, ObservationRows, RunningStatistics
from spreeze_zmq.algorithms.ppo import PPO
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.spec import spec_of
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.export.files import export_torchscript
from spreeze_zmq.policy import actor
from spreeze_zmq.policy.observations import ObservationScaling
from spreeze_zmq.replay import Minibatches, Replay, RoundStore
from tests.unit.algorithms.shipped import DISCRETE
from tests.unit.algorithms.test_legal_actions import collected, published

SIDE, LENGTH = 20, 16


class Which(gymnasium.Env):
    """An image is bright on its left or right side; the sign of a vector says whether to go there or to the
    other side, and in one of three rooms the opposite of that. A right step earns 1.
    """

    observation_space = Dict(
        image=Box(0, 255, (SIDE, SIDE, 1), np.uint8), room=Discrete(3), sign=Box(-1, 1, (2,), np.float32)
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        """A fresh situation."""
        super().reset(seed=seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action):
        """Left or right."""
        reward, self._steps = float(action == self._right), self._steps + 1
        return self._next(), reward, False, self._steps == LENGTH, {}

    def _next(self):
        side, sign, room = (int(self.np_random.integers(num)) for num in (2, 2, 3))
        self._right = side ^ sign ^ (room == 1)
        image = np.zeros((SIDE, SIDE, 1), np.uint8)
        column = int(self.np_random.integers(2, 7)) + 11 * side
        image[:, column : column + 2] = 255
        vector = np.array([2 * sign - 1, self.np_random.uniform(-1, 1)], np.float32)
        return {"image": image, "room": room, "sign": vector}


HERE = "tests.unit.algorithms.test_parts:Which"


@pytest.fixture(autouse=True)
def shipped_classes(monkeypatch):
    """Policies of the shipped algorithms' classes are made, as in a run."""
    monkeypatch.setattr(actor, "_loaders", [loader_of_modules(())])


@pytest.fixture(scope="module")
def spec():
    """Of the environment above."""
    return envs.probe(HERE)


def test_each_part_has_an_encoder_by_its_shape(spec):
    """By itself where one is an image: convolutions on pixels of 0 to 1, an embedding, a linear layer."""
    assert [part.get("pixels", False) for part in spec.obs_parts] == [True, False, False]
    options = DQN.Options()
    assert takes_parts(spec, options)
    parts = part_encoders(spec, options)
    kinds = Counter(type(module).__name__ for module in parts.modules())
    assert kinds["Conv"] == 2
    assert kinds["Embedding"] == 1
    width = SIDE * SIDE + 3 + 2
    rows = torch.zeros(4, width)
    rows[:, : SIDE * SIDE] = 255.0
    rows[:, SIDE * SIDE + 1] = 1.0
    assert parts(rows).shape == (4, parts.num_outputs)
    other = rows.clone()
    other[0, SIDE * SIDE + 1 : SIDE * SIDE + 3] = torch.tensor([0.0, 1.0])
    moved = (parts(rows) != parts(other)).any(0)
    assert 0 < moved.sum() <= 3  # the features of the room alone


def test_a_part_without_numbers_has_no_encoder(spec):
    """A layer of no inputs would be scaled by their number; the other parts stand where they stood."""
    nothing = {"path": ["nothing"], "shape": [2, 0, 3]}
    env = replace(spec, obs_parts=(spec.obs_parts[0], nothing, *spec.obs_parts[1:]))
    rows = torch.zeros(4, SIDE * SIDE + 3 + 2)
    rows[:, SIDE * SIDE] = 1.0
    parts = part_encoders(env, DQN.Options())
    assert parts.sizes == part_encoders(spec, DQN.Options()).sizes
    assert parts(rows).shape == (4, parts.num_outputs)


@pytest.mark.parametrize("number", [1, 2])
def test_images_alone_are_seen_as_pixels_of_0_to_1(number):
    """Of a Dict that is uint8 as a whole, which is scaled before it is split; of one image, too."""
    image = {"shape": [SIDE, SIDE, 1], "pixels": True}
    parts = tuple({"path": [str(place)], **image} for place in range(number))
    env = replace(DISCRETE, obs_shape=(number * SIDE * SIDE,), obs_dtype="uint8", obs_parts=parts)
    assert takes_parts(env, DQN.Options())
    parts, seen = part_encoders(env, DQN.Options()), []
    for module in parts.modules():
        if isinstance(module, nn.Conv) and module.shape[1] == SIDE:
            module.register_forward_pre_hook(lambda _, given: seen.append(given[0].max().item()))
    rows = ObservationRows(env, normalize=False, device=torch.device("cpu"))
    parts(rows(torch.full((1, *env.obs_shape), 255, dtype=torch.uint8)))
    assert seen == pytest.approx([1.0] * number)


def test_one_option_chooses_otherwise(spec):
    """A perceptron on all numbers; and parts where none is an image, but not of one array."""
    assert not takes_parts(spec, DQN.Options(network="mlp"))
    assert not takes_parts(DISCRETE, DQN.Options())
    with pytest.raises(InvalidEnvironment, match='network = "parts" has an encoder for each part of a Dict'):
        algorithms.make("critic", DQN, DQN.Options(network="parts"), DISCRETE, "cpu", 1)
    with pytest.raises(InvalidEnvironment, match="memory_size is for vectors"):
        algorithms.make("critic", PPO, PPO.Options(memory_size=4), spec, "cpu", 1)


@pytest.mark.long("a task is learned")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", [DQN, pytest.param(PPO, marks=pytest.mark.thorough)])
def test_what_no_part_tells_alone_is_learned(spec, kind, tmp_path):
    """To 14 of 16, in one process with the real parts; without one of the parts nothing beats 11. What
    is exported acts as the learned policy.
    """
    settings = {
        "hidden_sizes": (64,),
        "learning_rate": 1e-3,
        "precision": "fp32",
        "batch_size": 64,
        "gamma": 0.5,
    }
    settings |= {} if kind.on_policy() else {"replay_capacity": 8_000, "exploration_steps": 4_000}
    options = algorithms.options_from(kind.Options, settings)
    halves, stores = {}, {}
    for part in ("critic", "policy")[: 1 + kind.has_policy_loss()]:
        halves[part] = algorithms.make(part, kind, options, spec, "cpu", 1)
        stores[part] = RoundStore(1, "cpu") if kind.on_policy() else Replay(spec, options)
    acting = list(halves.values())[-1]
    batch, judge = (envs.make(HERE, num, seed=1) for num in (16, 20))
    (obs, _), rng, order = batch.reset(), np.random.default_rng(1), torch.Generator().manual_seed(1)
    mean_return, turns = 0.0, 0
    while mean_return < 15.0 and turns < 80:
        rollout, obs, _ = collected(batch, published(acting), obs, None, rng, 32)
        for part, half in halves.items():
            stores[part].add(rollout)
            half.env_steps += rollout.num_transitions
            if kind.on_policy():
                for minibatch in Minibatches(half.prepare(stores[part].take()[0]), 4, 64).drawn(order):
                    half.update(minibatch)
            else:
                for _ in range(32):
                    half.update(stores[part].sample(64))
        turns += 1
        mean_return = play(judge, published(acting), seed=5).mean_return if turns % 4 == 0 else mean_return
    assert play(judge, published(acting), seed=99).mean_return >= 14.0
    policy = published(acting)
    assert "class" in policy.description
    assert export_torchscript(policy, tmp_path / "policy.pt") < 1e-5


def test_an_embedding_is_the_row_of_its_choice():
    """Also of scaled one-hot numbers, and with a gradient for that row alone."""
    embedding = nn.Parts([nn.PartForm(choices=(3, 2))], "relu").encoders[0]
    rows = torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0]]) * 3.0 - 0.5
    first, second = embedding.weights
    assert torch.equal(embedding(rows), torch.cat([first[1], second[1]])[None])
    embedding(rows).sum().backward()
    assert first.grad.abs().sum(1).tolist() == [0.0, 3.0, 0.0]


@pytest.mark.parametrize("normalize", [False, True])
def test_choices_beside_bytes_stay_0_and_1(normalize):
    """Those of uint8 beside a picture, which are bytes as it is: else a choice would be a 255th."""
    own = Dict(
        {
            "picture": Box(0, 255, (5,), np.uint8),
            "tool": Discrete(3, dtype=np.uint8),
            "carries": MultiDiscrete([4, 2], dtype=np.uint8),
        }
    )
    env = spec_of("Some-v0", {}, flatten_space(own), Discrete(2), None, (own, Discrete(2)))
    drawn = [own.sample() for _ in range(40)]
    obs = np.stack([flatten(own, each) for each in drawn])
    assert obs.dtype == env.obs_dtype == "uint8"
    rows, statistics = ObservationRows(env, normalize, torch.device("cpu")), RunningStatistics(env)
    statistics.add(obs)
    rows.adopt(statistics.arrays())
    choices = np.concatenate([np.arange(14)[span] for span in env.spans_of("sizes")])
    for seen in (
        rows(torch.from_numpy(obs)).numpy(),
        ObservationScaling(rows.description(), rows.arrays())(obs),
    ):
        np.testing.assert_array_equal(seen[:, choices], obs[:, choices])
        assert 0.5 < seen.max() <= (CLIP if normalize else 1.0)
