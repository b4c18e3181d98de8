"""Evaluator: plays whole deterministic episodes with published policies and keeps the best policy."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.machine import core_time
from spreeze_zmq.base.pauses import RunTime
from spreeze_zmq.base.trust import modules_folder
from spreeze_zmq.component import LAST_POLICY_S, last_policy, prepare_to_act
from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.envs.seeds import seed_for
from spreeze_zmq.evaluation.arena import Arena, episode_steps, randomized, timing_of
from spreeze_zmq.evaluation.budget import EvaluationBudget
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.preference import Preference
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.evaluation.title import Title
from spreeze_zmq.evaluation.video.films import VideoSchedule
from spreeze_zmq.plan.plan import first_index
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.run.checkpoint import begins_at
from spreeze_zmq.run.outbox import BEST_POLICY
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Subscriber

log = logging.getLogger("spreeze")

#: The last policy is played until this long before the end of ``stop_grace_s``.
LEAVE_S = 2.0
#: Seeds from one look to the next, many more than all races between them take.
STRIDE = 1_000_000


class RunEndsError(Exception):
    """The run ends during an evaluation, which is abandoned."""


class Evaluator:
    """Evaluates the newest policy as often as its share of the machine allows.

    The first episodes of a policy are a look. If they beat the best policy so far, the two race
    (:class:`Race`). If the run has a goal, a look that is hardly nearer to it is followed up only if those
    before it were nearer, too, to save CPU time for the goal itself; one that reaches it is followed by the
    episodes that confirm it.
    """

    def __init__(self, component: Component) -> None:
        options, plan = component.options, component.plan
        self.component = component
        self.num_episodes: int = options["episodes"]
        self.num_fresh: int = max(options["confirm_episodes"], self.num_episodes)
        self.arena = open_arena(component)
        self.policies = component.open("policy", Subscriber)
        goal = plan.run.stop.mean_return
        self.budget = EvaluationBudget(core_time() * options["cost_share"], goal)
        component.fetch(BEST_POLICY)
        self.videos = VideoSchedule(
            component.folder,
            options["videos"],
            modules_folder(plan.topology_file),
            own_modules(plan),
            made=component.hand_over,
            failed=component.report_failure,
            after=begins_at(plan.run.resume_from),
        )
        words = component.seed_sequence().generate_state(2).tolist()
        self.seed, self.final_seed = (seed_for(word, STRIDE) for word in words)
        self.title = Title(
            component.folder.best_policy,
            lambda fields, files: component.report("evaluation", fields, files=files),
            self.play,
            goal,
            self.num_episodes,
            self.num_fresh,
            self.arena,
        )
        self.title.inherit()
        if self.title.holder is not None:
            self.seed = self.title.holder.next_seed
        self.newest: Message | None = None
        self.preference = Preference()
        self.evaluated_version = -1
        self.run_time, self.began_s = RunTime(), time.monotonic()
        self.training_return: float | None = None
        self.ending = False
        component.on("status", self.on_status)

    def on_status(self, status: Mapping[str, Any]) -> None:
        """Note the time, the recent training return, whether the run is ending, and the videos due."""
        self.run_time.hear(status)
        recent = status.get("episodes", {}).get("recent_return")
        self.training_return = recent if isinstance(recent, int | float) else None
        was_ending, self.ending = self.ending, status.get("state") == "stopping"
        if self.ending and not was_ending:  # the learners need not wait for this reader when they leave
            self.receive(LAST_POLICY_S)
            self.policies.ask_again()
        self.videos.reached(status.get("env_steps", 0))

    def receive(self, *more: float) -> None:
        self.newest = self.policies.newest(*more) or self.newest

    @property
    def has_news(self) -> bool:
        """Whether the newest policy has not been evaluated yet."""
        return self.newest is not None and self.newest.fields["version"] != self.evaluated_version

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def later_seed(self) -> int:
        """The first seed of the next policy's episodes."""
        return seed_for(self.seed + STRIDE, STRIDE)

    def newest_policy(self, *, averaged: bool) -> Policy:
        """The newest policy, of its average or not, which counts as evaluated from now on."""
        assert self.newest is not None
        self.evaluated_version = self.newest.fields["version"]
        with usable(self.evaluated_version):
            make = Policy.of_average if averaged else Policy.from_message
            return make(self.newest.fields, self.newest.arrays)

    # --- episodes

    def play(self, one: Contestant, num_episodes: int, until_s: float | None = None) -> bool:
        """Play further episodes, which count for the policy; False if they were cut by time.

        Args:
            one: the policy.
            num_episodes: how many.
            until_s: when they are cut. By default they are abandoned if the run ends, and cut after ``max_s``
                of the run, without time in which all stood still; if they are more than those of a look, in
                proportion later.

        Raises:
            RunEndsError: the run ends, and ``until_s`` is not given.
        """
        began_s = time.monotonic()
        by_run = until_s is None and self.run_time.hears_broker
        clock = self.run_time.now_s if by_run else time.monotonic
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
                until_s=clock() + longest_s if until_s is None else until_s,
                clock=clock,
                on_step=on_step,
            )
        return one.take(score, time.monotonic() - began_s)

    def look(self) -> None:
        """Evaluate the newest policy; it challenges the best one if it may be better, or end the run.

        The first policy is kept at once, as it was not chosen for its score.
        """
        cpu_s, title = self.component.cpu_s, self.title
        title.take_up()
        self.seed = self.later_seed
        look = self.better_look()
        challenges = title.is_challenged_by(look)
        title.conclude(look, keep=title.holder is None and not challenges)
        look_s = self.component.cpu_s - cpu_s
        self.budget.look(self.elapsed_s, look_s, look.mean_return, self.training_return)
        if challenges:
            challenger = Contestant(look.policy, (title.holder or look).next_seed)
            to_goal = title.at_goal(look)
            won = title.race(challenger, self.num_fresh if to_goal else self.num_paid, to_goal=to_goal)
            title.conclude(challenger, keep=won)
            self.budget.pay(self.component.cpu_s - cpu_s - look_s)

    def better_look(self) -> Contestant:
        """The look at those weights of the newest policy that have been the better ones; where both are due,
        at those that are now.
        """
        assert self.newest is not None
        both = "average" in self.newest.arrays and self.preference.is_due()
        averaged = self.preference.averaged
        looks = []
        for each in (averaged, not averaged) if both else (averaged,):
            looks.append(Contestant(self.newest_policy(averaged=each), self.seed, fresh=False))
            self.play(looks[-1], self.num_episodes)
        return self.preference.settle(*looks) if both else looks[0]

    @property
    def num_paid(self) -> int:
        """Episodes of each in a race that the looks so far pay for."""
        return int(min(self.num_fresh, self.num_episodes * self.budget.num_rounds))

    # --- the end

    def finish(self) -> None:
        """Race the last policy against the best one, then play fresh episodes of the one that is delivered.

        All within ``stop_grace_s``, of which the race has half. A goal that was confirmed needs no race.
        """
        self.newest = last_policy(self.component, self.policies) or self.newest
        if self.newest is None:
            return
        grace_s = self.component.plan.components[self.component.role].stop_grace_s
        left_s = max(grace_s / 2, grace_s - LEAVE_S)
        now_s = time.monotonic()
        self.title.take_up(now_s + left_s / 2)
        if self.title.holder is None or not self.title.confirms_goal(self.title.holder):
            last = self.newest_policy(averaged=self.preference.averaged)
            if not self.title.defend(last, self.later_seed, now_s + left_s / 2):
                self.say_not_compared(last.version, left_s / 2)
        self.title.score(self.final_seed, now_s + left_s)

    def say_not_compared(self, version: int, had_s: float) -> None:
        """Have the run's user told that the last policy may be better than the one that is kept."""
        text = (
            f"the last policy, version {version}, was not compared with the best one: its episodes or those "
            f"of the best one had not ended after {had_s:.3g} s; a longer components.evaluator.stop_grace_s "
            "gives them more"
        )
        log.info("%s", text)
        self.component.report("request", {"who": self.component.name, "what": "note", "text": text})


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
        max_episode_steps=episode_steps(plan),
        num_workers=None if options["workers"] == "auto" else options["workers"],
        options={
            "randomize": randomized(plan),
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
    if (newest := last_policy(component, policies) or newest) is not None:
        policy = Policy.of_average(newest.fields, newest.arrays)
        about = {"environment": json.dumps(component.environment.to_dict()), "averaged": str(policy.averaged)}
        policy.save(component.folder.best_policy, about)
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
