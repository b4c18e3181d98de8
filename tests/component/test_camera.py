"""A camera beside joints between real samplers and learners: pixels travel as bytes, numbers as they are."""

import numpy as np
import pytest

from spreeze_zmq.envs.packed import Packing, flat
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.peers import garbage
from spreeze_zmq.peers.learner_acts import push_one
from spreeze_zmq.wire import rollout_from
from tests.component.conftest import Run
from tests.component.samplers import CRITIC, start
from tests.component.test_learners import played
from tests.system.camera import JOINTS, SIDE, STEPS

ENV = "run.env=tests.system.camera:Camera"
PIXELS, NUMBERS = SIDE * SIDE * 3, JOINTS + 1


@pytest.mark.parametrize(
    "peers", [[ENV, "components.sampler.rollout_steps=15", "components.sampler.envs=3"]], indirect=True
)
def test_a_sampler_sends_a_byte_for_each_pixel(peers):
    """What a learner makes of them is what the environment gave, also where episodes ended."""
    start(peers)
    packing, step = Packing.of(peers.plan.environment), np.zeros(3)
    for _ in range(3):
        message = peers.next("rollout", CRITIC)
        assert message.arrays["obs"].nbytes == 16 * 3 * (PIXELS + 4 * NUMBERS)
        rollout = flat(rollout_from(message), packing)
        ended, rows = rollout.terminated | rollout.truncated, iter(rollout.final_obs)
        for t in range(15):
            assert np.array_equal(seen_at(step, rollout.obs[t]), rollout.obs[t])
            step = step + 1
            for n in np.flatnonzero(ended[t]):
                row = next(rows)
                assert np.array_equal(seen_at(np.array(STEPS), row), row)
                assert np.array_equal(row[:JOINTS], rollout.obs[t, n, :JOINTS])
                step[n] = 0
        assert next(rows, None) is None


def seen_at(step, obs):
    """Observations at a step, of which ``obs`` has the joints."""
    lens = np.broadcast_to(200.0 + step[..., None], (*step.shape, PIXELS))
    return np.concatenate([obs[..., :JOINTS], lens, np.float32(step[..., None] / STEPS)], -1)


@pytest.fixture(params=["pendulum", "cartpole"], ids=["replay", "rounds"])
def learner(tmp_path, request, forked):
    """A run of a policy whose observations are normalised, and its peers."""
    about = [ENV, "algorithm.hidden_sizes=[16]", "algorithm.network=mlp", "components.sampler.count=1"]
    made = Run(tmp_path / "run", [*about, "algorithm.normalize_observations=true"], request.param)
    yield made, *played(made, "actor_learner")
    made.close()
    print(made.logs())


def test_a_learner_takes_either_form_and_refuses_others_in_a_line(learner):
    """Rollouts that are flat and packed are learned from, not those that are too short or not finite; the
    policy's statistics are of the observations, whatever form these had.
    """
    peers, feed, other = learner
    packing = Packing.of(peers.plan.environment)
    packed = random_rollout(peers.plan.environment, 8, 16)
    whole = flat(packed, packing)
    odd = np.array(whole.obs)
    odd[3, 2, PIXELS + JOINTS] = np.nan
    peers.start()
    peers.next("policy")
    for obs in (packed.obs, whole.obs, packed.obs[..., :-4], packing.pack(odd), whole.obs):
        final = {"final_obs": obs[0, :0]} if "final_obs" in feed.rollout.arrays else {}
        push_one(peers, feed, garbage.frames_of(feed.next(obs=obs, **final)))
    peers.meanwhile = other.follow if peers.plan.learning.on_policy else other.publish
    report = peers.report(lambda fields: len(fields.get("refused", ())) == 2)
    said = {row["word"]: row["first"] for row in report["refused"]}
    width = PIXELS + 4 * NUMBERS
    assert said["misfit"] == f"obs is ({width - 4},) for each step, expected ({width},)"
    where = f"[3, 2, {PIXELS + JOINTS}]"
    assert (
        said["not_finite"] == f"rollout.obs holds nan at {where}, expected a finite number of at most 1e+15"
    )
    while not (policy := peers.next("policy")).fields["actor_updates"]:
        pass
    mean = whole.obs[:-1].reshape(128, -1).mean(0)
    np.testing.assert_allclose(policy.arrays["observation_mean"], mean, rtol=1e-4, atol=1e-5)
