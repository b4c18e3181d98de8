"""Two groups of samplers and learners that share a model: a whole run, each of whose new parts is killed."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.machine import available_cores
from tests.benchmarks import machines
from tests.system.conftest import NAPPING, Left, Run, adds_up, said_in, two_cores

#: Programs that begin in another folder find the tests' environments.
SEEN = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
GROUPS = ("groups.count=2", "groups.every_updates=50", "groups.patience_s=2", "run.stop.return=none")


@pytest.fixture
def run(launch, request):
    """A run of two groups on a task whose steps wait; the parameter is a member's ``max_restarts``."""
    more = (f"components.member.max_restarts={request.param}", "components.member.restart_window_s=1000")
    more += ("components.sampler.count=1",)
    sets = [word for each in (*GROUPS, *more) for word in ("--set", each)]
    patience = ("--set", "components.critic_learner.start_timeout_s=240", "--set", "run.stop.minutes=20")
    words = (*NAPPING["cartpole_dqn"], *sets, *patience, "--without", "evaluator")
    return launch(*words, topology="cartpole_dqn")


def rows(run):
    """The rows of the groups, as the last summary has them."""
    return run.summary().get("groups", {})


def members_broker(run):
    """The summary of the other group's own run, of its newest life."""
    folders = sorted((run.folder / "groups").glob("1*"), key=lambda path: path.stat().st_mtime)
    path = folders[-1] / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {}


def shares(run):
    """Both groups are parts of the rounds, near each other, with seeds of their own; returns their rows."""

    def are_parts():  # either may be slow, and others go on without it
        both = rows(run)
        needed = ("distance", "env_steps", "received_bytes")
        has = [row["rounds"] >= 3 and all(row[name] > 0 for name in needed) for row in both.values()]
        return both if has == [True, True] else None

    both = run.until(are_parts, "rounds of both groups", 400)
    assert all(row["distance"] < 1 for row in both.values())
    plans = [json.loads((run.folder / place / "run.json").read_text()) for place in (".", "groups/1")]
    assert plans[0]["run"]["seed"] != plans[1]["run"]["seed"]
    assert [plan["groups"]["number"] for plan in plans] == [0, 1]
    return both


def goes_on_alone(run):
    """A round closes without the other group."""
    run.until(lambda: rows(run)["1"]["lost"], "the loss of a group", 120)
    alone = rows(run)["0"]["rounds"]
    run.until(lambda: rows(run)["0"]["rounds"] > alone, "a round of one group", 120)


def ends_without_the_other(run):
    """Exit code 1, with the lost group in the last line and in summary.json; the account is closed."""
    run.until(lambda: "group 1 (member-0) is lost" in run.output.read_text(), "the end of a group", 60)
    run.interrupt()
    assert run.end() == 1, run.said()
    last = run.output.read_text().splitlines()[-1]
    assert last.startswith("the run ended without group 1 (member-0): ")
    assert list(run.summary()["lost"]) == ["member-0"]
    assert adds_up(run.summary()["samples"])
    assert run.leftovers() == []


@two_cores
@pytest.mark.long("eight processes")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", [0], indirect=True)
def test_two_groups_share_a_model_and_the_run_outlives_the_other(run):
    """A group that is not started again is left out of the rounds, and named at the end."""
    shares(run)
    run.kill("member-0")
    goes_on_alone(run)
    ends_without_the_other(run)


@two_cores
@pytest.mark.thorough
@pytest.mark.long("a member is started twice")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", [1], indirect=True)
def test_a_later_life_of_a_group_has_other_seeds(run):
    """What ended the one before, such as a start that the simulator cannot take, need not come again."""
    plans = [run.folder / "groups" / life / "run.json" for life in ("1", "1-2")]
    run.until(plans[0].exists, "a group", 400)
    run.kill("member-0")

    def is_back():  # else the run would have ended without it
        row = rows(run).get("1", {})
        return plans[1].exists() and row.get("rounds") and not row["lost"]

    run.until(is_back, "its return", 400)
    told = run.output.read_text().count(" state=")
    run.until(lambda: run.output.read_text().count(" state=") > told + 1, "a status that tells the launcher")
    run.interrupt()
    assert run.end() == 0, run.said()
    first, second = (json.loads(plan.read_text())["run"]["seed"] for plan in plans)
    assert first != second


@two_cores
@pytest.mark.thorough
@pytest.mark.long("eight processes, half of which are started twice")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", [1], indirect=True)
def test_a_killed_group_comes_back_and_a_killed_fuser_goes_on(run):
    """The group is left out and then part again; the fuser goes on from group 0's model."""
    both = shares(run)
    run.kill("member-0")
    goes_on_alone(run)
    run.until(
        lambda: not rows(run)["1"]["lost"] and members_broker(run).get("critic_updates"), "its return", 400
    )
    run.kill("fuser-0")
    run.until(lambda: rows(run).get("1", {}).get("rounds", 99) < both["1"]["rounds"], "a new fuser", 120)
    run.until(lambda: rows(run)["1"]["rounds"] >= 2, "rounds of the new fuser", 120)
    run.kill("member-0")  # once more than it is started again
    ends_without_the_other(run)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["groups.count=0"], "groups.count: expected a whole number of at least 1"),
        (["groups.every_updates=0"], "groups.every_updates: expected a whole number of at least 1"),
        pytest.param(
            *(["groups.count=64"], "groups need a core each, and this machine has"),
            marks=pytest.mark.skipif(available_cores() >= 64, reason="there are as many cores"),
        ),
        (["groups.count=2", "balance.mode=lockstep"], "groups do not wait for each other"),
        (["groups.count=2", "components.member.count=3"], "set groups.count"),
        (["components.member.count=3"], "write groups.count = 2"),
        (["groups.count=2", "groups.outer=adam"], 'expected one of "average", "momentum"'),
        (["groups.count=2", "placement.fuser=node"], "it holds the model of all groups"),
        (["groups.count=2", "placement.member=node"], "it needs another machine"),
    ],
)
def test_what_groups_cannot_be_is_said_in_a_line(words, said, tmp_path):
    """Where, what was expected, and how to mend it; nothing starts."""
    sets = [f"--set={word}" for word in words]
    code, out, err = said_in(tmp_path, "cartpole_dqn", *sets, "--run-dir", tmp_path / "run")
    assert code == 2, out + err
    assert said in err
    assert not (tmp_path / "run").exists()


def test_components_of_one_process_have_one_group(tmp_path):
    """Threads cannot have cores of their own."""
    code, _, err = said_in(tmp_path, "cartpole_dqn", "--inproc", "--set=groups.count=2")
    assert code == 2
    assert "--inproc runs one group" in err


@pytest.mark.thorough
@pytest.mark.long("a member starts on one machine, and again on another")
@pytest.mark.timeout(900)
def test_a_group_runs_on_a_machine_of_its_own_and_moves_to_another():
    """Over two networks: the member waits for a machine, which then runs no sampler of the run's own group;
    when it dies, the group goes on on the next one.
    """
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with machines.network(2, "10.78.0") as (head, *others):
        run = Head(head)
        try:
            run.until(lambda: "spreeze join" in run.output.read_text(), "the line for other machines", 120)
            for machine in others:
                before = rows(run).get("1", {}).get("rounds", 0)
                run.joined_by(machine)
                run.until(
                    lambda before=before: rows(run).get("1", {}).get("rounds", 0) > before, "rounds", 300
                )
                assert not rows(run)["1"]["lost"]
                statuses = read_journal(run.folder / "metrics.jsonl")
                there = [entry["machines"] for entry in statuses if entry.get("machines")][-1]
                assert [(row["runs"], row["most"]) for row in there.values()] == [("member-0", 0)]
                if machine is others[0]:
                    machine.die()
                    run.until(lambda: rows(run)["1"]["lost"], "the loss of the group", 60)
            run.head.signal(signal.SIGINT)
            assert run.end() == 0, run.said()
            assert run.joined[-1].wait(30) == 0
            assert adds_up(run.summary()["samples"])
        finally:
            print(run.said())


class Head(Run):
    """A run of two groups that listens on a machine of its own."""

    def __init__(self, head):
        Left.__init__(self, head.tmp / "run")
        self.output, self.joined = head.tmp / "head.out", []
        launch = ["launch", "cartpole_dqn", "--listen", head.address, "--run-dir", "/tmp/run"]
        launch += NAPPING["cartpole_dqn"]
        launch += [f"--set={each}" for each in (*GROUPS, "placement.member=node", "run.stop.minutes=20")]
        launch += ["--set=components.critic_learner.start_timeout_s=240"]
        with self.output.open("w") as output:
            self.head = head.start(*launch, stdout=output, stderr=output, env=SEEN)
        self.launcher = self.head

    def joined_by(self, machine):
        """Another machine joins."""
        address = re.search(r"spreeze join (tcp://[\d.:]+)", self.output.read_text())[1]
        with (self.folder / "join.key").open() as key, (machine.tmp / "join.out").open("w") as output:
            self.joined.append(
                machine.start("spreeze", "join", address, stdin=key, stdout=output, stderr=output)
            )
