"""Which policy a run delivers: the evaluator's rule beside those before it, on recorded returns.

    python tests/benchmarks/best_rule.py

``best_rule.npz`` holds the returns of ten tasks, ``[policies, starts]``: policies of a short training run in
their order, each played from the same starts. Each stands for several versions in a row, as on a plateau. The
evaluator looks at the newest policy as often as a number of episodes for each version pays for. At the end
the last policy is compared with the best one, and thirty fresh episodes score what is delivered.
"""

import argparse
from pathlib import Path

import numpy as np

from spreeze_zmq.evaluation.budget import EvaluationBudget
from spreeze_zmq.evaluation.contestant import Race
from spreeze_zmq.evaluation.evaluation import t_interval

RECORDED = Path(__file__).with_name("best_rule.npz")
LOOK, FRESH = 5, 30
#: Versions that each recorded policy stands for, and episodes that each of them pays for by default.
VERSIONS, PAID = 4, 8


class World:
    """Policies whose episodes are drawn from recorded ones.

    Attributes:
        truth: ``[P]`` true mean return of each policy.
        spent: episodes played.
        announced: mean return and truth of each new best policy; of a re-score the mean and None.
    """

    def __init__(self, returns, seed):
        self.returns = np.repeat(np.asarray(returns, np.float64), VERSIONS, 0)
        self.truth = self.returns.mean(1)
        self.rng, self.spent, self.announced = np.random.default_rng(seed), 0, []

    def play(self, num, *policies):
        """Returns ``[num]`` of each policy, all from the same starts."""
        starts = self.rng.integers(0, self.returns.shape[1], num)
        self.spent += num * len(policies)
        return [self.returns[policy, starts] for policy in policies]


class HighestScore:
    """The rule before: the greater score of five fresh episodes; of the best policy the newest counts."""

    best = None

    def look(self, world, policy):
        """Look at a policy."""
        (look,) = world.play(LOOK, policy)
        if self.best is None:
            self.keep(world, policy, look.mean())
        elif look.mean() > self.score:
            fresh, again = world.play(LOOK, policy, self.best)
            if fresh.mean() <= self.score:
                self.keep(world, self.best, again.mean())
            else:
                world.spent -= LOOK  # the best one did not play
            if fresh.mean() > self.score:
                self.keep(world, policy, fresh.mean())

    def keep(self, world, policy, score):
        """Announce the best policy."""
        self.best, self.score = policy, score
        world.announced.append((score, world.truth[policy]))

    def finish(self, world, last):
        """The policy that is delivered."""
        fresh, again = world.play(2 * LOOK, last, self.best)
        if last != self.best and fresh.mean() > again.mean():
            self.keep(world, last, fresh.mean())
        return self.best


class LongRaces:
    """The rule of :class:`Race`, whatever it costs."""

    best = None

    def __init__(self):
        self.budget = EvaluationBudget(cores=1.0)

    def look(self, world, policy):
        """Look at a policy."""
        (look,) = world.play(LOOK, policy)
        self.budget.look(0.0, LOOK, 0.0, None)
        if self.best is None:
            self.keep(world, policy, look)
        elif look.mean() > self.returns.mean():
            before = world.spent
            self.race(world, policy, self.most())
            self.budget.pay(world.spent - before)

    def most(self):
        """Episodes of each in a race."""
        return FRESH

    def race(self, world, policy, most):
        """Race a policy against the best one."""
        race = Race(self.returns, LOOK, most)
        while race.won is None:
            rounds = world.play(race.num_due - race.num_played, self.best, policy)
            race.best = np.append(race.best, rounds[0])
            race.challenger = np.append(race.challenger, rounds[1])
        self.returns = np.append(self.returns, race.best)
        world.announced.append((self.returns.mean(), None))
        if race.won:
            self.keep(world, policy, race.challenger)

    def keep(self, world, policy, returns):
        """Announce a new best policy."""
        self.best, self.returns = policy, returns
        world.announced.append((returns.mean(), world.truth[policy]))

    def finish(self, world, last):
        """The policy that is delivered."""
        if last != self.best:
            self.race(world, last, FRESH)
        return self.best


class Races(LongRaces):
    """Races of as many rounds as the looks so far pay for, as the evaluator's."""

    def most(self):
        """Episodes of each in a race."""
        return min(FRESH, int(LOOK * self.budget.num_rounds))


def simulate(rule, returns, seed, paid=PAID):
    """One run in which each version pays for ``paid`` episodes: figures by name; returns in shares of the
    range from the first to the truly best policy.
    """
    world, num_looks = World(returns, seed), 0
    for policy in range(len(world.truth)):
        if world.spent <= paid * policy:
            rule.look(world, policy)
            num_looks += 1
    delivered = rule.finish(world, len(world.truth) - 1)
    (final,) = world.play(FRESH, delivered)
    scale = world.truth.max() - world.truth[0] or 1.0
    before, falls = -np.inf, 0
    for mean, truth in world.announced:
        falls += truth is not None and mean < before - 1e-9
        before = mean
    new = [(mean - truth) / scale for mean, truth in world.announced if truth is not None]
    low, high = t_interval(final)
    return {
        "below the best": (world.truth.max() - world.truth[delivered]) / scale,
        "new best too high by": float(np.mean(new)),
        "final too high by": (final.mean() - world.truth[delivered]) / scale,
        "final interval holds the truth": float(low - 1e-9 <= world.truth[delivered] <= high + 1e-9),
        "falls": falls,
        "new bests": len(new),
        "looks": num_looks,
        "episodes": world.spent,
    }


def main():
    """Print the mean of each figure for each task and rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="simulated runs of each task and rule")
    parser.add_argument("--paid", type=float, default=PAID, help="episodes that each version pays for")
    args = parser.parse_args()
    with np.load(RECORDED, allow_pickle=False) as file:
        recorded = dict(file)
    for rule in (HighestScore, LongRaces, Races):
        tasks = {}
        for task, returns in recorded.items():
            runs = [simulate(rule(), returns, seed, args.paid) for seed in range(args.runs)]
            tasks[task] = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        tasks["all"] = {name: float(np.mean([task[name] for task in tasks.values()])) for name in runs[0]}
        for task, figures in tasks.items():
            print(rule.__name__, task, *(f"{name} {value:.4f}" for name, value in figures.items()), sep="; ")


if __name__ == "__main__":
    main()
