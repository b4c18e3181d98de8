"""What the system learns of an environment before it is run, and how it refuses what cannot be."""

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.engines import ENGINES
from spreeze_zmq.envs.source import EnvironmentSource
from tests.unit.envs.mistaken_environments import Right

OWN = "tests.unit.envs.own_environments"
#: Names of arguments of an environment that are names of ours, too.
NAMES = ("env_id", "num_envs", "backend", "seed", "num_workers", "randomize", "on_tick", "env_kwargs")


class Namesake(Right):
    """Takes arguments of such names; its reward is how many have come."""

    def __init__(self, **given):
        super().__init__()
        self.given = [name for name, value in given.items() if value == f"its {name}"]

    def step(self, action):
        """Pay."""
        obs, _, *others = super().step(action)
        return obs, float(len(self.given)), *others


def test_importing_the_engine_imports_no_simulator():
    """Launcher and learners need the spec alone."""
    code = (
        "import sys, spreeze_zmq.envs;"
        "print([m for m in ('gymnasium', 'mujoco', 'torch', 'zmq') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_native_environment_imports_no_torch_and_no_renderer():
    """A sampler starts fast and stays small."""
    code = (
        "import sys; from spreeze_zmq import envs; envs.make('HalfCheetah-v5', 2).reset();"
        "print([m for m in ('torch', 'imageio', 'gymnasium.envs.mujoco') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_probe_reads_a_box_environment():
    """Observations are cast to float32 in rollouts; bounds are float32."""
    spec = envs.probe("HalfCheetah-v5", {"frame_skip": 4})
    assert (spec.obs_shape, spec.obs_dtype, spec.max_episode_steps) == ((17,), "float32", 1000)
    assert (spec.action_kind, spec.action_shape) == ("box", (6,))
    with pytest.raises(InvalidEnvironment, match=r"num_actions is for discrete .* this environment's is box"):
        _ = spec.num_actions
    assert spec.action_low.dtype == np.float32
    assert spec.action_high.tolist() == [1.0] * 6
    assert spec.kwargs == {"frame_skip": 4}


def test_probe_reads_a_discrete_environment():
    """Two actions, no bounds."""
    spec = envs.probe("CartPole-v1")
    assert (spec.action_kind, spec.num_actions, spec.action_shape) == ("discrete", 2, ())
    assert spec.action_sizes == (2,)
    assert not spec.has_bounds


def test_probe_reads_several_discrete_actions():
    """One entry of ``action_sizes`` for each action."""
    spec = envs.probe(f"{OWN}:several_actions")
    assert (spec.action_kind, spec.action_shape, spec.action_sizes) == ("multi_discrete", (2,), (3, 4))
    with pytest.raises(InvalidEnvironment, match="this environment's is multi_discrete"):
        _ = spec.num_actions


def test_an_unbounded_box_has_no_bounds():
    """Its shape alone is known."""
    spec = envs.probe(f"{OWN}:unbounded")
    assert (spec.action_kind, spec.action_shape, spec.action_low, spec.action_high) == (
        "box",
        (1,),
        None,
        None,
    )
    assert not spec.has_bounds


@pytest.mark.parametrize(
    "env_id", ["Ant-v5", "CartPole-v1", f"{OWN}:OwnCount-v0", f"{OWN}:several_actions", f"{OWN}:unbounded"]
)
def test_a_spec_survives_json(env_id):
    """The plan of a run holds it."""
    spec = envs.probe(env_id)
    again = EnvironmentSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.to_dict() == spec.to_dict()


def test_what_a_newer_release_says_of_an_environment_is_passed_over():
    """In run.json, policy files and recordings alike."""
    spec = envs.probe("CartPole-v1")
    assert EnvironmentSpec.from_dict({**spec.to_dict(), "reward_range": [0.0, 1.0]}) == spec


@pytest.mark.parametrize("env_id", [f"{OWN}:short", f"{OWN}:OwnShort-v0"])
@pytest.mark.parametrize("limit", [4, 3, 6])
def test_a_time_limit_that_is_given_holds_also_above_one_inside(env_id, limit):
    """What the spec says is where episodes are cut; without another one after four steps."""
    kwargs = {} if limit == 4 else {"max_episode_steps": limit}
    assert envs.probe(env_id, kwargs).max_episode_steps == limit
    env = envs.make(env_id, 1, **kwargs)
    env.reset()
    cut = [env.step(np.zeros((1, 1)))[3][0] for _ in range(2 * limit)]
    assert np.flatnonzero(cut).tolist() == [limit - 1, 2 * limit - 1]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "limit"),
    [
        (f"{OWN}:OwnCount-v0", {"length": 9}, 2),
        (f"{OWN}:Count", {"length": 9}, None),
        (f"{OWN}:count", {"length": 9, "max_episode_steps": 5}, 5),
        ("HalfCheetah", {}, 1000),
        ("Pendulum-v1", {"max_episode_steps": 17}, 17),
    ],
)
def test_own_environments_are_found_by_name(env_id, kwargs, limit):
    """By a registered id or a callable of a module, with arguments and time limit."""
    assert envs.probe(env_id, kwargs).max_episode_steps == limit
    env = envs.make(env_id, 2, **kwargs)
    env.reset()
    action = env.action_space.sample() * 0
    steps = next(step for step in range(1, 2000) if env.step(action)[3:][0].any() or step == 40)
    assert steps == (limit if limit and limit < 40 else 40)


def test_a_module_in_the_current_directory_is_found(tmp_path):
    """Where the user stands, without an installation."""
    (tmp_path / "my_tasks.py").write_text(
        "from gymnasium.envs.classic_control import PendulumEnv\ndef reach(g):\n    return PendulumEnv(g=g)\n"
    )
    code = "from spreeze_zmq import envs; print(envs.probe('my_tasks:reach', {'g': 2.0}).obs_shape)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "(3,)", done.stderr


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("HalfCheeta-v5", {}, "did you mean 'HalfCheetah-v5'"),
        ("HalfCheetah-v9", {}, "did you mean 'HalfCheetah-v5'"),
        ("HalfCheetah-v2", {}, r"\(use HalfCheetah-v5\)"),
        ("Qwertyuiop-v0", {}, "no such environment is registered .*of another package is named 'module:id'"),
        (f"{OWN}:BatchAlone-v0", {}, "registered as a batch of environments alone"),
        ("", {}, "a name is expected|an environment's name"),
        ("HalfCheetah-v5", {"reset_noise": 1}, "no argument 'reset_noise' .did you mean 'reset_noise_scale'"),
        ("Pendulum-v1", {"gravity": 1}, "no argument 'gravity'; it takes g, max_episode_steps"),
        ("Acrobot-v1", {"gravity": 1}, "no argument 'gravity'; it takes max_episode_steps, render_mode"),
        ("Hopper-v5", {"xml_file": "hoper.xml"}, "no model file 'hoper.xml' .searched"),
        ("Pendulum-v1", {"seed": 1}, "no argument 'seed'; it takes g, max_episode_steps"),
        ("Hopper-v5", {"backend": "mjx"}, "no argument 'backend'; it takes "),
        ("nowhere.to_be:found", {}, "no module 'nowhere'.*current directory"),
        (f"{OWN}:Cuont", {}, "did you mean 'Count'"),
        (f"{OWN}:OwnCount-v1", {}, "did you mean 'OwnCount-v0'"),
        (f"{OWN}:NOT_CALLABLE", {}, "is a int, not a callable"),
        (f"{OWN}:nothing", {}, "returned a builtins.int, not a gymnasium.Env"),
        (f"{OWN}:Count", {"lenght": 2}, "no argument 'lenght' .did you mean 'length'"),
        (f"{OWN}:matrix_actions", {}, r"shape \(2, 2\)"),
        (f"{OWN}:dictionary_actions", {}, "actions are Dict.*TransformAction"),
        (f"{OWN}:sequence", {}, "observations are a Sequence.*TransformObservation"),
        (f"{OWN}:Misspelt", {}, "MuJoCo cannot compile its mjcf.*worldbodi"),
        (f"{OWN}:Balance", {"nois": 2}, "did you mean 'noise'"),
        *(
            (env_id, {"max_episode_steps": odd}, "max_episode_steps is .*, expected a whole number from 1 on")
            for env_id in ("Pendulum-v1", "Acrobot-v1", f"{OWN}:Count", f"{OWN}:Balance")
            for odd in (200.0, 0, -5, True, "200")
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(env_id, kwargs, says):
    """The message names the environment, the fault and the way out."""
    with pytest.raises(InvalidEnvironment, match=says) as refused:
        envs.probe(env_id, kwargs)
    assert "\n" not in str(refused.value)
    assert env_id in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_envs": 0}, "at least 1"),
        ({"num_envs": 4, "backend": "cuda"}, ", ".join(("one of auto", *ENGINES))),
        ({"num_envs": 4, "backend": "mujoco"}, "runs on numpy"),
        ({"num_envs": 4, "batch_size": 2}, "batch_size is num_envs"),
        ({"num_envs": 4, "num_workers": 5}, "num_workers is from 0 .in this process. to num_envs .4., not 5"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(arguments, says):
    """Before anything is made."""
    with pytest.raises(InvalidEnvironment, match=says):
        envs.make("Pendulum-v1", **arguments)


def test_the_arguments_of_a_registration_are_the_environments():
    """Of a native task too, and what a topology says overrules them."""
    source = EnvironmentSource("Pendulum-v1", replace(gymnasium.registry["Pendulum-v1"], kwargs={"g": 1.6}))
    assert not source.is_gymnasiums_own({})
    task, _ = source.native({})
    assert [source.make_native(task, 1, kwargs, 0, False).task.g for kwargs in ({}, {"g": 3.0})] == [1.6, 3.0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_argument_of_an_environment_may_have_any_name(num_workers):
    """Such as the ``backend`` of a simulator that has several; the look and each process hand it on."""
    kwargs = {name: f"its {name}" for name in NAMES}
    spec = envs.probe(f"{__name__}:Namesake", kwargs)
    assert spec.kwargs == kwargs
    with closing(envs.remade(spec, 2, backend="gymnasium", num_workers=num_workers, seed=3)) as env:
        env.reset()
        assert env.step(env.random_actions())[1].tolist() == [len(NAMES)] * 2


@pytest.mark.parametrize(
    ("env_id", "kwargs", "backend", "reason"),
    [
        ("HalfCheetah-v5", {}, "mujoco", "HalfCheetah is a native task"),
        ("CartPole-v1", {}, "numpy", "CartPole is a native task"),
        (f"{OWN}:Count", {}, "gymnasium", "no native task does"),
        ("Pendulum-v1", {"render_mode": "rgb_array"}, "gymnasium", "rendering"),
        ("Pendulum-v1", {"backend": "gymnasium"}, "gymnasium", "asked for"),
    ],
)
def test_auto_says_which_backend_and_why(env_id, kwargs, backend, reason):
    """The fastest that can do it."""
    env = envs.make(env_id, 1, **kwargs)
    assert env.backend == backend
    assert reason in env.backend_reason
