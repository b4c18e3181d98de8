"""Good topologies: found by path or name, overridden, completed with every default."""

import os
import resource
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.advice import advice
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.roles import LEARNERS, channels_of, roles_of
from spreeze_zmq.plan.topology import load
from spreeze_zmq.plan.topology.document import shipped_topologies
from tests.pace import slowness

#: dual_gpu names two GPUs; on a machine without them its devices are overridden.
ON_CPU = ["components.actor_learner.device=cpu", "components.critic_learner.device=cpu"]


@pytest.fixture
def topology(tmp_path):
    """Writes a topology and gives its path."""

    def write(text):
        path = tmp_path / "own.toml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.mark.parametrize("count", ["auto", 1, [1, 1]])
def test_the_critic_learner_takes_every_way_to_write_one(count):
    """None of them is a mistake, so none may end in a traceback."""
    plan = load({"run": {"env": "Pendulum-v1"}, "components": {"critic_learner": {"count": count}}})
    assert plan.components["critic_learner"].count == Count(1, 1, 1)


def test_the_shipped_topologies_are_those_promised():
    """One for each of the tasks that the documentation names."""
    assert shipped_topologies() == [
        "ant",
        "cartpole",
        "cartpole_dqn",
        "cartpole_pqn",
        "dual_gpu",
        "halfcheetah",
        "halfcheetah_ppo",
        "halfcheetah_td3",
        "hopper",
        "hopper_ppo",
        "humanoid",
        "pendulum",
        "pong",
        "walker2d",
        "walker2d_td3",
    ]


@pytest.mark.parametrize("name", shipped_topologies())
def test_every_shipped_topology_loads_and_ends_by_itself(name):
    """Each is runnable as it stands and has a time limit."""
    if name == "pong":
        pytest.importorskip("envpool")
    one_learner = name in ("cartpole_dqn", "cartpole_pqn")
    plan = load(name, ON_CPU[1:] if one_learner else ON_CPU)
    assert plan.name == name
    assert (len(plan.learning.learners) == 1) == one_learner
    assert plan.run.stop.minutes
    assert plan.environment.id == plan.run.env


def test_two_words_are_a_whole_topology(topology):
    """An environment's name is enough: every role, channel and option has a default."""
    plan = load(topology('run.env = "Pendulum-v1"'), cores=8)
    assert (plan.run.algorithm, plan.run.seed, plan.name) == ("sac", 0, "own")
    assert tuple(plan.components) == roles_of(LEARNERS)
    assert tuple(plan.channels) == tuple(channels_of(LEARNERS))
    assert plan.algorithm["name"] == "sac"
    assert plan.algorithm["hidden_sizes"] == [256, 256]
    assert plan.balance.max_policy_lag is None
    assert plan.components["sampler"].options == {
        "envs": 16,
        "rollout_steps": 16,
        "backend": "auto",
        "workers": "auto",
        "step_timeout_s": 60.0,
        "max_failures": 10,
    }
    assert plan.components["sampler"].count == Count(initial=6, minimum=1, maximum=8)
    assert plan.channels["experience.actor_learner"].fields == ("obs",)
    assert plan.channels["policy"].connects == ("critic_learner", "evaluator", "sampler", "visualizer")
    assert plan.channels["policy"].endpoint is None


def test_a_shipped_component_is_started_by_this_interpreter():
    """``python`` in a component.toml means the interpreter that has the package."""
    component = load("pendulum").components["sampler"]
    assert component.command == (sys.executable, component.folder)
    assert Path(component.folder, "component.toml").is_file()
    assert component.launched


@pytest.mark.parametrize("source", ["pendulum", "pendulum.toml", "launch/pendulum.toml"])
def test_a_shipped_topology_is_found_from_anywhere(source, tmp_path, monkeypatch):
    """Its name is enough, and so is its path in the repository."""
    monkeypatch.chdir(tmp_path)
    assert load(source).run.env == "Pendulum-v1"


def test_a_file_comes_before_a_shipped_name(topology, monkeypatch):
    """A user's own pendulum.toml comes before the shipped one."""
    own = topology('run.env = "Pendulum-v1"\nrun.seed = 77')
    monkeypatch.chdir(own.parent)
    own.rename("pendulum.toml")
    assert load("pendulum.toml").run.seed == 77


def test_a_folder_of_a_shipped_name_does_not_hide_it(tmp_path, monkeypatch):
    """``runs/pendulum`` and the like are common."""
    (tmp_path / "pendulum").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("pendulum").run.env == "Pendulum-v1"


@pytest.mark.parametrize(
    ("override", "read", "expected"),
    [
        ("run.seed=2", lambda plan: plan.run.seed, 2),
        ("run.seed = 2", lambda plan: plan.run.seed, 2),
        ("run.stop.minutes=2.5", lambda plan: plan.run.stop.minutes, 2.5),
        ("run.stop.return=-150", lambda plan: plan.run.stop.mean_return, -150.0),
        ("run.stop.trained_transitions=5_000_000", lambda plan: plan.run.stop.trained_transitions, 5_000_000),
        (
            "run.stop={ env_steps = 1_000 }",
            lambda plan: (plan.run.stop.env_steps, plan.run.stop.minutes),
            (1000, None),
        ),
        ("run.env=InvertedPendulum-v5", lambda plan: plan.environment.obs_shape, (4,)),
        ('run.env="InvertedPendulum-v5"', lambda plan: plan.environment.obs_shape, (4,)),
        ("run.env_kwargs.g=9.0", lambda plan: plan.environment.kwargs, {"g": 9.0}),
        ("run.save_replay=true", lambda plan: plan.run.save_replay, True),
        ("run.name=my-run.2", lambda plan: plan.name, "my-run.2"),
        ("components.sampler.count=4", lambda plan: plan.components["sampler"].count, Count(4, 4, 4)),
        ("components.sampler.count=[2, 3]", lambda plan: plan.components["sampler"].count, Count(3, 2, 3)),
        ("components.sampler.count=auto", lambda plan: plan.components["sampler"].count, Count(6, 1, 8)),
        ("components.sampler.stop_grace_s=500 ms", lambda plan: plan.components["sampler"].stop_grace_s, 0.5),
        (
            "components.broker.restart_window_s=2 min",
            lambda plan: plan.components["broker"].restart_window_s,
            120.0,
        ),
        ("components.actor_learner.threads=3", lambda plan: plan.components["actor_learner"].threads, 3),
        ("algorithm.hidden_sizes=[32, 32]", lambda plan: plan.algorithm["hidden_sizes"], [32, 32]),
        ("run.stop.return=none", lambda plan: plan.run.stop.mean_return, None),
        ("algorithm.target_entropy=-2", lambda plan: plan.algorithm["target_entropy"], -2.0),
        ("algorithm.target_entropy=auto", lambda plan: plan.algorithm["target_entropy"], "auto"),
        ("balance.max_policy_lag=20", lambda plan: plan.balance.max_policy_lag, 20),
        ("balance.max_policy_lag=none", lambda plan: plan.balance.max_policy_lag, None),
        (
            "channels.experience.critic_learner.high_water_mark=5",
            lambda plan: plan.channels["experience.critic_learner"].high_water_mark,
            5,
        ),
        (
            'channels."experience.critic_learner".endpoint=tcp://127.0.0.1:5555',
            lambda plan: plan.channels["experience.critic_learner"].endpoint,
            "tcp://127.0.0.1:5555",
        ),
    ],
)
def test_an_override_is_typed_as_in_the_file(override, read, expected):
    """Numbers, lists and tables are TOML; a bare word is a text, and the value takes effect."""
    value = read(load("pendulum", [override], cores=8))
    assert value == expected
    assert type(value) is type(expected)


def test_the_last_override_wins():
    """As on every command line."""
    assert load("pendulum", ["run.seed=2", "run.seed=3"]).run.seed == 3


def test_without_leaves_the_place_free():
    """The role stays in the plan, with its channels; only nobody starts it."""
    plan = load("pendulum", without=["sampler", "evaluator"])
    assert [role for role, component in plan.components.items() if not component.launched] == [
        "evaluator",
        "sampler",
    ]
    assert "sampler" in plan.channels["policy"].connects


def test_an_environment_of_ones_own_is_made_once_with_its_arguments(topology, tmp_path, monkeypatch):
    """``module:callable`` with keyword arguments, as a user has it beside the topology."""
    (tmp_path / "own_module_of_load.py").write_text(
        textwrap.dedent(
            """
            import gymnasium
            def reach(size, scale=1.0):
                with open("made", "a") as file:
                    file.write(f"{size} {scale};")
                env = gymnasium.make("Pendulum-v1")
                return env
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = topology('run = { env = "own_module_of_load:reach", env_kwargs = { size = 3, scale = 0.5 } }')
    plan = load(path)
    assert plan.run.env_kwargs == {"size": 3, "scale": 0.5}
    assert (tmp_path / "made").read_text() == "3 0.5;"
    assert "own_module_of_load" not in sys.modules  # a process of its own has imported it


def test_checking_is_quick_and_needs_no_torch():
    """A whole ``load`` of a MuJoCo task in a fresh interpreter, start included: two seconds of CPU time."""
    code = "import sys; from spreeze_zmq.plan import topology; topology.load('ant'); "
    code += "print('torch' in sys.modules)"
    before_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
    assert sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before_s < 2.0 * slowness()


def test_the_plan_does_not_share_defaults():
    """Two plans of one process are apart: what one's reader changes, the other does not see."""
    first, second = load("pendulum"), load("pendulum")
    first.run.env_kwargs["g"] = 1.0
    first.components["sampler"].options["envs"] = 99
    assert second.run.env_kwargs == {}
    assert second.components["sampler"].options["envs"] == 16


def test_every_mistake_is_the_users():
    """A command ends with exit code 2 on any of them."""
    with pytest.raises(InputError) as caught:
        load(os.devnull)
    assert caught.value.exit_code == 2


def test_a_batch_beyond_the_replay_is_refused():
    """It would hold each transition many times; "auto" keeps below the capacity by itself."""
    tables = {"run": {"env": "Pendulum-v1"}, "algorithm": {"replay_capacity": 1_000, "batch_size": 2_000}}
    wanted = r"algorithm\.batch_size: 2000 exceeds replay_capacity = 1000 \(lower it, or raise"
    with pytest.raises(InputError, match=wanted):
        load(tables)
    assert load(tables, ["algorithm.batch_size=auto"])
    assert load(tables, ["algorithm.batch_size=1000"])


@pytest.mark.parametrize(
    ("make_s", "overrides", "expected"),
    [
        (0.1, [], 30.0),
        (33.0, [], 129.0),
        (33.0, ["components.sampler.start_timeout_s=40"], 40.0),
        (33.0, ["components.sampler.start_timeout_s=7 min"], 420.0),
    ],
)
def test_a_process_has_the_time_that_making_its_environments_takes(make_s, overrides, expected):
    """From what one took before the run, unless the topology says; a look waits as long too."""
    waits = []

    def look(env_id, env_kwargs, randomize, *, wait_s):
        waits.append(wait_s)
        found = envs.look(env_id, env_kwargs, randomize)
        return replace(found, timing=replace(found.timing, make_s=make_s, first_call_s=0.0, reset_s=0.0))

    plan = load("pendulum", overrides, look=look)
    assert plan.components["sampler"].start_timeout_s == expected
    assert plan.components["evaluator"].start_timeout_s == (129.0 if make_s > 1 else 30.0)
    assert waits == [max(300.0, expected if overrides else 0.0)]
    assert plan.timing["make_s"] == make_s
    assert ("start_timeout_s" in " ".join(advice(plan, None))) == (expected == 40.0)
