"""Whatever an environment returns, raises or asks for: a matrix of spaces, dtypes, infos and exceptions.

``SPREEZE_CASES=20000`` tries as many of each kind in place of the default's few.
"""

import builtins
import os
import signal
import warnings
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment, interrupt
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.envs.engines.gymnasium_loop import GymnasiumLoop
from spreeze_zmq.envs.failures import Failures
from spreeze_zmq.envs.spec import spec_of
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.policy import Policy
from tests.unit.envs.doors import TABLE

some = settings(
    max_examples=int(os.environ.get("SPREEZE_CASES", "50")),
    deadline=None,
    derandomize="SPREEZE_CASES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LENGTH, ODD = 4, 2

dtypes = st.sampled_from(["f2", "f4", "f8", "u1", "i1", "i2", "u4", "i4", "i8"]).map(np.dtype)
shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=3)
boxes = st.builds(lambda shape, dtype: spaces.Box(*limits(dtype), shape, dtype), shapes, dtypes)
starts = st.integers(-3, 3)
leaves = st.one_of(
    boxes,
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), starts),
    st.builds(lambda n, k: spaces.MultiDiscrete([n, k], start=[1, -1]), st.integers(1, 4), st.integers(1, 4)),
    st.builds(spaces.MultiBinary, st.integers(1, 4) | st.just([2, 2])),
)
observed = st.one_of(
    boxes,
    st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.text(min_size=1, max_size=3), inner, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts))),
        ),
        max_leaves=4,
    ),
)
bounds = st.sampled_from([0.1, 0.2, 0.3, 0.785, 1.0, np.pi, 2.8973, 1e6, np.inf, 3.4028234663852886e38])
actions = st.one_of(
    st.builds(
        lambda low, high, dtype: spaces.Box(-low, high, (2,), dtype),
        bounds,
        bounds,
        st.sampled_from(["f4", "f8"]),
    ),
    st.builds(lambda b: spaces.Box(-b, b, (1,), "f2"), st.sampled_from([0.1, 0.3, 1.0])),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(2, 5), starts),
    st.just(spaces.MultiDiscrete([2, 3], start=[5, -1])),
)
arrays = hnp.arrays(
    st.sampled_from(["?", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "U2", "O"]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
)
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers() | st.sampled_from([10**30, 10**400, -(10**4000)]),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(codec=None), max_size=3),
    st.binary(max_size=3),
    arrays,
    arrays.map(lambda array: np.ma.masked_array(array, mask=True)),
    st.sampled_from([object(), int, np.float32, range(3), ..., NotImplemented, np.datetime64(3, "s")]),
    st.sampled_from(
        [np.float16(3), np.bool_(1), np.array(1.0), np.array([1]), np.float32(np.nan), np.ones((1, 1))]
    ),
    st.lists(st.floats() | st.none() | st.lists(st.integers()), max_size=3),
)
keys = st.one_of(
    st.text(st.characters(codec=None), max_size=3),
    st.sampled_from(
        ["failed", "_failed", "k", "_k", "final_obs", "episode", "_episode", "env_id", "final_info"]
    ),
    st.integers(0, 3),
    st.none(),
    st.tuples(st.integers(0, 1)),
)
infos = st.recursive(junk, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=6)
exceptions = st.sampled_from(
    [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
)


def limits(dtype):
    """All that a dtype holds, and no more than can be trained on."""
    if dtype.kind == "f":
        return -1000.0, 1000.0
    return max(np.iinfo(dtype).min, -(2**40)), min(np.iinfo(dtype).max, 2**40)


@pytest.fixture(autouse=True)
def handled():
    """SIGINT as in the programs of this package."""
    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


class Odd(gymnasium.Env):
    """Episodes of four steps of reward 1; ``mend`` changes what the second step of each returns."""

    def __init__(self, observation, action, mend):
        self.observation_space, self.action_space, self.mend = observation, action, mend
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        """Begin."""
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        """Go on."""
        self.steps += 1
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        if isinstance(action, np.ndarray):
            assert action.dtype == self.action_space.dtype
            action *= 0
        returned = self.observation_space.sample(), 1.0, False, self.steps >= LENGTH, {}
        return self.mend(returned) if self.steps == ODD else returned


def batch_of(observation, action, mend, num_envs=1, step_info=False):
    """A batch of these, of which ``mend`` changes one step in all, and its failures."""
    observation.seed(0)
    once = [mend]
    env = GymnasiumLoop(
        "Odd",
        lambda _: Odd(observation, action, lambda step: once.pop()(step) if once else step),
        num_envs,
        0,
        step_info,
    )
    noted = []
    env.failures = Failures(10**9, noted.append)
    return env, noted


def drawn(env, rng):
    """Actions as a policy might draw them: of a box beyond every bound."""
    space = env.single_action_space
    if not isinstance(space, spaces.Box):
        return env.action_space.sample()
    scale = rng.choice([0.1, 1.0, 1e6, 3e38], (env.num_envs, *space.shape))
    return (scale * rng.uniform(-1, 1, scale.shape)).astype(np.float32)


def steps_of(env, num=2 * LENGTH):
    """Step a batch; every result is checked."""
    rng, space = np.random.default_rng(0), env.single_observation_space
    obs, _ = env.reset()
    for _ in range(num):
        given = drawn(env, rng)
        kept = given.copy()
        obs, reward, terminated, truncated, info = env.step(given)
        np.testing.assert_array_equal(given, kept)
        assert (obs.dtype, obs.shape) == (space.dtype, (env.num_envs, *space.shape))
        assert np.isfinite(obs).all()
        assert np.abs(reward).max() <= LARGEST
        assert terminated.dtype == truncated.dtype == np.bool_
        yield obs, reward, terminated, truncated, info


def holds(space, value):
    """Whether a Box can hold a value, as NumPy says."""
    try:
        array = np.asarray(value)
    except Exception:
        return False
    if np.ma.is_masked(value) or array.dtype.kind not in "biuf" or array.shape != space.shape:
        return False
    with np.errstate(all="ignore"):
        cast = array.astype(space.dtype)
        if space.dtype.kind != "f":
            return bool((cast == array).all())
        return bool((np.abs(array) <= LARGEST).all() and np.isfinite(cast).all())


@some
@given(observed, actions)
def test_well_behaved_environments_never_fail(observation, action):
    """In all spaces; actions are copies within the bounds of the space, in its dtype."""
    env, noted = batch_of(observation, action, lambda step: step, num_envs=2)
    ends = [truncated.tolist() for *_, truncated, _ in steps_of(env)]
    assert noted == []
    assert ends == [[step % LENGTH == LENGTH - 1] * 2 for step in range(2 * LENGTH)]


@some
@given(boxes, junk | arrays)
def test_any_observation_is_taken_or_one_failure(space, value):
    """It comes out as NumPy casts it, or the episode is truncated at the last observation."""
    env, noted = batch_of(space, spaces.Discrete(2), lambda step: (value, *step[1:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = list(steps_of(env))
    obs, _, _, truncated, info = results[ODD - 1]
    if holds(space, value):
        assert noted == []
        np.testing.assert_array_equal(obs[0], np.asarray(value).astype(space.dtype))
    else:
        assert len(noted) == 1
        assert "the observation" in noted[0].summary
        assert truncated.tolist() == info["failed"].tolist() == [True]
        np.testing.assert_array_equal(info["final_obs"], results[ODD - 2][0])


@some
@given(observed, junk, st.sampled_from(["reward", "terminated", "truncated", "all", "first", "obs"]))
def test_any_other_value_is_taken_or_one_failure(space, value, place):
    """Rewards, flags, parts of observations, and what is no tuple of five."""

    def mend(step):
        obs, reward, terminated, truncated, info = step
        if place == "obs" and isinstance(obs, dict):
            obs = {**obs, next(iter(obs)): value}
        mended = {
            "reward": (obs, value, terminated, truncated, info),
            "terminated": (obs, reward, value, truncated, info),
            "truncated": (obs, reward, terminated, value, info),
            "obs": (obs if isinstance(obs, dict) else value, reward, terminated, truncated, info),
        }
        return mended.get(place, value if place == "all" else step[:-1])

    env, noted = batch_of(space, spaces.Discrete(2), mend)
    results = list(steps_of(env))
    assert len(noted) <= 1
    failed = bool(noted)
    assert ("failed" in results[ODD - 1][4]) == failed
    if place in ("first", "all"):
        assert failed
    for failure in noted:
        failure.summary.encode()
        assert "\n" not in failure.summary


@some
@given(infos, infos, st.sampled_from([True, "final"]))
def test_no_info_is_a_failure(first, second, step_info):
    """Of two environments at once, in each order; nor does it end an evaluation."""
    told = [first, second]

    class Telling(Odd):
        def step(self, action):
            told.reverse()
            return (*super().step(action)[:4], told[0])

    space = spaces.Box(-1, 1, (2,), np.float32)
    env = GymnasiumLoop(
        "Telling", lambda _: Telling(space, spaces.Box(-1, 1), lambda step: step), 2, 0, step_info
    )
    env.failures = Failures(0)
    assert all("failed" not in info for *_, info in steps_of(env, LENGTH + 1))
    score = play(env, policy_of(2), 0)
    assert score.returns.tolist() == [LENGTH] * 2
    assert all(np.isfinite(value) for value in score.info.values())
    for name in score.info:
        name.encode()


@some
@given(exceptions, st.sampled_from(["step", "reset", "close"]))
def test_whatever_is_raised_costs_an_episode(kind, call):
    """Every exception that Python has; an evaluation plays the episode again."""

    again = [True] * 2

    class Raising(Odd):
        def raised(self, name):
            if name == call and (name != "step" or self.steps == ODD) and again:
                again.pop()
                inner = [ValueError() if issubclass(kind, Exception) else KeyboardInterrupt()]
                raise kind("", inner) if issubclass(kind, BaseExceptionGroup) else kind.__new__(kind)

        def reset(self, **kwargs):
            if again and not self.steps:  # the very first one
                return super().reset(**kwargs)
            self.raised("reset")
            return super().reset(**kwargs)

        def step(self, action):
            step = super().step(action)
            self.raised("step")
            return step

        def close(self):
            self.raised("close")

    space = spaces.Box(-1, 1, (2,), np.float32)
    env = GymnasiumLoop(
        "Raising", lambda _: Raising(space, spaces.Box(-1, 1), lambda step: step), 2, 0, False
    )
    noted = []
    env.failures = Failures(100, noted.append)
    score = play(env, policy_of(2), 0, num_episodes=4)
    assert score.returns.tolist() == [LENGTH] * 4
    env.close()
    assert len(noted) == (0 if call == "close" else 2)
    for failure in noted:
        assert f"raised in {call}: {kind.__name__}" in failure.summary
        assert "test_door_matrix.py:" in failure.summary


@some
@given(actions)
def test_a_policys_float32_bounds_lie_within_the_environments(space):
    """Those of the spec, which every policy, exported ones too, clips to."""
    try:
        spec = spec_of("x", {}, spaces.Box(-1, 1, (2,)), shifted(space), None)
    except InvalidEnvironment:
        return
    if spec.action_low is None:
        return
    for bound in (spec.action_low, spec.action_high):
        assert bound.dtype == np.float32
        assert (space.low <= bound.astype(np.float64)).all()
        assert (bound.astype(np.float64) <= space.high).all()
        assert space.contains(bound.astype(space.dtype))


def shifted(space):
    """A discrete space that counts from 0, as batches have it."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    return spaces.MultiDiscrete(space.nvec) if isinstance(space, spaces.MultiDiscrete) else space


def policy_of(num):
    """A policy of ``num`` numbers that always gives 0."""
    fields = {
        "version": 1,
        "description": {
            "observation": {"shape": [num], "normalize": False, "clip": 10.0},
            "layers": [{"kind": "linear", "in": num, "out": 1}],
            "distribution": {"kind": "deterministic", "noise_min": 0.0, "noise_max": 0.0},
        },
    }
    limits = {"action_low": -np.ones(1, np.float32), "action_high": np.ones(1, np.float32)}
    return Policy(fields, {"parameters": np.zeros(num + 1, np.float32), **limits})


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_worker_does_as_one_process_does(num_workers):
    """Each wrong return and exception of a table in turn: one failure each, and the batch goes on."""
    noted = []
    options = {"max_failures": 10**9, "on_failure": noted.append, "step_info": "final"}
    with closing(envs.make("tests.unit.envs.doors:Table", 2, num_workers=num_workers, **options)) as env:
        env.reset()
        for _ in range(3 * len(TABLE)):
            obs, reward, *_ = env.step(np.zeros((2, 1)))
            assert np.isfinite(obs).all()
            assert np.isfinite(reward).all()
    assert len(noted) == 2 * len(TABLE)
    places = [failure.summary.partition(" of 2 ")[2].split()[0] for failure in noted]
    assert places.count("returned") < places.count("raised")
    assert set(places) == {"returned", "raised"}
