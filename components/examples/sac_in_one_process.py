"""SAC on Pendulum-v1 in one process, ``python sac_in_one_process.py``: what the sampler, both learners and
the evaluator do, one after the other in a plain loop without sockets.
"""

from typing import Any

import numpy as np

from spreeze_zmq import algorithms, envs
from spreeze_zmq.balance import RatioGate
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.policy import Policy
from spreeze_zmq.replay import Replay

SEED, NUM_ENVS, REPLAY_RATIO, GOAL = 1, 16, 32.0, -200.0


def published(actor: Any) -> Policy:
    """The actor's newest policy, as a sampler or an evaluator makes it of a message."""
    fields = {"version": actor.num_updates, "description": actor.description()}
    return Policy.from_message(fields, actor.policy_arrays())


def collect(
    env: Any, policy: Policy, obs: Any, rng: np.random.Generator, num_steps: int = 16
) -> tuple[Rollout, Any]:
    """The sampler's part: a rollout of ``T`` steps of ``N`` environments, and the observations after it."""
    steps, final_obs = [], [np.empty((0, *obs.shape[1:]), np.float32)]
    for _ in range(num_steps):
        action, log_prob = policy.act(obs, rng, log_prob=True)
        next_obs, reward, terminated, truncated, info = env.step(policy.env_action(action))
        steps.append((obs, action, np.float32(reward), terminated, truncated, log_prob))
        if "_final_obs" in info:  # episodes ended: the true last observation, to bootstrap from
            final_obs.append(info["final_obs"][info["_final_obs"]])
        obs = next_obs
    seen, action, reward, terminated, truncated, log_prob = map(np.stack, zip(*steps, strict=True))
    rollout = Rollout(
        *("sampler-0", 1, 0, 0, policy.version, num_steps, len(obs)),
        obs=np.concatenate((seen, obs[None])),
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        final_obs=np.concatenate(final_obs),
        final_index=np.argwhere(terminated | truncated).astype(np.int32),
        log_prob=log_prob,
    )
    return rollout, obs


def main() -> None:
    """Train until ten episodes of the deterministic policy reach ``GOAL`` on average."""
    spec, sac = envs.probe("Pendulum-v1"), algorithms.get("sac")
    settings = {"hidden_sizes": (64, 64), "learning_rate": 3e-3, "tau": 0.02, "precision": "fp32"}
    options = algorithms.options_from(sac.Options, settings)
    critics, actor = (algorithms.make(part, sac, options, spec, "cpu", SEED) for part in ("critic", "policy"))
    replay = Replay(spec, options, seed=SEED)
    gate = RatioGate(REPLAY_RATIO, options.batch_size, options.learning_starts, slack=0)
    env, test_env = envs.make(spec.id, NUM_ENVS, seed=SEED), envs.make(spec.id, 10, seed=SEED)
    rng, (obs, _) = np.random.default_rng(SEED), env.reset()
    env_steps, mean_return = 0, -np.inf
    while mean_return < GOAL:
        rollout, obs = collect(env, published(actor), obs, rng)  # sampler
        replay.add(rollout)
        gate.received += rollout.num_transitions
        env_steps += rollout.num_transitions
        while gate.may_update:  # critic-learner, then actor-learner; each reads the other's newest weights
            critics.load_policy(actor.policy_arrays())
            critics.update(replay.sample(options.batch_size))
            actor.load_critic(critics.weights.numpy())
            actor.update(replay.sample(options.batch_size).obs)
            gate.trained += options.batch_size
        if env_steps % 2048 == 0:  # evaluator
            mean_return = play(test_env, published(actor), seed=env_steps).mean_return
            print(f"{env_steps:6,} env steps, {actor.num_updates:5,} updates: return {mean_return:8.1f}")


if __name__ == "__main__":
    main()
