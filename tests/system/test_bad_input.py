"""Mistakes of a user, each tried for real: one clear line, exit code 2, nothing started or written."""

import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from spreeze_zmq.commands import launch, spreeze
from spreeze_zmq.nn.native.library import prepare
from tests.pace import slowness
from tests.system.conftest import LAUNCH, said_in
from tests.unit.plan.topology.test_bad_topologies import TOPOLOGIES

ROOT = Path(__file__).parents[2]
GOOD = '[run]\nenv = "Pendulum-v1"\n'
OWN = "tests.unit.envs.mistaken_environments"


def own(name):
    """A topology with an environment of the user's own."""
    return f'[run]\nenv = "{OWN}:{name}"\n'


class Case(NamedTuple):
    """A topology (or none), further words of the command, what the line about each mistake must say, and
    the command's ``main``.
    """

    topology: str | None = None
    arguments: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    main: Callable = launch.main


def launching(*arguments, says):
    """Arguments of ``spreeze-launch`` without a topology file of the user's own."""
    return Case(None, arguments, tuple(says))


def asking(*arguments, says):
    """Arguments of ``spreeze``."""
    return Case(None, arguments, tuple(says), spreeze.main)


#: One for each way in which a topology is read; ``load`` is given all of them beside their list.
OF_TOPOLOGIES = (
    *("no_toml", "key_twice", "unknown_key", "unknown_table", "key_outside_its_table", "empty_file"),
    *("text_for_a_number", "value_for_a_table", "date_for_a_number", "misspelt_reference"),
    *("unknown_environment", "argument_of_no_environment", "discrete_actions", "unknown_algorithm"),
    *("schedule_without_an_end", "ratio_of_nothing", "count_reversed", "unknown_program"),
    *("data_in_no_folder", "absent_gpu", "malformed_endpoint", "two_binders"),
)
MISTAKES = {
    # --- in a topology
    **{name: Case(TOPOLOGIES[name][0], (), tuple(TOPOLOGIES[name][1])) for name in OF_TOPOLOGIES},
    "observer without callbacks": Case(
        GOOD + "[components.observer]\nnice = 3\n", (), ("components.observer.callbacks", "missing")
    ),
    "callback without a class": launching(
        "--env", "Pendulum-v1", "--callback", "mine", says=("callback mine", '"my_module:MyClass"')
    ),
    "callback of no module": launching(
        "--env",
        "Pendulum-v1",
        "--callback",
        "no_such:Mine",
        says=("callback no_such:Mine", "no module is called"),
    ),
    "option out of range": Case(GOOD + "[algorithm]\ngamma = 1.5\n", (), ("gamma", "at most 1")),
    "option of another algorithm": Case(
        GOOD + "[algorithm]\nepochs = 3\n", (), ("epochs", "an option of ppo and pqn, not of sac")
    ),
    "name of Stable-Baselines3: lr": Case(
        GOOD + "[algorithm]\nlr = 1e-3\n", (), ("lr is called algorithm.learning_rate here",)
    ),
    "name of Stable-Baselines3: net_arch": Case(
        GOOD + "[algorithm]\nnet_arch = [64]\n", (), ("net_arch is called algorithm.hidden_sizes here",)
    ),
    "name of Stable-Baselines3: train_freq": Case(
        GOOD + "[algorithm]\ntrain_freq = 1\n", (), ("train_freq is called balance.replay_ratio here",)
    ),
    "name of RLlib: num_workers": Case(
        GOOD + "[components.sampler]\nnum_workers = 2\n", (), ("called components.sampler.count here",)
    ),
    "stop as a number": Case(GOOD + "stop = 100000\n", (), ("run.stop", "expected a table")),
    # --- the environment
    "misspelt environment": launching("--env", "Pendulm-v1", says=["did you mean 'Pendulum-v1'"]),
    "old version": launching("--env", "HalfCheetah-v3", says=["HalfCheetah-v3", "use HalfCheetah-v5"]),
    "unknown module": launching("--env", "no_such_pkg.arm:Reach-v0", says=["no module 'no_such_pkg'"]),
    "file in place of a module": launching("--env", "./arm.py:Reach", says=["write 'arm:...'"]),
    "nothing of that name": launching("--env", f"{OWN}:Rigt", says=["'Rigt'", "did you mean 'Right'"]),
    "misspelt parameter of a model": Case(
        '[run]\nenv = "Hopper-v5"\n[run.randomize]\nbody_mas = [0.8, 1.2]\n', (), ("body_mass",)
    ),
    "observations that no policy takes": Case(
        '[run]\nenv = "tests.unit.envs.own_environments:sequence"\n', (), ("Sequence", "TransformObservation")
    ),
    "fails in __init__": Case(own("FailsInInit"), (), ("KeyError: 'arm.xml'", "mistaken_environments.py:")),
    "no spaces": Case(own("NoSpaces"), (), ("no observation_space", "__init__")),
    "no gymnasium.Env": Case(own("NoEnv"), (), ("NoEnv, not a gymnasium.Env",)),
    "old step of 4 values": Case(own("OldStep"), (), ("environments.py:", "4 values, as in Gym before 0.26")),
    "old reset without a seed": Case(own("OldReset"), (), ("environments.py:", "reset(self, *, seed=None")),
    "reset without info": Case(own("NoInfo"), (), ("environments.py:", "returns (observation, info)")),
    "fails in step": Case(own("FailsInStep"), (), ("environments.py:", "ZeroDivisionError")),
    "no step": Case(own("NoStep"), (), ("environments.py:", "step is not defined")),
    "another shape than its space": Case(own("OtherShape"), (), ("environments.py:", "(4,)", "(3,)")),
    "NaN": Case(own("NotANumber"), (), ("environments.py:", "not finite")),
    "no reward": Case(own("NoReward"), (), ("environments.py:", "the reward None")),
    # --- on the command line
    "nothing to launch": launching(says=["expected a TOPOLOGY or --env ID", "--list"]),
    "a topology and --env": launching("pendulum", "--env", "Ant-v5", says=["or --env ID, got both"]),
    "no such topology": launching("halfcheeta", says=["no such file", 'did you mean "halfcheetah"']),
    "an environment as topology": launching("Ant-v5", says=["no topology file: --env Ant-v5"]),
    "table without its whole name": launching("ant", "--set", "stop.minutes=5", says=['"run.stop"']),
    "flag of others: --logdir": launching("ant", "--logdir", "x", says=["is called --run-dir here"]),
    "a folder as topology": launching("/", says=["is a folder; a .toml file was expected"]),
    "misspelt flag": launching("pendulum", "--chek", says=["--chek", 'did you mean "--check"']),
    "flag of others: --lr": launching("pendulum", "--lr", "1e-3", says=["--set algorithm.learning_rate="]),
    "flag of others: --timesteps": launching("pendulum", "--timesteps=9", says=["--set run.stop.env_steps="]),
    "flag of a key: --seed": launching("pendulum", "--seed", "3", says=["--set run.seed=VALUE"]),
    "--set of an unknown key": launching("pendulum", "--set", "run.sede=2", says=["--set run.sede", "seed"]),
    "--set without a value": launching("pendulum", "--set", "run.seed", says=["expected KEY=VALUE"]),
    "--without of nobody": launching("pendulum", "--without", "samplr", says=["samplr", '"sampler"']),
    "--seeds of a number": launching("pendulum", "--seeds", "two", says=["--seeds", "'two'"]),
    "--seeds without an end": launching("--env", "Pendulum-v1", "--seeds", "3", says=["run.stop.minutes=10"]),
    "run folder that cannot be": launching("pendulum", "--run-dir", "/proc/nowhere", says=["/proc/nowhere"]),
    "resume of nothing": launching("pendulum", "--resume", "no_such_run", says=["no_such_run", "run.json"]),
    "replays larger than memory": launching(
        "ant",
        "--check",
        "--set",
        "algorithm.replay_capacity=900_000_000",
        says=["lower algorithm.replay"],
    ),
    "sequences that are no rollouts": launching(
        *("cartpole_dqn", "--check", "--set", "algorithm.memory_size=8", "--set", "algorithm.batch_size=160"),
        *("--set", "algorithm.sequence_length=32", "--set", "components.sampler.rollout_steps=16"),
        says=["32 is not components.sampler.rollout_steps = 16", "the same number for both"],
    ),
    "unknown command": asking("optins", says=["'optins'", "options"]),
    "options of nothing": asking("options", "sacc", says=["'sacc'", 'did you mean "sac"?']),
    "eval of nothing": asking("eval", "no_such_run", says=["no_such_run: no such run folder"]),
    "runs of nowhere": asking("runs", "no_such_folder", says=["no_such_folder: no such folder"]),
    "compare of no run": asking("compare", ".", says=["no run's folder"]),
}
#: Tried once more as a user types them: programs with their own imports, terminal and exit codes.
TYPED = ("old step of 4 values", "misspelt flag")


def written(folder, case):
    """The case's topology in a folder of its own; returns the command's arguments."""
    folder.mkdir()
    if case.topology is None:
        return list(case.arguments)
    (folder / "bad.toml").write_text(case.topology)
    return ["bad.toml", *case.arguments]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of every mistake: its folder, the exit code of the command's ``main``, and what it printed."""
    folder, found = tmp_path_factory.mktemp("mistakes"), {}
    prepare(lambda _: None)  # said once on a machine, whatever comes after
    for number, (name, case) in enumerate(MISTAKES.items()):
        place = folder / str(number)
        found[name] = place, *said_in(place, *written(place, case), main=case.main)
    return found


def without_waits(out):
    """What was printed but for the lines about an environment that takes seconds to make, as beside other
    programs any may.
    """
    return "".join(line for line in out.splitlines(True) if " is tried before the run; " not in line)


def check(case, place, code, out, err):
    """Exit code 2, one line that says what and where, nothing else said, nothing written."""
    assert code == 2, err
    assert without_waits(out) == ""
    assert "Traceback" not in err
    *head, line = err.strip().splitlines()
    assert len(head) <= 1, err
    assert not head or head[0].endswith(": 1 mistake"), err
    for fragment in case.says:
        assert fragment in line, err
    assert {path.name for path in place.iterdir()} <= {"bad.toml"}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_line(outcomes, name):
    """Whatever the mistake; at its place, with what was expected."""
    check(MISTAKES[name], *outcomes[name])


def test_the_same_is_said_to_who_types_it(outcomes, tmp_path):
    """By the real programs, in a second or so of CPU time each."""

    def typed(name):
        case, place = MISTAKES[name], tmp_path / name.replace(" ", "_")
        arguments = written(place, case)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (tmp_path / f"{name}.out").open("w") as out, (tmp_path / f"{name}.err").open("w") as err:
            command = [*LAUNCH, *arguments]
            process = subprocess.Popen(command, cwd=place, env=environment, stdout=out, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said = [(tmp_path / f"{name}.{stream}").read_text() for stream in ("out", "err")]
        return (case, place, process.returncode, *said), usage.ru_utime + usage.ru_stime

    with ThreadPoolExecutor(2) as pool:
        for name, (outcome, cpu_s) in zip(TYPED, pool.map(typed, TYPED), strict=True):
            check(*outcome)
            assert outcome[4] == outcomes[name][3]
            assert cpu_s < 4 * slowness()


def test_all_mistakes_of_a_topology_are_said_at_once(tmp_path):
    """A line each."""
    text = '[run]\nenv = "Pendulm-v1"\nsede = 1\n[balance]\nreplay_ratio = 0\n[components.samplr]\n'
    (tmp_path / "bad.toml").write_text(text)
    code, _, err = said_in(tmp_path, "bad.toml")
    assert code == 2
    head, *lines = err.strip().splitlines()
    assert head.endswith("bad.toml: 4 mistakes")
    for word in ("Pendulm-v1", "sede", "replay_ratio", "samplr"):
        assert sum(word in line for line in lines) == 1, err


@pytest.mark.thorough
def test_an_environment_that_fails_later_ends_the_run_with_its_line_last(tmp_path):
    """Exit code 1: after the trial, after ten failures that were tolerated; file and line of the user's."""
    command = [*LAUNCH, "--env", f"{OWN}:FailsLater", "--set", "components.sampler.max_restarts=0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    # whichever stepped it so far first
    assert re.match(rf"the first failure was (sampler|evaluator)-0: {OWN}:FailsLater: ", line)
    assert "raised in step: OSError: the arm is not plugged in [" in line
    assert "mistaken_environments.py:" in line


def test_a_run_folder_in_use_is_not_touched(tmp_path):
    """Nothing that the user had is lost."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "policy.safetensors").write_bytes(b"precious")
    code, _, err = said_in(tmp_path, "pendulum", "--run-dir", "old")
    assert code == 2
    assert "--resume" in err
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["policy.safetensors"]


def test_check_and_graph_start_nothing(tmp_path):
    """--check says that all is well, and what would be run; --graph names every process and channel."""

    def said(flag):
        code, out, err = said_in(tmp_path, "ant", flag)
        assert (code, err) == (0, "")
        return without_waits(out)

    head, *rows = said("--check").splitlines()
    assert head == "ant: nothing to mend"
    rows = dict(row.split(maxsplit=1) for row in rows)
    assert rows["environment"].startswith(
        "Ant-v5: observations [105] float32, actions [8] numbers, at most 1"
    )
    assert rows["ends"] == "at return 4,000 or minutes 45"
    assert "1 critic_learner, 1 actor_learner" in rows["processes"]
    assert rows["replay"].endswith("together 1.3 GB when full")
    drawn = said("--graph")
    for word in (
        "sampler",
        "critic_learner",
        "actor_learner",
        "evaluator",
        "broker",
        "experience.critic_learner",
    ):
        assert word in drawn
    assert list(tmp_path.iterdir()) == []
