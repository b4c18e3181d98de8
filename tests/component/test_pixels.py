"""Stacks of images between a real sampler and what learners make of its rollouts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.replay import Replay, RoundStore
from spreeze_zmq.wire import rollout_from
from tests.unit.replay.made import options, spec

CRITIC = "experience.critic_learner"
STACK = 3


@pytest.fixture(params=[False, True], ids=["constants", "statistics"])
def ppo(peers, request):
    """The policy half of an algorithm that learns from log probabilities, in a run of images in colour, which
    are normalised by constants or by what was seen.
    """
    kind = algorithms.get("ppo")
    spec = envs.probe("tests.system.drift:Drift", {"channels": 3})
    about = replace(peers.plan.channels[CRITIC], fields=kind.fields_of("critic", STACK))
    run = replace(peers.plan.run, env=spec.id)
    peers.plan = replace(
        peers.plan, run=run, environment=spec, channels={**peers.plan.channels, CRITIC: about}
    )
    peers.folder.run_file.write_text(peers.plan.to_json())
    options = kind.Options(
        frame_stack=STACK, network="mlp", hidden_sizes=(16,), normalize_observations=request.param
    )
    half = algorithms.make("policy", kind, options, spec, "cpu", 1)
    half.observe(np.random.default_rng(1).integers(0, 30, (50, *spec.obs_shape)).astype(np.uint8))
    with torch.no_grad():
        half.algorithm.policy[-1].weight.mul_(300.0)  # a fresh policy hardly looks at what it sees
    return half


@pytest.mark.parametrize(
    "peers", [("components.sampler.rollout_steps=10", "components.sampler.envs=4")], indirect=True
)
def test_learners_rebuild_the_stacks_that_the_sampler_acted_on(peers, ppo):
    """Over rollouts in which episodes end: the log probabilities that came are those of the actions under the
    learner's own network and stacks, on-policy and off-policy.
    """
    peers.play("sampler")
    fields = {"version": 1, "critic_updates": 0, "actor_updates": 0, "extras": {}}
    peers.publish("policy", "policy", ppo.policy_arrays(), description=ppo.description(), **fields)
    peers.start()
    store, algorithm = RoundStore(1, "cpu", stack=STACK), ppo.algorithm
    replay = Replay(spec((36, 36, 3), "uint8", (), "discrete"), options(1_000, stack=STACK))

    def log_prob(obs, action):
        return algorithm.actions.log_prob(algorithm.policy(ppo._rows(obs)), action)

    ended = 0
    for _ in range(6):
        rollout = rollout_from(peers.next("rollout", CRITIC))
        assert rollout.history.shape == (2, 4, 36, 36, 3)
        ended += len(rollout.final_index)
        store.add(rollout)
        made, _ = store.take()
        mine = log_prob(made.obs[:-1].flatten(0, 1), made.action.flatten(0, 1))
        torch.testing.assert_close(mine, made.log_prob.flatten(), atol=1e-5, rtol=0)
        assert mine.std() > 0.1
        replay.add(replace(rollout, reward=rollout.log_prob))
    assert ended == 12  # 60 steps of episodes of 16, in 4 environments
    batch = replay.sample(500)
    torch.testing.assert_close(log_prob(batch.obs, batch.action), batch.reward, atol=1e-5, rtol=0)
