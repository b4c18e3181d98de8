"""What ``spreeze compare`` takes for runs of one setting: those that differ in their seeds alone."""

from dataclasses import replace

import pytest

from spreeze_zmq.base.trust import RUN_FILE
from spreeze_zmq.commands.compare import setting_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.run.history import read_run


@pytest.fixture(scope="module")
def plan():
    """Without data, of one group."""
    return topology.load("pendulum", cores=2)


def setting(plan, folder):
    """Of a run with this plan."""
    (folder / RUN_FILE).write_text(plan.to_json())
    return setting_of(read_run(folder))


DATA = DataPlan("minari:pendulum/expert-v0", share=0.5, path="/data", transitions=100)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"data": {}}, {"data": {"own": DATA}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, share=0.25)}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, source="minari:pendulum/other-v0")}}),
        ({"data": {"own": DATA}}, {"data": {"own": replace(DATA, episodes=3)}}),
        ({"groups": {"count": 1}}, {"groups": {"count": 2}}),
        ({"groups": {"count": 2}}, {"groups": {"count": 2, "outer": "momentum"}}),
    ],
)
def test_runs_of_other_data_or_groups_are_no_seeds_of_one_setting(plan, before, after, tmp_path):
    """They learn otherwise."""
    plans = []
    for changes in (before, after):
        made = {
            key: replace(plan.groups, **value) if key == "groups" else value for key, value in changes.items()
        }
        plans.append(replace(plan, **made))
    assert setting(plans[0], tmp_path) != setting(plans[1], tmp_path)
    other_seed = replace(plans[1], run=replace(plan.run, seed=7))
    assert setting(other_seed, tmp_path) == setting(plans[1], tmp_path)
    elsewhere = {name: replace(one, path="/mnt") for name, one in plans[1].data.items()}
    assert setting(replace(plans[1], data=elsewhere), tmp_path) == setting(plans[1], tmp_path)
