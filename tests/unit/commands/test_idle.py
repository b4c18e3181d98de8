"""What a topology gives and no run of its kind reads is named before the run."""

from dataclasses import replace

import pytest

from spreeze_zmq.commands.advice import advice
from spreeze_zmq.plan.topology import load
from tests.unit.data.made import dataset

ALONE = ("run.algorithm=td3_bc", "components.sampler.count=0", "data.own.source=minari:own-v0")
PACED = ("balance.max_policy_lag=9", "balance.slack_rollouts=5")
SIZES = [f"components.sampler.{word}" for word in ("envs=4", "rollout_steps=8", "max_failures=1")]
OTHERS = [
    f"components.sampler.{word}" for word in ("nice=2", "threads=2", "backend=gymnasium", "max_restarts=7")
]
LAG = "components.actor_learner.slack_updates=7"


@pytest.mark.parametrize(
    ("topology", "overrides", "named"),
    [
        (
            "pendulum",
            [*ALONE, "algorithm.learning_starts=9", "components.evaluator.videos=[100]"],
            ["algorithm.learning_starts = 9", "balance.replay_ratio = 32", "components.evaluator.videos"],
        ),
        ("pendulum", ["algorithm.learning_starts=9", "algorithm.policy_delay=3"], []),
        ("cartpole_dqn", ["algorithm.policy_delay=3"], ["algorithm.policy_delay = 3"]),
        (
            "pendulum",
            ["components.critic_learner.publish_interval_s=1", "balance.mode=bounded"],
            ["components.critic_learner.publish_interval_s = 1.0"],
        ),
        ("pendulum", ["components.critic_learner.publish_interval_s=1"], []),
        (
            "pendulum",
            [*ALONE, *PACED, *SIZES, *OTHERS],
            [
                "balance.replay_ratio = 32",
                "balance.max_policy_lag = 9",
                "balance.slack_rollouts = 5",
                'components.sampler.backend = "gymnasium"',
                "components.sampler.max_failures = 1",
                "components.sampler.threads = 2",
                "components.sampler.nice = 2",
                "components.sampler.envs = 4",
                "components.sampler.rollout_steps = 8",
                "components.sampler.max_restarts = 7",
            ],
        ),
        # weights go after the updates of a round, whose samples are counted by these
        ("pendulum", [*ALONE, "balance.mode=bounded", *SIZES[:2]], []),
        (
            "pendulum",
            [*ALONE, "algorithm.target_noise=0", "algorithm.target_noise_clip=1"],
            ["algorithm.target_noise_clip = 1.0", "balance.replay_ratio = 32"],
        ),
        (
            "hopper_ppo",
            [*PACED[1:], LAG, "run.save_replay=true"],
            [
                "run.save_replay = true",
                "balance.slack_rollouts = 5",
                "components.actor_learner.slack_updates = 7",
            ],
        ),
        ("hopper_ppo", ["balance.mode=lockstep", "algorithm.initial_log_std=-1"], []),
        ("cartpole", ["algorithm.initial_log_std=-1"], ["algorithm.initial_log_std = -1.0"]),
        ("pendulum", [*PACED, LAG, "run.save_replay=true"], []),
        (
            "pendulum",
            [
                "algorithm.hidden_sizes=[8]",
                "algorithm.critic_hidden_sizes=[8]",
                "algorithm.actor_hidden_sizes=[8]",
            ],
            ["algorithm.hidden_sizes = [8]"],
        ),
        ("pendulum", ["algorithm.hidden_sizes=[8]", "algorithm.critic_hidden_sizes=[8]"], []),
        (
            "pendulum",
            ["groups.every_updates=9", 'groups.outer="momentum"'],
            ["groups.every_updates = 9", 'groups.outer = "momentum"'],
        ),
        ("pendulum", ["groups.count=2", "groups.outer_momentum=0.5"], ["groups.outer_momentum = 0.5"]),
        ("pendulum", ["groups.count=2", "groups.outer_momentum=0.5", 'groups.outer="momentum"'], []),
        (
            "pendulum",
            ["components.visualizer.show_agent=false", "components.visualizer.cost_share=0.5"],
            ["components.visualizer.cost_share = 0.5"],
        ),
    ],
)
def test_what_no_run_of_a_kind_reads_is_named(topology, overrides, named, tmp_path, monkeypatch):
    """Of data alone, in rounds, of one learner or group, by publications by count."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    lines = advice(load(topology, overrides, cores=2), None)
    assert len(lines) == len(named), lines
    assert all(line.startswith(name) for line, name in zip(lines, named, strict=True))


def test_ranges_from_which_nobody_draws_are_named(tmp_path, monkeypatch):
    """Without samplers the evaluator may, and then they have an effect."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("own-v0")
    for draws in (False, True):
        told = [*ALONE, "balance.replay_ratio=8", f"components.evaluator.randomize={str(draws).lower()}"]
        plan = load("pendulum", told)
        plan = replace(plan, run=replace(plan.run, randomize={"body_mass": [0.9, 1.1]}))
        said = [] if draws else ["run.randomize has no effect: nothing is sampled"]
        assert list(advice(plan, None)) == said
