"""The door to an environment: what a step is given and returns, whatever the environment's author wrote."""

import signal
import warnings
from contextlib import closing

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatten

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, Interrupted, interrupt, let_interrupts_pass
from spreeze_zmq.envs.door import Given, Observed, WrongReturn
from tests.unit.envs import doors

HERE = "tests.unit.envs.doors"
NAMES = ("float", "int", "bool", "npfloat", "str", "None", "arr2", "arr3", "arr0d", "arr2d", "list")
VALUES = (1.5, 3, True, np.float32(1), "goal", None, *map(np.zeros, (2, 3, (), (2, 2))), [1, 2])
INFOS = dict(zip(NAMES, VALUES, strict=True))
INFOS |= {"dict": {"a": 1.0}, "dict2": {"a": "x", "b": 1}, "obj": object(), "hugeint": 10**30, "absent": ...}


@pytest.fixture
def handled():
    """SIGINT as in the programs of this package: a KeyboardInterrupt of another origin is no Ctrl-C."""
    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def played(steps=12, num_envs=2, step_info="final", **kwargs):
    """A batch after some steps, and the failures that it noted."""
    failures = []
    kwargs |= {"max_failures": 10**9, "on_failure": failures.append, "step_info": step_info}
    env = envs.make(f"{HERE}:Line", num_envs, **kwargs)
    env.reset()
    for _ in range(steps):
        obs, reward, *_ = env.step(np.zeros((num_envs, 1)))
        assert np.isfinite(obs).all()
        assert np.isfinite(reward).all()
    return env, failures


def test_a_step_that_writes_to_its_action_changes_no_other_copy():
    """What a sampler stores is what its policy drew."""
    env = envs.make(f"{HERE}:Flips", 1)
    env.reset()
    action = np.full((1, 1), 0.5, np.float32)
    assert env.step(action)[1].tolist() == [-0.5]
    assert action.tolist() == [[0.5]]


@pytest.mark.parametrize("bound", [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 1.1, 0.05, np.pi, 2.8973, 0.785, 0.9])
def test_actions_lie_within_the_bounds_of_a_float64_box(bound):
    """The spec's bounds are the nearest float32 inside, and the door clips what lies outside."""
    space = Box(-bound, bound, (2,), np.float64)
    given = Given(space)(np.array([[-bound, bound], [-9, 9]], np.float32), 2)
    assert given.dtype == np.float64
    assert all(space.contains(row) for row in given)
    spec = envs.spec.spec_of("x", {}, Box(-1, 1, (1,)), space, None)
    assert -bound <= float(spec.action_low[0]) < np.nextafter(np.float32(-bound), np.float32(1)) + 1e-6
    assert space.contains(np.array([spec.action_low[0], spec.action_high[1]], np.float64))


def test_bounds_of_a_float32_box_are_not_changed():
    """Whatever was trained before acts in the same box."""
    spec = envs.spec.spec_of("x", {}, Box(-1, 1, (1,)), Box(-0.1, 0.3, (2,), np.float32), None)
    assert spec.action_low.tolist() == [np.float32(-0.1)] * 2
    assert spec.action_high.tolist() == [np.float32(0.3)] * 2


def test_discrete_actions_that_are_floats_are_refused():
    """0.7 is not taken for 0."""
    with pytest.raises(ValueError, match="integer actions expected, got float64"):
        Given(Discrete(3))(np.array([0.7]), 1)


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (lambda s: (s[0][:1], *s[1:]), "the observation [3.] of shape (1,), expected float32 of shape (3,)"),
        (lambda s: (0.5, *s[1:]), "the observation 0.5 of shape (), expected float32 of shape (3,)"),
        (lambda s: (None, *s[1:]), "the observation None, expected float32 of shape (3,)"),
        (lambda s: ([1.0, [2.0], 3.0], *s[1:]), "the observation [1.0, [2.0], 3.0], expected float32"),
        (
            lambda s: (np.array([1, None, 3], object), *s[1:]),
            "an array of shape (3,) and dtype object, expected",
        ),
        (
            lambda s: (np.array([1e40, 1.0, 2.0]), *s[1:]),
            "which holds 1e+40 at [0], expected a finite number",
        ),
        (lambda s: (s[0] * np.nan, *s[1:]), "gave the observation [nan nan nan], which holds nan at [0]"),
        (lambda s: (np.ma.masked_less(s[0], 1), *s[1:]), "some of its entries are masked"),
        (lambda s: (s[0] + 0j, *s[1:]), " of complex64, expected float32"),
        (lambda s: (s[0], None, *s[2:]), "the reward None, expected a finite number"),
        (lambda s: (s[0], "1.5", *s[2:]), "the reward '1.5', expected a finite number"),
        (lambda s: (s[0], 1j, *s[2:]), "the reward 1j, expected a finite number"),
        (lambda s: (s[0], np.zeros(2), *s[2:]), "the reward [0. 0.], expected a finite number"),
        (lambda s: (s[0], np.nan, *s[2:]), "gave the reward nan, which holds nan"),
        (lambda s: (s[0], 10**400, *s[2:]), "the reward 1000"),
        (lambda s: (*s[:2], None, *s[3:]), "terminated = None, expected True or False"),
        (lambda s: (*s[:2], "no", *s[3:]), "terminated = 'no', expected True or False"),
        (lambda s: (*s[:3], np.zeros(2, bool), s[4]), "truncated = [False False], expected True or False"),
        (lambda s: (*s[:3], 2, s[4]), "truncated = 2, expected True or False"),
        (lambda s: s[:4], "4 values, as in Gym before 0.26; step(self, action) returns (observation, "),
        (lambda s: s[0], "[3. 1. 0.5]; step(self, action) returns (observation, reward, "),
        (lambda s: None, "None; step(self, action) returns"),
    ],
)
def test_a_wrong_return_of_a_step_is_one_failure_that_names_it(returns, said):
    """What came and what was expected, with the place of the method; the episode is truncated."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, failures = played(6, 1, returns=returns)
    assert len(failures) == 2  # in the third and the sixth step
    assert said in failures[0].summary
    assert "environment 0 of 1" in failures[0].summary
    if "gave" not in said:
        assert "doors.py:" in failures[0].summary


@pytest.mark.parametrize(
    "returns",
    [
        lambda s: (s[0].tolist(), *s[1:]),
        lambda s: (s[0].astype(np.float64), *s[1:]),
        lambda s: (s[0].astype(int), *s[1:]),
        lambda s: (s[0], 1, *s[2:]),
        lambda s: (s[0], np.float32(1), *s[2:]),
        lambda s: (s[0], np.array([1.0]), *s[2:]),
        lambda s: (s[0], np.array(1), *s[2:]),
        lambda s: (*s[:2], np.bool_(False), 0, s[4]),
        lambda s: (*s[:2], 0, np.array([False]), s[4]),
        lambda s: [*s],
        lambda s: (*s[:4], None),
        lambda s: (*s[:4], ["no dict"]),
    ],
)
def test_other_forms_of_the_same_value_are_taken(returns):
    """Lists, other number types, arrays of one, no info."""
    env, failures = played(6, 1, returns=returns)
    assert failures == []
    assert env.failures.episodes == 1


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (
            lambda r: r[0],
            "[0. 2. 0.5]; reset(self, *, seed=None, options=None) returns (observation",
        ),
        (lambda r: (r[0][:2], {}), "the observation [0. 2.] of shape (2,), expected float32 of shape (3,)"),
        (lambda r: None, "None; reset(self"),
    ],
)
def test_a_wrong_return_of_a_reset_is_named(returns, said):
    """None is tolerated here; an environment that never begins is refused whatever is tolerated."""
    env = envs.make(f"{HERE}:Line", 1, at="reset", returns=returns, max_failures=0)
    env.reset()
    with pytest.raises(EnvironmentFailure) as caught:
        env.reset()
    assert "returned from reset" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [[0.3, 1, 1], [300.0, 1, 1], [-1.0, 1, 1], [256, 0, 0]])
def test_what_a_uint8_space_cannot_hold_is_refused(value):
    """0.3 is not taken for 0, 300 for 44, -1 for 255."""
    observed = Observed(Box(0, 255, (3,), np.uint8))
    with pytest.raises(WrongReturn, match="which uint8 cannot hold"):
        observed(np.array(value))
    assert observed(np.array([0.0, 7.0, 255.0])).dtype == np.uint8


@pytest.mark.parametrize("raises", doors.RAISED)
@pytest.mark.usefixtures("handled")
def test_whatever_python_can_raise_costs_an_episode(raises):
    """It is named with its place, and the batch goes on."""
    env, failures = played(6, 1, raises=raises)
    assert len(failures) == 2
    assert "raised in step: " in failures[0].summary
    assert "doors.py:" in failures[0].summary
    assert "\n" not in failures[0].summary
    failures[0].summary.encode()
    failures[0].traceback.encode()
    assert env.failures.episodes == 2


@pytest.mark.parametrize("raises", ["exit", "cancelled", "own"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_a_later_reset_raises_is_tried_again(raises, num_workers):
    """With another seed, on a new environment: the first episode of an evaluation's round is no other."""
    noted = []
    options = {"at": "reset", "raises": raises, "num_workers": num_workers, "on_failure": noted.append}
    with closing(envs.make(f"{HERE}:Line", 1, **options)) as env:
        env.reset()
        obs, _ = env.reset()
        assert obs.tolist() == [[0.0, 1.0, 0.5]]
    assert len(noted) == 1
    assert "raised in reset" in noted[0].summary


@pytest.mark.parametrize("raises", ["exit", "memory", "own"])
def test_what_close_and_render_raise_is_told(raises, caplog):
    """A close ends the others too; a picture that cannot be drawn is an error as any other."""
    env = envs.make(f"{HERE}:Line", 2, at="close", raises=raises)
    env.close()
    assert caplog.text.count("raised in close") == 2
    env = envs.make(f"{HERE}:Line", 1, at="render", raises=raises)
    with pytest.raises(Exception, match=r"environment 0 of 1 raised in render: .*doors.py:"):
        env.render()


@pytest.mark.parametrize("raises", ["", "exit", "own", "keyboard"])
@pytest.mark.parametrize("wrong", ["advance", "begin", "observe", "reward", "terminated"])
@pytest.mark.usefixtures("handled")
def test_a_native_task_that_goes_wrong_costs_its_episodes(wrong, raises):
    """Nothing says which environment it was, so all of them begin anew; it is one failure."""
    if not raises and wrong in ("advance", "begin"):
        return  # they return nothing
    noted = []
    env = envs.make(f"{HERE}:Lines", 3, wrong=wrong, raises=raises, max_failures=9, on_failure=noted.append)
    env.reset()
    for _ in range(12):
        action = np.full((3, 1), 0.5, np.float32)
        obs, reward, _, _, info = env.step(action)
        assert (action == 0.5).all()
        assert (obs.shape, reward.shape) == ((3, 2), (3,))
        assert np.isin(reward, (0.0, 1.0)).all()
        assert not {"odd", "short"} & set(info)
    assert len(noted) == 1
    assert "environments 0 to 2 of 3 " in noted[0].summary
    assert "doors.py:" in noted[0].summary
    env.task.wrong, env.task.raises = "close", raises or "exit"
    env.close()


def test_ctrl_c_passes():
    """The programs' own handler raises Interrupted; Python's raises what cannot be told from it."""
    with pytest.raises(Interrupted):
        let_interrupts_pass(Interrupted())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            let_interrupts_pass(KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("step_info", ["final", True])
def test_no_pair_of_infos_breaks_a_batch(step_info):
    """All pairs of kinds in two rows of a batch: no failure, and numbers are kept where they are numbers."""
    for first in INFOS:
        for second in INFOS:
            rows = [{} if INFOS[name] is ... else {"k": INFOS[name]} for name in (first, second)]
            env = envs.make(f"{HERE}:Line", 2, step_info=step_info, max_failures=0)
            env.reset()
            for turn in range(11):
                for row, one in enumerate(env.envs):
                    one.info = rows[(row + turn) % 2]
                info = env.step(np.zeros((2, 1)))[4]
            assert "failed" not in info


def test_an_infos_own_names_are_not_taken_for_the_batchs():
    """An environment whose info says ``failed`` has not failed; its last info still says so."""
    env = envs.make(f"{HERE}:Line", 1, info={"failed": True, "final_obs": 3, "episode": {"r": 1}})
    env.reset()
    for _ in range(5):
        info = env.step(np.zeros((1, 1)))[4]
        assert "failed" not in info
    assert info["final_info"]["failed"].tolist() == [True]
    assert info["episode"]["r"].tolist() == [5.0]


PARTS = Dict({"a": Box(-1, 1, (2,), np.float32), "b": Tuple((Discrete(3, start=1), MultiBinary(2)))})


@pytest.mark.parametrize(
    "space",
    [
        PARTS,
        Discrete(4, start=-1),
        MultiDiscrete([2, 3], start=[5, -1]),
        MultiBinary((2, 2)),
        Tuple((PARTS, PARTS)),
    ],
)
def test_parts_are_flattened_as_gymnasium_does(space):
    """Number by number."""
    space.seed(0)
    observed = Observed(space)
    for _ in range(20):
        value = space.sample()
        ours, theirs = observed(value), flatten(space, value)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype == observed.space.dtype


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"b": (1, [0, 1])}, "the observation without its part 'a'"),
        ({"a": [0.0], "b": (1, [0, 1])}, r"the observation\['a'\] \[0.0\] of shape \(1,\), expected float32"),
        ({"a": [0.0, 0.0], "b": (0, [0, 1])}, r"the observation\['b'\]\[0\] 0, expected from 1 to 3"),
        ({"a": [0.0, 0.0], "b": (4, [0, 1])}, r"the observation\['b'\]\[0\] 4, expected from 1 to 3"),
        ({"a": [0.0, 0.0], "b": (1, [0, 2])}, "expected only 0 and 1"),
        ({"a": [0.0, 0.0], "b": 3}, r"the observation\['b'\] 3, expected 2 values"),
        ([0.0, 0.0], "expected a dict"),
    ],
)
def test_a_wrong_part_is_named(value, said):
    """A Discrete of -1 is not the last choice."""
    with pytest.raises(WrongReturn, match=said):
        Observed(PARTS)(value)
