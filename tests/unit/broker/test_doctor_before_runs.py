"""What can be known before a run starts: options out of reach, and what the environment shows."""

import json
import re
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, flatten_space

from spreeze_zmq import envs
from spreeze_zmq.broker.doctor import Doctor, findings_at_start
from spreeze_zmq.commands.advice import advice
from spreeze_zmq.envs import facts
from spreeze_zmq.envs.facts import facts_of, lost_digits
from spreeze_zmq.envs.spec import spec_of
from spreeze_zmq.plan import topology
from tests.benchmarks.sick_environments import KeepsSeed
from tests.unit.broker.lived import Lived
from tests.unit.data.made import dataset


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("learning_rate", ["algorithm.learning_rate=1.0"]),
        ("target_entropy", ["algorithm.target_entropy=100.0"]),
        ("target_entropy", ["algorithm.target_entropy=-100.0"]),
        ("never_trains", ["algorithm.learning_starts=5000", "run.stop.env_steps=4000"]),
        ("never_trains", ["balance.replay_ratio=0.05", "run.stop.env_steps=4000"]),
        ("replay_ratio", ["balance.replay_ratio=100000"]),
        ("replay_ratio", ["balance.replay_ratio=0.0001"]),
        ("learning_rate", ["algorithm.learning_rate=0"]),
        ("learning_rate", ["algorithm.learning_rate={critic=1.0, policy=1e-3}"]),
        ("learning_rate", ["algorithm.learning_rate={from=0.5, to=0.0}"]),
        ("still_targets", ["algorithm.tau=0"]),
        ("still_targets", ["algorithm.tau=1"]),
        ("cut_sums", ["algorithm.n_step=10"]),
        ("early_schedules", ["algorithm.tau={from=0.1, to=0.01, over={env_steps=500}}"]),
    ],
)
def test_an_option_out_of_reach_is_named_before_the_run(name, overrides):
    """From the plan alone, and at second 0 of the run."""
    plan = json.loads(topology.load("pendulum", overrides).to_json())
    assert [finding.name for finding in findings_at_start(plan)] == [name]
    assert Doctor(plan).rows()[0]["t_s"] == 0.0


@pytest.mark.parametrize(
    ("topology_name", "overrides", "said"),
    [
        ("pendulum", ["algorithm.n_step=50"], "n_step is 50, but .* of 16 steps: they have 8.5 rewards"),
        ("pendulum", ["algorithm.n_step=8"], ""),
        ("pendulum", ["algorithm.learning_rate={from=0.01, to=0, over={env_steps=1e6}}"], ""),
        ("pendulum", ["algorithm.learning_rate={critic=0.01, policy=0.1}"], "rate is up to 0.1 each"),
        ("pendulum", ["algorithm.n_step=10", "components.sampler.rollout_steps=40"], ""),
        ("pendulum", ["algorithm.tau={from=0.1, to=0.01, over={env_steps=2000}}"], ""),
        (
            "halfcheetah_ppo",
            ["algorithm.batch_size=100_000"],
            "is 100,000, but a round .* has [0-9,]+ transi",
        ),
        ("cartpole_dqn", ["algorithm.exploration_steps=800_000", "run.stop.env_steps=400_000"], "52% of"),
        (
            "cartpole_dqn",
            [
                "algorithm.exploration_steps=800_000",
                "run.stop.env_steps=400_000",
                "algorithm.epsilon_spread=7",
            ],
            "and the run ends at 400,000 env steps 12% of",
        ),
        (
            "cartpole_dqn",
            [
                *("algorithm.exploration_steps=10_000", "algorithm.learning_starts=50_000"),
                "algorithm.epsilon_spread=7",
            ],
            "on only 0.2% of the actions",
        ),
        (
            "cartpole_dqn",
            ["algorithm.exploration_steps=10_000", "algorithm.learning_starts=50_000"],
            "is 10,000, and training begins after 50,0.. transitions from .* = 100_0..",
        ),
        ("cartpole_pqn", ["algorithm.exploration_steps=100"], "is 100, and training begins after"),
        ("cartpole_dqn", ["algorithm.exploration_steps=60_000", "algorithm.learning_starts=50_000"], ""),
        (
            "cartpole_dqn",
            ["algorithm.exploration_steps=1", "algorithm.initial_epsilon=0.1", "algorithm.final_epsilon=0.1"],
            "",
        ),
        (
            "cartpole_dqn",
            ["algorithm.replay_capacity=300", "algorithm.learning_starts=200"],
            "is 300, an episode has up to 500 steps",
        ),
        (
            "pendulum",
            [
                "algorithm.tau={from=0.1, to=0.01, over={env_steps=1_234_567}}",
                "algorithm.learning_starts=1_300_000",
                "algorithm.replay_capacity=2_000_000",
            ],
            "over after 1,234,567 env steps",
        ),
        ("cartpole_dqn", ["algorithm.tau=1"], "target_every = 1_000"),
        ("cartpole_dqn", ["algorithm.tau=1", "algorithm.target_every=500"], ""),
        (
            "cartpole_dqn",
            ["algorithm.tau=0.01", "algorithm.target_every=1000"],
            "take 68,968 updates .*tau = 1,",
        ),
        ("pendulum", ["algorithm.tau=1e-5"], "tau is 1e-05 .*take 69,314 updates .*tau = 0.01"),
    ],
)
def test_what_an_option_comes_to_is_said_in_figures(topology_name, overrides, said):
    """And nothing is said of options that do what their values say."""
    plan = json.loads(topology.load(topology_name, overrides).to_json())
    found = [f"{finding.seen} {finding.why} {finding.remedy}" for finding in findings_at_start(plan)]
    assert len(found) == bool(said)
    assert all(re.search(said, line) for line in found), found


@pytest.mark.parametrize("limit", [60_000, 90_000, 110_000, 1_000_000])
@pytest.mark.parametrize(
    ("steps", "starts"), [(10_000, 50_000), (100, 50_000), (2, 50_000), (20_000, 20_000)]
)
def test_after_the_remedy_of_short_exploration_nothing_is_left_to_say(steps, starts, limit):
    """It ends within the run, and after the first update."""
    exploration = [f"algorithm.exploration_steps={steps}", f"algorithm.learning_starts={starts}"]
    options = [*exploration, f"run.stop.env_steps={limit}"]
    plan = json.loads(topology.load("cartpole_dqn", options).to_json())
    (found,) = findings_at_start(plan)
    assert found.name == "early_exploration"
    better = topology.load("cartpole_dqn", [*options, found.remedy.replace(" ", "")])
    assert findings_at_start(json.loads(better.to_json())) == []


@pytest.mark.parametrize("limit", [5_000, 60_000])
def test_steps_of_another_exploration_are_not_judged(limit):
    """Those of an algorithm of one's own, which has no epsilon."""
    options = ["algorithm.exploration_steps=10_000", "algorithm.learning_starts=20_000"]
    plan = json.loads(topology.load("cartpole_dqn", [*options, f"run.stop.env_steps={limit}"]).to_json())
    judged = {"early_exploration", "late_exploration"}
    assert judged & {finding.name for finding in findings_at_start(plan)}
    plan["algorithm"] = {key: each for key, each in plan["algorithm"].items() if "epsilon" not in key}
    assert not judged & {finding.name for finding in findings_at_start(plan)}


@pytest.mark.parametrize(("capacity", "is_small"), [(2_000, True), (2_500, False)])
def test_a_replay_of_goals_in_hindsight_holds_an_episode_of_all_their_rows(capacity, is_small):
    """Of 500 steps, each kept five times."""
    run = {"env": "tests.system.maze:Maze", "env_kwargs": {"max_episode_steps": 500}}
    options = {"replay_capacity": capacity, "learning_starts": 200, "hindsight": "future"}
    plan = json.loads(topology.load({"run": run, "algorithm": options}).to_json())
    found = [finding.seen for finding in findings_at_start(plan) if finding.name == "small_replay"]
    said = "is 2,000, of which each transition takes 5, and an episode has up to 500 steps"
    assert found == [f"algorithm.replay_capacity {said}"] * is_small


def test_no_rollout_cuts_the_sums_of_data_alone(tmp_path, monkeypatch):
    """Its episodes are read whole, however short the rollouts of samplers would be."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    alone = ["run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0"]
    plan = json.loads(topology.load("pendulum", ["algorithm.n_step=50", *alone]).to_json())
    assert not findings_at_start(plan)


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        (Dict(word=Discrete(9000), x=Box(-1.0, 1.0, (2,))), {}, "the part word is one of 9,000, each"),
        (Discrete(4096), {}, "an observation is one of 4,096, each"),
        (Discrete(9000), {"network": "mlp"}, "an observation is one of 9,000, each"),
        (Discrete(4095), {}, ""),
        (Box(-1.0, 1.0, (9000,)), {}, ""),
        (Discrete(9000), {"network": "parts"}, ""),
        (Discrete(9000), {"memory_size": 8, "batch_size": 64}, ""),
        (Dict(word=Discrete(9000), eye=Box(0, 255, (20, 20, 3), np.uint8)), {}, ""),
    ],
)
def test_a_wide_choice_that_is_not_looked_up_is_named(space, options, said):
    """With the option that does; the plan with that has nothing to say."""
    plan = json.loads(topology.load("cartpole_dqn").to_json())
    plan["algorithm"] |= options
    spec = spec_of("Words", {}, flatten_space(space), Discrete(2), 100, (space, Discrete(2)))
    plan["environment"] = spec.to_dict()
    found = [finding for finding in findings_at_start(plan) if finding.name == "wide_choice"]
    assert [finding.seen.startswith(said) for finding in found] == [True] * bool(said)
    plan["algorithm"]["network"] = "parts"
    assert "wide_choice" not in {finding.name for finding in findings_at_start(plan)}


@pytest.mark.parametrize(("other", "is_found"), [("observation", True), ("state", True), (None, False)])
def test_a_goal_dict_is_told_by_its_goals(other, is_found):
    """Whatever else is in it."""
    plan, plane = json.loads(topology.load("cartpole_dqn").to_json()), Box(-1.0, 1.0, (2,))
    space = Dict(achieved_goal=plane, **{other or "x": plane, "desired_goal" if other else "goal": plane})
    spec = spec_of("Goals", {}, flatten_space(space), Discrete(2), 100, (space, Discrete(2)))
    plan["environment"] = spec.to_dict()
    assert ("goal_observation" in {finding.name for finding in findings_at_start(plan)}) == is_found


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("goal_observation", "Goal"),
        ("image_beside_vector", "Camera"),
        ("action_mask", "Masked"),
        ("wrapper_statistics", "own_statistics"),
        ("ignored_seed", "IgnoresSeed"),
        ("sticking_seed", "KeepsSeed"),
        ("outside_box", "Outside"),
        ("lost_digits", "Timestamps"),
        ("small_bytes", "Codes"),
        ("never_ending", "NeverEnding"),
        (None, "Healthy"),
    ],
)
def test_what_the_environment_shows_is_named_before_the_run(name, env, monkeypatch):
    """From its spaces, and from a few steps of it; here they may take long."""
    monkeypatch.setattr(facts, "STEPS_S", 10.0)
    monkeypatch.setattr(facts, "UNLIMITED_S", 60.0)
    monkeypatch.setattr(facts, "STICKS_S", 60.0)
    env_id = f"tests.benchmarks.sick_environments:{env}"
    options = ["algorithm.replay_capacity=2000", *(["algorithm.network=mlp"] if env == "Camera" else [])]
    plan = topology.load({"run": {"env": env_id, "algorithm": "sac"}}, options)
    with closing(envs.make(env_id, 1)) as batch:
        plan = replace(plan, tried=facts_of(batch))
    found = findings_at_start(json.loads(plan.to_json()))
    assert [finding.name for finding in found] == ([name] if name else [])


class Reluctant(KeepsSeed):
    """Each reset takes ``takes_s``, and those after ``most`` fail."""

    def __init__(self, takes_s=0.0, most=1000):
        super().__init__()
        self.takes_s, self.most, self.resets = takes_s, most, 0

    def reset(self, **options):
        """As the class says."""
        time.sleep(self.takes_s)
        self.resets += 1
        if self.resets > self.most:
            raise RuntimeError("no more")
        return super().reset(**options)


@pytest.mark.parametrize(
    ("takes_s", "most", "resets", "said"),
    [(0.4, 1000, 6, "resets take too long to see"), (0.0, 4, 5, "RuntimeError: no more")],
)
def test_a_look_at_resets_without_a_seed_is_short_and_costs_no_other(takes_s, most, resets, said):
    """However slow they are, and where one of them fails, which is said."""
    lines = []
    with closing(envs.make(f"{__name__}:Reluctant", 1, max_failures=0, takes_s=takes_s, most=most)) as batch:
        assert facts_of(batch, lines.append) == {"wrappers": ["TimeLimit"]}
        assert batch.envs[0].get_wrapper_attr("resets") <= resets
    (line,) = lines
    assert said in line


@pytest.mark.parametrize(
    ("space", "network", "says"),
    [
        (
            Box(0, 1, (84, 84, 3)),
            "auto",
            "of 84x84x3 is one vector of 21,168 .* uint8 of 0 to 255.*channels]$",
        ),
        (Box(0, 255, (84, 84)), "auto", 'of 84x84 is one vector .*network = "mlp" if it is none'),
        (Box(0, 1, (4, 84, 84, 1)), "auto", "84x84x1 .*, one at a time, with algorithm.frame_stack"),
        (Dict(lens=Box(0, 255, (40, 40), np.uint8), speed=Box(-1, 1)), "auto", "the part lens of 40x40 is"),
        (
            Dict(lens=Box(0, 255, (4, 40, 40, 3), np.uint8), speed=Box(-1, 1)),
            "auto",
            "stack as its channels$",
        ),
        (Dict(map=Box(0, 255, (40, 40)), speed=Box(-1, 1)), "mlp", ""),
        (Dict(lens=Box(0, 1, (40, 40, 3)), speed=Box(-1, 1)), "auto", ""),
        (Box(0, 255, (84, 84, 3), np.uint8), "auto", ""),
        (Box(0, 1, (3, 84, 84)), "nature_cnn", ""),
        (Box(0, 1, (84, 84, 3)), "mlp", ""),
        (Box(-1, 1, (20, 20)), "auto", ""),
    ],
)
def test_an_image_that_no_convolution_sees_is_named_before_the_run(space, network, says):
    """By its dtype or its form, unless its user wants it so."""
    plan, flat = topology.load("cartpole"), flatten_space(space) if isinstance(space, Dict) else space
    env = spec_of("Own-v0", {}, flat, Discrete(2), 500, (space, Discrete(2)))
    plan = replace(plan, environment=env, algorithm={**plan.algorithm, "network": network})
    found = findings_at_start(json.loads(plan.to_json()))
    assert [one.name for one in found] == ["flat_image"] * bool(says)
    assert all(re.search(says, f"{one.seen} {one.remedy}") for one in found), found
    mine = replace(plan, algorithm={**plan.algorithm, "name": "mine:Mine"})
    assert findings_at_start(json.loads(mine.to_json())) == []


@pytest.mark.parametrize(
    ("offset", "scale", "is_lost"),
    [
        (1.7e9, 1.0, True),
        (1e8, 1.0, True),
        (1e6, 1.0, False),  # a step of 0.06, which normalising leaves
        (52.52, 1e-5, True),
        (1.0, 1e-9, False),  # the jitter of a solver around a constant
        (1.0, 1e-15, False),  # float64's own rounding of a 1
        (0.0, 1e-12, False),
        (1e12, 1e12, False),
        (1.7e9, 0.0, False),
    ],
)
def test_digits_that_float32_does_not_keep_are_told_before_the_run(offset, scale, is_lost):
    """Where they say something, and only there; whatever they are in the environment's own dtype."""
    vary = np.random.default_rng(0).uniform(-1.0, 1.0, (21, 2)) * (0.0, 1.0)
    said = lost_digits(offset + scale * vary)
    assert said.startswith("number 1 of an observation is around ") == is_lost, said
    assert bool(said) == is_lost
    assert lost_digits((offset + scale * vary).astype(np.float32)) == ""


def test_lost_digits_are_not_said_to_be_mended_by_normalising():
    """Neither by the advice before the run nor by what samplers report."""
    plan = topology.load("pendulum")
    obs = np.array([[1.7e9, 0.0], [1.7e9 + 0.1, 0.0], [1.7e9 + 0.2, 0.0]])
    assert "normalize_observations" in advice(plan, obs)[0]
    assert advice(replace(plan, tried={"lost_digits": lost_digits(obs)}), obs) == ()
    run = Lived()
    run.see(obs=1e6 + run.rollout.obs)
    run.record.doctor.vitals.plan["tried"] = {"lost_digits": "number 0"}
    assert run.live(12) == []


def test_no_shipped_topology_has_a_finding_before_its_run():
    """As far as its environment is installed; some with what a few steps of theirs show."""
    tried = ("pendulum", "cartpole", "hopper", "halfcheetah_td3")
    for name in (*tried, "ant", "humanoid", "cartpole_pqn", "cartpole_dqn", "walker2d", "hopper_ppo"):
        plan = topology.load(name)
        for backend in ("auto", "gymnasium") if name in tried else ():
            with closing(envs.make(plan.run.env, 1, backend=backend)) as batch:
                plan = replace(plan, tried=facts_of(batch))
            assert findings_at_start(json.loads(plan.to_json())) == []
        assert findings_at_start(json.loads(plan.to_json())) == []
        assert advice(plan, None) == ()
