"""Evaluator: plays whole deterministic episodes with published policies and keeps the best."""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from spreeze_zmq import envs
from spreeze_zmq.channels import Subscriber
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.policy import Policy, read_file, usable
from spreeze_zmq.run.evaluation import EvaluationBudget, Score, play

#: Steps between two looks at the channels while episodes are played.
STEPS_BETWEEN_POLLS = 50


class Evaluator:
    """Plays one evaluation at a time, and spends no more of the machine on it than its share."""

    def __init__(self, component: Component) -> None:
        spec = component.environment
        self.component = component
        self.num_episodes: int = component.options["episodes"]
        self.envs = envs.make(
            spec.id,
            self.num_episodes,
            step_info=False,
            on_failure=lambda failure: component.report_failure(failure.summary, failure.traceback),
            randomize=component.plan.run.randomize if component.options["randomize"] else None,
            **spec.kwargs,
        )
        self.seed = int(component.seed_sequence().generate_state(1)[0])
        self.best = self.best_so_far()
        self.steps = 0
        cores = len(os.sched_getaffinity(0)) * component.options["cost_share"]
        self.budget = EvaluationBudget(cores, component.plan.run.stop.mean_return)
        self.began_s = time.monotonic()
        self.training_return: float | None = None
        component.on("status", self.on_status)

    def best_so_far(self) -> float:
        """The score of the policy that this run's folder holds already, so that a restart keeps it."""
        path = self.component.folder.best_policy
        return float(read_file(path)[2]["mean_return"]) if path.exists() else -np.inf

    def evaluate(self, policy: Policy) -> None:
        """Play, report, keep the policy where it is the best so far; then rest until its cost is back within
        the share.
        """
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        self.seed += self.num_episodes
        with usable(policy.version):
            score = play(self.envs, policy, self.seed, self.go_on)
        if score is None:
            return
        self.report(policy, score, time.monotonic() - began_s)
        self.budget.pay(time.process_time() - began_cpu_s, score.mean_return)

    def on_status(self, status: Mapping[str, Any]) -> None:
        """The broker says how the episodes of training go."""
        self.training_return = status["episodes"]["recent_return"]

    @property
    def rest_s(self) -> float:
        """Seconds until the next evaluation is paid for."""
        return self.budget.wait_s(time.monotonic() - self.began_s, self.training_return)

    def go_on(self) -> bool:
        """Serve the channels now and then; False when told to stop."""
        self.steps += 1
        if self.steps % STEPS_BETWEEN_POLLS == 0:
            self.component.poll()
        return self.component.running

    def report(self, policy: Policy, score: Score, wall_s: float) -> None:
        """Tell the broker, and save the policy where it is the best."""
        best = score.mean_return > self.best
        fields = {
            "version": policy.version,
            "env_steps": int(policy.extras.get("env_steps", 0)),
            "mean_return": score.mean_return,
            "std_return": float(score.returns.std()),
            "min": float(score.returns.min()),
            "max": float(score.returns.max()),
            "mean_length": float(score.lengths.mean()),
            "num_episodes": self.num_episodes,
            "wall_s": wall_s,
            "best": best,
        }
        if best:
            self.best = score.mean_return
            metadata = {name: str(value) for name, value in fields.items() if name != "version"}
            metadata["environment"] = json.dumps(self.component.environment.to_dict())
            metadata["evaluation_seed"] = str(self.seed)
            policy.save(self.component.folder.best_policy, metadata)
        self.component.report("evaluation", fields)


def main(component: Component) -> None:
    """Evaluate the newest policy whenever the share of the machine allows."""
    policies: Subscriber = component.open("policy")
    evaluator = Evaluator(component)
    component.ready()
    evaluated = 0
    newest: Policy | None = None
    while component.running:
        if (message := policies.newest()) is not None:
            with usable(message.fields["version"]):
                newest = Policy.from_message(message.fields, message.arrays)
        if (rest_s := evaluator.rest_s) > 0:
            component.poll(timeout_s=min(rest_s, 0.5))
        elif newest is None or newest.version == evaluated:
            component.poll([policies], timeout_s=1.0)
        else:
            evaluated = newest.version
            evaluator.evaluate(newest)


if __name__ == "__main__":
    sys.exit(run("evaluator", main))
