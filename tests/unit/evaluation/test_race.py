"""The rule by which a challenger replaces the best policy of a run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.evaluation.contestant import LEAST, Contestant, Race
from spreeze_zmq.evaluation.evaluation import Score
from spreeze_zmq.evaluation.title import Title
from spreeze_zmq.run.curves import read_curve

NONE = np.zeros(0)


def run(best, challenger, earlier=NONE, round_size=5, most=30):
    """Race where ``best(n)`` and ``challenger(n)`` give the returns of the first ``n`` starts: whether the
    challenger won, and the episodes of each.
    """
    race = Race(np.asarray(earlier, np.float64), round_size, most)
    while race.won is None:
        due = race.num_due
        assert race.num_played < due <= most
        race.best, race.challenger = best(due), challenger(due)
    return race.won, race.num_played


def constant(value):
    """The returns of an environment without luck."""
    return lambda num: np.full(num, float(value))


def test_without_luck_one_round_decides_and_a_tie_keeps_the_best_policy():
    """The differences have no variance: the interval is their mean."""
    assert run(constant(1), constant(2)) == (True, 5)
    assert run(constant(2), constant(1)) == (False, 5)
    assert run(constant(1), constant(1)) == (False, 5)


def test_the_luck_of_the_start_cancels():
    """Returns scatter by 100, and the challenger is better by 1 at each start."""
    luck = np.random.default_rng(0).normal(0, 100, 30)
    assert run(lambda num: luck[:num], lambda num: luck[:num] + 1) == (True, 5)


def test_a_race_goes_on_while_the_challenger_leads_within_the_interval():
    """Leads of 3, 0, 3, 0 ...: at five episodes the 95 % interval begins below 0, at ten above."""
    lead = np.tile([3.0, 0.0], 15)
    assert run(lambda num: np.zeros(num), lambda num: lead[:num]) == (True, 10)
    lead = np.tile([3.0, -2.0], 15)  # the mean is 0.5 and its standard error 0.46 after thirty
    assert run(lambda num: np.zeros(num), lambda num: lead[:num]) == (True, 30)
    lead = np.tile([3.0, -2.5], 15)  # 0.25 and 0.51
    assert run(lambda num: np.zeros(num), lambda num: lead[:num]) == (False, 30)


def test_a_challenger_that_only_varies_more_does_not_win():
    """One return of 1,000 among zeros leads in the mean, but by no more than its standard error."""
    lucky = np.zeros(30)
    lucky[2], lucky[7] = 1000.0, -1.0
    assert run(lambda num: np.zeros(num), lambda num: lucky[:num]) == (False, 30)


def test_one_catastrophe_in_a_race_leaves_the_best_policy():
    """The challenger is better at each start but for one return of -1,000: it is behind in the mean."""
    better = np.full(30, 2.0)
    better[1] = -1000.0
    assert run(constant(1), lambda num: better[:num]) == (False, 5)


def test_every_episode_of_the_best_policy_counts():
    """It has scored 10 before; a challenger that leads the race by 5 to 4 is not above the mean of all."""
    assert run(constant(4), constant(5), earlier=np.full(10, 10.0)) == (False, 5)
    assert run(constant(4), constant(5), earlier=np.full(10, 4.0)) == (True, 5)


@pytest.mark.parametrize(("round_size", "most"), [(1, 1), (1, 30), (2, 2), (40, 40), (7, 30)])
def test_any_number_of_episodes_ends_a_race(round_size, most):
    """A single episode decides only where no more are allowed."""
    won, played = run(constant(1), constant(2), round_size=round_size, most=most)
    assert won
    assert min(LEAST, most) <= played <= most


def test_of_equal_policies_the_challenger_wins_fourteen_races_in_a_hundred():
    """With normally distributed returns, a race of up to 30 episodes in rounds of 5."""
    rng = np.random.default_rng(0)
    wins = 0
    for _ in range(2000):
        best, challenger = rng.normal(size=(2, 30))
        wins += run(lambda num, all=best: all[:num], lambda num, all=challenger: all[:num])[0]
    assert wins / 2000 == pytest.approx(0.14, abs=0.03)


@pytest.mark.parametrize(
    ("best_failed", "challenger_failed", "won"),
    [(0, 31, False), (31, 0, True), (31, 31, False), (0, 5, True)],
)
def test_a_mean_of_those_that_did_not_fail_wins_no_title(best_failed, challenger_failed, won):
    """Of a policy whose episodes mostly failed, the whole ones may be the easy ones; it holds the title until
    another has whole ones, and reaches no goal.
    """

    def play(one, missing, until_s):
        arrays = np.full(missing, 9.0 if one is challenger else 20.0 if best_failed else 1.0)
        whole = np.zeros(missing, np.int64)
        failed = challenger_failed if one is challenger else best_failed
        return one.take(Score(arrays, whole, whole, whole > 0, num_failed=failed), 0.1)

    best, challenger = (Contestant(None, seed) for seed in (1, 2))
    title = Title(Path(), lambda *_: None, play, 5.0, 5, 30, None, best)
    title.save = lambda: None
    play(best, 30, None)
    best.score = replace(best.score, num_failed=best_failed)
    best.policy = SimpleNamespace(averaged=False, version=1, extras={})
    assert title.race(challenger, 5) is won
    assert title.at_goal(challenger) is (challenger_failed < 31)


def lasted(one, num, seconds):
    """Give a policy episodes that time cut: each second costs 1."""
    whole = np.zeros(num, np.int64)
    cut = Score(np.full(num, -float(seconds)), whole, whole, whole == 0, timed_out=True)
    return one.take(cut, seconds)


@pytest.mark.parametrize(("until_s", "won"), [(None, True), (3.0, False)])
def test_the_grace_of_the_end_makes_no_policy_better(until_s, won):
    """A race at the end cuts episodes sooner than looks did: where time costs, each would win that."""
    best, challenger = (Contestant(None, seed) for seed in (1, 2))
    title = Title(Path(), lambda *_: None, lambda one, num, _: lasted(one, num, 6), None, 5, 30, None, best)
    lasted(best, 5, 60)
    assert title.race(challenger, 30, until_s=until_s) is won


def ending(best, play, folder):
    """The title at the end of a run, held by a policy of version 1; its reports are a journal's."""
    journal = Journal(folder / "metrics.jsonl")
    arena = SimpleNamespace(native=False, width=5)
    title = Title(
        Path(), lambda about, _: journal.write("evaluation", 1.0, about), play, None, 5, 30, arena, best
    )
    title.save = lambda: None
    return title


def policy(version):
    """What a contestant says of its policy."""
    return SimpleNamespace(averaged=False, version=version, extras={"env_steps": 100 * version})


def evaluations(folder):
    """What was reported."""
    return [line for line in read_journal(folder / "metrics.jsonl") if line["kind"] == "evaluation"]


@pytest.mark.parametrize(("then", "won"), [(-2.0, True), (-2.5, False)])
def test_the_look_at_the_last_policy_is_its_first_episodes_and_the_race_is_no_point(tmp_path, then, won):
    """A race ends by its own returns, here of 3 and ``then`` in turn beside 0: its mean is of a length that
    was chosen by it. The look has as many episodes as any other, and the race counts them, too.
    """
    returns = {1: np.zeros(60), 2: np.tile([3.0, then], 15)}

    def play(one, num, until_s):
        found = returns[one.policy.version][one.num_episodes :][:num]
        whole = np.zeros(num, np.int64)
        return one.take(Score(found, whole, whole, whole > 0), 1.0)

    best = Contestant(policy(1), 7)
    title = ending(best, play, tmp_path)
    play(best, 5, None)
    assert title.defend(policy(2), 99, 6.5)
    look, again, last = evaluations(tmp_path)
    assert (again["version"], again["rescored"], again["best"]) == (1, 30, True)
    for one, num, confirmed, is_best in ((look, 5, False, False), (last, 30, True, won)):
        assert (one["num_episodes"], one["confirmed"], one["best"]) == (num, confirmed, is_best)
        assert (one["mean_return"], one["seed"]) == (returns[2][:num].mean(), 12)
    assert title.holder.policy.version == (2 if won else 1)
    assert read_curve(tmp_path).mean_return.tolist() == [look["mean_return"]]


def test_a_last_policy_whose_episodes_the_grace_cuts_is_no_point_of_the_curve(tmp_path):
    """Each second costs 1: it would be the best point of all."""
    best = Contestant(policy(1), 7, fresh=False)
    title = ending(best, lambda one, num, until_s: lasted(one, num, until_s), tmp_path)
    whole = np.zeros(5, np.int64)
    best.take(Score(whole - 60.0, whole, whole, whole > 0), 60.0)
    title.conclude(best, keep=True)
    assert not title.defend(policy(2), 99, 6.5)
    assert read_curve(tmp_path).mean_return.tolist() == [-60.0]
    assert title.holder is best


@pytest.mark.parametrize(("seconds", "compared"), [(2.5, False), (None, True)])
def test_a_last_policy_beside_which_the_best_one_has_played_no_round_was_not_compared(
    tmp_path, seconds, compared
):
    """The grace has time for its look, and less for the best one: its look's episodes confirm nothing."""

    def play(one, num, until_s):
        if seconds and until_s and one is best:
            return lasted(one, num, seconds)
        whole = np.zeros(num, np.int64)
        return one.take(Score(whole - 60.0 / one.policy.version, whole, whole, whole > 0), 4.0)

    best = Contestant(policy(1), 7)
    title = ending(best, play, tmp_path)
    play(best, 5, None)
    assert title.defend(policy(2), 99, 6.5) is compared
    told = [(one["version"], one["confirmed"]) for one in evaluations(tmp_path)]
    assert told == [(2, False), *([(1, True), (2, True)] if compared else [])]
    assert (title.holder is best) is not compared


@pytest.mark.parametrize(("grace_s", "delivered"), [(6, -60.0), (None, -90.0)])
def test_the_last_score_takes_no_place_where_its_episodes_were_cut(tmp_path, grace_s, delivered):
    """Those of the looks had more time; whole ones, which take 90 seconds, do take it."""
    best = Contestant(policy(1), 1)
    lasted(best, 5, 60)

    def play(one, num, until_s):
        if grace_s:
            return lasted(one, num, grace_s)
        whole = np.zeros(num, np.int64)
        return one.take(Score(whole - 90.0, whole, whole, whole > 0), 1)

    title = ending(best, play, tmp_path)
    title.score(9, np.inf)
    assert title.holder.mean_return == delivered
    assert [one["rescored"] for one in evaluations(tmp_path)] == ([] if grace_s else [30])


def test_the_log_says_why_there_is_no_last_score(tmp_path, caplog):
    """That the episodes had no time, which is the other reason, was said of those that had failed."""

    def play(one, num, until_s):
        whole = np.zeros(num, np.int64)
        return one.take(Score(whole - 90.0, whole, whole, whole > 0, num_failed=31 * one.final), 1)

    best = Contestant(policy(1), 1)
    play(best, 5, None)
    with caplog.at_level("INFO", "spreeze"):
        ending(best, play, tmp_path).score(9, np.inf)
    assert caplog.messages == ["no final score: most episodes of the best policy failed"]


def test_below_a_goal_looks_that_are_better_again_and_again_challenge_the_best_policy():
    """A single one that is hardly better does not, as each race takes time from the goal; but a goal may
    never be reached, and what is delivered is the best policy.
    """

    def look(mean_return):
        whole = np.zeros(5, np.int64)
        one = Contestant(None, 1)
        one.take(Score(np.full(5, mean_return), whole, whole, whole == 0), 0.1)
        return one

    title = Title(Path(), lambda *_: None, None, 1e9, 5, 30, None, look(1000.0))
    assert [title.is_challenged_by(look(one)) for one in (0.0, 1040.0, 990.0, 1040.0)] == [False] * 4
    assert [title.is_challenged_by(look(one)) for one in (1040.0, 1040.0)] == [False, True]
    assert [title.is_challenged_by(look(one)) for one in (1040.0, 1101.0)] == [False, True]
    title.goal = None
    assert title.is_challenged_by(look(1001.0))
