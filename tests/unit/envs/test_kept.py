"""A batch that is brought to the state of another one goes on bit by bit as that one does."""

import functools
from contextlib import closing, nullcontext
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import StateNotKept
from spreeze_zmq.run.sampler_state import packed, unpacked


class Own(gymnasium.Env):
    """An environment whose state are attributes of several kinds, two of them one object."""

    observation_space = gymnasium.spaces.Box(-100, 100, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Two names for one array."""
        super().reset(seed=seed)
        self.place, self.seen, self.goal = np.zeros(2), [], (1.5, "left")
        self.newest = self.place
        self.num_steps = np.int32(0)
        return self._obs(), {}

    def step(self, action):
        """Noise from its own generator."""
        self.place += action[0] + self.np_random.normal(0, 0.1, 2)
        self.seen.append(float(self.place.sum()))
        self.num_steps += 1
        return self._obs(), float(self.newest[0]), len(self.seen) == 7, False, {}

    def _obs(self):
        return np.array((*self.newest, sum(self.seen)), np.float32)


class Changing(Own):
    """One whose goals a space draws, and whose other attributes change in the second step of an episode."""

    def __init__(self):
        goals = gymnasium.spaces.Tuple((gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(5)))
        self.goals, self.behave = gymnasium.spaces.Dict({"all": goals}), self.walk
        self.told = functools.partial(self.walk, 1)

    def reset(self, **options):
        """Draw a goal."""
        begun = super().reset(**options)
        self.left, self.doors, self.at = range(9), frozenset({"a"}), Path("here")
        self._draw()
        return begun

    def step(self, action):
        """Draw another."""
        if len(self.seen) == 1:
            self.left, self.doors, self.at = range(3, 1, -1), frozenset({"b", 2}), Path("there")
        self._draw()
        obs, reward, *rest = super().step(action)
        kept = sum(self.left) + 10 * len(self.doors) + 100 * (self.at == Path("there"))
        return obs, reward + self.behave(0) + self.goal[0].sum() + kept, *rest

    def _draw(self):
        self.goal = self.goals.sample()["all"]

    def walk(self, number):
        """Any number."""
        return number

    def turn(self, number):
        """Another."""
        return -number


class Drawing(Own):
    """One that draws from its own action space, which nobody has seeded; its arrays are rows of one."""

    def __init__(self):
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.left, self.right = np.arange(4.0).reshape(2, 2)

    def reset(self, **options):
        self.drawn = self.action_space.sample()
        return super().reset(**options)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        self.left += reward
        return obs, reward + self.drawn[0] + self.right[0] + self.left[0], *rest


class Speaking(Own):
    """One that speaks for itself, about an object that is no plain value."""

    def reset(self, **options):
        self.hidden = object()
        return super().reset(**options)

    def get_state(self):
        return {"place": self.place, "seen": self.seen, "num_steps": int(self.num_steps)}

    def set_state(self, state):
        self.place = self.newest = state["place"]
        self.seen, self.num_steps = state["seen"], np.int32(state["num_steps"])


class Hiding(Own):
    """One that does not, with such an object."""

    def reset(self, **options):
        self.hidden = object()
        return super().reset(**options)


HERE = __name__
CASES = {
    "drawing": (f"{HERE}:Drawing", {}),
    "a task in NumPy": ("Pendulum-v1", {"max_episode_steps": 13}),
    "another": ("CartPole-v1", {}),
    "MuJoCo": ("HalfCheetah-v5", {"max_episode_steps": 13}),
    "MuJoCo with contact forces": ("Ant-v5", {"max_episode_steps": 13}),
    "MuJoCo with computed fields": ("Humanoid-v5", {}),
    "drawn parameters": (
        "Hopper-v5",
        {"randomize": {"body_mass": [0.5, 1.5], "opt.wind": {"add": [0, 1]}}},
    ),
    "Gymnasium": ("Acrobot-v1", {"max_episode_steps": 13}),
    "Gymnasium's MuJoCo": ("Humanoid-v5", {"backend": "gymnasium"}),
    "one's own": (f"{HERE}:Own", {}),
    "one whose spaces draw": (f"{HERE}:Changing", {}),
    "one that speaks for itself": (f"{HERE}:Speaking", {}),
    "masks": ("tests.masked:Game", {"action_mask": True, "limit": True}),
}


def made(env_id, seed, options):
    """A batch of three that has been reset."""
    batch = envs.make(env_id, 3, seed=seed, step_info=False, **options)
    batch.reset()
    return batch


def legal(batch, action):
    """The same actions, but the first legal one for each that is not, where masks say so."""
    mask = batch.action_mask
    return action if mask is None else np.where(mask[np.arange(3), action], action, mask.argmax(1))


def played(batch, actions):
    """What a batch returns of some steps."""
    found = []
    for action in actions:
        obs, reward, terminated, truncated, info = batch.step(legal(batch, action))
        episode = info.get("episode", {"r": np.zeros(3), "l": np.zeros(3)})
        masks = [info[name] for name in ("action_mask", "final_action_mask") if name in info]
        last_obs = info.get("final_obs", obs)
        found.append((obs, reward, terminated, truncated, last_obs, *episode.values(), *masks))
    return found


def test_what_an_environment_draws_from_its_own_spaces_follows_from_the_seed():
    """Batches of one seed are alike, those of another differ, and the library draws nothing from them."""
    batches = [envs.make(f"{__name__}:Drawing", 3, seed=seed) for seed in (1, 1, 2)]
    for batch in batches:
        batch.reset(seed=5)
    goals = [[float(env.unwrapped.drawn[0]) for env in batch.envs] for batch in batches]
    assert goals[0] == goals[1] != goals[2]
    assert len(set(goals[0])) == 3


@pytest.mark.parametrize("case", CASES)
def test_a_batch_goes_on_where_another_one_was(case):
    """Through ends of episodes, with the same observations, masks, rewards, lengths and returns; and its
    state, as bytes, is that one's.
    """
    env_id, options = CASES[case]
    one, other = made(env_id, 1, options), made(env_id, 2, options)
    one.action_space.seed(1)
    actions = [one.action_space.sample() for _ in range(60)]
    played(one, actions[:20])
    played(other, actions[:7])
    state = packed(one.get_state())
    other.set_state(unpacked(state))
    assert packed(other.get_state()) == state
    np.testing.assert_array_equal(other.action_mask, one.action_mask)
    expected, got = played(one, actions[20:]), played(other, actions[20:])
    assert any(step[2].any() or step[3].any() for step in expected) or "MuJoCo" in case
    for step, same in zip(expected, got, strict=True):
        for left, right in zip(step, same, strict=True):
            np.testing.assert_array_equal(left, right)
    one.close(), other.close()


START, TABLE = np.zeros(2), np.arange(4.0)


class Parting(Own):
    """Its attributes are one array after a reset, or a constant, and others after a step."""

    origin, home = np.zeros(2), START

    def reset(self, **options):
        """Nothing is copied."""
        begun = super().reset(**options)
        self.place = self.before = self.home
        self.spot, self.table, self.first = self.origin, TABLE, self.place
        return begun

    def step(self, action):
        """Nothing is written to."""
        self.before, self.place = self.place, self.place + action[0] + self.np_random.normal(0, 0.1, 2)
        self.spot = self.spot + 1
        self.newest = self.place - self.before + self.spot + self.table[0] + self.first
        self.seen.append(float(self.place.sum()))
        return self._obs(), float(self.newest[0]), len(self.seen) == 7, False, {}


def test_what_is_one_array_after_a_reset_and_several_later_goes_on_as_these():
    """Written to in place each would get the last one's numbers, and each later episode begin there."""
    one, other = (made(f"{HERE}:Parting", seed, {}) for seed in (1, 2))
    one.action_space.seed(1)
    actions = [one.action_space.sample() for _ in range(20)]
    played(one, actions[:5])
    other.set_state(unpacked(packed(one.get_state())))
    assert not START.any()
    assert not Parting.origin.any()
    assert all(env.unwrapped.table is TABLE for env in other.envs)  # perhaps a large one
    for step, same in zip(played(one, actions[5:]), played(other, actions[5:]), strict=True):
        for left, right in zip(step, same, strict=True):
            np.testing.assert_array_equal(left, right)


def test_what_cannot_be_kept_is_named():
    """The attribute, and of which kind it is; so is an engine that tells nothing."""
    batch = made(f"{HERE}:Own", 1, {})
    batch.envs[0].unwrapped.note = batch.envs[0].unwrapped.seen.append  # of a list that is made anew
    with pytest.raises(StateNotKept, match=r"Own.note is a builtins.builtin_function_or_method"):
        batch.get_state()
    with pytest.raises(StateNotKept, match=r"Hiding.hidden is a builtins.object"):
        made(f"{HERE}:Hiding", 1, {}).get_state()
    batch = made(f"{HERE}:Own", 1, {})
    batch.envs[0].unwrapped.view = batch.envs[0].unwrapped.place[:1]
    with pytest.raises(StateNotKept, match=r"Own.view is a view of another array"):
        batch.get_state()


def test_what_is_in_workers_is_not_kept_and_they_are_the_reason():
    """Its engine would tell it, in the process of the batch."""
    batch, said = (
        made(f"{HERE}:Own", 1, {"num_workers": 2}),
        r"worker processes .components\.sampler\.workers = 0",
    )
    with closing(batch), pytest.raises(StateNotKept, match=said):
        batch.get_state()


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("behave", lambda env: env.turn, r"holds .*Changing.turn where a new one holds .*Changing.walk"),
        ("told", lambda env: functools.partial(env.walk, 2), r"walk\(2\) where .*walk\(1\)"),
        ("told", lambda env: None, ""),
    ],
)
def test_a_function_that_was_exchanged_is_not_gone_on_without(attribute, value, said):
    """Only its name is kept."""
    one, other = (made(f"{HERE}:Changing", seed, {}) for seed in (1, 2))
    inner = one.envs[0].unwrapped
    setattr(inner, attribute, value(inner))
    with pytest.raises(StateNotKept, match=said) if said else nullcontext():
        other.set_state(unpacked(packed(one.get_state())))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda state: state.update(env="Other-v0"), "its env is Other-v0"),
        (lambda state: state.update(num_envs=4), "its num_envs is 4"),
        (lambda state: state.pop("_length"), "KeyError"),
        (lambda state: state.update(inner=[]), "shorter|ValueError"),
        (lambda state: state.update(inner=[[{"class": "Else", "attributes": {}}]] * 3), "state of a Else"),
        (lambda state: state["inner"][0][-1]["attributes"].update(step=1), "step is no part of its state"),
    ],
)
def test_a_state_of_another_kind_is_refused_in_one_line(damage, said):
    """Whatever it holds; nothing is executed."""
    batch = made(f"{HERE}:Own", 1, {})
    state = unpacked(packed(batch.get_state()))
    damage(state)
    with pytest.raises(StateNotKept, match=said) as refused:
        batch.set_state(state)
    assert "\n" not in str(refused.value)
