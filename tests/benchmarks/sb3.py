"""One run of an algorithm of Stable-Baselines3, or of sbx, as one JSON line with the names of summary.json.

    taskset -c 0,1 .venv-peers/bin/python tests/benchmarks/sb3.py PPO CartPole-v1 --seed 1 --target 475 \\
        --settings '{"n_envs": 8, "n_steps": 32, "batch_size": 256, "learning_rate": "lin_0.001"}'

It ends at a return, at a number of env steps or of transitions trained on, or after ``--minutes``.
``whole_runs.py`` starts it in a virtual environment of its own. Its evaluations are left out of ``wall_s``,
which is to its advantage, and out of ``core_s``, its CPU time; ``start_s`` is the part of ``wall_s`` that
imports and construction took.

Settings have the names of rl-baselines3-zoo: arguments of the algorithm's constructor, "lin_X" for a value
that falls from X to 0, and n_envs, n_timesteps (the length of such schedules; longer runs call ``learn()``
again), normalize, noise_std, frame_stack and atari (its wrappers).
"""

import argparse
import importlib
import json
import math
import os
import time

BEGAN_S = time.monotonic()

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_atari_env, make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.noise import NormalActionNoise  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    VecFrameStack,
    VecNormalize,
    sync_envs_normalization,
)


class Until(BaseCallback):
    """Evaluates deterministic episodes every ``every`` steps and at the end; stops at the return, a budget
    or the deadline.
    """

    def __init__(self, arguments, env):
        super().__init__()
        self.arguments = arguments
        self.env = env
        self.due = arguments.every
        self.start_s = None
        self.evaluating_s = self.evaluating_core_s = 0.0
        self.evaluations = []
        self.curve = []
        self.core_s = []
        self.exit_reason = ""

    @property
    def clock_s(self):
        """Wall time since the process began, evaluations left out."""
        return time.monotonic() - BEGAN_S - self.evaluating_s

    @property
    def spent_s(self):
        """CPU time of the process, evaluations left out."""
        return time.process_time() - self.evaluating_core_s

    @property
    def trained(self):
        """Transitions trained on: a batch for each gradient step, the whole rollout for each epoch."""
        model = self.model
        whole = isinstance(model, OnPolicyAlgorithm)
        return model._n_updates * (model.n_steps * model.n_envs if whole else model.batch_size)

    def _on_training_start(self):
        self.start_s = self.start_s or self.clock_s

    def _on_step(self):
        self.exit_reason = self.used_up()
        if self.exit_reason or self.num_timesteps >= self.due:
            self.due = self.num_timesteps + self.arguments.every
            self.evaluate()
        return not self.exit_reason

    def used_up(self):
        """The budget that is used up, in words; empty while none is."""
        for name, used in (("env_steps", self.num_timesteps), ("trained_transitions", self.trained)):
            if used >= getattr(self.arguments, name):
                return f"{name} {used} >= {getattr(self.arguments, name):g}"
        if self.clock_s >= self.arguments.minutes * 60:
            return f"minutes {self.clock_s / 60:.2f} >= {self.arguments.minutes:g}"
        return ""

    def evaluate(self):
        """Evaluate the policy, and end the run if its mean return reaches the target."""
        now_s, spent_s = self.clock_s, self.spent_s
        began_s, began_core_s = time.monotonic(), time.process_time()
        if isinstance(self.env, VecNormalize):
            sync_envs_normalization(self.model.get_env(), self.env)
        mean, std = evaluate_policy(self.model, self.env, self.arguments.episodes, deterministic=True)
        self.evaluating_s += time.monotonic() - began_s
        self.evaluating_core_s += time.process_time() - began_core_s
        self.evaluations.append([now_s, self.num_timesteps, float(mean), float(std)])
        self.curve.append([self.trained, float(mean)])
        self.core_s.append(spent_s)
        if mean >= self.arguments.target:
            self.exit_reason = f"return {mean:.1f} >= {self.arguments.target:g}"


def make_env(name, settings, num_envs, seed, *, training):
    """Environments in this process; those for evaluation neither update the normaliser nor clip rewards."""
    if settings["atari"]:
        import ale_py

        gymnasium.register_envs(ale_py)
        envs = make_atari_env(name, num_envs, seed, wrapper_kwargs={"clip_reward": training})
        return VecFrameStack(envs, settings["frame_stack"])
    envs = make_vec_env(name, num_envs, seed)
    if settings["normalize"]:
        return VecNormalize(
            envs, training=training, norm_reward=training, gamma=settings["of_algorithm"].get("gamma", 0.99)
        )
    return envs


def read(text):
    """Settings from JSON: those of the run by name, the constructor's under ``of_algorithm``."""
    of_run = {
        "n_envs": 1,
        "n_timesteps": 10**9,
        "policy": "MlpPolicy",
        "normalize": False,
        "noise_std": None,
        "frame_stack": 4,
        "atari": False,
    }
    of_algorithm = json.loads(text)
    of_run = {name: of_algorithm.pop(name, default) for name, default in of_run.items()}
    for name, value in of_algorithm.items():
        if isinstance(value, str) and value.startswith("lin_"):
            of_algorithm[name] = lambda left, first=float(value[4:]): left * first
    kwargs = of_algorithm.get("policy_kwargs", {})
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = getattr(torch.nn, kwargs["activation_fn"])
    return {**of_run, "of_algorithm": of_algorithm}


def build(arguments, settings):
    """The algorithm on its environments."""
    envs = make_env(arguments.env, settings, settings["n_envs"], arguments.seed, training=True)
    kwargs = settings["of_algorithm"]
    if settings["noise_std"]:
        zeros = np.zeros(envs.action_space.shape)
        kwargs["action_noise"] = NormalActionNoise(zeros, zeros + settings["noise_std"])
    kind = getattr(importlib.import_module(arguments.package), arguments.algorithm)
    return kind(settings["policy"], envs, seed=arguments.seed, device="cpu", **kwargs)


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithm", help="a class of the package")
    parser.add_argument("env", help="a Gymnasium id")
    parser.add_argument("--package", default="stable_baselines3", help="or sbx")
    parser.add_argument("--settings", type=read, default="{}", help="JSON")
    parser.add_argument("--target", type=float, default=math.inf, help="the return that ends it")
    parser.add_argument("--env-steps", type=float, default=math.inf)
    parser.add_argument("--trained-transitions", type=float, default=math.inf)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=int, default=500, help="env steps between two evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="of one evaluation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of torch")
    return parser.parse_args()


def main():
    """Train and print the result."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    settings = arguments.settings
    until = Until(
        arguments,
        make_env(arguments.env, settings, arguments.episodes, 1000 + arguments.seed, training=False),
    )
    model = build(arguments, settings)
    while not until.exit_reason:
        model.learn(settings["n_timesteps"], callback=until, reset_num_timesteps=model.num_timesteps == 0)
    walls, steps, returns, _ = zip(*until.evaluations, strict=True)
    over = {"wall_s": walls, "env_steps": steps, "core_s": until.core_s}
    result = {
        "env": arguments.env,
        "algorithm": arguments.algorithm,
        "seed": arguments.seed,
        "exit_reason": until.exit_reason,
        "wall_s": until.clock_s,
        "start_s": until.start_s,
        "env_steps": model.num_timesteps,
        "critic_updates": model._n_updates,
        "trained_transitions": until.trained,
        "trained_transitions_per_s": until.trained / until.clock_s,
        "best_return": max((e[2] for e in until.evaluations), default=None),
        "evaluations": until.evaluations,
        "curve": until.curve,
        "core_s": until.spent_s,
        "over": {**over, "trained_transitions": [trained for trained, _ in until.curve]},
        "returns": returns,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
