"""What is said of a topology before its run: the picture of ``--graph``, and advice."""

from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.commands.advice import advice
from spreeze_zmq.commands.check import endless, ends, environment, replay, report
from spreeze_zmq.commands.graph import graph
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.plan.topology import load

FOREIGN = Path(__file__).parents[3] / "components" / "examples" / "sampler_python"


def test_the_picture_names_every_process_and_channel():
    """Who binds, who connects, how, where, and how many of each."""
    plan = load("pendulum", ["channels.policy.endpoint=tcp://127.0.0.1:5555"], without=["evaluator"], cores=8)
    text = graph(plan)
    assert [name for name in (*plan.components, *plan.channels) if name not in text] == []
    assert "x 6 (1 to 8)" in text
    assert "evaluator, 1 thread each, nice 5, not launched, its place is free" in text
    assert "actor_learner --> critic_learner, evaluator, sampler" in text
    assert "critic_learner <== sampler" in text
    assert "tcp://127.0.0.1:5555" in text


def test_the_picture_fits_a_terminal():
    """No line is wider than 100 columns, and none ends in a blank."""
    for line in graph(load("halfcheetah")).splitlines():
        assert len(line) <= 100
        assert line == line.rstrip()


@pytest.mark.parametrize(
    ("algorithm", "used"), [("dqn", True), ("tests.unit.commands.test_check:Unaware", False)]
)
def test_it_is_said_whether_action_masks_are_used(algorithm, used):
    """By an algorithm that takes them: learners ask for them, and policies choose by them."""
    plan = load({"run": {"env": "tests.masked:Game", "algorithm": algorithm}})
    assert ("only legal ones: its action_mask of 4 flags is used" in environment(plan)) is used
    assert plan.environment.action_mask is used
    asked = {"action_mask", "final_action_mask"} & set(plan.channels["experience.critic_learner"].fields)
    assert len(asked) == 2 * used


def test_it_is_said_that_parts_have_encoders():
    """Where an image is among them, and no other network is chosen."""
    for network, said in (("auto", True), ("mlp", False)):
        run = {"env": "tests.unit.algorithms.test_parts:Which", "algorithm": "discrete_sac"}
        plan = load({"run": run, "algorithm": {"network": network}})
        assert ("an encoder for each of 3 parts" in environment(plan)) is said


IN_ORDER = ("balance.mode=lockstep", "components.sampler.max_restarts=9", "components.sampler.count=[2, 8]")
LAG = "components.actor_learner.slack_updates=7"


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        (
            "hopper_ppo",
            ["components.sampler.count=[1, 8]"],
            ["count = [1, 8] has no effect in rounds, which"],
        ),
        (
            "pendulum",
            [*IN_ORDER, LAG, "components.critic_learner.max_restarts=0"],
            [
                "components.sampler.count = [2, 8] has no effect in a fixed order: it is 2",
                "components.sampler.max_restarts = 9 has no effect in a fixed order: it is 0",
                "components.actor_learner.slack_updates = 7 has no effect in a fixed order: it is 0",
            ],
        ),
        ("pendulum", [LAG, *IN_ORDER[1:]], []),
        ("pendulum", ["balance.mode=lockstep"], []),
        ("hopper_ppo", ["components.sampler.count=auto"], []),
    ],
)
def test_numbers_that_a_run_replaces_are_named(name, written, said):
    """Those that were written, in a line of advice each."""
    plan = load(name, written, cores=2)
    assert len(plan.replaced) == len(said)
    assert [line for line in said if line not in "\n".join(plan.replaced)] == []
    assert set(plan.replaced) <= set(advice(plan, None))


@pytest.mark.parametrize(("size", "is_said"), [("auto", True), (64, False)])
def test_copies_by_updates_of_a_size_that_is_measured_are_named(size, is_said):
    """Their period is in updates, whose size nobody knows yet."""
    table = {"run": {"env": "CartPole-v1", "algorithm": "dqn"}}
    plan = load({**table, "algorithm": {"batch_size": size, "target_every": 1000, "tau": 1.0}}, cores=2)
    said = "\n".join(advice(plan, None))
    assert ("algorithm.target_every = 1000 counts updates" in said) == is_said


@pytest.mark.parametrize(
    ("stop", "without", "until"),
    [
        ("{}", [], ""),
        ("{return=-200}", ["evaluator"], " until its evaluator is started by hand"),
        ("{env_steps=9}", ["sampler"], " until its sampler is started by hand"),
        (
            "{return=-200, trained_transitions=9}",
            ["evaluator", "critic_learner"],
            " until its evaluator and critic_learner are started by hand",
        ),
    ],
)
def test_a_run_that_nothing_ends_is_told_before_it_starts(stop, without, until):
    """Without a limit, and with limits that grow only by roles that are left out."""
    plan = load("pendulum", [f"run.stop={stop}"], without=without)
    never = f"nothing ends this run but Ctrl-C{until}; --set run.stop.minutes=10 would"
    assert endless(plan) == never
    assert ends(plan).endswith(f"; {never}")


@pytest.mark.parametrize("stop", ["{return=-200, minutes=1}", "{return=-200, env_steps=9}"])
def test_a_run_with_a_limit_that_grows_ends(stop):
    """Any one will do."""
    plan = load("pendulum", [f"run.stop={stop}"], without=["evaluator"])
    assert endless(plan) == ""
    assert ends(plan).startswith("at return -200 or ")


def test_counts_and_sizes_are_written_out():
    """A limit to its last digit, a small replay in a unit that shows it, and all groups of this machine."""
    alone = load(
        "pendulum", ["run.stop={env_steps=1_234_567, return=-0.5}", "algorithm.replay_capacity=2000"]
    )
    assert ends(alone) == "at return -0.5 or env_steps 1,234,567"
    sizes = {"critic_learner": 80_000, "actor_learner": 40_000}
    assert replay(sizes, 1) == "critic_learner 80 kB, actor_learner 40 kB; together 120 kB when full"
    assert replay(sizes, load("pendulum", ["groups.count=2"], cores=8).groups_here) == (
        "critic_learner 80 kB, actor_learner 40 kB; together 240 kB of 2 groups when full"
    )


def test_hindsight_and_data_are_said():
    """What is asked for beside what is sampled; a run with neither has no row of them."""
    assert not {"goals", "data"} & {line.split()[0] for line in report(load("pendulum")).splitlines()}
    asked = {"hindsight": "final", "hindsight_goals": 3}
    plan = load({"run": {"env": "tests.system.maze:Maze", "algorithm": "sac"}, "algorithm": asked})
    sources = {"shown": DataPlan("minari:a/b-v0", 0.5, transitions=1200), "old": DataPlan("./old")}
    lines = [line.split(maxsplit=1) for line in report(replace(plan, data=sources)).splitlines()]
    rows = dict(lines)
    assert rows["goals"] == 'each transition is kept again with 3 goals, of hindsight "final"'
    first = "shown: 1,200 transitions of minari:a/b-v0 are 50% of each batch"
    assert rows["data"] == f"{first}; old: 0 transitions of ./old fill the replay before training"
    assert advice(replace(plan, data=sources), None) == ()
    sources["old"] = replace(sources["old"], differs="recorded with g = 5, unlike run.env_kwargs")
    (line,) = advice(replace(plan, data=sources), None)
    assert line.startswith("data.old was recorded with g = 5, unlike run.env_kwargs: its transitions may be")


class Unaware(DQN):
    """An algorithm whose losses know nothing of masks."""

    takes_masks = False


def test_videos_that_cannot_come_are_named_before_the_run(monkeypatch):
    """Not after hours of it."""
    plan = load("pendulum", ["components.evaluator.videos=[100, 3000]", "run.stop.env_steps=2000"])
    late = "components.evaluator.videos: 3,000 env steps are after the run's end at 2,000"
    assert advice(plan, None) == (late,)
    monkeypatch.setattr("spreeze_zmq.commands.advice.find_spec", lambda name: None)
    lacks, _ = advice(plan, None)
    assert lacks.endswith("imageio-ffmpeg, which is not installed: pip install 'spreeze_zmq[video]'")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["algorithm.priority_alpha=0.9"],
            "priority_alpha = 0.9 has no effect while algorithm.prioritized is false",
        ),
        (["algorithm.priority_alpha=0.9", "algorithm.prioritized=true"], ""),
        (
            ["algorithm.hindsight_goals=8"],
            'hindsight_goals = 8 has no effect while algorithm.hindsight is "off"',
        ),
        (["algorithm.hindsight_goals=8", "run.algorithm=tests.unit.algorithms.test_relabel:Doubled"], ""),
        (
            ["algorithm.max_batch_size=512"],
            "max_batch_size = 512 has no effect while algorithm.batch_size is 256",
        ),
        (["algorithm.max_batch_size=512", 'algorithm.batch_size="auto"'], ""),
        (
            ["algorithm.target_entropy=-2", "algorithm.learn_temperature=false"],
            "target_entropy = -2.0 has no effect while algorithm.learn_temperature is false",
        ),
        (
            ["components.evaluator.randomize=true"],
            "evaluator.randomize = true has no effect without run.rand",
        ),
        (
            [
                "run.randomize={body_mass=[0.9, 1.1]}",
                "run.env=Hopper-v5",
                f"components.sampler.use={FOREIGN}",
            ],
            "run.randomize: the shipped sampler draws from it, /",
        ),
        (["components.evaluator.workers=4"], "workers = 4 has no effect: all environments step at once"),
        (["components.evaluator.workers=4", "run.env=tests.unit.envs.own_environments:Again"], ""),
        (
            ["components.evaluator.episodes=9", "components.evaluator.confirm_episodes=8"],
            "confirm_episodes = 8 has no effect: components.evaluator.episodes is more",
        ),
        (["components.evaluator.episodes=90"], ""),
        (
            ["components.evaluator.episode_steps=300"],
            "episode_steps = 300 has no effect: episodes end after 200",
        ),
        (["components.evaluator.episode_steps=100"], ""),
        (
            ["components.sampler.step_timeout_s=5", "components.sampler.workers=0"],
            "step_timeout_s = 5.0 has no effect while components.sampler.workers is 0: only workers",
        ),
        (
            ["components.sampler.step_timeout_s=5", "components.sampler.workers=2"],
            "workers is 2, which takes none here: only workers",  # a native task has threads
        ),
        (
            ["components.sampler.step_timeout_s=5", "run.env=tests.unit.envs.own_environments:Again"],
            'workers is "auto", which takes none here: only workers',
        ),
        (
            [
                "components.sampler.step_timeout_s=5",
                "components.sampler.workers=2",
                "run.env=tests.unit.envs.own_environments:Again",
            ],
            "",
        ),
    ],
)
def test_an_option_that_has_no_effect_is_named(overrides, said):
    """With the one that leaves it without."""
    lines = advice(load("pendulum", overrides), None)
    assert len(lines) == bool(said)
    assert all(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("env", "mode", "costs"),
    [
        ("Pendulum-v1", "rgb_array", "keeps the environments from their native engine"),
        ("Pendulum-v1", "human", "opens a window for each environment and keeps"),
        ("Acrobot-v1", "human", "opens a window for each environment: leave it out"),
        ("Acrobot-v1", "rgb_array", ""),  # it may be what it observes
    ],
)
def test_what_drawing_costs_is_said(env, mode, costs, monkeypatch):
    """Nobody looks at what samplers draw; no window opens here for the look."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    lines = advice(load({"run": {"env": env, "env_kwargs": {"render_mode": mode}}}), None)
    assert [costs in line for line in lines] == [True] * bool(costs), lines


@pytest.mark.parametrize(
    ("env", "overrides", "row", "advised"),
    [
        ("Hopper-v5", (), "mujoco: Hopper is a native task, the whole batch steps at once", []),
        ("Hopper-v4", (), "gymnasium: no native task does Hopper-v4", ["run.env: Hopper-v5 is stepped as"]),
        ("Acrobot-v1", (), "gymnasium: no native task does Acrobot-v1", []),
        (
            "Pendulum-v1",
            ["components.sampler.backend=gymnasium"],
            "gymnasium for samplers; for evaluations numpy: Pendulum is a native task",
            [],
        ),
    ],
)
def test_what_steps_the_environments_is_said_with_the_reason(env, overrides, row, advised):
    """And that another version of it would be stepped natively."""
    plan = load({"run": {"env": env, "algorithm": "ppo"}}, overrides)
    (said,) = [line.split(maxsplit=1)[1] for line in report(plan).splitlines() if line.split()[0] == "engine"]
    assert said.startswith(row)
    lines = advice(plan, None)
    assert [line[: len(start)] for line, start in zip(lines, advised, strict=True)] == advised


@pytest.mark.parametrize(
    ("algorithm", "network", "named"),
    [
        ("dqn", "auto", ["hidden_sizes", "activation"]),
        ("ppo", "small_cnn", ["hidden_sizes", "activation"]),
        ("pqn", "mlp", []),
        ("discrete_sac", "auto", []),  # whose critics and policy have layers behind the convolutions
    ],
)
def test_options_of_layers_that_images_do_not_go_through_are_named(algorithm, network, named):
    """They are those of an mlp."""
    told = {"hidden_sizes": [8], "activation": "elu", "network": network}
    run = {"env": "tests.system.catch:Catch", "algorithm": algorithm}
    lines = advice(load({"run": run, "algorithm": told}), None)
    found = [
        line.split()[0] for line in lines if line.endswith("has no effect: images go through convolutions")
    ]
    assert found == [f"algorithm.{name}" for name in named]
