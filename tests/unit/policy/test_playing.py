"""The loop of acting and stepping: one for samplers, evaluations, films and the page."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, InputError, WireError
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.stage import ShownEpisode, Stage, open_stage
from spreeze_zmq.policy import Policy, played, without_noise

LINE = "tests.unit.envs.doors:Line"


def policy_of(num_obs=3, weight=0.0):
    """A deterministic policy of one layer in the box of -1 to 1, with one weight for every observation."""
    fields = {
        "version": 1,
        "description": {
            "observation": {"shape": [num_obs], "normalize": False, "clip": 10.0},
            "layers": [{"kind": "linear", "in": num_obs, "out": 1}],
            "distribution": {"kind": "deterministic", "noise_min": 0.0, "noise_max": 0.0},
        },
    }
    parameters = np.array([weight] * num_obs + [0.0], np.float32)
    bounds = {"action_low": -np.ones(1, np.float32), "action_high": np.ones(1, np.float32)}
    return Policy(fields, {"parameters": parameters, **bounds})


def test_a_step_that_failed_is_told_from_the_end_of_an_episode():
    """The third step of each episode fails: none of them is whole."""
    env, policy = envs.make(LINE, 2, raises="exit"), policy_of()
    frames = policy.frame_stack()
    frames.begin(env.reset(seed=0)[0])
    steps = played(env, frames, without_noise(policy))
    seen = [next(steps) for _ in range(3)]
    assert [step.failed.tolist() for step in seen] == [[False] * 2, [False] * 2, [True] * 2]
    assert [step.ended.tolist() for step in seen] == [step.failed.tolist() for step in seen]
    assert seen[2].reward.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("raises", "said"), [("", "return 5.00, 5 steps"), ("exit", "broken after 2 steps")])
def test_a_broken_episode_is_not_filmed_as_a_whole_one(raises, said):
    """It has no picture after the step that failed, and its words name no return."""
    with_failure = {"raises": raises} if raises else {}
    episode = ShownEpisode(Stage(envs.make(LINE, 1, **with_failure)), policy_of(), seed=0)
    moments = sum(1 for _ in episode.moments())
    assert moments == (3 if raises else 6)
    assert episode.said().startswith(said)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("InvertedPendulum-v5", "mujoco"),
        ("gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv", "gymnasium"),
    ],
)
def test_the_fall_is_shown_that_ends_an_episode(name, backend):
    """It ends where the pole has an angle of 0.2; the step that finds that begins the next episode."""
    stage = open_stage(envs.probe(name))
    assert (stage.env.backend, stage.step_s) == (backend, 0.04)
    for seed in (0, 1):
        angles = [abs(stage.qpos()[1]) for _ in ShownEpisode(stage, policy_of(4), seed).moments()]
        assert angles[0] < 0.02
        assert angles[-2] < 0.2 < angles[-1]


def test_an_evaluation_plays_broken_episodes_again():
    """Only whole episodes count, whatever their infos hold."""
    infos = {"failed": 1.0, "is_success": np.bool_(True), "k": {"a": [object()]}, 3: "three", "name": "x"}
    score = play(envs.make(LINE, 2, step_info="final", info=infos), policy_of(), 0)
    assert score.returns.tolist() == [5.0, 5.0]
    assert score.info == {"failed": 1.0, "is_success": 1.0}


def test_an_evaluation_in_which_all_episodes_fail_mildly_ends():
    """Such failures are tolerated without end; the evaluation of a run, whose time is limited, goes on."""
    slide, policy = "tests.unit.envs.mujoco.test_unstable:Slide", policy_of(2)
    with pytest.raises(EnvironmentFailure, match=r"42 episodes ended with a failure .* 0 of 2 without one"):
        play(envs.make(slide, 2), policy, 0)
    steps = iter(range(10**9))
    score = play(envs.make(slide, 2), policy, 0, until_s=300.0, clock=lambda: next(steps))
    assert (score.timed_out, score.num_failed) == (True, 200)


def test_a_policy_refuses_what_is_not_finite():
    """It neither takes NaN from a sensor nor hands it to a motor."""
    policy = policy_of()
    for odd in (np.nan, np.inf):
        with pytest.raises(InputError, match=r"the observation holds (nan|inf) at \[1\]"):
            policy(np.array([0.0, odd, 0.0], np.float32))
    policy = policy_of(2, weight=3e38)
    with np.errstate(all="ignore"):
        with pytest.raises(InputError, match="its action holds nan"):
            policy(np.array([3.0, -3.0], np.float32))
        with pytest.raises(WireError, match="its action holds nan"):
            policy.act(np.array([[3.0, -3.0]], np.float32), np.random.default_rng(0))
