"""Contests of several in turn: who takes part and when, what a run's result holds, what is said of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # where a script finds what lies beside it

import ablated
import cleanrl_peer
import comparisons
import contest
import whole_runs

from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.plan import topology


def asked(monkeypatch, *words):
    """The arguments of a command line, and who takes part."""
    monkeypatch.setattr(sys, "argv", ["contest.py", *words, "--out", "results"])
    return contest.parse()


def result(who="whole", seed=1, returns=(100.0, 500.0), **figures):
    """One run of a minute with an evaluation after each half of it."""
    over = {"wall_s": [30.0, 60.0], "env_steps": [10_000, 30_000], "core_s": [30.0, 60.0]}
    over |= {"trained_transitions": [512_000, 1_536_000]}
    over = {axis: places[: len(returns)] for axis, places in over.items()}
    cost = {
        "wall_s": 60.0,
        "core_s": 90.0,
        "env_steps": 30_000,
        "trained_transitions": 1_536_000,
        "others": 0.01,
    }
    about = {"comparison": "hopper", "who": who, "seed": seed, "env": "Hopper-v5", "best_return": 500.0}
    return {**about, **cost, "over": over, "returns": list(returns), **figures}


@pytest.mark.parametrize("who", [who for who, one in contest.load()["ablation"].items() if not one.plain])
def test_what_an_ablation_overrides_are_options_of_a_topology(who, monkeypatch):
    """So is each of the shipped task's own."""
    monkeypatch.syspath_prepend(str(contest.TABLE.parent))
    topology.load("halfcheetah", contest.load()["ablation"][who].set)


def test_the_ablated_algorithm_is_sac_but_for_its_losses():
    """Whatever else it is, it is not what is measured."""
    own = {name: value for name, value in vars(ablated.Unrecorded).items() if not name.startswith("_")}
    assert {name for name, value in own.items() if value != getattr(SAC, name)} == {
        "critic_loss",
        "policy_loss",
    }
    assert issubclass(ablated.Unrecorded, SAC)


def test_contestants_take_turns_and_another_one_begins_with_each_seed(monkeypatch):
    """Whatever the machine does meanwhile, nobody always comes first; ``--set`` is of ours alone."""
    words = ("peers", "hopper", "--seeds", "7", "8", "--who", "ours", "--who", "sb3", "--set", "a.b=1")
    arguments, contestants = asked(monkeypatch, *words, "--peer", f"sb3={sys.executable}")
    runs = list(contest.wanted(arguments, contestants))
    assert [(run["who"], run["seed"]) for run in runs] == [("ours", 7), ("sb3", 7), ("sb3", 8), ("ours", 8)]
    assert [run["settings"]["set"] for run in runs[:2]] == [["a.b=1"], []]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ablation", "hopper", "--who", "nobody"], "nobody: expected whole, lock-step, unrecorded, torch"),
        (["ablation", "cartpole_dqn"], "cartpole_dqn: all contestants are of SAC"),
        (["untuned", "cartpole_dqn"], "cartpole_dqn: all contestants are of SAC"),
        (["peers", "Swimmer-v5"], "Swimmer-v5: expected pendulum, halfcheetah, hopper"),
        (["peers", "hopper", "--peer", "sb3=/nowhere/python"], "an interpreter that has stable_baselines3"),
    ],
)
def test_a_mistake_is_refused_before_the_first_run(words, said, monkeypatch, capsys):
    """In one line, as any other of a command line."""
    with pytest.raises(SystemExit, match="2"):
        asked(monkeypatch, *words)
    assert said in capsys.readouterr().err


def test_a_peers_command_has_the_task_the_budget_and_its_own_words():
    """CleanRL's in its older version; with our ratio as many updates for a step as the topology makes."""
    entry, peers = comparisons.load()["hopper"], contest.load()["peers"]
    pythons = dict.fromkeys(peers, "python")
    run = {"seed": 3, "stop": {"minutes": 5.0}}
    command = contest.command_of({**run, "who": "sbx"}, peers["sbx"], entry, pythons, [])
    assert command[2:6] == ["SAC", "--package", "sbx", "Hopper-v5"]
    assert command[6:10] == ["--seed", "3", "--minutes", "5.0"]
    who = "sb3, our ratio"
    command = contest.command_of({**run, "who": who}, peers[who], entry, pythons, ["balance.replay_ratio=2"])
    assert json.loads(command[-1]) == {"n_envs": 64, "train_freq": 2, "gradient_steps": 1}
    command = contest.command_of({**run, "who": "cleanrl"}, peers["cleanrl"], entry, pythons, [])
    assert command[2:] == ["Hopper-v4", "--seed", "3", "--minutes", "5.0"]


def test_an_environment_alone_is_a_task_where_all_have_defaults(monkeypatch, tmp_path):
    """Of its id the result's file has a name, whatever module it comes from."""
    words = ("choices", "robots:Reach/Dense-v1", "--seeds", "7", "--who", "sb3 DQN", "--who", "ours")
    arguments, contestants = asked(monkeypatch, *words, "--peer", f"sb3 DQN={sys.executable}")
    first, second = contest.wanted(arguments, contestants)
    entry = contest.task_of(first["comparison"])
    command = contest.command_of(first, contestants["sb3 DQN"], entry, arguments.peer, [])
    assert command[2:4] == ["DQN", "robots:Reach/Dense-v1"]
    assert contestants[second["who"]].plain
    assert comparisons.file_of(tmp_path, first).parent == tmp_path


def test_the_rates_are_medians_and_the_load_beside_them_the_worst():
    """A run that was never evaluated has rates and no return."""
    runs = [result(seed=1), result(seed=2, returns=[], others=0.5), result(seed=3, returns=[1.0, 300.0])]
    row = contest.rates(runs)[-1]
    assert row == "| hopper | whole | 3 | 25,600 | 500 | 1.50 | 400 | 300 | 500 | 50 % |"
    assert "| hopper | idle | 1 | 0 | 0 |" in contest.rates([result("idle", wall_s=0.0)])[-1]


def test_a_contest_is_told_over_all_four_axes():
    """Each contestant at each task, the worst seed in brackets."""
    text = contest.as_text([result(), result(seed=2, returns=[50.0, 700.0]), result("ratio 1")])
    assert "| env steps | | seeds | 10k | 30k |" in text
    assert "| Hopper-v5 | whole | 2 | 75 (50) | 600 (500) |" in text
    assert "| Hopper-v5 | ratio 1 | 1 | 100 | 500 |" in text
    for heading in ("trained transitions | | seeds | 512k | 1.536M", "wall time (s) | | seeds | 30 s | 60 s"):
        assert f"| {heading} |" in text
    assert "| core-seconds" in text


def test_the_looks_of_our_run_count_from_the_command_on(tmp_path):
    """The launcher's own start is part of what they took."""
    journal = Journal(tmp_path / "metrics.jsonl")
    counts = {"env_steps": 100, "trained_transitions": 800, "core_s": 4.0}
    journal.write("status", 2.0, counts)
    journal.write("evaluation", 2.0, {"env_steps": 100, "mean_return": 5.0})
    journal.close()
    over, returns = whole_runs.over_axes(tmp_path, {"wall_s": 0.75, "core_s": 1.0})
    assert over == {"wall_s": [2.75], "env_steps": [100.0], "trained_transitions": [800.0], "core_s": [5.0]}
    assert returns == [5.0]
    curve = whole_runs.curve_of({"over": over, "returns": returns})
    np.testing.assert_array_equal(curve.at("core_s", np.array([5.0])), [5.0])
    empty, none = whole_runs.over_axes(tmp_path / "nothing", {})
    assert whole_runs.curve_of({"over": empty, "returns": none}) is None


def test_the_cpu_time_of_a_command_is_that_of_its_children_too():
    """And its output is what it printed; a variable of its own reaches it."""
    child = "import time\nwhile time.process_time() < 0.3: pass"
    code = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); "
    code += "print(os.environ['OWN'])"
    output, spent_s = whole_runs.spent([sys.executable, "-c", code, child], environment={"OWN": "word"})
    assert output == "word\n"
    assert 0.3 < spent_s < 3.0


def test_cleanrls_episodes_are_read_from_what_it_prints(tmp_path):
    """With an array as return or a number; ten in a row are one return; the first steps have no update."""
    assert cleanrl_peer.episode("global_step=5999, episodic_return=[-12.5]\n") == (5999, -12.5)
    assert cleanrl_peer.episode("global_step=31, episodic_return=1.5e+03") == (31, 1500.0)
    assert cleanrl_peer.episode("SPS: 103") is None
    episodes = [(float(number), 2.0 * number, 1000 * number, float(number)) for number in range(1, 26)]
    found = cleanrl_peer.result_of(episodes)
    assert found["returns"] == [5.5, 15.5]
    assert found["over"]["env_steps"] == (10_000, 20_000)
    assert found["over"]["trained_transitions"] == [256 * 5000, 256 * 15_000]
    assert found["over"]["core_s"] == (20.0, 40.0)
    assert (found["wall_s"], found["env_steps"]) == (25.0, 25_000)
    assert cleanrl_peer.result_of([])["returns"] == []


@pytest.mark.parametrize(("then", "seconds"), [("", 60.0), ("; time.sleep(600)", 5.0)])
def test_cleanrls_script_is_read_until_it_or_its_time_ends(then, seconds):
    """Each episode with the time and the CPU time at which it was told."""
    lines = "[print(f'global_step={i}, episodic_return={i}', flush=True) for i in range(3)]"
    found = cleanrl_peer.played([sys.executable, "-c", f"import time; {lines}{then}"], seconds)
    assert [each[2:] for each in found] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert all(wall_s >= 0 and core_s >= 0 for wall_s, core_s, _, _ in found)


def test_a_script_that_fails_is_no_run():
    """Whatever it printed before."""
    with pytest.raises(SystemExit, match="ended with exit code 3"):
        cleanrl_peer.played([sys.executable, "-c", "raise SystemExit(3)"], 60.0)
