"""What the scores that a search or a comparison puts beside each other are returns of."""

import re
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.commands.compare import improvements
from spreeze_zmq.commands.setting import Setting
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology
from spreeze_zmq.run.curves import AXES, Curve
from spreeze_zmq.run.history import read_run

LONGER = "--set=components.evaluator.episode_steps=100"
CRANE = """
[run]
env = "crane"
obs_shape = [3]
action_sizes = [4]

[components.sampler]
use = "./mine"
count = 1
"""
SAMPLER = """
role = "sampler"
command = ["true"]
options.envs = { type = "int", default = 16, help = "a number" }
options.rollout_steps = { type = "int", default = 16, help = "a number" }
"""


def searched(words, folder, capsys):
    """Exit code, lines and error of a search, which has no folder where it would begin."""
    pytest.importorskip("optuna")
    (folder / "taken").touch()
    code = main(["search", *words, "--study", str(folder / "taken")])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["pendulum", '--over=run.env="Pendulum-v1","MountainCarContinuous-v0"'],
            r'at "MountainCarContinuous-v0": returns of MountainCarContinuous-v0 do not compare with',
        ),
        (
            ["pendulum", "--over=run.env_kwargs.max_episode_steps=50,200"],
            "at 50: returns of episodes of 50 steps do not compare with those of 200, .* --set components.",
        ),
        (
            ["pendulum", "--over=components.evaluator.episode_steps=20..300"],
            r"at 20: returns of episodes of 20 steps .* components\.evaluator\.episode_steps=20",
        ),
        (
            ["crane.toml", "--over=algorithm.gamma=0.9,0.99"],
            r"no Python program makes crane, .* name one of yours, components\.evaluator\.use",
        ),
    ],
    ids=["environments", "its own length", "the evaluator's", "none"],
)
def test_a_search_whose_scores_do_not_compare_begins_nothing(words, why, tmp_path, monkeypatch, capsys):
    """The shortest episodes of an environment that costs would learn best."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "component.toml").write_text(SAMPLER)
    (tmp_path / "crane.toml").write_text(CRANE)
    code, said, error = searched(words, tmp_path, capsys)
    assert (code, "trials:" in said) == (2, False)
    assert re.search(why, error), error


def test_a_search_says_what_it_cannot_know_of_rewards(tmp_path, capsys):
    """An argument of the environment may decide them; a limit that evaluation is below of does not."""
    length, gravity = "run.env_kwargs.max_episode_steps=150,200", "run.env_kwargs.g=1.0..9.8"
    _, said, error = searched(["pendulum", f"--over={length}", f"--over={gravity}", LONGER], tmp_path, capsys)
    line = "run.env_kwargs.g: returns compare only where this changes no reward and no episode's length"
    assert line in said.splitlines()
    assert "--study" in error


def test_no_setting_beats_one_of_other_episodes(tmp_path):
    """A quarter of the steps costs a quarter as much; of other arguments a line says what it assumes.
    Settings that are scored in episodes as long compare, whichever comes first.
    """
    plan = topology.load("pendulum", cores=2)
    groups = []
    short = {"max_episode_steps": 50}
    for name, kwargs, steps in (("a", {}, 200), ("b", short, 50), ("c", {"g": 5.0}, 200), ("d", short, 50)):
        made = replace(
            plan,
            run=replace(plan.run, env_kwargs=kwargs),
            environment=replace(plan.environment, max_episode_steps=steps),
        )
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(made.to_json())
        curve = Curve({axis: np.ones(1) for axis in AXES}, np.array([-float(steps)]))
        groups.append(Setting("Pendulum-v1", name, [read_run(tmp_path / name)] * 2, [curve] * 2))
    assert list(improvements(groups)) == [
        "Pendulum-v1: b does not compare with a: its returns are of episodes of 50 steps, and those of 200",
        "Pendulum-v1: a run of c has a higher best return than one of a with probability 0.50; an interval "
        "takes 5 runs of each; only if run.env_kwargs.g changes no reward",
        "Pendulum-v1: a run of d has a higher best return than one of b with probability 0.50; an interval "
        "takes 5 runs of each",
    ]
