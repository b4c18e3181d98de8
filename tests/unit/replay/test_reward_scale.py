"""What rewards are divided by: the deviation of returns on-policy, the largest return off-policy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay import ReturnScale, RewardScale, replay_of
from tests.unit.replay.made import options, spec
from tests.unit.replay.test_rounds import rollout

#: Width of a step of the divisor.
STEP = 2 ** (1 / 16)
WHOLE = ("obs", "action")


def paid(reward, terminated=(), truncated=(), sampler="sampler-0", obs_shape=(1,), obs_dtype="float32"):
    """A rollout of one environment with these rewards, and ends after these steps."""
    steps, ended = len(reward), sorted({*terminated, *truncated})
    flags = {}
    for name, places in (("terminated", terminated), ("truncated", truncated)):
        flags[name] = np.isin(np.arange(steps), list(places))[:, None]
    return Rollout(
        *(sampler, 1, 0, steps, 1, steps, 1),
        obs=np.zeros((steps + 1, 1, *obs_shape), obs_dtype),
        action=np.zeros((steps, 1, 1), np.float32),
        reward=np.array(reward, np.float32)[:, None],
        final_obs=np.zeros((len(ended), *obs_shape), obs_dtype),
        final_index=np.array([(t, 0) for t in ended], np.int32).reshape(-1, 2),
        **flags,
    )


def test_rewards_are_divided_by_the_deviation_of_the_running_return():
    """One environment, gamma 0.5, rewards 1, 1, 1: returns 1, 1.5, 1.75, their deviation by hand."""
    scale = RewardScale(0.5)
    scaled = scale(rollout(0, 1.0, num_envs=1))
    assert scaled[:, 0] == pytest.approx(np.ones(3) / np.std([1.0, 1.5, 1.75]), rel=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0, -250.0, 1e-5])
def test_rewards_that_are_all_alike_have_a_usual_size(reward):
    """Without a discount, or in rollouts of one step, returns have no deviation at first."""
    scale = RewardScale(0.0)
    for start in range(3):
        assert np.abs(scale(rollout(start, reward))).max() == pytest.approx(float(reward != 0.0), rel=1e-5)


def test_a_reward_far_from_what_was_met_is_cut_off():
    """As VecNormalize does: the first large one in a million small ones would be all that is learned."""
    scale = RewardScale(0.5)
    for start in range(50):
        scale(rollout(start, 0.001 * (-1) ** start))
    assert scale(paid([0.001, 500.0, -500.0], sampler="sampler-1"))[:, 0].tolist()[1:] == [10.0, -10.0]


def test_a_running_return_begins_anew_with_an_episode():
    """An end after the first step: returns 1, 1, 1.5; the next rollout of the stream goes on from 1.5."""
    scale = RewardScale(0.5)
    scale(rollout(0, 1.0, num_envs=1, ended=[(0, 0)]))
    scaled = scale(rollout(0, 1.0, num_envs=1))
    expected = np.std([1.0, 1.0, 1.5, 1.75, 1.875, 1.9375])
    assert scaled[0, 0] == pytest.approx(1 / expected, rel=1e-6)


def test_the_deviation_goes_on_from_its_state():
    """What a checkpoint holds gives the same scale."""
    first, second = RewardScale(0.9), RewardScale(0.9)
    first(rollout(0, 2.0))
    second.load_state_dict(first.state_dict())
    later = rollout(1, 3.0)
    assert second(later).tolist() == first(later).tolist()


@pytest.mark.parametrize("kind", [lambda: RewardScale(0.9), lambda: ReturnScale(0.9, 5.0)])
def test_a_sampler_that_goes_on_in_another_process_goes_on_in_its_returns(kind):
    """In its next rollout alone: a later life of it begins at 0."""
    whole, first, second = kind(), kind(), kind()
    take = {scale: getattr(scale, "add", scale) for scale in (whole, first, second)}
    lives = [paid([1.0, 2.0]), paid([3.0, 1.0]), replace(paid([2.0, 2.0]), incarnation=7)]
    for each in lives:
        take[whole](each)
    take[first](lives[0])
    second.load_state_dict(first.state_dict())
    second.go_on(first.running())
    for incarnation, each in zip((4, 5), lives[1:], strict=True):
        take[second](replace(each, incarnation=incarnation))
    assert second.sums().tolist() == whole.sums().tolist()
    assert second.running()["sampler-0"].tolist() == whole.running()["sampler-0"].tolist()


def test_only_the_last_lives_of_a_sampler_are_remembered():
    """Of one that is started again and again for a week; of the life before, rollouts may still come."""
    scale, alone = ReturnScale(0.9, 5.0), ReturnScale(0.9, 5.0)
    for life in range(100):
        for each in (paid([1.0, 2.0], sampler="sampler-1"), replace(paid([4.0]), incarnation=life)):
            scale.add(each)
    assert len(scale._returns._running) == 3
    scale.add(replace(paid([3.0]), incarnation=98))
    for each in (paid([4.0]), paid([3.0])):
        alone.add(each)
    found, expected = scale._returns._running["sampler-0/98"], alone._returns._running["sampler-0/1"]
    assert found.tolist() == expected.tolist()


def test_a_run_that_goes_on_keeps_the_returns_of_who_has_sent_nothing_since():
    """Of a source of data too, which no later process reads again into a replay that is back: the next
    checkpoint is that of one whole run.
    """
    first, second = ReturnScale(0.9, 5.0), ReturnScale(0.9, 5.0)
    for sampler in ("data-shown", "sampler-0", "sampler-1"):
        first.add(paid([1.0, 2.0], sampler=sampler))
    second.go_on(first.running())
    for scale in (first, second):
        scale.add(paid([4.0], sampler="sampler-0"))
    assert list(second.running()) == list(first.running()) == ["data-shown", "sampler-0", "sampler-1"]
    assert all(torch.equal(second.running()[name], each) for name, each in first.running().items())


@pytest.mark.parametrize(
    ("rollouts", "largest"),
    [
        ([paid([1.0, 1.0, 1.0])], 1.75),
        ([paid([1.0, 1.0]), paid([1.0])], 1.75),
        ([paid([1.0, 1.0, 1.0], terminated=[1])], 1.5),
        ([paid([1.0, 1.0, 1.0], truncated=[1])], 1.75),
        ([paid([1.0, 1.0]), paid([-40.0], sampler="sampler-1"), paid([1.0])], 40.0),
        ([paid([0.0, 1e-30, 0.0])], 2.0**-40),
        ([paid([0.0, 1e30, 0.0])], 2.0**60),
    ],
    ids=["sum", "across rollouts", "terminated", "truncated", "penalty", "tiny", "huge"],
)
def test_the_largest_return_gets_the_size_that_suits_critics(rollouts, largest):
    """With gamma 0.5, by hand. A return goes on past truncation, as values do, and not past termination."""
    scale = ReturnScale(0.5, 5.0)
    for one in rollouts:
        scale.add(one)
    assert largest / 5.0 / STEP < scale.divisor <= largest / 5.0 * STEP


def test_without_a_discount_a_return_is_that_of_one_episode():
    """Past time limits it would grow with every episode, and rewards would fade to nothing."""
    scale = ReturnScale(1.0, 5.0)
    for _ in range(100):
        scale.add(paid([-2.0] * 100, truncated=[99]))
    assert 200.0 / 5.0 / STEP < scale.divisor <= 200.0 / 5.0 * STEP


def test_a_return_that_no_other_comes_near_shows():
    """Its divisor fits it alone: the median of the others is left with a ten-thousandth of the range."""
    scale = ReturnScale(0.0, 5.0)
    scale.add(paid([1.0, 1.1, 0.9, 0.0, 1.0]))
    assert scale.spread == pytest.approx(1.1, rel=0.1)
    scale.add(paid([-1e4]))
    assert scale.spread == pytest.approx(1e4, rel=0.1)


def test_a_reward_that_is_seldom_met_is_no_accident():
    """It fades for thousands of steps without another, past time limits; each time it is as large."""
    scale = ReturnScale(0.9, 5.0)
    for _ in range(3):
        scale.add(paid([1.0, *[0.0] * 1000], truncated=[500]))
    assert scale.spread == pytest.approx(1.0)


def test_without_rewards_nothing_is_divided():
    """A sparse task before its first reward."""
    scale = ReturnScale(0.9, 5.0)
    assert scale.divisor == 1.0
    scale.add(paid([0.0, 0.0]))
    assert scale.divisor == 1.0


def test_what_several_sets_have_seen_adds_up():
    """As of one who has seen everything, and as a checkpoint gives it back."""
    rewards = np.random.default_rng(1).normal(3.0, 20.0, (2, 40)).tolist()
    one, parts = ReturnScale(0.9, 5.0), [ReturnScale(0.9, 5.0), ReturnScale(0.9, 5.0)]
    for index, reward in enumerate(rewards):
        seen = paid(reward, sampler=f"sampler-{index}")
        one.add(seen)
        parts[index].add(seen)
    before = parts[0].sums()
    parts[0].adopt(before + parts[1].sums())
    assert parts[0].divisor == one.divisor > 0
    again = ReturnScale(0.9, 5.0)
    again.load_state_dict(one.state_dict())
    assert (again.divisor, again.sums().tolist()) == (one.divisor, one.sums().tolist())


@pytest.mark.parametrize("prioritized", [False, True], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_rewards_are_divided_when_they_are_drawn(prioritized, images):
    """The replay keeps them as they came: what was stored before the largest return is divided by it too."""
    shape, dtype = ((1, 4, 4), "uint8") if images else ((1,), "float32")
    settings = options(50, 0.5, prioritized=prioritized, normalize_rewards=True)
    replay = replay_of(WHOLE, spec(shape, dtype), settings, "cpu", 0)
    replay.add(paid([1.0], obs_shape=shape, obs_dtype=dtype))
    for _ in range(2):
        assert set(replay.sample(8).reward.tolist()) == {
            np.float32(1.0) * np.float32(1 / replay.scale.divisor)
        }
    replay.add(paid([0.0, 100.0], obs_shape=shape, obs_dtype=dtype))
    expected = torch.tensor([0.0, 1.0, 100.0]) / replay.scale.divisor
    torch.testing.assert_close(replay.sample(200).reward.unique(), expected)
    assert expected.max() <= 5.0


def test_rewards_stay_unless_options_ask():
    """By default, and for observations alone."""
    assert replay_of(WHOLE, spec(), options(5), "cpu", 0).scale is None
    assert replay_of(("obs",), spec(), options(5, normalize_rewards=True), "cpu", 0).scale is None
