"""What a policy message makes its reader do is a contract, from its bytes and an observation to an action."""

import json
from itertools import pairwise

import numpy as np
import pytest
from golden_policies import FOLDER, POLICIES, document_program, masks, message, observations, to_policy_file

from spreeze_zmq.policy import Policy
from spreeze_zmq.policy.description import KINDS
from spreeze_zmq.policy.heads import HEADS
from spreeze_zmq.wire import decode, encode


def golden(name):
    """The content of one file, the numbers of its policy as arrays."""
    content = json.loads((FOLDER / f"{name}.json").read_text())
    content["observations"] = np.array(content["observations"], np.float32)
    content["distribution"] = {key: np.array(value) for key, value in content["distribution"].items()}
    return content


def policy_of(content):
    """The policy of the bytes in a file."""
    received = decode([bytes.fromhex(frame) for frame in content["frames"]])
    return Policy.from_message(received.fields, received.arrays)


def test_every_layer_and_distribution_has_a_golden_policy():
    """None goes unpinned, and no file outlives its policy."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(POLICIES)
    assert {layer["kind"] for layers, *_ in POLICIES.values() for layer in layers} == set(KINDS)
    assert {distribution["kind"] for _, distribution, *_ in POLICIES.values()} == set(HEADS)


@pytest.mark.parametrize("name", POLICIES)
def test_encoding_gives_the_golden_bytes(name):
    """The frames of the known policy, byte for byte."""
    assert [bytes(frame).hex() for frame in encode(message(name))] == golden(name)["frames"]


@pytest.mark.parametrize("name", POLICIES)
def test_the_document_gives_the_golden_numbers(name):
    """The program of PROTOCOL.md: to the last of six digits."""
    written, now = golden(name), json.loads(to_policy_file(name))
    assert written["fields"] == now["fields"]
    for key in ("observations", "output", "deterministic_action"):
        np.testing.assert_allclose(written[key], now[key], rtol=1e-5, atol=2e-6)
    for key, values in written["distribution"].items():
        np.testing.assert_allclose(values, now["distribution"][key], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_takes_the_golden_actions(name):
    """From the bytes alone, deterministically; the environment gets them as they are."""
    content = golden(name)
    policy, legal = policy_of(content), content.get("action_mask")
    action = policy.mode(content["observations"], action_mask=None if legal is None else np.array(legal) > 0)
    np.testing.assert_allclose(action, content["deterministic_action"], atol=5e-6)
    assert np.array_equal(policy.env_action(action), action)


@pytest.mark.parametrize("name", POLICIES)
def test_the_golden_draws_have_the_golden_densities(name):
    """The policy draws the same with generators of the same seeds, one for each observation."""
    content = golden(name)
    drawn, policy, place = (
        content["drawn"],
        policy_of(content),
        np.array([content["drawn"]["place"]], np.float32),
    )
    for k, (obs, legal) in enumerate(zip(content["observations"], masks(name), strict=True)):
        about = {"place": place, "log_prob": "log_prob" in drawn}
        about["action_mask"] = None if legal is None else legal[None]
        action, log_prob = policy.act(obs[None], np.random.default_rng(k), **about)
        np.testing.assert_allclose(action[0], drawn["action"][k], rtol=1e-5, atol=1e-5)
        if "log_prob" in drawn:
            np.testing.assert_allclose(log_prob[0], drawn["log_prob"][k], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in POLICIES if not name.endswith("_of_legal")])
def test_draws_follow_the_golden_distribution(name):
    """An action, and its log density, from the distribution's numbers and the noise of a generator."""
    content = golden(name)
    about, numbers = content["fields"]["description"]["distribution"], content["distribution"]
    obs, place = content["observations"], np.array([0.0, 0.5, 1.0, 0.0], np.float32)
    has_density = about["kind"] != "deterministic"
    action, log_prob = policy_of(content).act(
        obs, np.random.default_rng(5), place=place, log_prob=has_density
    )
    rng = np.random.default_rng(5)
    low, high = (
        np.array(content["arrays"][bound]["values"] if bound in content["arrays"] else default)
        for bound, default in (("action_low", -1.0), ("action_high", 1.0))
    )
    centre, half = (low + high) / 2, (high - low) / 2
    match about["kind"]:
        case "tanh_normal" | "normal":
            noise = rng.standard_normal(numbers["mean"].shape, np.float32)
            u = numbers["mean"] + np.exp(numbers["log_std"]) * noise
            density = -0.5 * noise**2 - numbers["log_std"] - 0.5 * np.log(2 * np.pi)
            if about["kind"] == "tanh_normal":
                u, density = np.tanh(u), density - np.log(1 - np.tanh(u) ** 2)
            np.testing.assert_allclose(action, centre + half * u, rtol=1e-5, atol=2e-5)
            np.testing.assert_allclose(log_prob, density.sum(1), rtol=1e-4, atol=2e-4)
        case "deterministic":
            noise = rng.standard_normal(numbers["unit"].shape, np.float32)
            sigma = 0.125 + (0.5 - 0.125) * place[:, None]
            unit = np.clip(numbers["unit"] + sigma * noise, -1, 1)
            np.testing.assert_allclose(action, centre + half * unit, atol=1e-5)
            assert log_prob is None
        case "categorical":
            noise = -np.log(rng.standard_exponential(numbers["probabilities"].shape))
            rows, chosen, parts = np.arange(4), action.reshape(4, -1), np.cumsum([0, *about["sizes"]])
            total = np.zeros(4)
            for k, (start, end) in enumerate(pairwise(parts)):
                logs = np.log(numbers["probabilities"][:, start:end])
                assert chosen[:, k].tolist() == (logs + noise[:, start:end]).argmax(1).tolist()
                total += logs[rows, chosen[:, k]]
            np.testing.assert_allclose(log_prob, total, atol=1e-4)
        case "epsilon_greedy":
            best, n = numbers["values"].argmax(1), numbers["values"].shape[1]
            epsilon = numbers["epsilon_at_0_half_1"][[0, 1, 2, 0]]
            explores = rng.random(4) < epsilon
            assert action.tolist() == np.where(explores, rng.integers(0, n, 4), best).tolist()
            expected = np.log(epsilon / n + (1 - epsilon) * (action == best))
            np.testing.assert_allclose(log_prob, expected, atol=1e-4)


@pytest.mark.parametrize("name", POLICIES)
def test_the_document_draws_as_the_policy_does(name):
    """The same generator gives the same action and log density, one observation at a time."""
    _, act = document_program()
    policy, received = Policy.from_message(message(name).fields, message(name).arrays), message(name)
    has_density = received.fields["description"]["distribution"]["kind"] != "deterministic"
    for seed, (obs, legal) in enumerate(zip(observations(name), masks(name), strict=True)):
        mine, density = act(received.fields, received.arrays, obs, np.random.default_rng(seed), 0.25, legal)
        about = {"place": np.array([0.25], np.float32), "log_prob": has_density}
        about["action_mask"] = None if legal is None else legal[None]
        action, log_prob = policy.act(obs[None], np.random.default_rng(seed), **about)
        np.testing.assert_allclose(action[0], mine, rtol=1e-5, atol=1e-5)
        if has_density:
            np.testing.assert_allclose(log_prob[0], density, rtol=1e-4, atol=1e-4)
