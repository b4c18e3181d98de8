"""Bad topologies as their writers meet them: a clear line for each mistake, exit code 2, nothing started."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.conftest import LAUNCH

ROOT = Path(__file__).parents[2]
GOOD = '[run]\nenv = "Pendulum-v1"\n'

#: What is wrong -> the topology (or the arguments), and what the error must say, a mistake a fragment.
BAD = {
    "unknown key": (GOOD + "sede = 1\n", ["sede", "seed"]),
    "wrong type": (GOOD + 'seed = "one"\n', ["seed", "whole number"]),
    "unknown environment": ('[run]\nenv = "Pendulm-v1"\n', ["Pendulm-v1", "Pendulum-v1"]),
    "old environment": ('[run]\nenv = "HalfCheetah-v3"\n', ["HalfCheetah-v3", "HalfCheetah-v5"]),
    "missing module": ('[run]\nenv = "no_such_pkg.arm:Reach-v0"\n', ["no_such_pkg"]),
    "unknown environment keyword": (GOOD + "env_kwargs = { gravity = 1.0 }\n", ["gravity"]),
    "observations that no policy takes": (
        '[run]\nenv = "tests.unit.envs.own_environments:sequence"\n',
        ["observations are a Sequence", "TransformObservation"],
    ),
    "misspelt parameter": (
        '[run]\nenv = "Hopper-v5"\n[run.randomize]\nbody_mas = [0.8, 1.2]\ngeom_friction.flor = [0.5, 1.5]\n',
        ["body_mass", "floor"],
    ),
    "no environment": ("[run]\nseed = 1\n", ["run.env"]),
    "unknown algorithm": (GOOD + 'algorithm = "sacc"\n', ["sacc", "sac"]),
    "unknown algorithm option": (
        GOOD + "[algorithm]\nlearnin_rate = 1e-3\n",
        ["learnin_rate", "learning_rate"],
    ),
    "option out of range": (GOOD + "[algorithm]\ngamma = 1.5\n", ["gamma", "1"]),
    "unknown component": (GOOD + "[components.samplr]\ncount = 2\n", ["samplr", "sampler"]),
    "unknown program": (GOOD + '[components.sampler]\nuse = "sampler_cp"\n', ["sampler_cp", "sampler"]),
    "count range reversed": (GOOD + "[components.sampler]\ncount = [4, 1]\n", ["count", "4", "1"]),
    "count of zero": (GOOD + "[components.sampler]\ncount = 0\n", ["count"]),
    "two actor-learners": (GOOD + "[components.actor_learner]\ncount = 2\n", ["actor_learner", "count"]),
    "absent GPU": (GOOD + '[components.critic_learner]\ndevice = "cuda:7"\n', ["cuda:7", "cpu"]),
    "two binders": (
        GOOD + '[channels.policy]\nendpoint = "tcp://127.0.0.1:5599"\n'
        '[channels.critic]\nendpoint = "tcp://127.0.0.1:5599"\n',
        ["channels.", "tcp://127.0.0.1:5599"],
    ),
    "endpoint beyond this machine": (
        GOOD + '[channels.policy]\nendpoint = "tcp://0.0.0.0:5599"\n',
        ["0.0.0.0", "CURVE"],
    ),
    "endpoint too long": (GOOD + f'[channels.policy]\nendpoint = "ipc:///tmp/{"x" * 120}"\n', ["107"]),
    "not TOML": ("[run\nenv = 1\n", ["line 1"]),
    "negative ratio": (GOOD + "[balance]\nreplay_ratio = -8\n", ["replay_ratio"]),
    "discrete actions for SAC": ('[run]\nenv = "CartPole-v1"\nalgorithm = "sac"\n', ["discrete", "box"]),
    "stop that never can be": (GOOD + "stop = { minuts = 5 }\n", ["minuts", "minutes"]),
    "many at once": (
        '[run]\nenv = "Pendulm-v1"\nsede = 1\n[balance]\nreplay_ratio = 0\n[components.samplr]\n',
        ["Pendulm-v1", "sede", "replay_ratio", "samplr"],
    ),
}


def check(folder, text):
    """Launch the topology for real; returns exit code, what was said, and seconds of CPU time."""
    folder.mkdir()
    (folder / "bad.toml").write_text(text)
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([*LAUNCH, "bad.toml"], cwd=folder, env=environment, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    said = (folder / "out").read_text(), (folder / "err").read_text()
    return process.returncode, *said, usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """All of them, two at a time."""
    folder = tmp_path_factory.mktemp("bad")
    with ThreadPoolExecutor(2) as pool:
        jobs = {name: pool.submit(check, folder / str(i), BAD[name][0]) for i, name in enumerate(BAD)}
        return folder, {name: job.result() for name, job in jobs.items()}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_topology_is_refused_with_what_is_wrong(outcomes, name):
    """Exit code 2, each mistake on one line, no traceback, nothing on disk, a second or so of CPU time."""
    folder, results = outcomes
    code, out, err, cpu_s = results[name]
    assert code == 2, err
    assert "Traceback" not in err
    assert out == ""
    for fragment in BAD[name][1]:
        assert fragment in err, err
    lines = err.strip().splitlines()
    assert len(lines) <= 1 + max(1, len(BAD[name][1])), err
    assert cpu_s < 4
    assert not (folder / str(list(BAD).index(name)) / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["no_such_topology.toml"], ["no_such_topology.toml"]),
        (["halfcheeta"], ["halfcheeta", "halfcheetah"]),
        (["/"], ["/"]),
        (["pendulum", "--set", "run.sede=2"], ["run.sede", "seed"]),
        (["pendulum", "--set", "nonsense"], ["nonsense"]),
        (["pendulum", "--without", "samplr"], ["samplr", "sampler"]),
        (["pendulum", "--run-dir", "/proc/nowhere"], ["/proc/nowhere", "--run-dir"]),
    ],
)
def test_bad_arguments_are_refused_alike(tmp_path, arguments, fragments):
    """Where the mistake is on the command line."""
    done = subprocess.run(
        [*LAUNCH, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for fragment in fragments:
        assert fragment in done.stderr


def test_a_run_folder_in_use_is_not_touched(tmp_path):
    """Nothing that the user had is lost."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "policy.safetensors").write_bytes(b"precious")
    done = subprocess.run(
        [*LAUNCH, "pendulum", "--run-dir", "old"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["policy.safetensors"]


def test_check_and_graph_start_nothing(tmp_path):
    """--check says that all is well, and what would be run; --graph names every process and channel."""
    checked = subprocess.run(
        [*LAUNCH, "ant", "--check"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    said, *rows = checked.stdout.splitlines()
    assert said == "ant: nothing to mend"
    rows = dict(row.split(maxsplit=1) for row in rows)
    assert rows["environment"].startswith(
        "Ant-v5: observations [105] float32, actions [8] numbers, at most 1000"
    )
    assert rows["ends"] == "at return 4,000 or minutes 45"
    assert "1 critic_learner, 1 actor_learner" in rows["processes"]
    assert rows["replay"].endswith("together 1.30 GB when full")
    drawn = subprocess.run(
        [*LAUNCH, "ant", "--graph"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for word in (
        "sampler",
        "critic_learner",
        "actor_learner",
        "evaluator",
        "broker",
        "experience.critic_learner",
    ):
        assert word in drawn.stdout
    assert list(tmp_path.iterdir()) == []
