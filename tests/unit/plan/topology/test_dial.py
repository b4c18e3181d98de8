"""A mode is a name for numbers, and each number can be written on its own."""

import json
from pathlib import Path

import pytest

from spreeze_zmq.base.errors import TopologyError
from spreeze_zmq.plan.roles import LEARNERS, SAMPLER, roles_of
from spreeze_zmq.plan.topology import Plan, load
from spreeze_zmq.plan.topology.dial import MODES, ON_POLICY_LAG

README = Path(__file__).parents[4] / "launch" / "README.md"
ROUND = ("components.sampler.count=2", "components.sampler.envs=8", "components.sampler.rollout_steps=16")


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [("free", (None, 2, 0, False)), ("bounded", (20, 2, 32, False)), ("lockstep", (1, 0, 32, True))],
)
def test_a_mode_stands_for_these_numbers(mode, numbers):
    """Pendulum's ratio of 32 allows 32 updates of 256 for a round of 2 x 128 transitions."""
    balance = load("pendulum", [f"balance.mode={mode}", *ROUND]).balance
    found = (balance.max_policy_lag, balance.slack_rollouts, balance.publish_every_updates, balance.in_order)
    assert found == numbers
    assert balance.rollout_transitions == 128


def test_numbers_without_the_name_are_the_same_run():
    """The four keys alone make a lock-step run, in any mode."""
    written = ["max_policy_lag=1", "slack_rollouts=0", "publish_every_updates=round", "in_order=true"]
    named = load("pendulum", ["balance.mode=lockstep", *ROUND])
    spelt = load("pendulum", [*(f"balance.{key}" for key in written), *ROUND])
    assert spelt.components == named.components
    assert vars(spelt.balance) == {**vars(named.balance), "mode": "free"}
    assert Plan.from_json(named.to_json()) == named


def test_a_key_that_is_written_wins_over_its_mode():
    """Bounded, but with another bound and publications by the clock."""
    balance = load(
        "pendulum", ["balance.mode=bounded", "balance.max_policy_lag=3", "balance.publish_every_updates=0"]
    ).balance
    assert (balance.max_policy_lag, balance.publish_every_updates, balance.slack_rollouts) == (3, 0, 2)


def test_in_order_nothing_moves_and_nobody_has_a_second_life():
    """A range of samplers stays where it begins; of all that trains nothing is started again."""
    plan = load("pendulum", ["balance.mode=lockstep", "components.sampler.count=[2,8]"], cores=8)
    count = plan.components["sampler"].count
    assert count.minimum == count.initial == count.maximum == 6
    restarts = {role: component.max_restarts for role, component in plan.components.items()}
    assert restarts == {role: 0 if role in (*LEARNERS, SAMPLER) else 3 for role in roles_of(LEARNERS)}
    assert plan.components["actor_learner"].options["slack_updates"] == 0


def test_rounds_are_not_published_by_another_count():
    """A policy follows from each round, by its updates; by the clock it may."""
    assert load("hopper_ppo", ["balance.publish_every_updates=0"]).balance.publish_every_updates == 0
    with pytest.raises(TopologyError, match=r"balance\.publish_every_updates: an on-policy .*leave it out"):
        load("hopper_ppo", ["balance.publish_every_updates=7"])


def test_only_what_is_counted_and_bounded_has_a_schedule():
    """Shares are made for the fewest samplers of a range."""
    free = load("pendulum")
    assert free.balance.schedule(free.components, free.learning) is None
    plan = load("pendulum", ["balance.mode=bounded", "components.sampler.count=[3,8]"], cores=10)
    schedule = plan.balance.schedule(plan.components, plan.learning)
    assert schedule.num_samplers == 3
    assert schedule.publish_every == 32 * plan.components["sampler"].count.initial
    assert schedule.share == 20 * 256 * plan.components["sampler"].count.initial // 3


def test_the_readme_has_the_numbers_of_each_mode():
    """Those of on-policy algorithms in a row of their own, where they differ."""
    lines = README.read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    place = rows.index([f"`{mode}`" for mode in MODES])
    said, key = {}, ""
    for about, *cells in rows[place + 1 : place + 7]:
        key = about.split("`")[1] if about.startswith("`") else f"{key} on-policy"
        said[key] = [None if cell == "none" else json.loads(cell) for cell in cells]
    expected = {key: [numbers[key] for numbers in MODES.values()] for key in MODES["free"]}
    expected["max_policy_lag on-policy"] = list(ON_POLICY_LAG.values())
    expected["publish_every_updates on-policy"] = ["round"] * 3
    assert said == expected
