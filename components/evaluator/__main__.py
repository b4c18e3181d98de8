"""Evaluator: plays whole deterministic episodes with published policies, reports the returns, keeps the best."""

import sys
import time
import zlib

import numpy as np
import psutil

from spreeze_zmq import envs
from spreeze_zmq.channels import Subscriber
from spreeze_zmq.component import Component, run
from spreeze_zmq.policy import Policy

#: Steps between two looks at the channels while episodes are played.
STEPS_BETWEEN_POLLS = 50


class Evaluator:
    """Plays one evaluation at a time, and spends no more of the machine on it than its share."""

    def __init__(self, component: Component) -> None:
        spec = component.environment
        self.component = component
        self.num_episodes: int = component.options["episodes"]
        self.envs = envs.make(spec.id, self.num_episodes, seed=0, **spec.kwargs)
        self.seed = int(np.random.SeedSequence([component.plan.run.seed, zlib.crc32(b"evaluator")]).generate_state(1)[0])
        self.best = self.best_so_far()
        self.next_s = 0.0

    def best_so_far(self) -> float:
        """The score of the policy that this run's folder holds already, so that a restart keeps it."""
        path = self.component.folder.best_policy
        return float(Policy.load(path).metadata["mean_return"]) if path.exists() else -np.inf

    def evaluate(self, policy: Policy) -> None:
        """Play, report, keep the policy where it is the best so far."""
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        self.seed += self.num_episodes
        played = self.play(policy)
        if played is None:
            return
        returns, lengths = played
        mean = float(returns.mean())
        best = mean > self.best
        fields = {
            "version": policy.version,
            "env_steps": int(policy.extras.get("env_steps", 0)),
            "mean_return": mean,
            "std_return": float(returns.std()),
            "min": float(returns.min()),
            "max": float(returns.max()),
            "mean_length": float(lengths.mean()),
            "num_episodes": len(returns),
            "wall_s": time.monotonic() - began_s,
            "best": best,
        }
        if best:
            self.best = mean
            self.keep(policy, fields)
        self.component.report("evaluation", fields)
        cores = len(psutil.Process().cpu_affinity() or [0])
        spent_s = time.process_time() - began_cpu_s
        self.next_s = time.monotonic() + spent_s / (self.component.options["cost_share"] * cores)

    def play(self, policy: Policy) -> tuple[np.ndarray, np.ndarray] | None:
        """One whole episode of each environment: returns and lengths, or None when told to stop."""
        obs, _ = self.envs.reset(seed=self.seed)
        returns, lengths = np.zeros(self.num_episodes), np.zeros(self.num_episodes, np.int64)
        playing = np.ones(self.num_episodes, np.bool_)
        while playing.any():
            obs, reward, terminated, truncated, _ = self.envs.step(policy.mode(obs))
            returns += reward * playing
            lengths += playing
            playing &= ~(terminated | truncated)
            if lengths.max() % STEPS_BETWEEN_POLLS == 0:
                self.component.poll()
                if not self.component.running:
                    return None
        return returns, lengths

    def keep(self, policy: Policy, evaluation: dict[str, object]) -> None:
        """Save the policy with its score and what it was scored on."""
        spec = self.component.environment
        metadata = {name: str(value) for name, value in evaluation.items()}
        policy.save(
            self.component.folder.best_policy,
            {**metadata, "environment": spec.to_json(), "evaluation_seed": str(self.seed)},
        )


def main(component: Component) -> None:
    """Evaluate the newest policy whenever the share of the machine allows."""
    policies: Subscriber = component.open("policy")
    evaluator = Evaluator(component)
    component.ready()
    evaluated = 0
    newest: Policy | None = None
    while component.running:
        if (message := policies.newest()) is not None:
            newest = Policy.from_message(message.fields, message.arrays)
        rest_s = evaluator.next_s - time.monotonic()
        if newest is None or newest.version == evaluated or rest_s > 0:
            component.poll([policies] if rest_s <= 0 else [], timeout_s=min(max(rest_s, 0.0), 1.0) or 1.0)
            continue
        evaluated = newest.version
        evaluator.evaluate(newest)


if __name__ == "__main__":
    sys.exit(run("evaluator", main))
