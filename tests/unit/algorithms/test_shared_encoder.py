"""Actor-critics on images: who trains the encoder, what is published, and that it learns from pixels."""

import dataclasses

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.class_policy import ClassPolicy, loader_of_modules
from spreeze_zmq.algorithms.encoders import shifted
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.evaluation.export.files import export_onnx, export_torchscript
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.policy import actor
from spreeze_zmq.replay import Replay
from tests.unit.algorithms.shipped import BOX
from tests.unit.algorithms.test_legal_actions import published

SIDE, SQUARE = 36, 6
ONE = np.ones(1, np.float32)
#: An image, and one number to choose.
DOT = EnvironmentSpec("none", {}, (SIDE, SIDE, 1), "uint8", "box", (1,), -ONE, ONE)
CHOICES = dataclasses.replace(
    DOT, action_kind="discrete", action_shape=(), action_low=None, action_high=None, action_sizes=(3,)
)
pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("sac", "td3", "td3_bc", "discrete_sac")
IMAGE = {"path": ["image"], "shape": [20, 20, 2], "pixels": True}
#: A Dict of one image.
ONE_PART = dataclasses.replace(BOX, obs_shape=(800,), obs_dtype="uint8", obs_parts=(IMAGE,))


def pair(name, env, **options):
    """Both halves of an algorithm, small."""
    kind = algorithms.get(name)
    settings = {"hidden_sizes": (32,), "precision": "fp32", "batch_size": 64, "learning_starts": 1}
    settings |= {"replay_capacity": 4_000, **options}
    made = algorithms.options_from(kind.Options, settings)
    return {part: algorithms.make(part, kind, made, env, "cpu", 1) for part in ("critic", "policy")}, made


def space_of(name):
    """An environment that the algorithm acts in."""
    return CHOICES if name == "discrete_sac" else DOT


def flat(module):
    """Copies of its parameters in one vector."""
    return torch.cat([each.detach().flatten().clone() for each in module.parameters()])


def exchange(halves):
    """Each half takes the other's weights, as learners do."""
    halves["policy"].load_critic(halves["critic"].weights.numpy().copy())
    halves["critic"].load_policy(halves["policy"].policy_arrays())


@pytest.mark.parametrize("name", NAMES)
def test_images_of_an_mlp_are_shifted_where_that_is_stated(name):
    """By auto only those of convolutions are."""
    rows = torch.rand(8, SIDE * SIDE)
    for pixels, moves in (("auto", False), (0, False), (4, True)):
        halves, _ = pair(name, space_of(name), network="mlp", random_shift=pixels)
        for half in halves.values():
            assert torch.equal(half.algorithm.features(rows), rows) != moves


@pytest.mark.parametrize("name", NAMES)
def test_the_critics_loss_alone_trains_the_encoder_and_the_policy_has_it(name):
    """A policy's update leaves the encoder as the critics brought it, and its own copy is that one."""
    halves, options = pair(name, space_of(name))
    store = Replay(space_of(name), options)
    store.add(random_rollout(space_of(name), 8))
    critic, policy = (halves[part].algorithm for part in ("critic", "policy"))
    first = flat(critic.encoder)
    assert torch.equal(flat(policy.policy[0]), first)  # so that a first policy is whole
    heads = flat(policy.policy[1])
    for _ in range(3):
        halves["critic"].update(store.sample(64))
    newest = flat(critic.encoder)
    assert not torch.equal(newest, first)
    exchange(halves)
    drawn = store.sample(64)
    halves["policy"].update(drawn if "action" in policy.policy_fields else drawn.obs)
    assert torch.equal(flat(policy.encoder), newest)
    assert torch.equal(flat(policy.policy[0]), newest)
    assert not torch.equal(flat(policy.policy[1]), heads)
    acting = halves["policy"].policy_arrays()["parameters"]
    assert np.array_equal(acting[: len(newest)], newest.numpy())
    kinds = [layer["kind"] for layer in halves["policy"].description()["layers"]]
    assert kinds[:5] == ["conv2d", "relu", "conv2d", "relu", "linear"]


def test_what_native_layers_compute_is_what_torch_computes(native_layers):
    """Of the same batch and weights."""
    losses = []
    for plain in (False, True):
        halves, options = pair("sac", DOT, random_shift=0)
        store = Replay(DOT, options)
        store.add(random_rollout(DOT, 8))
        if plain:
            halves["critic"].leave_to_torch()
        torch.manual_seed(5)
        losses.append(halves["critic"].update(store.sample(64))["critic_loss"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_images_among_parts_are_shifted_and_nothing_else():
    """By hand: all channels of ``[height, width, channels]`` move together, the border is repeated."""
    env = dataclasses.replace(BOX, obs_shape=(802,), obs_parts=(IMAGE, {"path": ["more"], "shape": [2]}))
    image = torch.rand(20, 20, 2, generator=torch.Generator().manual_seed(1))
    rows = torch.cat([image.flatten(), torch.tensor([7.0, 8.0])]).expand(400, -1)
    places = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    index = torch.arange(20)
    expected = [image[(index + down).clamp(0, 19)][:, (index + right).clamp(0, 19)] for down, right in places]
    found = set()
    for row in shifted(env, rows, "auto"):  # a twentieth of 20 pixels
        assert row[-2:].tolist() == [7.0, 8.0]
        [place] = [n for n, one in enumerate(expected) if torch.equal(row[:-2].view(20, 20, 2), one)]
        found.add(place)
    assert found == set(range(9))
    assert shifted(env, rows, 0) is rows


def looked_at(policy, rng, env):
    """A rollout of episodes of one step: the nearer the action is to the place of a square, the better."""
    steps, num = 4, 32
    left = rng.integers(1, SIDE - SQUARE, (steps + 1, num))
    place = 2.0 * (left - 1) / (SIDE - SQUARE - 2) - 1.0
    columns, top = np.arange(SIDE), rng.integers(1, SIDE - SQUARE, (steps + 1, num, 1))
    lit = [(columns >= at) & (columns < at + SQUARE) for at in (top, left[..., None])]
    obs = (255 * (lit[0][..., :, None] & lit[1][..., None, :])[..., None]).astype(np.uint8)
    action = np.stack([policy.act(images, rng)[0] for images in obs[:-1]])
    chosen = action.astype(np.float64) - 1.0 if env is CHOICES else action[..., 0]
    always, final = np.ones((steps, num), np.bool_), obs[1:].reshape(-1, *env.obs_shape)
    arrays = {"obs": obs, "action": action, "terminated": always, "truncated": ~always, "final_obs": final}
    arrays |= {"reward": -np.abs(chosen - place[:-1]).astype(np.float32)}
    arrays |= {"final_index": np.argwhere(always).astype(np.int32)}
    return Rollout("sampler-0", 1, 0, always.size, policy.version, steps, num, **arrays)


@pytest.mark.parametrize(
    ("name", "least", "export"),
    [
        ("sac", -0.25, export_torchscript),
        pytest.param("td3", -0.3, export_onnx, marks=pytest.mark.thorough),
        pytest.param("discrete_sac", -0.35, export_onnx, marks=pytest.mark.thorough),
    ],
)
def test_an_action_that_only_pixels_show_is_learned(name, least, export, tmp_path):
    """In one process, with random shifts; without looking nothing beats -0.5. What is exported acts alike."""
    env = space_of(name)
    halves, options = pair(name, env, learning_rate=2e-3)
    stores, rng = {part: Replay(env, options) for part in halves}, np.random.default_rng(1)
    recent, turns = [-1.0], 0
    while np.mean(recent[-5:]) < least and turns < 100:
        rollout = looked_at(published(halves["policy"]), rng, env)
        for part, half in halves.items():
            stores[part].add(rollout)
            for _ in range(12):
                batch = stores[part].sample(64)
                half.update(batch if part == "critic" else batch.obs)
        exchange(halves)
        recent.append(float(rollout.reward.mean()))
        turns += 1
    assert np.mean(recent[-5:]) >= least, recent
    assert export(published(halves["policy"]), tmp_path / "policy", "uint8") < 1e-5


def test_a_dict_with_an_image_has_a_shared_encoder_for_each_part(monkeypatch):
    """Its policy is published by its class, and acts."""
    monkeypatch.setattr(actor, "_loaders", [loader_of_modules(())])
    parts = (IMAGE, {"path": ["more"], "shape": [2]})
    env = dataclasses.replace(BOX, obs_shape=(802,), obs_parts=parts)
    halves, options = pair("sac", env)
    store = Replay(env, options)
    store.add(random_rollout(env, 8))
    halves["critic"].update(store.sample(64))
    exchange(halves)
    halves["policy"].update(store.sample(64).obs)
    policy = published(halves["policy"])
    assert policy.description["class"].endswith("sac:SAC")
    assert policy.mode(np.zeros((3, 802), np.float32)).shape == (3, 2)


class Counting(SAC):
    """Does something of its own after each step of the policy; its encoder has more than weights."""

    def behind_encoder(self, networks):
        """With that number, as a batch normalisation has some."""
        found = super().behind_encoder(networks)
        for encoder in (found.critic["encoder"], found.policy["policy"][0]):
            encoder.register_buffer("seen", torch.zeros(()))
        return found

    def networks(self):
        """With a count."""
        found = super().networks()
        counted = nn.Number(0.0, learned=False)
        return dataclasses.replace(found, policy={**found.policy, "counted": counted})

    def after_policy_step(self):
        """One more."""
        self.counted.value += 1


def test_what_an_own_class_does_after_a_step_of_the_policy_is_done_with_images_too():
    """Where the encoder is copied after each step."""
    options = Counting.Options(batch_size=64, learning_starts=1, replay_capacity=4_000, precision="fp32")
    store = Replay(DOT, options)
    store.add(random_rollout(DOT, 8))
    half = algorithms.make("policy", Counting, options, DOT, "cpu", 1)
    half.algorithm.encoder.seen.fill_(8.0)  # as the critics came with it
    for _ in range(3):
        half.update(store.sample(64).obs)
    assert half.algorithm.counted.value.item() == 3
    assert half.algorithm.policy[0].seen.item() == 8.0
    assert torch.equal(flat(half.algorithm.policy[0]), flat(half.algorithm.encoder))


@pytest.mark.parametrize("kind", [*map(algorithms.get, NAMES), Counting])
def test_groups_share_the_targets_that_a_half_moves(kind):
    """With one encoder the critic-learner alone moves them, unless the class has something of its own to do
    after a step of the policy.
    """
    made = algorithms.options_from(kind.Options, {"hidden_sizes": (32,), "replay_capacity": 4_000})
    env = CHOICES if kind.__name__ == "DiscreteSAC" else DOT
    for part in ("critic", "policy"):
        half = algorithms.make(part, kind, made, env, "cpu", 1)
        targets = half.state_dict()["targets"].numel()
        beside = half.shared_model(of_policy=part == "policy").size - half.weights.numel()
        assert beside == (targets if part == "critic" or kind is Counting else 0)
        assert targets


class Reading(SAC):
    """Its policy's loss reads a target that the critic-learner moves."""

    def policy_loss(self, batch):
        """As the class says."""
        action = batch.obs.new_zeros(len(batch.obs), *self.env.action_shape)
        self.target_critics(torch.cat((self.features(batch.obs), action), dim=1))
        return super().policy_loss(batch)


@pytest.mark.parametrize("env", [DOT, BOX])
def test_a_target_that_stays_as_it_was_is_a_remark_with_images_too(env):
    """The copy of the encoder moves none."""
    options = Reading.Options(batch_size=64, learning_starts=1, replay_capacity=4_000, precision="fp32")
    half = algorithms.make("policy", Reading, options, env, "cpu", 1)
    store = Replay(env, options)
    store.add(random_rollout(env, 8))
    half.update(store.sample(64).obs)
    assert any("reads the target 'target_critics'" in line for line in half.remarks.lines)


class Fixed(torch.nn.Sequential):
    """Layers, of whose output it makes another."""

    def forward(self, rows):
        """Always 7."""
        return 0.0 * super().forward(rows) + 7.0


class Stubborn(SAC):
    """Has a policy network that is no plain Sequential."""

    def behind_encoder(self, networks):
        """With that network."""
        fixed = Fixed(*networks.policy["policy"])
        return super().behind_encoder(
            dataclasses.replace(networks, policy={**networks.policy, "policy": fixed})
        )


def test_a_policy_network_of_ones_own_stays_whole_behind_the_encoder():
    """Not its layers alone."""
    options = Stubborn.Options(hidden_sizes=(32,), batch_size=64, learning_starts=1, precision="fp32")
    half = algorithms.make("policy", Stubborn, options, DOT, "cpu", 1)
    assert (half.algorithm.policy(torch.rand(3, SIDE * SIDE)) == 7.0).all()


class Copied(SAC):
    """Acts by the lines of SAC's policy loss."""

    _shared = "a name that no base class takes"

    def act(self, obs, greedy):
        """``[N, 1]``."""
        return self.actions.mode(self.head(self.policy)(self.features(obs)))


def test_an_act_of_ones_own_acts_without_the_critics_encoder():
    """Samplers have the policy's copy of it."""
    options = Copied.Options(hidden_sizes=(32,), batch_size=64, learning_starts=1, precision="fp32")
    algorithms.check(Copied, options, DOT)
    half = algorithms.make("policy", Copied, options, DOT, "cpu", 1)
    policy = ClassPolicy(Copied, half.description(), half.policy_arrays())
    action = policy.mode(policy.output(np.zeros((2, *DOT.obs_shape), np.uint8), None))
    expected = half.algorithm.actions.mode(half.algorithm.policy(torch.zeros(2, SIDE * SIDE)))
    np.testing.assert_allclose(action, expected.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "env", "said"),
    [
        ({"network": "nature_cnn"}, BOX, r'"nature_cnn" takes images .* at least 36 pixels .* are \[3\]'),
        ({"network": "parts"}, BOX, 'network = "parts" has an encoder for each part of a Dict or Tuple'),
        ({"random_shift": 4}, BOX, r"random_shift = 4 moves images, .* float32 of shape \[3\]"),
        (
            {"random_shift": 4, "memory_size": 8, "network": "mlp"},
            ONE_PART,
            "with memory_size = 8 take whole",
        ),
        (
            {"frame_stack": 2},
            ONE_PART,
            "frame_stack = 2 is for an image by itself, .* with an encoder for each",
        ),
    ],
)
def test_an_encoder_that_does_not_fit_is_one_line(options, env, said):
    """Before a run, with what was expected."""
    kind = algorithms.get("sac")
    with pytest.raises(InvalidEnvironment, match=said) as refused:
        algorithms.check(kind, kind.Options(**options), env)
    assert "could" not in str(refused.value)  # the algorithm itself could, with other options
