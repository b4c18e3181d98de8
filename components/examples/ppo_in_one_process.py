"""PPO on CartPole-v1 in one process, ``python ppo_in_one_process.py``: rounds of rollouts, each trained on
for some epochs and thrown away. What samples and publishes is that of SAC's story.
"""

import numpy as np
import torch
from sac_in_one_process import collect, published

from spreeze_zmq import algorithms, envs
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.replay import Minibatches, RoundStore

SEED, NUM_ENVS, NUM_STEPS, GOAL = 1, 8, 32, 475.0


def main() -> None:
    """Train until ten episodes of the deterministic policy reach ``GOAL`` on average."""
    spec, ppo = envs.probe("CartPole-v1"), algorithms.get("ppo")
    settings = {"learning_rate": 2e-3, "batch_size": 128, "epochs": 10, "precision": "fp32"}
    options = algorithms.options_from(ppo.Options, settings)
    critic, actor = (algorithms.make(part, ppo, options, spec, "cpu", SEED) for part in ("critic", "policy"))
    rounds = RoundStore(1, "cpu")
    env, test_env = envs.make(spec.id, NUM_ENVS, seed=SEED), envs.make(spec.id, 10, seed=SEED)
    rng, generator = np.random.default_rng(SEED), torch.Generator().manual_seed(SEED)
    obs, _ = env.reset()
    mean_return, num_rounds = -np.inf, 0
    while mean_return < GOAL:
        rollout, obs = collect(env, published(actor), obs, rng, NUM_STEPS)  # sampler
        rounds.add(rollout)
        taken, _ = rounds.take()
        critic.load_policy(
            actor.policy_arrays()
        )  # each learner reads the other's weights of before the round
        actor.load_critic(critic.weights.numpy())
        for half in (critic, actor):  # critic-learner and actor-learner, on the same round
            batches = Minibatches(half.prepare(taken), options.epochs, options.batch_size)
            for batch in batches.drawn(generator):
                half.update(batch)
        num_rounds += 1
        if num_rounds % 8 == 0:  # evaluator
            mean_return = play(test_env, published(actor), seed=num_rounds).mean_return
            env_steps = num_rounds * NUM_STEPS * NUM_ENVS
            print(f"{env_steps:6,} env steps, {actor.num_updates:5,} updates: return {mean_return:6.1f}")


if __name__ == "__main__":
    main()
