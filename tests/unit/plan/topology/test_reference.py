"""The list of all keys, and the hints at what an unknown key may have meant."""

import json
import subprocess
import sys

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.plan.topology.reference import (
    NAMES_ELSEWHERE,
    algorithm_table,
    component_options,
    entries,
    key_called,
    reference,
)

KEYS = {entry["key"] for entry in entries(reference())}


def test_every_key_of_every_plan_is_listed():
    """Whatever a resolved plan holds of the algorithm's and the components' options can be looked up."""
    named = {name: {} for name, role in ROLES.items() if role.named}
    named["observer"] = {"callbacks": ["my_module:MyCallback"]}
    tables = {"run": {"env": "Pendulum-v1"}, "groups": {"count": 2}, "components": named}
    plan = topology.load(tables, cores=2)
    assert {f"algorithm.{name}" for name in plan.algorithm if name != "name"} <= KEYS
    for role in ROLES:
        assert {f"components.{role}.{name}" for name in plan.components[role].options} <= KEYS


@pytest.mark.parametrize("table", reference(), ids=lambda table: f"{table.name} {table.algorithm}")
def test_every_key_says_what_it_takes_and_means(table):
    """No key without a line of help."""
    for entry in entries([table]):
        assert entry["help"], entry["key"]
        assert entry["accepts"], entry["key"]


def test_each_listed_default_is_accepted():
    """A topology that writes out every default of an algorithm is the topology that leaves them out, but for
    what suits a box better, as the help of those options says.
    """
    look = FirstLook()  # the time that one environment takes is part of a plan: measured once
    for name in algorithms.names():
        kind = algorithms.get(name)
        env, suits = ("Pendulum-v1", kind.box_options) if "box" in kind.acts_in else ("CartPole-v1", {})
        written = {option.name: option.default for option in algorithm_table(name).options} | dict(suits)
        helps = {option.name: option.help for option in algorithm_table(name).options}
        assert all(f"true for {name}" in helps[option] for option in suits)
        run = {"env": env, "algorithm": name}
        tables = {"run": run, "algorithm": written}
        assert topology.load(tables, look=look) == topology.load({"run": run}, look=look)


def test_another_librarys_name_leads_to_a_key_that_exists():
    """Every entry of the dictionary names a key of ours, and no name is a key already."""
    for key, names in NAMES_ELSEWHERE.items():
        assert key in KEYS
        for name in names.split():
            assert not any(entry.endswith(f".{name}") for entry in KEYS), name
            assert key_called(name)


@pytest.mark.parametrize(
    ("algorithm", "name", "key"),
    [
        ("sac", "lr", "algorithm.learning_rate"),
        ("sac", "net_arch", "algorithm.hidden_sizes"),
        ("sac", "buffer_size", "algorithm.replay_capacity"),
        ("sac", "gradient_steps", "balance.replay_ratio"),
        ("sac", "train_freq", "balance.replay_ratio"),
        ("sac", "total_timesteps", "run.stop.env_steps"),
        ("sac", "n_envs", "components.sampler.envs"),
        ("sac", "num_workers", "components.sampler.count"),
        ("sac", "ent_coef", "algorithm.initial_temperature"),
        ("ppo", "ent_coef", "algorithm.entropy_coefficient"),
        ("ppo", "n_epochs", "algorithm.epochs"),
    ],
)
def test_the_name_of_another_library_is_called_something_here(algorithm, name, key):
    """In a topology, the hint fits the run's algorithm."""
    env = "CartPole-v1" if algorithm == "ppo" else "Pendulum-v1"
    with pytest.raises(TopologyError) as caught:
        topology.load({"run": {"env": env, "algorithm": algorithm}, "algorithm": {name: 1}})
    assert f"{name} is called {key} here" in str(caught.value)


def test_an_option_of_another_algorithm_is_named_as_one():
    """``epochs`` for SAC."""
    with pytest.raises(TopologyError, match=r"an option of ppo and pqn, not of sac"):
        topology.load({"run": {"env": "Pendulum-v1", "algorithm": "sac"}, "algorithm": {"epochs": 3}})


@pytest.mark.parametrize(
    ("env", "algorithm", "name"),
    [
        ("Pendulum-v1", "sac", "Pendulum-v1"),
        ("CartPole-v1", "ppo", "CartPole-v1"),
        ("tests.unit.envs.own_environments:several_actions", "ppo", "several_actions"),
    ],
)
def test_without_a_file_the_spaces_choose_the_algorithm(env, algorithm, name):
    """And the run is named after its environment."""
    plan = topology.load({"run": {"env": env}})
    assert (plan.run.algorithm, plan.algorithm["name"], plan.name) == (algorithm, algorithm, name)


def test_values_of_a_caller_are_left_as_they_are():
    """Overrides do not write into the tables that were given."""
    tables = {"run": {"env": "Pendulum-v1", "seed": 3}}
    assert topology.load(tables, ["run.seed=4"]).run.seed == 4
    assert tables == {"run": {"env": "Pendulum-v1", "seed": 3}}


def test_the_command_prints_what_json_readers_can_use(capsys):
    """``spreeze options --json`` is the list itself; of one algorithm its own keys alone."""

    def printed(*words):
        assert main(["options", *words]) == 0
        return capsys.readouterr().out

    assert {entry["key"] for entry in json.loads(printed("--json"))} == KEYS
    own = printed("td3")
    assert own.splitlines()[0] == '[algorithm]  for algorithm = "td3"'
    for option in algorithm_table("td3").options:
        assert f"\n{option.name} " in own
    assert printed("sampler").startswith("[components.sampler]\nkey ")
    command = (sys.executable, "-m", "spreeze_zmq.commands.spreeze", "options")
    head = subprocess.run(f"{' '.join(command)} | head -1", shell=True, capture_output=True, text=True)
    assert (head.stdout, head.stderr) == ("[run]\n", "")


def test_a_list_for_other_programs_is_alone_on_its_stream(tmp_path):
    """What the module of the user's algorithm prints goes to standard error."""
    lines = ["import os", "from spreeze_zmq.algorithms.sac import SAC as Mine"]
    lines += ["print('hello')", "os.system('echo from a program')"]
    (tmp_path / "talks.py").write_text("\n".join(lines))
    command = (sys.executable, "-m", "spreeze_zmq.commands.spreeze", "options", "talks:Mine", "--json")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {entry["key"] for entry in json.loads(done.stdout)} <= KEYS
    assert sorted(done.stderr.splitlines()) == ["from a program", "hello"]


@pytest.mark.parametrize("role", ROLES)
def test_a_count_says_what_its_role_takes(role):
    """And what becomes of the run when one of its processes fails for good."""
    options = {option.name: option for option in component_options(role)}
    takes, lasting = options["count"].takes, options["max_restarts"].help
    assert ("[1, 8]" in takes) == (role == "sampler")
    goes_on = role in ("visualizer", "observer", "member")
    assert ("the run goes on" in lasting, "stops the run" in lasting) == (goes_on, not goes_on)
