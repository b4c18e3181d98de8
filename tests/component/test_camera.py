"""A camera beside joints, and places of many, between real samplers and learners: pixels travel as bytes, a
choice as one number, others as they are.
"""

import gymnasium
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


TAXI = ["run.env=Taxi-v4", "components.sampler.count=1", "algorithm.hidden_sizes=[16]"]


def test_a_sampler_sends_one_number_for_a_choice_of_five_hundred(tmp_path, forked):
    """Of which each follows from the one before, by the game's own table."""
    one_number = 4
    run = Run(tmp_path / "run", [*TAXI, "components.sampler.rollout_steps=15"], "cartpole_dqn")
    try:
        start(run)
        message, table = run.next("rollout", CRITIC), gymnasium.make("Taxi-v4").unwrapped.P
        envs = message.fields["num_envs"]
        assert message.arrays["obs"].nbytes == 16 * envs * one_number
        rollout = flat(rollout_from(message), Packing.of(run.plan.environment))
        assert rollout.obs.shape == (16, envs, 500)
        assert (rollout.obs.sum(2) == 1).all()
        place, ended = rollout.obs.argmax(2), rollout.terminated | rollout.truncated
        assert not ended.all()
        for t, n in np.argwhere(~ended):
            [(_, following, reward, _)] = table[place[t, n]][rollout.action[t, n]]
            assert (place[t + 1, n], rollout.reward[t, n]) == (following, reward)
    finally:
        run.close()


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole"], ids=["replay", "rounds"])
def test_a_learner_refuses_the_number_of_no_option(tmp_path, forked, name):
    """And takes one that is, in either form."""
    run = Run(tmp_path / "run", TAXI, name)
    try:
        feed, other = played(run, run.plan.learning.learners[0])
        packing = Packing.of(run.plan.environment)
        sound = random_rollout(run.plan.environment, 8, 16).obs
        odd = sound.copy()
        packing.numbers_of(odd)[3, 2, 0] = 500.0
        run.start()
        for obs in (sound, odd, packing.flat(sound), sound):
            final = {"final_obs": obs[0, :0]} if "final_obs" in feed.rollout.arrays else {}
            push_one(run, feed, garbage.frames_of(feed.next(obs=obs, **final)))
        if run.plan.learning.on_policy:
            run.meanwhile = other.follow
        report = run.report(lambda fields: fields["counters"].get("env_steps", 0) >= 3 * 128)
        [row] = report["refused"]
        assert (row["word"], row["count"]) == ("misfit", 1)
        assert row["first"] == "obs holds 500 at [3, 2, 0], expected the number of an option, from 0"
    finally:
        run.close()
        print(run.logs())
