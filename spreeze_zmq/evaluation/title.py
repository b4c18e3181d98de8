"""The best policy of a run so far: who challenges it, how they race, and what is reported and kept of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.evaluation.arena import Arena
from spreeze_zmq.evaluation.budget import rounds_in_time
from spreeze_zmq.evaluation.contestant import Contestant, Race
from spreeze_zmq.policy import Policy

log = logging.getLogger("spreeze")

#: With a goal, a policy races only if its look makes up for this share of what the best one lacks, or of the
#: range that looks have covered so far if that is less: a goal may be out of reach. The second look in a row
#: that beats the best one needs a half of it, the third a third: so far below the goal most runs end.
GAIN = 0.1


@dataclass
class Title:
    """The title of best policy, whose holder the evaluator keeps in the run's policy file.

    Attributes:
        path: of the file.
        report: sends an ``evaluation`` message with these fields, and hands these files over.
        play: plays further episodes, which count for a policy, until a time by ``time.monotonic`` or, without
            one, the evaluator's limits; False if they were cut by time.
        goal: the mean return that ends the run; None if none does.
        num_episodes: of a look, and of a round of a race.
        num_fresh: fresh episodes that confirm a goal, and of each in the longest race.
        arena: where policies are evaluated.
        holder: the best policy so far; None before the first.
        is_inherited: whether it was there when the evaluator began, and is not reported yet.
        lowest: the mean return of the worst look so far.
        num_above: looks in a row that have beaten the best policy and were not followed up.
    """

    path: Path
    report: Callable[[dict[str, Any], list[Path]], None]
    play: Callable[[Contestant, int, float | None], bool]
    goal: float | None
    num_episodes: int
    num_fresh: int
    arena: Arena
    holder: Contestant | None = None
    is_inherited: bool = False
    lowest: float = np.inf
    num_above: int = 0

    def is_challenged_by(self, look: Contestant) -> bool:
        """Whether a look reaches the goal, or beats the best policy, with a goal by ``GAIN``."""
        self.lowest = min(self.lowest, look.mean_return)
        if self.holder is None or self.at_goal(look):
            return self.at_goal(look)
        if self.holder.compares != look.compares:
            return look.compares
        best = self.holder.mean_return
        lacks = 0.0 if self.goal is None else max(0.0, min(self.goal - best, best - self.lowest))
        self.num_above = self.num_above + 1 if look.mean_return > best else 0
        challenges = self.num_above > 0 and look.mean_return > best + GAIN * lacks / self.num_above
        if challenges:
            self.num_above = 0
        return challenges

    def race(
        self, challenger: Contestant, most: int, *, to_goal: bool = False, until_s: float | None = None
    ) -> bool:
        """Whether a challenger beats the best policy, or reaches the goal in fresh episodes.

        Args:
            challenger: its episodes, if it has some, begin with the seed at which the best policy goes on.
            most: episodes of each, unless the challenger reaches the goal meanwhile.
            to_goal: play as many as confirm the goal at once; so it is also once the first ones reach it.
            until_s: as in ``play``; the best policy stays where time cuts the race.
        """
        best = self.holder
        race = Race(np.zeros(0) if best is None else best.returns, self.num_episodes, most)
        num_earlier = len(race.earlier)
        won: bool | None = None
        while won is None:
            due = self.num_fresh if to_goal else race.num_due
            whole = self.play_up_to(challenger, due, until_s)
            if best is None or self.confirms_goal(challenger):
                won = True
            elif not (whole and best.compares and challenger.compares):
                ahead = until_s is None and challenger.mean_return > best.mean_return  # cut after as long
                won = not best.compares and (challenger.compares or ahead)
            elif self.at_goal(challenger) and not to_goal:
                to_goal, race.most = True, self.num_fresh
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
        return self.goal is not None and one.compares and one.mean_return >= self.goal

    def confirms_goal(self, one: Contestant) -> bool:
        """Whether enough fresh episodes of a policy reach the goal."""
        return self.at_goal(one) and one.fresh and one.num_episodes >= self.num_fresh

    def inherit(self) -> None:
        """Hold the policy of the file if there is one, of an earlier process of this run or of its parent."""
        if self.path.exists():
            self.holder = Contestant.read(self.path)
            self.is_inherited = self.holder is not None

    def defend(self, policy: Policy, seed: int, until_s: float) -> bool:
        """Race the last policy of a run against the best one; where there is none, keep it for its look.

        Its first episodes, as many as of any other, are its look. They count in the race as well, for which
        they did not choose it.

        Args:
            policy: the last one.
            seed: of its look where there is no best policy.
            until_s: as in ``play``.

        Returns:
            False if time cut its look, which is then no other policy's equal and not reported, or the race
            before the best one had played a round of it: then nothing is known of it but its look.
        """
        best = self.holder
        if best is None:
            last = Contestant(policy, seed, fresh=False)
            self.play(last, self.num_episodes, until_s)
            self.conclude(last, keep=True)
        elif policy.version != best.policy.version:
            last = Contestant(policy, best.next_seed, fresh=False)
            if not self.play(last, self.num_episodes, until_s):
                return False
            self.conclude(last, keep=False)
            before = best.num_episodes
            won = self.race(last, self.num_fresh, until_s=until_s)
            last.fresh = won or best.num_episodes > before
            if last.fresh:
                self.conclude(last, keep=won)
            return last.fresh or not last.compares  # most of its episodes failed
        return True

    def score(self, seed: int, until_s: float) -> None:
        """Score the best policy by fresh episodes alone, of seeds that have chosen nothing.

        Where a round with long episodes has no time to end, only scores without such ones would be left. So
        nothing is played that does not most probably end in time, and no score counts for which less did.
        """
        best = self.holder
        if best is None:
            return
        least = self.least_in_time(best, until_s - time.monotonic())
        final = Contestant(best.policy, seed, final=True)
        if least:
            self.play(final, self.num_fresh, until_s)
        if least and final.compares and final.num_episodes >= least:
            self.holder = final
            self.rescore(final.num_episodes)
        elif final.score is not None and final.score.has_mostly_failed:
            log.info("no final score: most episodes of the best policy failed")
        else:
            log.info("no final score: stop_grace_s is too short for whole episodes of the best policy")

    def least_in_time(self, best: Contestant, left_s: float) -> int:
        """Episodes of the best policy that most probably end in a time. A native task plays all at once, and
        what those of a file took says nothing of this machine: then any are enough.
        """
        num, wall_s = best.played
        if self.arena.native or best.score is None or not num:
            return int(left_s > 0.0)
        width = self.arena.width
        most = -(-self.num_fresh // width)
        rounds = rounds_in_time(left_s, most, width, wall_s / num, best.score.lengths)
        return min(self.num_fresh, rounds * width)

    def take_up(self, until_s: float | None = None) -> None:
        """Report, once, a policy that was inherited."""
        if self.is_inherited and self.holder is not None:
            self.play_up_to(self.holder, self.holder.num_unread, until_s)
            self.is_inherited = False
            self.rescore(0)

    def conclude(self, one: Contestant, *, keep: bool) -> None:
        """Report the episodes of a policy and, if it is to be kept, save it as the best."""
        if keep:
            self.holder = one
            self.save()
            log.info("new best policy: version %d, %s", one.policy.version, one.said)
        self.report(one.fields(best=keep), [self.path] if keep else [])

    def rescore(self, num_more: int) -> None:
        """Report and save the best policy's score after further episodes of its own."""
        assert self.holder is not None
        self.save()
        if num_more:
            log.info("best re-scored: %s, %d of them new", self.holder.said, num_more)
        self.report({**self.holder.fields(best=True), "rescored": num_more}, [self.path])

    def save(self) -> None:
        assert self.holder is not None
        self.holder.save(self.path, self.arena.spec, self.arena.step_cap, self.arena.randomize)
