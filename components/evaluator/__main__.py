"""Evaluator: plays whole deterministic episodes with published policies and keeps the best policy."""

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.channels import Subscriber
from spreeze_zmq.component import prepare_to_act
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.metrics import available_cores
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.run.arena import Arena, timing_of
from spreeze_zmq.run.budget import EvaluationBudget
from spreeze_zmq.run.evaluation import Best, Score, play
from spreeze_zmq.run.saved import own_modules
from spreeze_zmq.video.schedule import VideoSchedule
from spreeze_zmq.wire import Message

#: The last policy is played until this long before the end of ``stop_grace_s``.
LEAVE_S = 2.0
#: With a goal, a policy is replayed only if it makes up for this share of what the best one lacks.
GAIN = 0.1


class RunEndsError(Exception):
    """The run ends during an evaluation, which is abandoned."""


class Evaluator:
    """Evaluates the newest policy as often as its share of the machine allows.

    The first episodes of a policy are a look. If they beat the best policy so far, fresh episodes of the same
    policy follow, and only these count: a score that was chosen for being high is too high. If the run has a
    goal, a look that is hardly nearer to it is not followed up, to save CPU time for the goal itself.
    """

    def __init__(self, component: Component) -> None:
        options, plan = component.options, component.plan
        self.component = component
        self.num_episodes: int = options["episodes"]
        self.num_fresh: int = max(options["confirm_episodes"], self.num_episodes)
        self.goal = plan.run.stop.mean_return
        self.arena = open_arena(component)
        self.policies: Subscriber = component.open("policy")
        self.budget = EvaluationBudget(available_cores() * options["cost_share"], self.goal)
        self.videos = VideoSchedule(
            component.folder, options["videos"], Path(plan.topology_file).parent, own_modules(plan)
        )
        self.seed = int(component.seed_sequence().generate_state(1)[0])
        self.best: Best | None = None
        if component.folder.best_policy.exists():  # saved by an earlier process of this run
            self.best, earlier_seed = Best.read(component.folder.best_policy, self.num_fresh)
            self.seed = earlier_seed + 1_000_000  # beyond the episodes that it has played
        self.newest: Message | None = None
        self.evaluated_version = -1
        self.began_s = time.monotonic()
        self.training_return: float | None = None
        self.ending = False
        component.on("status", self.on_status)

    def on_status(self, status: Mapping[str, Any]) -> None:
        """Note the recent training return, whether the run is ending, and the videos that are due."""
        recent = status.get("episodes", {}).get("recent_return")
        self.training_return = recent if isinstance(recent, int | float) else None
        self.ending = status.get("state") == "stopping"
        self.videos.reached(status.get("env_steps", 0))

    def receive(self) -> None:
        """Receive the newest policy, if one has come."""
        self.newest = self.policies.newest() or self.newest

    @property
    def has_news(self) -> bool:
        """Whether the newest policy has not been evaluated yet."""
        return self.newest is not None and self.newest.fields["version"] != self.evaluated_version

    @property
    def elapsed_s(self) -> float:
        """Seconds since the evaluator began."""
        return time.monotonic() - self.began_s

    def newest_policy(self) -> Policy:
        """The newest policy, which counts as evaluated from now on."""
        assert self.newest is not None
        self.evaluated_version = self.newest.fields["version"]
        with usable(self.evaluated_version):
            return Policy.from_message(self.newest.fields, self.newest.arrays)

    # --- episodes

    def play(
        self, policy: Policy, num_episodes: int, *, until_s: float | None = None, repeat: bool = False
    ) -> tuple[Score, dict[str, Any]]:
        """Play episodes; returns their score and the fields of its report.

        Args:
            policy: acts.
            num_episodes: how many.
            until_s: when they are cut. By default they are abandoned if the run ends, and cut after ``max_s``
                or, if they are more than those of a look, in proportion later.
            repeat: with the seeds of the last call, to compare two policies.

        Raises:
            RunEndsError: the run ends, and ``until_s`` is not given.
        """
        began_s = time.monotonic()
        longest_s = self.component.options["max_s"] * max(1.0, num_episodes / self.num_episodes)
        cut_s = began_s + longest_s if until_s is None else until_s
        batch = self.arena.batch(num_episodes)
        if not repeat:
            self.seed += 2 * self.num_fresh  # more than any call plays

        def on_step() -> None:
            self.component.breathe()
            if until_s is None and (self.ending or not self.component.running):
                raise RunEndsError

        with usable(policy.version):
            score = play(
                batch,
                policy,
                self.seed,
                num_episodes,
                step_cap=self.arena.step_cap,
                until_s=cut_s,
                on_step=on_step,
            )
        return score, {
            "version": policy.version,
            "env_steps": int(policy.extras.get("env_steps", 0)),
            **score.fields(),
            "seed": self.seed,
            "wall_s": time.monotonic() - began_s,
        }

    def look(self) -> None:
        """Evaluate the newest policy; replay it if it may be better than the best or end the run.

        The first policy is kept at once, as it was not chosen for its score.
        """
        policy, cpu_s = self.newest_policy(), self.component.cpu_s
        score, fields = self.play(policy, self.num_episodes)
        worth_replaying = self.is_worth_replaying(score)
        self.conclude(policy, score, fields, keep=self.best is None and not worth_replaying, fresh=False)
        look_s = self.component.cpu_s - cpu_s
        self.budget.look(self.elapsed_s, look_s, score.mean_return, self.training_return)
        if worth_replaying:
            self.replay(policy, score)
            self.budget.pay(self.component.cpu_s - cpu_s - look_s)

    def is_worth_replaying(self, look: Score) -> bool:
        """Whether a look reaches the goal, or beats the best policy by ``GAIN`` of what that lacks."""
        if self.best is None or self.at_goal(look):
            return self.at_goal(look)
        lacks = 0.0 if self.goal is None else max(0.0, self.goal - self.best.mean_return)
        return self.best.is_beaten_by(look, GAIN * lacks)

    def replay(self, policy: Policy, look: Score) -> None:
        """Play fresh episodes of a policy, and keep it if they also beat the best one.

        If they do not, either score may have been luck: the best policy plays the same episodes again.
        """
        at_goal = self.at_goal(look)
        score, fields = self.play(policy, self.num_fresh if at_goal else self.num_episodes)
        if not at_goal and self.at_goal(score):
            at_goal = True
            score, fields = self.play(policy, self.num_fresh)
        keep = self.beats_best(score) or (at_goal and self.at_goal(score))
        if self.best is not None and not (keep or at_goal or self.best.confirmed):
            best = self.best.policy
            self.conclude(best, *self.play(best, self.num_episodes, repeat=True), keep=True)
            keep = self.beats_best(score)
        self.conclude(policy, score, fields, keep=keep)

    def at_goal(self, score: Score | Best) -> bool:
        """Whether a score would end the run."""
        return self.goal is not None and not score.timed_out and score.mean_return >= self.goal

    def beats_best(self, score: Score) -> bool:
        """Whether a score is better than the best policy's."""
        return self.best is None or self.best.is_beaten_by(score)

    def conclude(
        self, policy: Policy, score: Score, fields: dict[str, Any], *, keep: bool, fresh: bool = True
    ) -> None:
        """Report episodes of a policy and ``keep`` it as the best; ``fresh`` if it was chosen before them."""
        fields = {**fields, "confirmed": fresh, "best": keep}
        if keep:
            confirmed = fresh and len(score.returns) >= self.num_fresh
            self.best = Best(policy, score.mean_return, score.timed_out, confirmed)
            self.best.save(self.component.folder.best_policy, fields, self.arena.spec, self.arena.step_cap)
        self.component.report("evaluation", fields)

    # --- the end

    def finish(self) -> None:
        """Compare the last policy with the best one, then confirm the better one by fresh episodes.

        All within ``stop_grace_s``. A best policy that is confirmed at the run's goal needs neither.
        """
        self.receive()
        if self.newest is None or (self.best and self.best.confirmed and self.at_goal(self.best)):
            return
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        until_s = time.monotonic() + max(grace_s / 2, grace_s - LEAVE_S)
        challenger = self.play_last(until_s)
        assert self.best is not None
        chosen = challenger or (None if self.best.confirmed else self.best.policy)
        if chosen is None or time.monotonic() >= until_s:
            return
        score, fields = self.play(chosen, self.num_fresh, until_s=until_s)
        keep = self.beats_best(score) if challenger else self.best.timed_out or not score.timed_out
        self.conclude(chosen, score, fields, keep=keep)

    def play_last(self, until_s: float) -> Policy | None:
        """Play the last policy and, on the same episodes, the best one; keep the last one if it is better.

        Returns:
            The last policy if it is better than a confirmed best one, and so must be confirmed before it
            replaces that; else None.
        """
        last, best = self.newest_policy(), self.best
        if best is not None and last.version == best.policy.version:
            return None
        score, fields = self.play(last, 2 * self.num_episodes, until_s=until_s)
        better = self.beats_best(score)
        if best is not None and best.timed_out == score.timed_out:
            rival, _ = self.play(best.policy, 2 * self.num_episodes, until_s=until_s, repeat=True)
            if not rival.timed_out:
                better = score.mean_return > rival.mean_return
        must_confirm = better and best is not None and best.confirmed
        self.conclude(last, score, fields, keep=better and not must_confirm, fresh=False)
        return last if must_confirm else None


def open_arena(component: Component) -> Arena:
    """The environments, with the sampler's limits on slow steps and failures."""
    options, plan = component.options, component.plan
    sampler = plan.components[SAMPLER].options
    limits: dict[str, Any] = {
        name: sampler[name] for name in ("step_timeout_s", "max_failures") if name in sampler
    }
    return Arena(
        component.environment,
        options["episodes"],
        timing_of(plan),
        max_episode_steps=None if options["episode_steps"] == "auto" else options["episode_steps"],
        num_workers=None if options["workers"] == "auto" else options["workers"],
        options={"randomize": plan.run.randomize if options["randomize"] else None, **limits},
        on_failure=lambda failure: component.report_failure(failure.summary, failure.traceback),
        on_tick=component.breathe,
    )


def keep_newest(component: Component) -> None:
    """Save the newest policy at the end, for an environment that only the sampler can make."""
    policies: Subscriber = component.open("policy")
    newest: Message | None = None
    component.ready()
    while component.running:
        newest = policies.newest() or newest
        component.poll([policies], timeout_s=1.0)
    if (newest := policies.newest() or newest) is not None:
        about = {"environment": json.dumps(component.environment.to_dict())}
        Policy.from_message(newest.fields, newest.arrays).save(component.folder.best_policy, about)


def main(component: Component) -> None:
    """Evaluate the newest policy whenever the budget allows it, and at the end the last one."""
    if component.environment.described:
        keep_newest(component)
        return
    evaluator = Evaluator(component)
    component.at_end.append(evaluator.arena.close)
    prepare_to_act(component)
    component.ready()
    while component.running:
        evaluator.receive()
        if evaluator.ending:  # only receive the last policies, until the learners have left
            component.poll([evaluator.policies], timeout_s=0.5)
        elif (wait_s := evaluator.budget.wait_s(evaluator.elapsed_s, evaluator.training_return)) > 0:
            component.poll(timeout_s=min(wait_s, 0.5))
        elif evaluator.has_news:
            with contextlib.suppress(RunEndsError):
                evaluator.look()
        else:
            component.poll([evaluator.policies], timeout_s=1.0)
    evaluator.finish()
    evaluator.videos.close()


if __name__ == "__main__":
    sys.exit(run("evaluator", main))
