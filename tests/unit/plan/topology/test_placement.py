"""``[placement]``: what runs on other machines; a role that stays says why."""

import pytest

from spreeze_zmq.base.errors import InputError, TopologyError
from spreeze_zmq.commands.graph import graph
from spreeze_zmq.commands.spreeze import main as spreeze
from spreeze_zmq.nodes.listening import need_no_machine
from spreeze_zmq.plan import topology


@pytest.mark.parametrize("where", ["node", "desk2", "desk*", "?.lab-1"])
def test_a_role_has_a_machine_or_a_pattern_of_them(where):
    """In the plan stands what runs elsewhere, and nothing else."""
    assert topology.load("pendulum", [f'placement.evaluator="{where}"']).placement == {"evaluator": where}
    assert topology.load("pendulum", ["placement.evaluator=head", "placement.broker=head"]).placement == {}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("broker=node", r"placement.broker: it has no other place \(it writes the run's record"),
        ("visualizer=node", "the page is served where the run was started"),
        ("sampler=head", "samplers run here and on every machine that joins; spreeze join --samplers 0"),
        ("evaluatr=node", 'unknown key .did you mean "evaluator"'),
        ("evaluator=3", "expected a text in quotes, got 3"),
        ("member=node", r"a run of one group has no process of this role \(write groups.count = 2"),
        ('evaluator="desk 2"', 'expected "head", "node" or a host name, got "desk 2"'),
    ],
)
def test_a_mistake_says_where_and_why(written, why):
    """As every other key does."""
    with pytest.raises(TopologyError, match=why):
        topology.load("pendulum", [f"placement.{written}"])


def test_a_role_that_the_run_lacks_has_no_place():
    """It would be dropped without a word; at the head nobody misses it."""
    why = r"placement.actor_learner: this algorithm has no process of this role \(one learner trains everyth"
    with pytest.raises(TopologyError, match=why):
        topology.load("cartpole_dqn", ["placement.actor_learner=node"])
    assert topology.load("cartpole_dqn", ["placement.actor_learner=head"]).placement == {}


def test_a_run_that_listens_for_no_machine_needs_none():
    """Else it would wait for ever."""
    need_no_machine(topology.load("pendulum"))
    with pytest.raises(InputError, match=r"give --listen ADDRESS, or set placement.evaluator to head"):
        need_no_machine(topology.load("pendulum", ["placement.evaluator=node"]))


@pytest.mark.parametrize(
    "command", [["tune", "pendulum"], ["search", "pendulum", "--over=algorithm.tau=0.1,0.2"]]
)
def test_what_starts_runs_on_one_machine_takes_no_placement(command, capsys, tmp_path, monkeypatch):
    """Tuned would be a learner that shares these cores, and each trial of a search would wait."""
    monkeypatch.chdir(tmp_path)
    assert spreeze([*command, "--set", "placement.critic_learner=node"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("this run listens for none: set placement.critic_learner to head\n")
    assert not list(tmp_path.iterdir())


def test_what_the_machine_decides_is_left_to_it():
    """Threads and devices that the topology does not name; one that is not here is no mistake then."""
    plan = topology.load("pendulum", ["placement.actor_learner=node"], cores=8)
    assert set(plan.left_to_node) == {"actor_learner.threads", "actor_learner.device"}
    named = ["components.actor_learner.device=cuda:3", "components.actor_learner.threads=2"]
    plan = topology.load("pendulum", ["placement.actor_learner=node", *named])
    assert plan.left_to_node == ()
    assert plan.components["actor_learner"].options["device"] == "cuda:3"


def test_nothing_is_measured_here_for_a_learner_elsewhere():
    """Its machine has other cores: threads are left to it, and a batch is written."""
    away = "placement.critic_learner=node"
    threads = {"components.critic_learner.threads", "components.actor_learner.threads"}
    many = ["components.sampler.count=1", "algorithm.batch_size=256"]
    assert set(topology.load("pendulum", many, cores=16).to_measure) == threads
    assert topology.load("pendulum", [*many, away], cores=16).to_measure == ()
    wanted = 'algorithm.batch_size: "auto" is measured where the run is started, and critic_learner runs else'
    with pytest.raises(TopologyError, match=wanted):
        topology.load("pendulum", ["algorithm.batch_size=auto", away])


def test_the_graph_says_where_a_role_runs():
    """Not the device of the machine here, where the topology leaves it to the other."""
    text = graph(topology.load("pendulum", ['placement.actor_learner="desk*"', "placement.evaluator=node"]))
    assert "actor_learner, on a machine called desk*\n" in text
    assert "evaluator, on a machine that joins, nice 5\n" in text
