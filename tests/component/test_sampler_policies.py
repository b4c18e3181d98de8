"""The sampler as a real process that acts by policies of the test's own, and refuses others."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.wire import rollout_from
from tests.component.conftest import DEADLINE_S
from tests.component.samplers import CRITIC


def plays(peers, env_id, **env_kwargs):
    """Let the run be of another environment, and its critic-learner ask for ``log_prob`` too."""
    about = peers.plan.channels[CRITIC]
    asking = replace(about, fields=(*about.fields, "log_prob"))
    peers.plan = replace(
        peers.plan,
        run=replace(peers.plan.run, env=env_id),
        environment=envs.probe(env_id, env_kwargs),
        channels={**peers.plan.channels, CRITIC: asking},
    )
    peers.folder.run_file.write_text(peers.plan.to_json())


def publish(peers, version, output, distribution, **arrays):
    """A policy of one linear layer that gives ``output`` for every observation."""
    peers.play("sampler")
    spec = peers.plan.environment
    (size,), output = spec.obs_shape, np.asarray(output, np.float32)
    description = {
        "observation": {"shape": [size], "normalize": False, "clip": 10.0},
        "layers": [{"kind": "linear", "in": size, "out": output.size}],
        "distribution": distribution,
    }
    if spec.has_bounds:
        arrays |= {"action_low": spec.action_low, "action_high": spec.action_high}
    arrays["parameters"] = np.concatenate([np.zeros(size * output.size, np.float32), output])
    counts = {"version": version, "critic_updates": 0, "actor_updates": 0}
    peers.publish("policy", "policy", arrays, description=description, extras={}, **counts)


def sampled(peers, version, output, distribution, index=0):
    """The first rollout of a sampler under this policy."""
    publish(peers, version, output, distribution)
    peers.start(index)
    return rollout_from(peers.next("rollout", CRITIC))


def test_version_zero_plays_cart_pole_at_random(peers):
    """Either action alike, and log 1/2 says so."""
    plays(peers, "CartPole-v1")
    rollout = sampled(peers, 0, [0.0, 50.0], {"kind": "categorical", "sizes": [2]})
    assert 0.3 < rollout.action.mean() < 0.7
    np.testing.assert_allclose(rollout.log_prob, -math.log(2.0), rtol=1e-6)


NORMAL = {"kind": "normal", "log_std_min": -5.0, "log_std_max": 2.0}


def test_a_normal_policy_is_clipped_for_the_environment_alone(peers):
    """The rollout keeps what was drawn beyond Pendulum's torque of 2, with its density; the reward is that of
    the torque that was applied.
    """
    plays(peers, "Pendulum-v1")
    rollout = sampled(peers, 3, [0.5, 0.0], NORMAL)
    u = rollout.action[..., 0].astype(np.float64) / 2.0
    assert (np.abs(u) > 1.5).any()
    np.testing.assert_allclose(u.mean(), 0.5, atol=0.3)
    density = -0.5 * (u - 0.5) ** 2 - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(rollout.log_prob, density, atol=1e-5)
    cos, sin, speed = np.moveaxis(rollout.obs[:-1].astype(np.float64), -1, 0)
    torque = np.clip(rollout.action[..., 0], -2.0, 2.0)
    reward = -(np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    np.testing.assert_allclose(rollout.reward, reward, atol=1e-3)


SPREAD = {
    "kind": "epsilon_greedy",
    "num_actions": 2,
    "epsilon": 0.98,
    "spread": 400.0,
    "atoms": 1,
    "v_min": 0.0,
    "v_max": 0.0,
}


@pytest.mark.parametrize("peers", [["components.sampler.count=2"]], indirect=True)
def test_environments_explore_by_their_place_among_all_samplers(peers):
    """The second sampler's 16 environments have one place in each sixteenth, at the golden ratio less 1/2 in
    it: the first explores nearly always, the last hardly ever.
    """
    plays(peers, "CartPole-v1")
    rollout = sampled(peers, 3, [0.0, 1.0], SPREAD, index=1)
    epsilon = 0.98 ** (1 + 400.0 * (np.arange(16) + 0.11803399) / 16)
    assert 0 < (rollout.action[:, 0] == 0).sum() < 16
    assert (rollout.action[:, -1] == 1).all()
    expected = np.log(epsilon / 2 + (1 - epsilon) * (rollout.action == 1))
    np.testing.assert_allclose(rollout.log_prob, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("output", "distribution", "why"),
    [
        ([0.0, 0.0], {"kind": "beta"}, "bad_policy: unknown distribution 'beta'; there is tanh_normal"),
        (
            [0.0] * 3,
            {"kind": "categorical", "sizes": [2, 1]},
            r"among \[2, 1\] actions, the environments take",
        ),
        (
            [0.0] * 3,
            {"kind": "categorical", "sizes": [3]},
            r"among \[3\] actions, the environments take \[2\]",
        ),
        ([0.0, 0.0], NORMAL, r"actions are float32 \[16, 1\], the environments take int64 \[16\]"),
        ([0.0], {"kind": "deterministic", "noise_min": 0.1, "noise_max": 0.1}, "no log_prob"),
    ],
)
def test_a_policy_that_cannot_be_used_ends_the_sampler_in_one_line(peers, output, distribution, why):
    """Which version it was and why, no traceback, and the exit code of a run that no restart would mend."""
    plays(peers, "CartPole-v1")
    bounds = {"action_low": np.float32([-1.0]), "action_high": np.float32([1.0])}
    publish(peers, 3, output, distribution, **(bounds if distribution["kind"] == "deterministic" else {}))
    process = peers.start()
    assert peers.wait(DEADLINE_S, lambda: process.poll() is not None)
    assert process.poll() == 2
    words = peers.logs().splitlines()
    assert re.match(rf"sampler: policy version 3 cannot be used: .*{why}", words[-1])
    assert "Traceback" not in peers.logs()
