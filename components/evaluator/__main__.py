"""Evaluator: plays whole deterministic episodes with published policies and keeps the best."""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.channels import Subscriber
from spreeze_zmq.component import prepare_to_act
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.run.arena import Arena
from spreeze_zmq.run.best import Best
from spreeze_zmq.run.evaluation import Score, play
from spreeze_zmq.run.looks import EvaluationBudget
from spreeze_zmq.video.schedule import VideoSchedule
from spreeze_zmq.wire import Message

#: The last policy is played until this long before the end of ``stop_grace_s``.
LEAVE_S = 2.0
#: On the way to a goal a policy is played again where it makes up for so much of what the best one lacks.
GAIN = 0.1


class Evaluator:
    """Looks at the newest policy as often as its share of the machine pays for.

    A look that beats the best policy so far is followed by fresh episodes of the same policy. These decide,
    and are what is reported of it: a mean that was chosen for being high is too high. Where the run has a
    goal, a look that comes hardly nearer to it is not followed by any: they are saved for the goal.
    """

    def __init__(self, component: Component) -> None:
        options, plan = component.options, component.plan
        self.component = component
        self.num_episodes: int = options["episodes"]
        self.num_fresh: int = max(options["confirm_episodes"], self.num_episodes)
        self.goal = plan.run.stop.mean_return
        self.arena = Arena(
            component.environment,
            self.num_episodes,
            max_episode_steps=None if options["episode_steps"] == "auto" else options["episode_steps"],
            num_workers=None if options["workers"] == "auto" else options["workers"],
            options={
                "randomize": plan.run.randomize if options["randomize"] else None,
                **{
                    name: value
                    for name, value in plan.components[SAMPLER].options.items()
                    if name in ("step_timeout_s", "max_failures")
                },
            },
            on_failure=lambda failure: component.report_failure(failure.summary, failure.traceback),
            on_tick=component.breathe,
        )
        self.policies: Subscriber = component.open("policy")
        self.seed = int(component.seed_sequence().generate_state(1)[0])
        self.best: Best | None = None
        if component.folder.best_policy.exists():  # a restart keeps it
            self.best, earlier_seed = Best.read(component.folder.best_policy, self.num_fresh)
            self.seed = earlier_seed + 1_000_000  # the episodes of the earlier process are not fresh
        self.newest: Message | None = None
        self.looked_at = -1
        cores = len(os.sched_getaffinity(0)) * options["cost_share"]
        self.budget = EvaluationBudget(cores, self.goal)
        self.began_s = time.monotonic()
        self.training_return: float | None = None
        self.ending = False
        self.videos = VideoSchedule(
            component.folder, component.options["videos"], component.plan.run.algorithm
        )
        component.on("status", self.on_status)

    # --- what comes in

    def on_status(self, status: Mapping[str, Any]) -> None:
        """The broker says how the episodes of training go, and when the end of the run has begun."""
        recent = status.get("episodes", {}).get("recent_return")
        self.training_return = recent if isinstance(recent, int | float) else None
        self.ending = status.get("state") == "stopping"
        self.videos.reached(status.get("env_steps", 0))

    def receive(self) -> None:
        """Take the newest policy that has come."""
        self.newest = self.policies.newest() or self.newest

    @property
    def has_news(self) -> bool:
        """Whether there is a policy that was not looked at."""
        return self.newest is not None and self.newest.fields["version"] != self.looked_at

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began_s

    @property
    def rest_s(self) -> float:
        """Seconds until the next look is paid for."""
        return self.budget.wait_s(self.elapsed_s, self.training_return)

    # --- episodes

    def play(
        self, policy: Policy, num_episodes: int, *, until_s: float | None = None, again: bool = False
    ) -> tuple[Score, dict[str, Any]] | None:
        """Play episodes; returns their score and the fields of its report, or None if abandoned.

        Args:
            policy: acts.
            num_episodes: how many.
            until_s: when they are cut; by default after ``max_s``. With it, the end of the run goes on.
            again: with the seeds of the last call, to compare two policies.
        """
        began_s = time.monotonic()
        last = until_s is not None
        until_s = began_s + self.component.options["max_s"] if until_s is None else until_s
        batch = self.arena.batch(num_episodes)
        if not again:
            self.seed += 2 * self.num_fresh  # more than any call plays

        def go_on() -> bool:
            self.component.breathe()
            return last or (self.component.running and not self.ending)

        with usable(policy.version):
            score = play(
                batch,
                policy,
                self.seed,
                num_episodes,
                step_cap=self.arena.step_cap,
                until_s=until_s,
                go_on=go_on,
            )
        if score is None:
            return None
        return score, {
            "version": policy.version,
            "env_steps": int(policy.extras.get("env_steps", 0)),
            **score.fields(),
            "seed": self.seed,
            "wall_s": time.monotonic() - began_s,
            "confirmed": False,
            "best": False,
        }

    def newest_policy(self) -> Policy:
        """The policy that came last."""
        assert self.newest is not None
        self.looked_at = self.newest.fields["version"]
        with usable(self.looked_at):
            return Policy.from_message(self.newest.fields, self.newest.arrays)

    def look(self) -> None:
        """Look at the newest policy; where it may be better than the best or end the run, play it again.

        The first one was not chosen for its score, and is kept for it.
        """
        policy, cpu_s = self.newest_policy(), self.component.cpu_s
        if (played := self.play(policy, self.num_episodes)) is None:
            return
        score, fields = played
        again = self.is_worth_replaying(score)
        self.conclude(policy, score, fields, keep=self.best is None and not again, fresh=False)
        spent_s = self.component.cpu_s - cpu_s
        self.budget.look(self.elapsed_s, spent_s, score.mean_return, self.training_return)
        if again:
            self.replay(policy, score)
            self.budget.pay(self.component.cpu_s - cpu_s - spent_s)

    def is_worth_replaying(self, score: Score) -> bool:
        """Whether a score is at the goal, or better than the best one: on the way to a goal by ``GAIN`` of
        what that lacks.
        """
        if self.best is None or self.at_goal(score):
            return self.at_goal(score)
        lacks = 0.0 if self.goal is None else max(0.0, self.goal - self.best.mean_return)
        return self.best.is_beaten_by(score, GAIN * lacks)

    def replay(self, policy: Policy, look: Score) -> None:
        """Play fresh episodes of a policy that looks better than the best; keep it if they say so too. Where
        they do not, one of the two scores was luck: the best one is played on the same episodes.
        """
        at_goal = self.at_goal(look)
        played = self.play(policy, self.num_fresh if at_goal else self.num_episodes)
        if played is not None and not at_goal and self.at_goal(played[0]):
            at_goal, played = True, self.play(policy, self.num_fresh)
        if played is None:
            return
        score, fields = played
        keep = self.beats_best(score) or (at_goal and self.at_goal(score))
        if self.best is not None and not (keep or at_goal or self.best.confirmed):
            again = self.play(self.best.policy, self.num_episodes, again=True)
            if again is None:
                return
            self.conclude(self.best.policy, *again, keep=True)
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
        """Report episodes of a policy, ``fresh`` where it was chosen before; save it if it is to be kept."""
        fields = {**fields, "confirmed": fresh, "best": keep}
        if keep:
            confirmed = fresh and len(score.returns) >= self.num_fresh
            self.best = Best(policy, score.mean_return, score.timed_out, confirmed)
            self.best.save(self.component.folder.best_policy, fields, self.arena)
        self.component.report("evaluation", fields)

    # --- the end

    def finish(self) -> None:
        """Play the last policy, and the best one on the same episodes; then the better of them on fresh ones,
        as far as ``stop_grace_s`` lasts. Where the best one is at the run's goal, nothing is left to show.
        """
        self.receive()
        if self.best is not None and self.best.confirmed and self.at_goal(self.best):
            return
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        until_s = time.monotonic() + max(grace_s / 2, grace_s - LEAVE_S)
        if self.newest is None:
            return
        challenger = self.play_last(until_s)
        assert self.best is not None
        chosen = challenger or (None if self.best.confirmed else self.best.policy)
        if chosen is None or time.monotonic() >= until_s:
            return
        played = self.play(chosen, self.num_fresh, until_s=until_s)
        assert played is not None
        score, fields = played
        keep = self.beats_best(score) if challenger else self.best.timed_out or not score.timed_out
        self.conclude(chosen, score, fields, keep=keep)

    def play_last(self, until_s: float) -> Policy | None:
        """Play the last policy, unless it is the best one, and keep it where it does better than that.

        Returns:
            The last policy where it does better than a best one that many fresh episodes have confirmed: so
            many must confirm this one too before it is kept.
        """
        last, best = self.newest_policy(), self.best
        if best is not None and last.version == best.policy.version:
            return None
        played = self.play(last, 2 * self.num_episodes, until_s=until_s)
        assert played is not None
        score, fields = played
        better = self.beats_best(score)
        if best is not None and best.timed_out == score.timed_out:
            rival = self.play(best.policy, 2 * self.num_episodes, until_s=until_s, again=True)
            assert rival is not None
            better = score.mean_return > rival[0].mean_return if not rival[0].timed_out else better
        sure = best is not None and best.confirmed
        self.conclude(last, score, fields, keep=better and not sure, fresh=False)
        return last if better and sure else None


def keep_newest(component: Component) -> None:
    """Where only the sampler makes the environment nothing is played: save the newest policy at the end."""
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
    """Look at the newest policy whenever the share of the machine allows; at the end at the last one."""
    if component.environment.described:
        keep_newest(component)
        return
    evaluator = Evaluator(component)
    prepare_to_act(component)
    component.ready()
    while component.running:
        evaluator.receive()
        if evaluator.ending:  # keep up with the learners until they have gone
            component.poll([evaluator.policies], timeout_s=0.5)
        elif (rest_s := evaluator.rest_s) > 0:
            component.poll(timeout_s=min(rest_s, 0.5))
        elif evaluator.has_news:
            evaluator.look()
        else:
            component.poll([evaluator.policies], timeout_s=1.0)
    evaluator.finish()
    evaluator.arena.close()
    evaluator.videos.close()


if __name__ == "__main__":
    sys.exit(run("evaluator", main))
