"""Stable-Baselines3's SAC with its defaults, until its deterministic policy reaches a return, a number of
transitions has been trained on, or time is over; run by ``whole_runs.py``.

Runs in a virtual environment of its own. Its evaluations are played outside its clock, which is to its
advantage.
"""

import argparse
import json
import math
import time

BEGAN_S = time.monotonic()

import gymnasium  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import SAC  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402


class Until(BaseCallback):
    """Evaluates deterministic episodes every ``every`` steps and at the end; stops at the return, the budget
    or the deadline.
    """

    def __init__(self, arguments):
        super().__init__()
        self.arguments = arguments
        self.env = gymnasium.make(arguments.env)
        self.evaluating_s = 0.0
        self.evaluations = []
        self.curve = []
        self.exit_reason = ""

    @property
    def clock_s(self):
        """Wall time since the process began, evaluations left out."""
        return time.monotonic() - BEGAN_S - self.evaluating_s

    @property
    def trained(self):
        """Transitions trained on: a batch for each gradient step."""
        return self.model.batch_size * self.model._n_updates

    def _on_step(self):
        self.exit_reason = self.used_up()
        if self.exit_reason or self.num_timesteps % self.arguments.every == 0:
            self.evaluate()
        return not self.exit_reason

    def used_up(self):
        """Which budget is, in words; empty while none is."""
        if self.trained >= self.arguments.trained:
            return f"trained_transitions {self.trained} >= {self.arguments.trained:g}"
        if self.clock_s >= self.arguments.minutes * 60:
            return f"minutes {self.clock_s / 60:.2f} >= {self.arguments.minutes:g}"
        return ""

    def evaluate(self):
        """Enter the mean return, and end the run where it is enough."""
        now_s, began_s = self.clock_s, time.monotonic()
        mean, std = evaluate_policy(
            self.model, self.env, n_eval_episodes=self.arguments.episodes, deterministic=True, warn=False
        )
        self.evaluating_s += time.monotonic() - began_s
        self.evaluations.append([now_s, self.num_timesteps, float(mean), float(std)])
        self.curve.append([self.trained, float(mean)])
        if mean >= self.arguments.target:
            self.exit_reason = f"return {mean:.1f} >= {self.arguments.target:g}"


def main():
    """Train and print one JSON line with the names of summary.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--target", type=float, default=math.inf)
    parser.add_argument("--trained", type=float, default=math.inf)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    until = Until(arguments)
    model = SAC("MlpPolicy", arguments.env, seed=arguments.seed)
    model.learn(total_timesteps=10**9, callback=until)
    result = {
        "env": arguments.env,
        "seed": arguments.seed,
        "exit_reason": until.exit_reason,
        "wall_s": until.clock_s,
        "env_steps": model.num_timesteps,
        "critic_updates": model._n_updates,
        "trained_transitions": until.trained,
        "trained_transitions_per_s": until.trained / until.clock_s,
        "best_return": max((e[2] for e in until.evaluations), default=None),
        "evaluations": until.evaluations,
        "curve": until.curve,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
