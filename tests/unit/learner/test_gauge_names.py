"""What a learner reports of its losses stands beside the library's figures, under names of its own."""

import pytest

from spreeze_zmq.broker.points import of_status
from spreeze_zmq.learner.gauges import with_losses


@pytest.mark.parametrize("name", ["n_updates", "ent_coef", "learning_rate", "replay_ratio"])
def test_a_metric_of_a_loss_is_lost_to_no_figure_of_the_library(name):
    """In TensorBoard and other loggers, which have names of theirs for some of these."""
    gauges = with_losses(
        {"temperature": 0.125, "learning_rate": 0.25, "replay_ratio": 2.0}, {name: 7.0}, "critic"
    )
    status = {"critic_updates": 64, "replay_ratio": {"measured": 7.75}}
    curves = of_status(status, gauges)
    assert curves[f"train/critic_loss_{name}"] == 7.0
    assert (curves["train/n_updates"], curves["train/ent_coef"]) == (64, 0.125)
