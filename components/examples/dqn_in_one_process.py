"""DQN on CartPole-v1 in one process, ``python dqn_in_one_process.py``: one network of action values is both
critic and policy, so there is one learner. What samples and publishes is that of SAC's story.
"""

import numpy as np
from sac_in_one_process import collect, published

from spreeze_zmq import algorithms, envs
from spreeze_zmq.balance import RatioGate
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.replay import Replay

SEED, NUM_ENVS, REPLAY_RATIO, GOAL = 1, 16, 16.0, 475.0


def main() -> None:
    """Train until ten episodes of the greedy policy reach ``GOAL`` on average."""
    spec, dqn = envs.probe("CartPole-v1"), algorithms.get("dqn")
    settings = {"hidden_sizes": (64, 64), "learning_rate": 1e-3, "batch_size": 128, "precision": "fp32"}
    options = algorithms.options_from(dqn.Options, settings)
    q = algorithms.make("critic", dqn, options, spec, "cpu", SEED)
    replay = Replay(spec, options, seed=SEED)
    gate = RatioGate(REPLAY_RATIO, options.batch_size, options.learning_starts, slack=0)
    env, test_env = envs.make(spec.id, NUM_ENVS, seed=SEED), envs.make(spec.id, 10, seed=SEED)
    rng, (obs, _) = np.random.default_rng(SEED), env.reset()
    mean_return = -np.inf
    while mean_return < GOAL:
        rollout, obs = collect(env, published(q), obs, rng)  # sampler: epsilon falls with env_steps
        replay.add(rollout)
        gate.received += rollout.num_transitions
        q.env_steps += rollout.num_transitions
        while gate.may_update:  # learner
            q.update(replay.sample(options.batch_size))
            gate.trained += options.batch_size
        if q.env_steps % 2048 == 0:  # evaluator
            mean_return = play(test_env, published(q), seed=q.env_steps).mean_return
            print(f"{q.env_steps:6,} env steps, {q.num_updates:5,} updates: return {mean_return:6.1f}")


if __name__ == "__main__":
    main()
