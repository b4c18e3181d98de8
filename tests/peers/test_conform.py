"""``spreeze conform``: good samplers keep all clauses, and each broken one breaks its own."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spreeze_zmq import peers as conform
from spreeze_zmq.commands import spreeze
from spreeze_zmq.commands.conform import MARKS
from spreeze_zmq.peers.clauses import document
from spreeze_zmq.plan import topology
from tests.peers.broken import ACTS, ALIKE, EXAMPLE, MASKED, MISTAKES, ON, STARTS, sampler
from tests.peers.together import DEADLINE_S, LATE, together

ROOT = Path(__file__).parents[2]
pytestmark = LATE
CLAUSE = re.compile(
    r"^(?:- )?\*\*([A-Z]\d+)\*\*(?: to \*\*([A-Z]\d+)\*\*)? (must|should): (.*)", re.MULTILINE
)

#: What a broken sampler does not do is not waited for longer; what is whole does all, if the machine lets it.
PATIENCE_S, WHOLE_S = 5.0, 40.0
#: In these starts a process that never says hello, or one beside the first, is waited for.
SILENT = ("L2", "L3", "H1")
#: An environment that ends its episodes itself.
CUT_SHORT = ("run.env=tests.peers.cut_short:CutShort-v0",)


def check(program, options=()):
    """The verdicts of one run of the command on a sampler: clause -> verdicts, one for each act."""
    command = [sys.executable, "-m", "spreeze_zmq.commands.spreeze", "conform", "sampler", "--tier", "should"]
    command += ["--patience", str(WHOLE_S), *options]
    done = subprocess.run(
        [*command, "--", *program], capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT, check=False
    )
    found = {}
    for line in done.stdout.splitlines():
        cells = re.match(r"([A-Z]\d+) +(?:must|should) +(ok|BROKEN|not verified) +(.*)", line)
        if cells:
            found.setdefault(cells[1], []).append((cells[2], cells[3]))
    assert found, done.stdout + done.stderr
    assert done.returncode == any(verdict == "BROKEN" for rows in found.values() for verdict, _ in rows)
    return found, done.stdout


def judged(role, program, only=(), overrides=(), patience_s=8.0, *, on="pendulum", tier="should"):
    """Likewise of any role, in a thread of this process, which has imported what the command would import:
    most of it is waiting.
    """
    plan = topology.load(on, ["components.sampler.envs=4", "components.sampler.rollout_steps=24", *overrides])
    found = {}
    for result in conform.run(role, program, plan, tier, frozenset(only), patience_s):
        found.setdefault(result.clause.number, []).append((MARKS[result.verdict], result.seen))
    return found, "\n".join(f"{number}: {rows}" for number, rows in found.items())


#: A module of the tests as a program.
RUN = ("env", "-C", str(ROOT), sys.executable, "-m")


def ours(role):
    """The command of the shipped component."""
    return [sys.executable, str(ROOT / "components" / role)]


def broken_of(found):
    """The clauses that were broken."""
    return {number for number, rows in found.items() if any(verdict == "BROKEN" for verdict, _ in rows)}


def clauses_of(mistakes):
    """The clauses that these mistakes break; several may break one."""
    return {mistake.partition("-")[0] for mistake in mistakes}


def unseen_of(found):
    """The clauses that could not be judged in some act."""
    return {number for number, rows in found.items() if any(verdict == "not verified" for verdict, _ in rows)}


def never_seen(role):
    """The clauses of a role that no act judges."""
    return {about.number for about in conform.unseen(role, conform.clauses_of(role))}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory, native_layers, forked, request):
    """What is found of each start, by name."""
    folder = tmp_path_factory.mktemp("broken")

    def program(name, mistakes=()):
        path = folder / f"{name}.py"
        path.write_text(sampler(mistakes))
        return [sys.executable, str(path)]

    def checked_with_report():
        file = folder / "report.html"
        return (*check(ours("sampler"), options=("--html", str(file))), file.read_text())

    jobs = {
        "ours": checked_with_report,
        "the stranger's": partial(check, [sys.executable, str(EXAMPLE / "sampler.py")]),
    }
    whole = partial(judged, patience_s=WHOLE_S)
    jobs["cut short"] = partial(whole, "sampler", ours("sampler"), ("X11",), CUT_SHORT)
    jobs["ours, discrete"] = partial(whole, "sampler", ours("sampler"), ("A2", "A14"), **MASKED)
    jobs |= {role: partial(whole, role, ours(role)) for role in conform.ROLES[1:]}
    test = test_a_broken_sampler_breaks_its_clauses_and_no_others.__name__
    chosen = {one.callspec.params["name"] for one in request.session.items if one.originalname == test}
    for name, mistakes in STARTS.items():
        if name not in chosen:
            continue
        broken = program(name, mistakes)
        only, where = [ACTS.get(name, name)], ON.get(name, {"on": "pendulum", "overrides": ()})
        soon = ["components.sampler.start_timeout_s=5"] if name in SILENT else []
        jobs[name] = partial(
            judged,
            "sampler",
            broken,
            only,
            (*soon, *where["overrides"]),
            PATIENCE_S,
            on=where["on"],
        )
    with together(tmp_path_factory, "conform", jobs) as result:
        yield result


def test_every_clause_that_is_checked_has_a_broken_sampler():
    """No check is in vain; the distributions beside the first one are compared by the checks of the first."""
    checked = {about.number for about in conform.clauses_of("sampler")}
    heads = {f"A{number}" for number in range(11, 16)}
    assert clauses_of(MISTAKES) == checked - heads - {"C4"}  # which the example does not keep
    assert {clause for mistakes in STARTS.values() for clause in mistakes} == set(MISTAKES)


def test_the_numbers_and_tiers_are_those_of_the_document():
    """Each number of a check stands in PROTOCOL.md with the same word; no number is given twice."""
    document = {}
    for first, last, tier, _ in CLAUSE.findall((ROOT / "components" / "PROTOCOL.md").read_text()):
        letter, low, high = first[0], int(first[1:]), int((last or first)[1:])
        for number in range(low, high + 1):
            assert f"{letter}{number}" not in document
            document[f"{letter}{number}"] = tier
    for about in {about for role in conform.ROLES for about in conform.clauses_of(role)}:
        assert document[about.number] == about.tier, about.number
        assert about.expected, about.number


def test_every_clause_of_a_role_has_a_row():
    """Those that nothing outside shows too, with why; a program that does nothing is told of each."""
    assert {"L11", "C8", "M1"} <= never_seen("sampler")
    assert "F1" in never_seen("evaluator")
    found, text = judged("visualizer", ["false"], patience_s=0.1)
    due = {number for number in document() if conform.is_for(number, "visualizer")}
    assert {"L11", "C8", "M1", "H10", "V1", "V2", "V3"} <= due
    assert due == found.keys(), text
    assert all(any(conform.is_for(number, role) for role in conform.ROLES) for number in document())


def test_what_an_environment_does_itself_breaks_no_sampler(verdicts):
    """One that cuts its episodes long before the time limit and begins all of them alike."""
    found, text = verdicts("cut short")
    assert not broken_of(found), text
    assert {"X11", "X14"} <= unseen_of(found), text


@pytest.mark.long("what a broken program does not do is waited for")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in ALIKE else []) for name in STARTS]
)
def test_a_broken_sampler_breaks_its_clauses_and_no_others(verdicts, name):
    """Each with what was seen."""
    found, text = verdicts(name)
    assert broken_of(found) - {"C4"} == clauses_of(STARTS[name]), text


@pytest.mark.thorough
def test_a_first_observation_in_place_of_the_last_is_seen_without_a_step(tmp_path, forked):
    """Of an environment whose state does not follow from its observation; the rest is not verified."""
    path = tmp_path / "sampler.py"
    path.write_text(sampler(["X10"]))
    overrides = ["components.sampler.start_timeout_s=5", "run.env=Acrobot-v1", "run.stop={minutes=1}"]
    found, text = judged("sampler", [sys.executable, str(path)], ["X10"], overrides, on="cartpole")
    assert broken_of(found) - {"C4"} == {"X10"}, text
    assert {"X8", "X9", "X11", "X15"} <= unseen_of(found), text


def test_the_strangers_sampler_keeps_every_clause(verdicts):
    """The example of PROTOCOL.md; nothing but other kinds of action goes unseen."""
    found, text = verdicts("the stranger's")
    assert broken_of(found) == {"C4"}, text  # it does not set SO_SNDBUF
    assert unseen_of(found) == {"A10", "A14", "A15", "X17"} | never_seen("sampler"), text


def test_our_sampler_keeps_every_clause(verdicts):
    """All of them seen; the report says so, and names the program."""
    found, text, page = verdicts("ours")
    assert not broken_of(found), text
    assert unseen_of(found) == {"A10", "A14", "A15", "X17"} | never_seen("sampler"), text
    assert "components/sampler" in page
    assert page.count("<tr class=good>") == sum(
        verdict == "ok" for rows in found.values() for verdict, _ in rows
    )


@pytest.mark.long("each act of a learner starts it anew")
@pytest.mark.parametrize("role", conform.ROLES[1:])
def test_our_other_components_keep_every_clause(verdicts, role):
    """Of every role's life, and an evaluator's figures and file."""
    found, text = verdicts(role)
    assert not broken_of(found), text
    others = {"T2"} if role == "critic_learner" else set()  # the actor-learner's policies
    assert unseen_of(found) == never_seen(role) | others, text


@pytest.mark.long("a learner has two lives and is left waiting")
@pytest.mark.parametrize(
    ("role", "on"),
    [
        ("actor_learner", "cartpole"),
        pytest.param("critic_learner", "cartpole", marks=pytest.mark.thorough),
        pytest.param("critic_learner", "cartpole_pqn", marks=pytest.mark.thorough),
    ],
)
def test_our_learners_by_rounds_keep_every_clause(role, on, native_layers, forked):
    """Fed with rollouts of the newest policy, and the other learner's weights of each round."""
    found, text = judged(role, ours(role), ("T3",), patience_s=WHOLE_S, on=on)  # all that is seen where T3 is
    assert len(found) > 8
    assert not broken_of(found), text
    others = {"T2"} if role == "critic_learner" else set()
    if on == "cartpole_pqn":  # nobody else can make it wait before it takes anything, nor sends weights
        others = {"C3", "T7"}
    assert unseen_of(found) == others, text


def test_our_sampler_acts_in_discrete_environments(verdicts):
    """Another kind of action, of which not every one is legal at each step, and episodes that terminate."""
    found, text = verdicts("ours, discrete")
    assert not broken_of(found), text
    assert {found[number][0][0] for number in ("A2", "A3", "A4", "A14", "A15", "X11", "X17")} == {"ok"}, text


@pytest.mark.parametrize("number", ["A7", "C4"])
def test_a_clause_that_is_named_is_checked_whatever_its_tier(number, capsys):
    """A program that keeps none does not pass."""
    words = ["conform", "sampler", "--only", number, "--patience", "0.2", "--", "false"]
    assert spreeze.main(words) == 1
    assert f"\n{number} " in capsys.readouterr().out


def test_bad_input_is_one_line(capsys):
    """An unknown role and an unknown clause."""
    assert spreeze.main(["conform", "samplers", "--", "true"]) == 2
    assert spreeze.main(["conform", "sampler", "--only", "Z9", "--", "true"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
