"""Stable-Baselines3's SAC with its defaults, until its deterministic policy reaches a return; run by
``time_to_return.py``.

Runs in a virtual environment of its own. Its evaluations are played outside its clock, which is to its
advantage.
"""

import argparse
import json
import time

BEGAN_S = time.monotonic()

import gymnasium  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import SAC  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402


class UntilReturn(BaseCallback):
    """Evaluates ten deterministic episodes every ``every`` steps and stops at the return or the deadline."""

    def __init__(self, arguments):
        super().__init__()
        self.arguments = arguments
        self.env = gymnasium.make(arguments.env)
        self.evaluating_s = 0.0
        self.evaluations = []

    @property
    def clock_s(self):
        """Wall time since the process began, evaluations left out."""
        return time.monotonic() - BEGAN_S - self.evaluating_s

    def _on_step(self):
        if self.num_timesteps % self.arguments.every:
            return self.clock_s < self.arguments.minutes * 60
        now_s = self.clock_s
        began_s = time.monotonic()
        mean, std = evaluate_policy(self.model, self.env, n_eval_episodes=10, warn=False)
        self.evaluating_s += time.monotonic() - began_s
        self.evaluations.append([now_s, self.num_timesteps, float(mean), float(std)])
        return mean < self.arguments.target and now_s < self.arguments.minutes * 60


def main():
    """Train and print one JSON line in the shape of summary.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    until = UntilReturn(arguments)
    model = SAC("MlpPolicy", arguments.env, seed=arguments.seed)
    model.learn(total_timesteps=10**9, callback=until)
    best = max((e[2] for e in until.evaluations), default=None)
    print(
        json.dumps(
            {
                "wall_s": until.clock_s,
                "reached": best is not None and best >= arguments.target,
                "env_steps": model.num_timesteps,
                "best_return": best,
                "evaluations": until.evaluations,
            }
        )
    )


if __name__ == "__main__":
    main()
