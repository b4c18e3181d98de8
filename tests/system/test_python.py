"""``spreeze_zmq.train`` as people call it: in a script, in a notebook, and with every kind of mistake."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import gymnasium
import numpy as np
import psutil
import pytest

import spreeze_zmq
from spreeze_zmq.base import errors
from tests.system.conftest import LAUNCH, adds_up, reached, thorough_but
from tests.unit.supervisor import lives


@pytest.mark.long("a run trains to its return")
@pytest.mark.timeout(700)
def test_a_run_is_trained_and_evaluated(trained):
    """Its policy acts in Gymnasium's own environment as well as the run says."""
    assert reached(trained.summary, -300)
    assert trained.summary["env"] == "Pendulum-v1"
    assert trained.summary["seed"] == 1
    assert adds_up(trained.summary["samples"])
    saved = float(trained.policy.metadata["mean_return"])
    again = trained.evaluate(seed=int(trained.policy.metadata["evaluation_seed"]))
    assert again.mean_return == pytest.approx(saved, rel=1e-4)
    score = trained.evaluate(episodes=2, seed=7)
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=8)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(trained.policy(obs))
        total, over = total + reward, terminated or truncated
    assert score.returns[1] == pytest.approx(total, rel=1e-3)
    with pytest.raises(errors.InputError, match="episodes is 0, at least 1 is expected"):
        trained.evaluate(episodes=0)


@pytest.mark.timeout(700)
def test_the_folder_of_a_run_is_enough(trained):
    """``Policy.load`` takes it."""
    obs = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(spreeze_zmq.Policy.load(trained.folder)(obs), trained.policy(obs))


SCRIPT = """
    import sys
    import spreeze_zmq
    import my_pole

    print("the script begins", flush=True)
    run = spreeze_zmq.train(
        my_pole.Mine, algorithm="dqn", options={"hidden_sizes": (16,), "learning_starts": 500}, seed=3,
        components={"evaluator": {"episodes": 2}, "sampler": {"count": 1}}, env_kwargs={"length": 90},
        run_dir=sys.argv[1],
    )
    print("ended:", run.summary["exit_reason"], run.policy.version, flush=True)
"""
MODULE = """
    from gymnasium.envs.classic_control import CartPoleEnv
    from gymnasium.wrappers import TimeLimit

    class Mine(TimeLimit):
        def __init__(self, length=100):
            super().__init__(CartPoleEnv(), length)
"""


def until(condition, process, what, deadline_s=150):
    """Wait for a condition while the process lives."""
    until_s = time.monotonic() + deadline_s
    while not condition():
        assert process.poll() is None, f"ended while waiting for {what}"
        assert time.monotonic() < until_s, f"no {what}"
        time.sleep(0.05)


@pytest.mark.long("a script starts a run, which trains")
@pytest.mark.timeout(400)
def test_an_interrupted_script_goes_on_with_its_run(tmp_path):
    """A script without a main guard, an environment of a module beside it, started from elsewhere: Ctrl-C
    ends the run with its last checkpoint, and nothing of it stays.
    """
    beside, folder = tmp_path / "mine", tmp_path / "run"
    beside.mkdir()
    (beside / "script.py").write_text(textwrap.dedent(SCRIPT))
    (beside / "my_pole.py").write_text(textwrap.dedent(MODULE))
    output = tmp_path / "output"
    with output.open("w") as file:
        script = subprocess.Popen(
            [sys.executable, beside / "script.py", folder],
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(
                signal.signal, signal.SIGINT, signal.SIG_DFL
            ),  # the background jobs' is ignored
        )
    children = []
    try:
        until((folder / "policy.safetensors").exists, script, "policy")
        until((folder / "summary.json").exists, script, "summary")  # of another process than the policy
        until(lambda: json.loads((folder / "summary.json").read_text())["critic_updates"], script, "updates")
        children = psutil.Process(script.pid).children(recursive=True)
        script.send_signal(signal.SIGINT)
        assert script.wait(60) == 0, output.read_text()
    finally:
        script.kill()
    said = output.read_text()
    assert said.count("the script begins") == 1
    assert "ended: interrupted by the user" in said
    assert "Traceback" not in said
    assert list((folder / "checkpoints").iterdir())
    plan = json.loads((folder / "run.json").read_text())
    assert (plan["run"]["env"], plan["run"]["env_kwargs"]) == ("my_pole:Mine", {"length": 90})
    assert len(children) > 3
    assert lives.still_running(children, 30) == []


UNGUARDED = """
    import os

    import spreeze_zmq
    {imports}

    with open("imports", "a") as imports:
        imports.write("x")
    if os.path.getsize("imports") > 4:
        os._exit(9)

    class Mine({base}):
        pass

    spreeze_zmq.train({arguments})
"""
ENV, ALGORITHM, CALLBACK = (
    ("from gymnasium.envs.classic_control import CartPoleEnv", "CartPoleEnv"),
    ("from spreeze_zmq.algorithms.dqn import DQN", "DQN"),
    ("", "spreeze_zmq.Callback"),
)
#: What is the script's own, the arguments of its call, and what is started.
OF_ITSELF = {
    "environment": (ENV, "'my_script:Mine'", "my_script.py"),
    "algorithm": (ALGORITHM, "'CartPole-v1', algorithm='my_script:Mine'", "my_script.py"),
    "callback": (CALLBACK, "'CartPole-v1', callbacks=['my_script:Mine']", "my_script.py"),
    "environment of a command": (ENV, "'my_script:Mine'", *LAUNCH[1:], "--env=my_script:Mine"),
    "callback of a command": (
        CALLBACK,
        "'CartPole-v1'",
        *LAUNCH[1:],
        "cartpole",
        "--callback=my_script:Mine",
    ),
}


#: By whom a script is imported: its own process, a launcher, and the fork that looks at an environment.
IMPORTED = ("callback", "algorithm", "environment of a command")


@pytest.mark.parametrize("named", thorough_but(*IMPORTED, of=OF_ITSELF))
def test_a_script_that_a_run_imports_begins_no_run_there(named, tmp_path):
    """One that names itself, or that a command names: launchers without end would follow one another."""
    (imports, base), arguments, *words = OF_ITSELF[named]
    script = textwrap.dedent(UNGUARDED).format(imports=imports, base=base, arguments=arguments)
    (tmp_path / "my_script.py").write_text(script)
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60
    )
    assert 'put the call under if __name__ == "__main__"' in done.stderr
    assert done.returncode == (1 if words == ["my_script.py"] else 2)
    assert (tmp_path / "imports").stat().st_size <= 3
    assert not (tmp_path / "runs").exists()


@pytest.mark.timeout(180)
def test_a_killed_script_takes_its_run_along(tmp_path):
    """SIGKILL, which no handler sees."""
    folder = str(tmp_path / "run")
    code = f"import spreeze_zmq; spreeze_zmq.train('CartPole-v1', algorithm='dqn', run_dir={folder!r})"
    with (tmp_path / "output").open("w") as file:
        script = subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=subprocess.STDOUT)
    try:
        until(lambda: len(psutil.Process(script.pid).children(recursive=True)) > 3, script, "processes")
        children = psutil.Process(script.pid).children(recursive=True)
    finally:
        script.kill()
        script.wait()
    lives.until(lambda: all(lives.gone(child.pid) for child in children), "their end", 60.0)


@pytest.mark.long("a kernel starts and trains")
@pytest.mark.timeout(240)
def test_a_notebook_trains_and_shows_it(tmp_path):
    """In a real kernel: notes are printed, the figures are replaced, and the kernel goes on."""
    import nbclient  # no other test needs them
    import nbformat

    code = """
        import spreeze_zmq
        run = spreeze_zmq.train(
            "CartPole-v1", algorithm="dqn", stop={"env_steps": 3000}, options={"hidden_sizes": [16]},
            components={"sampler": {"count": 1}}, run_dir="run")
    """
    then = "print(run.summary['env_steps'], run.policy([1.0, 0.0, 0.0, 0.0]) in (0, 1))"
    wrong = "spreeze_zmq.train('Pendulum-v1', stop={'returns': 1})"
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(text)) for text in (code, then, wrong)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
        allow_errors=True,
    )
    client.create_kernel_manager().kernel_cmd = [
        *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")
    ]
    client.execute()
    trained, used, refused = (cell.outputs for cell in cells)
    figures = [output for output in trained if output.output_type == "display_data"]
    assert len(figures) == 1, trained
    assert "env_steps=" in figures[0].data["text/plain"]
    printed = "".join(output.text for output in trained if output.output_type == "stream")
    assert "env_steps" in printed
    assert "--resume run" in printed  # the next steps
    assert used[0].text.endswith("True\n")
    assert int(used[0].text.split()[0]) >= 3000
    assert refused[0].ename == "InputError"
    assert "returns: unknown key" in refused[0].evalue
    assert "return" in refused[0].evalue


MISTAKES = {
    "no environment": ({"env": None}, "expected an environment, as in train"),
    "registered here": ({"env": "OnlyHere-v0"}, "register it in a module and name that too"),
    "an instance": (
        {"env": gymnasium.make("CartPole-v1")},
        "expected an environment's id, class or function",
    ),
    "a lambda": ({"env": lambda: gymnasium.make("CartPole-v1")}, "top level of a file of its own"),
    "every unfit key": (
        {"options": {"lr": 1}, "balance": {"replay_ratio": "much"}, "learning_rate": 1e-3},
        "algorithm.lr: unknown key",
    ),
    "no plain value": (
        {"options": {"hidden_sizes": print}},
        "train: algorithm.hidden_sizes: expected a number",
    ),
    "nothing for an argument": (
        {"env_kwargs": {"goal": {"limit": None}}},
        "train: run.env_kwargs.goal.limit: expected a number, a text, a list or a table, got None",
    ),
    "a number for a key": (
        {"env_kwargs": {"weights": [{1: 0.5}]}},
        'train: run.env_kwargs.weights: expected keys that are texts, such as "1", got 1',
    ),
    "a number for a name": ({"env_kwargs": {2: 1}}, "train: run.env_kwargs: expected keys that are texts"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_an_exception_that_says_how_to_mend_it(case, tmp_path, capfd, request):
    """Of the errors' tree, and nothing else is printed."""
    arguments, message = MISTAKES[case]
    gymnasium.register("OnlyHere-v0", "tests.system.test_python:no_environment")
    request.addfinalizer(lambda: gymnasium.registry.pop("OnlyHere-v0"))
    arguments = {"env": "Pendulum-v1", "algorithm": "sac", "run_dir": tmp_path / "run", **arguments}
    with pytest.raises(errors.InputError) as raised:
        spreeze_zmq.train(**arguments)
    assert message in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert capfd.readouterr() == ("", "")
    assert not os.path.exists(tmp_path / "run")
