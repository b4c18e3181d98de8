"""Learners of a run on data alone, to which nothing comes from samplers."""

from contextlib import closing

import gymnasium
import pytest

from tests.component.conftest import Run
from tests.component.test_own_relabelling import learner
from tests.unit.data.made import dataset

ALONE = ("components.sampler.count=0", "data.own.source=minari:cart-v0")


@pytest.mark.parametrize(("settings", "epsilon"), [(ALONE, 0.05), ((), 1.0)], ids=["data alone", "sampled"])
def test_a_policy_of_data_alone_explores_by_the_final_epsilon(tmp_path, monkeypatch, settings, epsilon):
    """As in what is recorded of it: by that of the first step every action would be a random one."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("cart-v0", gymnasium.make("CartPole-v1").unwrapped)
    settings = ("components.critic_learner.threads=1", "algorithm.final_epsilon=0.05", *settings)
    with closing(Run(tmp_path / "run", settings, "cartpole_dqn")) as run:
        half = learner(run, "critic_learner").half
        assert half.description()["distribution"]["epsilon"] == pytest.approx(epsilon)
