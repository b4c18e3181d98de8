"""What ``--over`` varies, what a study makes of it, and the file that is written at the end."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.commands.search import outcome, trials
from spreeze_zmq.commands.search.beside import Beside
from spreeze_zmq.commands.search.phases import FRESH_SEEDS, MOST_FAILURES, POLL_S, Finalist, Search, best_of
from spreeze_zmq.commands.search.search import _search, contents_of
from spreeze_zmq.commands.search.space import Choices, Range, parse, parse_all, split
from spreeze_zmq.commands.search.study import GROWTH, LEAST_TRIALS, Study
from spreeze_zmq.commands.search.trials import Trial, Trials
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import digests_of
from spreeze_zmq.plan.releases import other_releases, releases
from spreeze_zmq.plan.roles import CRITIC_LEARNER
from spreeze_zmq.run.curves import read_curve
from spreeze_zmq.run.folder import CLAIMED

SPACE = (Range("algorithm.learning_rate", 1e-4, 1e-2, True), Choices("algorithm.n_step", ("1", "3")))
ABOUT = {"topology": ["pendulum"], "over": ["..."]}


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Optuna is an extra."""
    pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ("algorithm.tau=log:1e-3..0.1", Range("algorithm.tau", 1e-3, 0.1, True)),
        ("algorithm.tau = 0.5..1", Range("algorithm.tau", 0.5, 1.0, False)),
        ("algorithm.n_step=1..5", Range("algorithm.n_step", 1, 5, False)),
        ("algorithm.batch_size=log:32..512", Range("algorithm.batch_size", 32, 512, True)),
        ("run.env_kwargs.low=-1.5..-.5", Range("run.env_kwargs.low", -1.5, -0.5, False)),
        ("algorithm.tau=0.005,0.02", Choices("algorithm.tau", ("0.005", "0.02"))),
        (
            "algorithm.hidden_sizes=[64, 64],[256]",
            Choices("algorithm.hidden_sizes", ("[64, 64]", "[256]")),
        ),
        ('a.b="x,y", true', Choices("a.b", ('"x,y"', "true"))),
        ("a.b={ from = 1, to = 2 },3", Choices("a.b", ("{ from = 1, to = 2 }", "3"))),
    ],
)
def test_ranges_and_lists_are_read(over, found):
    """Whole ends mean whole numbers; commas in brackets and quotes separate nothing."""
    assert parse(over) == found
    assert isinstance(getattr(found, "low", 0), type(getattr(parse(over), "low", 0)))


@pytest.mark.parametrize(
    ("overs", "words"),
    [
        ([], "nothing is varied"),
        (["algorithm.tau"], "expected KEY=log:LOW..HIGH"),
        (["algorithm.tau=0.5"], "a single value is written as --set"),
        (["algorithm.tau=0.5,"], "expected KEY=log:LOW..HIGH"),
        (["algorithm.tau=1..0.5"], "a range goes up"),
        (["algorithm.tau=log:0..0.5"], "logarithms need a range above 0"),
        (["algorithm.tau=0.5,0.5"], "twice"),
        (["run.seed=1..5"], "its own seed and time"),
        (["run.stop.minutes=1,2"], "its own seed and time"),
        (["a.b=1,2", "a.b=3,4"], "varied twice"),
    ],
)
def test_what_is_neither_is_refused(overs, words):
    """In one line that says what was expected."""
    with pytest.raises(InputError, match=words):
        parse_all(overs)


def test_a_list_is_split_at_its_own_commas():
    """Also beside quotes that hold brackets."""
    assert split("""'[', "a, b" , [1, [2, 3]],x""") == ["'['", '"a, b"', "[1, [2, 3]]", "x"]


def opened(folder, space=SPACE, about=ABOUT, every=False):
    """A study in a folder."""
    return Study(folder, space, about, {}, 1, every=every)


def test_values_are_within_their_range_and_written_short(tmp_path):
    """Four digits, as they stand in the file that is written."""
    study = opened(tmp_path)
    for number in range(12):
        asked, values = study.ask()
        assert asked == number
        assert list(values) == ["algorithm.learning_rate", "algorithm.n_step"]
        rate = float(values["algorithm.learning_rate"])
        assert 1e-4 <= rate <= 1e-2
        assert float(f"{rate:.4g}") == rate
        assert values["algorithm.n_step"] in ("1", "3")
        study.tell(number, float(number), pruned=False)
    assert study.num_over == 12
    assert [row.score for row in study.rows()] == [float(score) for score in range(11, -1, -1)]


def test_a_run_behind_half_of_the_others_is_ended_early(tmp_path):
    """Not before others have run to their end and it may be ended; one that is ahead goes on. A run whose
    environment waits, which spends a tenth of the core-seconds, is compared like any other.
    """
    study, looks = opened(tmp_path), np.linspace(0.0, 480.0, 50)
    last = int(np.log(480.0) / np.log(GROWTH))

    def end(returns, may_end=True, waits=1):
        number, _ = study.ask()
        every = np.broadcast_to(returns, looks.shape)
        return number, *study.progress(number, looks / waits, every, -1, may_end=may_end)

    for score in range(LEAST_TRIALS):
        number, reported, behind = end(float(score))
        assert (reported, behind) == (last, False)
        study.tell(number, float(score), pruned=False)
    number, reported, behind = end(-5.0, waits=10)
    assert behind
    assert GROWTH ** (reported - 1) < looks[2] <= GROWTH**reported, "where the others have three looks, too"
    study.tell(number, -5.0, pruned=True)
    assert end(-5.0, may_end=False)[1:] == (last, False)
    assert end(10.0)[1:] == (last, False)
    assert end(np.where(looks < 96.0, 10.0, -5.0))[1:] == (last, False), "its best policy counts"
    assert [(row.score, row.state) for row in study.rows()][-1] == (-5.0, "ended early")
    assert study.num_over == LEAST_TRIALS + 1


def test_a_lucky_first_look_shields_no_run(tmp_path):
    """Looks are seldom: several marks pass between the first and the second, and one look is no three."""
    study, spent = opened(tmp_path), np.array([10.0, 30.0, 50.0, 70.0, 90.0])
    for score in range(LEAST_TRIALS):
        number, _ = study.ask()
        assert study.progress(number, spent, np.full(5, float(score)), -1, may_end=True)[1] is False
        study.tell(number, float(score), pruned=False)
    number, _ = study.ask()
    lucky = np.array([10.0, -30.0, -30.0, -30.0, -30.0])
    reported, behind = study.progress(number, spent[:2], lucky[:2], -1, may_end=True)
    assert not behind
    reported, behind = study.progress(number, spent, lucky, reported, may_end=True)
    assert behind
    assert GROWTH ** (reported - 1) < spent[2] <= GROWTH**reported


def test_a_killed_search_tries_again_what_was_under_way(tmp_path):
    """With the same values; what was over stays."""
    killed = opened(tmp_path)
    number, _ = killed.ask()
    killed.tell(number, 3.0, pruned=False)
    _, lost = killed.ask()
    with pytest.raises(InputError, match="another search is at work there"):
        opened(tmp_path)
    killed.close()
    study = opened(tmp_path)
    assert study.num_over == 1
    number, values = study.ask()
    assert (number, values) == (2, lost)
    study.tell(number, None, pruned=False)
    number, _ = study.ask()
    study.tell(number, 1.0, pruned=True)
    found = [(row.score, row.state) for row in study.rows()]
    assert found == [(3.0, ""), (1.0, "ended early"), (None, "failed")]


@pytest.mark.usefixtures("no_locks")
def test_a_search_on_a_disk_without_locks_begins(tmp_path, caplog):
    """And says that nothing keeps out a second one, which would try again what is under way in the first."""
    assert opened(tmp_path).ask()[0] == 0
    assert f"--study {tmp_path}: its disk has no locks" in caplog.text


def test_a_search_that_goes_on_tries_other_values(tmp_path):
    """Each session chooses by the seed and what there is already."""
    seen = []
    for _ in range(3):
        study = opened(tmp_path)
        for _ in range(3):
            number, values = study.ask()
            seen.append(values["algorithm.learning_rate"])
            study.tell(number, 0.0, pruned=False)
        study.close()
    assert len(set(seen)) == 9


def test_a_search_of_an_edited_topology_is_another():
    """What its runs learn, or how fast."""
    edits = ["algorithm.batch_size=64", "components.evaluator.episodes=3", "components.sampler.count=3"]
    edits += ["run.env_kwargs={g = 5.0}", "balance.replay_ratio=1"]
    plans = [topology.load("pendulum", edit, cores=4) for edit in ([], *([each] for each in edits))]
    assert len({contents_of(plan)[0] for plan in plans}) == len(plans)
    assert contents_of(topology.load("pendulum", cores=4)) == contents_of(plans[0])


def test_a_study_of_an_earlier_release_is_gone_on_with(tmp_path):
    """Its digest has deadlines, too; devices are in both among the components' options, and nowhere else."""
    plan = topology.load("pendulum", cores=4)
    critic = plan.components[CRITIC_LEARNER]
    critic = replace(critic, options={**critic.options, "device": "cuda:0"})
    on_gpu = replace(plan, components={**plan.components, CRITIC_LEARNER: critic})
    assert not {*contents_of(on_gpu)} & {*contents_of(plan)}
    assert digests_of(on_gpu) == digests_of(plan)
    now, before = contents_of(plan)
    opened(tmp_path, about={**ABOUT, "contents": before}).close()
    Study(tmp_path, SPACE, {**ABOUT, "contents": now}, {}, 1, every=False, earlier=[before]).close()
    with pytest.raises(InputError, match="choose another folder"):
        Study(tmp_path, SPACE, {**ABOUT, "contents": now}, {}, 1, every=False)


def test_a_study_keeps_the_releases_that_it_was_begun_with(tmp_path):
    """A search that goes on with others says so: its scores may not compare with those before."""
    with contextlib.closing(opened(tmp_path)) as begun:
        assert begun.packages is None
    with contextlib.closing(opened(tmp_path)) as again:
        assert other_releases(again.packages) == []
        older = {**again.packages, "torch": "0.9"}
    assert other_releases(older) == [f"torch 0.9 (here {releases()['torch']})"]


@pytest.mark.parametrize("code", [None, 1], ids=["of an earlier search", "just now"])
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("minutes 2.00 >= 2", -150.0),
        ("critic_learner-0 is not started again: 4 crashes within 60 s", -np.inf),
        ("", -np.inf),
    ],
)
def test_a_finalist_that_failed_does_not_count_and_runs_again(tmp_path, reason, expected, code):
    """Though a policy of it was evaluated before; its folder says how it ended, now and later. Where
    none is left, those that failed are named.
    """
    run = Trial("as-it-is-seed-1", tmp_path / "run", {}, 1, code=code)
    run.folder.mkdir()
    (run.folder / "run.json").write_text(topology.load("pendulum").to_json())
    (run.folder / "summary.json").write_text(json.dumps({"best_return": -150.0, "exit_reason": reason}))
    run.log.write_text("no space left on device\n")
    finalist = Finalist("as it is", {}, [run])
    assert (run.is_over, finalist.mean_return) == (expected == -150.0, expected)
    if not run.is_over:
        with pytest.raises(
            ComponentFailed, match=r"as-it-is-seed-1 failed: no space left on device; see .*log"
        ):
            best_of([finalist])


def ended(folder, name, best_return, num_cut, values=None):
    """A run that has ended, of whose ten episodes time has cut so many."""
    run = Trial(name, folder / name, values or {}, 1, code=0)
    run.folder.mkdir()
    (run.folder / "run.json").write_text(topology.load("pendulum").to_json())
    best = best_return and {
        "mean_return": best_return,
        "num_episodes": 10,
        "num_truncated": num_cut,
        "timed_out": num_cut > 0,
    }
    summary = {"best_return": best_return, "best": best, "exit_reason": "minutes 2.00 >= 2"}
    (run.folder / "summary.json").write_text(json.dumps(summary))
    return run


def test_a_score_that_time_has_cut_compares_with_no_other(tmp_path, capsys):
    """Fewer steps of negative rewards are a higher return: such a trial ranks last, a setting with such a run
    is never best, and where all have one no topology is.
    """
    study = opened(tmp_path)
    search = Search(study, Trials((), [frozenset()]), tmp_path, 1, "wall_s", 60.0, "core_s")
    for best_return, num_cut in ((-20.0, 7), (-150.0, 0)):
        number, values = study.ask()
        search._end(replace(ended(tmp_path, f"trial-{number}", best_return, num_cut, values), number=number))
    assert "trial-0: -20.0 (7 of 10 cut by time);" in capsys.readouterr().out
    assert [(row.number, row.state) for row in study.rows()] == [(1, ""), (0, "7 of 10 cut by time")]
    assert study._study.best_trial.number == 1
    cut = Finalist("trial 0", {"a.b": "1"}, [ended(tmp_path, "zero-seed-1", -20.0, 7)])
    whole = Finalist("trial 1", {"a.b": "2"}, [ended(tmp_path, "one-seed-1", -150.0, 0)])
    assert best_of([cut, whole]) is whole
    outcome.show_finalists([cut, whole])
    assert re.search(r"^trial 0 +- +\(-20\.0\) ", capsys.readouterr().out, re.MULTILINE)
    limits = r"raise components\.evaluator\.max_s, and its stop_grace_s, of which those at the end"
    with pytest.raises(ComponentFailed, match=f"zero-seed-1 has 7 of 10 cut by time: {limits}"):
        best_of([cut])


def test_a_trial_that_ended_before_its_first_look_says_so(tmp_path, capsys):
    """It did not fail, and what it printed last is about something else."""
    study = opened(tmp_path)
    search = Search(study, Trials((), [frozenset()]), tmp_path, 1, "wall_s", 60.0, "core_s")
    for number in range(MOST_FAILURES):
        asked, values = study.ask()
        trial = replace(ended(tmp_path, f"trial-{number}", None, 0, values), number=asked)
        trial.log.write_text("to resume: spreeze-launch --resume runs/pendulum\n")
        if number < MOST_FAILURES - 1:
            search._end(trial)
    assert "trial-0: not evaluated: give the runs more time;" in capsys.readouterr().out
    assert [(row.score, row.state) for row in study.rows()] == [(None, "not evaluated")] * 2
    with pytest.raises(ComponentFailed, match=r"one after the other: not evaluated: give .* time; see .*log"):
        search._end(trial)


def test_a_run_of_a_killed_search_is_waited_for(tmp_path):
    """Its last processes still write into its folder, which another run takes then."""
    folder = tmp_path / f"as-it-is-seed-{1 + FRESH_SEEDS}"
    folder.mkdir()
    (folder / "run.json").write_text(topology.load("pendulum").to_json())
    runs = Trials(("pendulum", '--set=run.env="Nope-v0"'), [frozenset(os.sched_getaffinity(0))])
    search = Search(opened(tmp_path), runs, tmp_path, 1, "wall_s", 60.0, "core_s")
    with ThreadPoolExecutor(1) as beside, (folder / f"{CLAIMED}.lock").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        repeated = beside.submit(search.repeat, 0, 1)
        time.sleep(4 * POLL_S)
        assert folder.exists()
        assert not repeated.done()
        claim.close()
        [finalist] = repeated.result()
    runs.close()
    assert "Nope-v0" in finalist.runs[0].last_line
    assert not folder.exists()


def test_what_is_read_of_a_run_takes_little_of_its_cores(tmp_path, monkeypatch):
    """However long its journal has become: the pause is as many times as long as the look was."""
    read = []

    def slow(folder, **options):
        read.append(folder)
        time.sleep(0.1)
        return read_curve(folder, **options)

    monkeypatch.setattr(trials, "read_curve", slow)
    search = Search(opened(tmp_path), Trials((), []), tmp_path, 1, "wall_s", 60.0, "core_s")
    trial = Trial("trial-0000", tmp_path / "trial-0000", {}, 1, 0)
    search._watch(trial)
    search._watch(trial)
    assert len(read) == 1
    trial.next_look_s = time.monotonic()
    search._watch(trial)
    assert len(read) == 2


def test_a_run_of_groups_has_the_length_of_its_own_steps(tmp_path):
    """Its limit is of group 0, what it cost of all: it is not ended early before its share of the length."""
    study = opened(tmp_path)
    for score in range(LEAST_TRIALS):
        number, _ = study.ask()
        study.progress(number, np.array([1.0, 2.0, 3.0, 1e5]), np.full(4, float(score)), -1, may_end=True)
        study.tell(number, float(score), pruned=False)
    arguments = Namespace(env_steps=1000, minutes=2.0, set=[])
    search = _search(topology.load("pendulum", cores=4), study, [], Beside([]), tmp_path, arguments)
    number, values = study.ask()
    trial = Trial("trial", tmp_path / "trial", values, 1, number, asked_s=[0.0])
    trial.folder.mkdir()
    journal = Journal(trial.folder / "metrics.jsonl")
    for t_s, steps in ((0.8, 80), (1.0, 100), (2.0, 200), (3.0, 600)):
        other = {"env_steps": 5 * steps, "trained_transitions": 0}
        journal.write("status", t_s, {"env_steps": steps, "trained_transitions": 0, "groups": {"1": other}})
        journal.write("evaluation", t_s, {"env_steps": steps, "mean_return": -5.0})
        search._compare(trial)
        assert trial.reported > 0
        assert bool(trial.pruned) == (steps == 600)
    journal.close()


def test_a_search_goes_on_behind_a_line_that_was_torn(tmp_path):
    """As a kill or a full disk leaves it: what that line said is done again."""
    killed, log = opened(tmp_path), tmp_path / "study.log"
    for score in (1.0, 2.0):
        number, _ = killed.ask()
        killed.tell(number, score, pruned=False)
    killed.close()
    log.write_bytes(log.read_bytes()[:-7])
    for num_over in (1, 2, 3):
        study = opened(tmp_path)
        assert study.num_over == num_over
        number, _ = study.ask()
        study.tell(number, 3.0, pruned=False)
        study.close()
    assert [row.score for row in study.rows()] == [3.0, 3.0, 3.0, 1.0]


def test_the_folder_of_another_search_is_refused(tmp_path):
    """The line names what differs."""
    opened(tmp_path).close()
    with pytest.raises(InputError, match=r"holds a search of .*pendulum.*ant.*another folder"):
        opened(tmp_path, about={**ABOUT, "topology": ["ant"]})


def test_a_search_by_env_steps_that_had_minutes_too_goes_on_without_them(tmp_path):
    """An earlier release took both and passed the minutes over; another number of steps is another search."""
    opened(tmp_path, about={**ABOUT, "env_steps": 500, "minutes": 5.0}).close()
    opened(tmp_path, about={**ABOUT, "env_steps": 500, "minutes": 2.0}).close()
    with pytest.raises(InputError, match=r"of {'env_steps': 500}, and this one is of {'env_steps': 600}"):
        opened(tmp_path, about={**ABOUT, "env_steps": 600, "minutes": 2.0})


@pytest.mark.parametrize("content", [b"[1, 2]\n", b"{}\n", b"\0" * 50 + b"\n", b'{"op_code": 99}\n'])
def test_what_is_no_study_is_refused(tmp_path, content):
    """In a line, and it stays as it is."""
    (tmp_path / "study.log").write_bytes(content)
    with pytest.raises(InputError, match=r"study\.log cannot be read.*another folder"):
        opened(tmp_path)
    assert (tmp_path / "study.log").read_bytes() == content


def test_every_combination_is_tried_once(tmp_path):
    """In any order."""
    space = (Choices("a.b", ("1", "2")), Choices("c.d", ("x", "y", "z")))
    study, seen = opened(tmp_path, space, every=True), set()
    for _ in range(6):
        number, values = study.ask()
        seen.add(tuple(values.values()))
        study.tell(number, 0.0, pruned=False)
    assert len(seen) == 6


def test_a_combination_that_failed_or_was_under_way_or_not_yet_in_line_is_tried_once(tmp_path):
    """A search may be killed at any time; a failure is a result."""
    space = (Choices("a.b", ("1", "2")), Choices("c.d", ("x", "y", "z")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spreeze_zmq.commands.search.study.product", killed_after(2))
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path, space, every=True)
    study = opened(tmp_path, space, every=True)
    number, values = study.ask()
    study.tell(number, None, pruned=False)
    study.ask()
    study.close()
    study, seen = opened(tmp_path, space, every=True), {tuple(values.values())}
    assert study.num_over == 1
    while study.num_over < 6:
        number, values = study.ask()
        seen.add(tuple(values.values()))
        study.tell(number, 0.0, pruned=False)
    assert len(seen) == 6


def killed_after(count):
    """``itertools.product``, with a Ctrl-C after some of what it gives."""

    def product(*choices):
        yield from itertools.islice(itertools.product(*choices), count)
        raise KeyboardInterrupt

    return product


def test_a_trial_whose_values_do_not_go_together_has_failed(tmp_path):
    """As one that diverges has: the search goes on, and ends where all trials fail; the study has each."""
    study = opened(tmp_path, (Choices("run.env", ('"Nope-v0"', '"Nope-v1"')),), every=True)
    runs = Trials(("pendulum",), [frozenset(os.sched_getaffinity(0))])
    search = Search(study, runs, tmp_path, 1, "wall_s", 60.0, "core_s")
    try:
        search.try_values(2)
        assert search.failures == 2 < MOST_FAILURES
        with pytest.raises(ComponentFailed, match=r"3 trials failed one after the other: .*Nope-v"):
            search.try_values(3)
    finally:
        runs.close()
    assert [(row.score, row.state) for row in study.rows()] == [(None, "failed")] * 3


def test_what_is_written_is_the_topology_with_the_values_found(tmp_path, monkeypatch):
    """Into a new file, which loads; nothing of the user's is replaced."""
    monkeypatch.chdir(tmp_path)
    plan = topology.load("pendulum")
    best = {"algorithm.learning_rate": "0.002", "algorithm.hidden_sizes": "[32, 32]"}
    paths = [
        outcome.write("pendulum", ["run.seed=7"], best, plan, tmp_path, "spreeze search") for _ in range(2)
    ]
    assert [path.name for path in paths] == ["pendulum_found.toml", "pendulum_found2.toml"]
    found = topology.load(str(paths[1]))
    assert (found.algorithm["learning_rate"], found.algorithm["hidden_sizes"]) == (0.002, [32, 32])
    assert (found.run.seed, found.run.env) == (7, plan.run.env)


def test_no_setting_is_best_where_none_was_evaluated():
    """Such as of runs that were too short."""
    with pytest.raises(ComponentFailed, match="give the runs more time"):
        best_of([Finalist("as it is", {}), Finalist("trial 0", {"a.b": "1"})])
