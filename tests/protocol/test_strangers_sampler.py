"""The sampler of PROTOCOL.md, which needs no library, takes part in runs whose other processes are played."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_messages import MESSAGES
from strangers import DEADLINE_S, Peers

from spreeze_zmq import algorithms, envs
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.replay import RoundStore
from spreeze_zmq.wire import Message, rollout_from

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "components" / "examples" / "sampler_python"


@pytest.fixture
def peers(tmp_path):
    """A run of pendulum without processes."""
    made = Peers(tmp_path / "run")
    yield made
    made.close()


def test_the_strangers_sampler_takes_part_in_a_run(peers):
    """Written from the document alone: it says hello, collects, reports, obeys, and its account adds up."""
    peers.publish_policy(version=0)
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "sampler.py"), peers.run_file, "7"])
    try:
        hello = peers.pull("report", lambda message: message.kind == "hello")
        assert hello.sender == hello.fields["name"] == "sampler-7"
        experience = [f"experience.{learner}" for learner in ("critic_learner", "actor_learner")]
        ended, last = 0, None
        for position in range(14):
            rollouts = [rollout_from(peers.pull(channel)) for channel in experience]
            for rollout in rollouts:
                assert rollout.sequence == position
                assert rollout.produced == (position + 1) * rollout.num_transitions
            if position:  # the stream goes on where the last rollout ended
                np.testing.assert_array_equal(last, rollouts[0].obs[0])
            last = rollouts[0].obs[-1]
            ended += len(rollouts[0].final_index)
        assert rollouts[0].policy_version == 0
        assert ended == rollouts[0].num_envs  # 200 steps of Pendulum-v1
        assert rollouts[1].reward is None
        peers.publish_policy(version=5)
        while (newer := peers.pull(experience[0])).fields["policy_version"] != 5:
            peers.pull(experience[1])  # a learner that takes nothing would stop it
        assert np.ptp(rollout_from(newer).action) > 0
        process.send_signal(signal.SIGTERM)
        rollouts = [newer]

        def is_bye(message):
            # What its own queue holds for longer than its LINGER is lost.
            while (rollout := peers.ends[experience[0]].pull()) is not None:
                rollouts.append(rollout)
            return message.kind == "bye"

        said = peers.pull("report", is_bye).fields["pushed"]["critic_learner"]
        while rollouts[-1].fields["produced"] < said:
            rollouts.append(peers.pull(experience[0]))
        assert process.wait(DEADLINE_S) == 0
        assert rollouts[-1].fields["produced"] == said
        assert peers.ends[experience[0]].pull(0.3) is None
        assert not any(end.refusals.rows() for end in peers.ends.values())
    finally:
        process.kill()
        process.wait()


def cart_pole(plan):
    """The same run in another environment, whose critic-learner asks for ``log_prob`` too."""
    name = "experience.critic_learner"
    asking = replace(plan.channels[name], fields=(*plan.channels[name].fields, "log_prob"))
    return replace(
        plan,
        run=replace(plan.run, env="CartPole-v1"),
        environment=envs.probe("CartPole-v1", {}),
        channels={**plan.channels, name: asking},
    )


@pytest.mark.parametrize("version", [0, 3])
def test_the_strangers_sampler_plays_discrete_actions(tmp_path, version):
    """Int64 actions with their log probabilities, of version 0 and of a policy that prefers one of them."""
    peers = Peers(tmp_path / "run", cart_pole)
    about = {
        "layers": [{"kind": "linear", "in": 4, "out": 2}],
        "distribution": {"kind": "categorical", "sizes": [2]},
        "observation": {"shape": [4], "normalize": False, "clip": 10.0},
    }
    fields = {**MESSAGES["policy"].fields, "version": version, "description": about}
    parameters = np.array([0.0] * 9 + [np.log(3.0)], np.float32)
    peers.ends["policy"].publish(Message("policy", fields, {"parameters": parameters}))
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "sampler.py"), peers.run_file, "0"])
    try:
        rollout = rollout_from(peers.pull("experience.critic_learner"))
        assert rollout.action.dtype == np.int64
        assert rollout.action.shape == rollout.log_prob.shape == (16, 16)
        probabilities = np.array([0.25, 0.75] if version else [0.5, 0.5])
        np.testing.assert_allclose(rollout.log_prob, np.log(probabilities)[rollout.action], atol=1e-6)
        assert set(rollout.action.ravel().tolist()) == {0, 1}
        assert not any(end.refusals.rows() for end in peers.ends.values())
    finally:
        process.kill()
        process.wait()
        peers.close()


def told(plan, **groups):
    """The same run in an environment that gives back what it was told."""
    kwargs = {"number": "{index}", "name": "{{index:03d}} env-{index:05d}"}
    env = envs.probe("tests.protocol.told:Told-v0", kwargs)
    groups = replace(plan.groups, **groups)
    return replace(plan, run=replace(plan.run, env=env.id), environment=env, groups=groups)


@pytest.mark.parametrize("groups", [{}, {"count": 2, "number": 1}], ids=["alone", "in a second group"])
def test_the_strangers_sampler_tells_an_environment_its_number_and_its_own_actions(tmp_path, groups):
    """Those of the rollout count from 0; the numbers come after those of the evaluator and sampler 0, in two
    groups of two of them.
    """
    peers = Peers(tmp_path / "run", partial(told, **groups))
    about = {
        "layers": [{"kind": "linear", "in": 3, "out": 2}],
        "distribution": {"kind": "categorical", "sizes": [2]},
        "observation": {"shape": [3], "normalize": False, "clip": 10.0},
    }
    fields = {**MESSAGES["policy"].fields, "version": 0, "description": about}
    peers.ends["policy"].publish(Message("policy", fields, {"parameters": np.zeros(8, np.float32)}))
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "sampler.py"), peers.run_file, "1"], env=path)
    try:
        rollout = rollout_from(peers.pull("experience.critic_learner"))
        first = first_index(peers.plan, "sampler", 1)
        assert (
            rollout.obs[0, :, 0].tolist() == rollout.obs[0, :, 1].tolist() == list(range(first, first + 16))
        )
        assert set(rollout.action.ravel().tolist()) == {0, 1}
        np.testing.assert_array_equal(rollout.obs[1:, :, 2], rollout.action + 5)
    finally:
        process.kill()
        process.wait()
        peers.close()


def drift(plan):
    """The same run over images in colour, whose critic-learner asks for all that stacks are made of."""
    name, env = (
        "experience.critic_learner",
        envs.probe("tests.system.drift:Drift-v0", {"channels": 3, "steps": 10}),
    )
    asking = replace(plan.channels[name], fields=algorithms.get("ppo").fields_of("critic", 3))
    return replace(
        plan,
        run=replace(plan.run, env=env.id),
        environment=env,
        channels={**plan.channels, name: asking},
    )


def test_the_strangers_sampler_stacks_images(tmp_path):
    """Its log probabilities are those of the stacks that a learner makes of its rollouts."""
    peers = Peers(tmp_path / "run", drift)
    size = 3 * 3 * 36 * 36
    about = {
        "layers": [{"kind": "linear", "in": size, "out": 2}],
        "distribution": {"kind": "categorical", "sizes": [2]},
        "observation": {
            **{"shape": [36, 36, 3], "normalize": False, "clip": 10.0},
            **{"stack": 3, "channels_last": True},
        },
    }
    fields = {**MESSAGES["policy"].fields, "version": 3, "description": about}
    weight = np.random.default_rng(1).normal(0.0, 1e-4, (2, size)).astype(np.float32)
    parameters = np.concatenate([weight.reshape(-1), np.zeros(2, np.float32)])
    peers.ends["policy"].publish(Message("policy", fields, {"parameters": parameters}))
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "sampler.py"), peers.run_file, "0"], env=path)
    store, spread = RoundStore(1, "cpu", stack=3), []
    try:
        for _ in range(3):
            store.add(rollout_from(peers.pull("experience.critic_learner")))
            peers.pull("experience.actor_learner")
            made, _ = store.take()
            logits = made.obs[:-1].flatten(2).float() @ torch.from_numpy(weight.T)
            log_prob = logits.log_softmax(2).gather(2, made.action.unsqueeze(2)).squeeze(2)
            torch.testing.assert_close(log_prob, made.log_prob, atol=1e-5, rtol=0)
            spread.append(float(log_prob.std()))
        assert min(spread) > 0.1
        assert not any(end.refusals.rows() for end in peers.ends.values())
    finally:
        process.kill()
        process.wait()
        peers.close()


def test_the_strangers_sampler_obeys_stop(peers):
    """By message too, and while it still waits for a first policy."""
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "sampler.py"), peers.run_file, "0"])
    try:
        peers.pull("report", lambda message: message.kind == "hello")
        peers.ends["control"].publish(Message("stop", {"roles": ["sampler"], "reason": "test"}))
        assert peers.pull("report", lambda message: message.kind == "bye").fields["reason"]
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
