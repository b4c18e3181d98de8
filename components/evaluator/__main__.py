"""Evaluator: plays whole deterministic episodes with published policies and keeps the best policy."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.component import prepare_to_act
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.evaluation.arena import Arena, timing_of
from spreeze_zmq.evaluation.budget import EvaluationBudget
from spreeze_zmq.evaluation.contestant import Contestant, Race
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.evaluation.video.films import VideoSchedule
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.run.outbox import BEST_POLICY
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Subscriber

log = logging.getLogger("spreeze")

#: The last policy is played until this long before the end of ``stop_grace_s``.
LEAVE_S = 2.0
#: Seeds from one look to the next, many more than all races between them take.
STRIDE = 1_000_000
#: With a goal, a policy races only if its look makes up for this share of what the best one lacks.
GAIN = 0.1


class RunEndsError(Exception):
    """The run ends during an evaluation, which is abandoned."""


class Evaluator:
    """Evaluates the newest policy as often as its share of the machine allows.

    The first episodes of a policy are a look. If they beat the best policy so far, the two race
    (:class:`Race`). If the run has a goal, a look that is hardly nearer to it is not followed up, to save CPU
    time for the goal itself; one that reaches it is followed by the episodes that confirm it.
    """

    def __init__(self, component: Component) -> None:
        options, plan = component.options, component.plan
        self.component = component
        self.num_episodes: int = options["episodes"]
        self.num_fresh: int = max(options["confirm_episodes"], self.num_episodes)
        self.goal = plan.run.stop.mean_return
        self.arena = open_arena(component)
        self.policies = component.open("policy", Subscriber)
        self.budget = EvaluationBudget(available_cores() * options["cost_share"], self.goal)
        self.videos = VideoSchedule(
            component.folder,
            options["videos"],
            Path(plan.topology_file).parent,
            own_modules(plan),
            made=component.hand_over,
        )
        self.seed, self.final_seed = (int(word) for word in component.seed_sequence().generate_state(2))
        self.best: Contestant | None = None
        component.fetch(BEST_POLICY)
        if component.folder.best_policy.exists():  # of an earlier process of this run, or of its parent
            self.best = Contestant.read(component.folder.best_policy)
        self.has_to_take_up = self.best is not None
        if self.best is not None:
            self.seed = self.best.next_seed
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
        self.newest = self.policies.newest() or self.newest

    @property
    def has_news(self) -> bool:
        """Whether the newest policy has not been evaluated yet."""
        return self.newest is not None and self.newest.fields["version"] != self.evaluated_version

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    def newest_policy(self) -> Policy:
        """The newest policy, which counts as evaluated from now on."""
        assert self.newest is not None
        self.evaluated_version = self.newest.fields["version"]
        with usable(self.evaluated_version):
            return Policy.from_message(self.newest.fields, self.newest.arrays)

    # --- episodes

    def play(self, one: Contestant, num_episodes: int, until_s: float | None = None) -> bool:
        """Play further episodes, which count for the policy; False if they were cut by time.

        Args:
            one: the policy.
            num_episodes: how many.
            until_s: when they are cut. By default they are abandoned if the run ends, and cut after ``max_s``
                or, if they are more than those of a look, in proportion later.

        Raises:
            RunEndsError: the run ends, and ``until_s`` is not given.
        """
        began_s = time.monotonic()
        longest_s = self.component.options["max_s"] * max(1.0, num_episodes / self.num_episodes)

        def on_step() -> None:
            self.component.breathe()
            if until_s is None and (self.ending or not self.component.running):
                raise RunEndsError

        with usable(one.policy.version):
            score = play(
                self.arena.batch(num_episodes),
                one.policy,
                one.next_seed,
                num_episodes,
                step_cap=self.arena.step_cap,
                until_s=began_s + longest_s if until_s is None else until_s,
                on_step=on_step,
            )
        return one.take(score, time.monotonic() - began_s)

    def look(self) -> None:
        """Evaluate the newest policy; it challenges the best one if it may be better, or end the run.

        The first policy is kept at once, as it was not chosen for its score.
        """
        cpu_s = self.component.cpu_s
        self.take_up()
        self.seed += STRIDE
        look = Contestant(self.newest_policy(), self.seed, fresh=False)
        self.play(look, self.num_episodes)
        challenges = self.challenges(look)
        self.conclude(look, keep=self.best is None and not challenges)
        look_s = self.component.cpu_s - cpu_s
        self.budget.look(self.elapsed_s, look_s, look.mean_return, self.training_return)
        if challenges:
            seed = look.next_seed if self.best is None else self.best.next_seed
            challenger = Contestant(look.policy, seed)
            won = self.race(challenger, to_goal=self.at_goal(look))
            self.conclude(challenger, keep=won)
            self.budget.pay(self.component.cpu_s - cpu_s - look_s)

    def challenges(self, look: Contestant) -> bool:
        """Whether a look reaches the goal, or beats the best policy by ``GAIN`` of what that lacks."""
        if self.best is None or self.at_goal(look):
            return self.at_goal(look)
        if self.best.timed_out != look.timed_out:
            return self.best.timed_out
        lacks = 0.0 if self.goal is None else max(0.0, self.goal - self.best.mean_return)
        return look.mean_return > self.best.mean_return + GAIN * lacks

    def race(self, challenger: Contestant, *, to_goal: bool = False, until_s: float | None = None) -> bool:
        """Whether a challenger beats the best policy, or reaches the goal in fresh episodes.

        Args:
            challenger: has no episodes yet, and begins with the seed at which the best policy goes on.
            to_goal: play as many as confirm the goal at once; so it is also once the first ones reach it.
            until_s: as in ``play``; the best policy stays where time cuts the race.
        """
        best = self.best
        race = Race(np.zeros(0) if best is None else best.returns, self.num_episodes, self.num_fresh)
        num_earlier = len(race.earlier)
        won: bool | None = None
        while won is None:
            due = self.num_fresh if to_goal else race.num_due
            whole = self.play_up_to(challenger, due, until_s)
            if best is None or self.confirms_goal(challenger):
                won = True
            elif not whole or best.timed_out:
                won = best.timed_out and (
                    not challenger.timed_out or challenger.mean_return > best.mean_return
                )
            elif self.at_goal(challenger) and not to_goal:
                to_goal = True
            elif not self.play_up_to(best, num_earlier + race.num_due, until_s):
                won = False
            else:
                race.best, race.challenger = best.returns[num_earlier:], challenger.returns
                won = race.won
        if best is not None and best.num_episodes > num_earlier:
            best.fresh = True
            self.rescore(best.num_episodes - num_earlier)
        return won

    def play_up_to(self, one: Contestant, num_episodes: int, until_s: float | None) -> bool:
        """Play until a policy has this number of episodes; False if time cut them."""
        missing = num_episodes - one.num_episodes
        return missing <= 0 or self.play(one, missing, until_s)

    def at_goal(self, one: Contestant) -> bool:
        return self.goal is not None and not one.timed_out and one.mean_return >= self.goal

    def confirms_goal(self, one: Contestant) -> bool:
        """Whether enough fresh episodes of a policy reach the goal."""
        return self.at_goal(one) and one.fresh and one.num_episodes >= self.num_fresh

    # --- the best policy

    def take_up(self, until_s: float | None = None) -> None:
        """Report, once, the best policy that was there when the evaluator began."""
        if self.has_to_take_up and self.best is not None:
            self.play_up_to(self.best, self.best.num_unread, until_s)
            self.has_to_take_up = False
            self.rescore(0)

    def conclude(self, one: Contestant, *, keep: bool) -> None:
        """Report the episodes of a policy and, if it is to be kept, save it as the best."""
        if keep:
            self.best = one
            self.save()
            log.info("new best policy: version %d, %s", one.policy.version, one.said)
        files = [self.component.folder.best_policy] if keep else []
        self.component.report("evaluation", one.fields(best=keep), files=files)

    def rescore(self, num_more: int) -> None:
        """Report and save the best policy's score after further episodes of its own."""
        assert self.best is not None
        self.save()
        if num_more:
            log.info("best re-scored: %s, %d of them new", self.best.said, num_more)
        fields = {**self.best.fields(best=True), "rescored": num_more}
        self.component.report("evaluation", fields, files=[self.component.folder.best_policy])

    def save(self) -> None:
        assert self.best is not None
        self.best.save(self.component.folder.best_policy, self.arena.spec, self.arena.step_cap)

    # --- the end

    def finish(self) -> None:
        """Race the last policy against the best one, then play fresh episodes of the one that is delivered.

        All within ``stop_grace_s``, of which the race has half. A goal that was confirmed needs no race.
        """
        self.receive()
        if self.newest is None:
            return
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        left_s = max(grace_s / 2, grace_s - LEAVE_S)
        now_s = time.monotonic()
        self.take_up(now_s + left_s / 2)
        if self.best is None or not self.confirms_goal(self.best):
            self.play_last(now_s + left_s / 2)
        self.play_final(now_s + left_s)

    def play_last(self, until_s: float) -> None:
        """Keep the last policy if it beats the best one."""
        last, best = Contestant(self.newest_policy(), self.seed + STRIDE, fresh=False), self.best
        if best is not None and last.policy.version == best.policy.version:
            return
        if best is None:
            self.play(last, self.num_episodes, until_s)
            self.conclude(last, keep=True)
            return
        last.seed = best.next_seed
        won = self.race(last, until_s=until_s)
        self.conclude(last, keep=won)

    def play_final(self, until_s: float) -> None:
        """Score the best policy by fresh episodes alone, of seeds that have chosen nothing."""
        best = self.best
        if best is None or time.monotonic() >= until_s:
            return
        self.best = Contestant(best.policy, self.final_seed, final=True)
        self.play(self.best, self.num_fresh, until_s)
        if self.best.timed_out and not best.timed_out:
            self.best = best
        else:
            self.rescore(self.best.num_episodes)


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
        options={
            "randomize": plan.run.randomize if options["randomize"] else None,
            "first_index": first_index(plan, EVALUATOR),
            **limits,
        },
        on_failure=lambda failure: component.report_failure(failure.summary, failure.traceback),
        on_tick=component.breathe,
    )


def keep_newest(component: Component) -> None:
    """Save the newest policy at the end, for an environment that only the sampler can make."""
    policies = component.open("policy", Subscriber)
    newest: Message | None = None
    component.ready()
    while component.running:
        newest = policies.newest() or newest
        component.poll([policies], timeout_s=1.0)
    if (newest := policies.newest() or newest) is not None:
        about = {"environment": json.dumps(component.environment.to_dict())}
        Policy.from_message(newest.fields, newest.arrays).save(component.folder.best_policy, about)
        component.hand_over(component.folder.best_policy)


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
