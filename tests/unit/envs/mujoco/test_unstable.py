"""A simulation that MuJoCo has reset by itself in mid-episode is no step: its episode ends there."""

import ctypes
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq import envs
from spreeze_zmq.envs.mujoco import MujocoTask

SLIDE = '<mujoco><worldbody><body><joint type="slide"/><geom size=".1"/></body></worldbody></mujoco>'


class Slide(gymnasium.Env):
    """Falls; at its third step something hits it with more than single precision holds, if ``hit``. It may
    see that itself, and end the episode.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, hit=True, sees=False):
        self.model, self.hit, self.sees = mujoco.MjModel.from_xml_string(SLIDE), hit, sees
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed=None, options=None):
        """Begin far from where MuJoCo's own reset puts it."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[0], self.steps = -5.0, 0
        return self.observed(), {}

    def observed(self):
        """Position and velocity."""
        return np.array([self.data.qpos[0], self.data.qvel[0]])

    def step(self, action):
        """Fall on."""
        self.steps += 1
        if self.hit and self.steps == 3:
            self.data.qvel[0] = 1e20
        mujoco.mj_step(self.model, self.data)
        unstable = bool(self.data.warning[mujoco.mjtWarning.mjWARN_BADQVEL].number)
        return self.observed(), 1.0, self.sees and unstable, self.steps >= 6, {}


def played(num_steps, num_workers=0, **kwargs):
    """Steps of two environments: which were truncated, their final positions, and the failures."""
    failures, cut, last = [], [], []
    options = {"on_failure": failures.append, "num_workers": num_workers, "max_failures": 0}
    with closing(envs.make(f"{__name__}:Slide", 2, **options, **kwargs)) as batch:
        batch.reset(seed=0)
        for _ in range(num_steps):
            _, _, terminated, truncated, info = batch.step(np.zeros((2, 1), np.float32))
            cut.append(truncated.tolist())
            last += info["final_obs"][terminated | truncated, 0].tolist() if "final_obs" in info else []
    return cut, last, [failure.summary for failure in failures]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_episode_ends_where_mujoco_reset_its_simulation(num_workers):
    """With the last state before that, named with what MuJoCo says, and the next one begins as all do,
    however often it happens.
    """
    cut, last, failures = played(4, num_workers)
    assert cut == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert max(last) < -4.9, "MuJoCo's own reset puts it at 0"
    assert len(failures) == 2
    assert "went on although MuJoCo has reset its simulation: Nan, Inf or huge value in QVEL" in failures[0]
    assert "(step 3 of this batch, step 3 of its episode)" in failures[0]


class Some(Slide):
    """As ``Slide``, of which the first one is hit and sees it."""

    def __init__(self, number=0):
        super().__init__(hit=number == 0, sees=number == 0)


def test_an_environment_is_not_blamed_for_the_one_before():
    """Which has ended its episode by itself."""
    failures = []
    with closing(envs.make(f"{__name__}:Some", 2, on_failure=failures.append, number="{index}")) as batch:
        batch.reset(seed=0)
        steps = [batch.step(np.zeros((2, 1), np.float32)) for _ in range(3)]
    assert [steps[2][2].tolist(), steps[2][3].tolist()] == [[True, False], [False, False]]
    assert failures == []


def test_what_an_environment_sees_itself_is_left_to_it():
    """It ends the episode, as its author wants it."""
    cut, _, failures = played(3, sees=True)
    assert (cut[2], failures) == ([False, False], [])
    assert played(8, hit=False)[2] == []


@dataclass(eq=False)
class Slides(MujocoTask):
    """The same as a native task."""

    hit: bool = True
    at: int = 3
    mjcf = SLIDE
    max_episode_steps = 6

    def allocate(self, num_envs):
        """Count the steps of all."""
        self.steps = 0
        super().allocate(num_envs)

    def initial_state(self, rng):
        """Far from where MuJoCo's own reset puts it."""
        return np.full(1, -5.0), np.zeros(1)

    def observe(self, rows):
        """Position and velocity."""
        return np.concatenate((self.qpos[rows], self.qvel[rows]), axis=1)

    def before(self):
        """Hit the second one at one step."""
        self.steps += 1
        if self.hit and self.steps == self.at:
            self.qvel[1] = 1e20

    def outcome(self, action):
        """One for each step."""
        return np.ones(self.num_envs), self.never(), {}


@pytest.mark.parametrize(("hit", "at"), [(True, 3), (True, 1), (True, 2), (False, 3)])
def test_a_native_task_ends_the_episode_of_that_simulation_alone(hit, at):
    """In whichever step, the first of the episode too. The others go on to their limit of time; where nothing
    is unstable all do.
    """
    failures, cut = [], []
    options = {"on_failure": failures.append, "max_failures": 0}
    with closing(envs.make(f"{__name__}:Slides", 2, hit=hit, at=at, **options)) as batch:
        batch.reset(seed=0)
        for _ in range(6):
            obs, _, _, truncated, info = batch.step(np.zeros((2, 0), np.float32))
            cut.append(truncated.tolist())
            assert all(info["final_obs"][truncated, 0] < -4.9) if "final_obs" in info else True
            assert (obs[:, 0] < -4.9).all()
    assert cut == [[step == 6, step == (at if hit else 6)] for step in range(1, 7)]
    assert [failure.summary.partition(" went")[2] for failure in failures] == [
        f" on although mujoco has reset its simulation (step {at} of this batch, step {at} of its episode)"
    ] * hit


BALLS = "".join(f'<body pos="{i} 0 9"><freejoint/><geom size=".1"/></body>' for i in range(4))


@dataclass(eq=False)
class Balls(MujocoTask):
    """At the second step the first is hit, and the second has more contacts than its memory holds."""

    mjcf = (
        '<mujoco><size memory="12K"/><worldbody><geom type="plane" size="1 1 1"/>'
        f"{BALLS}</worldbody></mujoco>"
    )
    steps: int = 0

    def initial_state(self, rng):
        """High above the floor."""
        qpos = self.init_qpos.copy()
        qpos[2::7] = 5.0
        return qpos, self.init_qvel

    def observe(self, rows):
        """The heights."""
        return self.qpos[rows, 2::7]

    def before(self):
        """Hit the one and let the other fall."""
        self.steps += 1
        if self.steps == 2:
            self.qvel[0] = 1e20
            self.qpos[1, 2::7] = 0.05

    def outcome(self, action):
        """One for each step."""
        return np.ones(self.num_envs), self.never(), {}


def test_an_error_in_one_simulation_hides_nothing_of_the_others():
    """Which have stepped."""
    failures = []
    with closing(envs.make(f"{__name__}:Balls", 2, on_failure=failures.append, max_failures=1)) as batch:
        batch.reset(seed=0)
        for _ in range(3):
            obs, *_ = batch.step(np.zeros((2, 0), np.float32))
            assert ((obs > 4.9) & (obs < 5.1)).all()
    assert sorted(failure.summary.split(" of 2 ")[1].partition(" (")[0][:40] for failure in failures) == [
        "raised in step: SimulationError: MuJoCo ",
        "went on although mujoco has reset its si",
    ]


def clock():
    """The address of the clock that MuJoCo reads in each stage of a step; None without one."""
    (library,) = Path(mujoco.__file__).parent.glob("libmujoco.*")
    return ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time").value


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", f"{__name__}:Slide"])
def test_a_step_reads_no_clock_but_an_environments_own(env_id):
    """MuJoCo's bindings install one for a profiler: it was up to 15 % of a step, and nobody reads it."""
    try:
        mujoco.set_mjcb_time(None)
        assert clock() is not None
        envs.make(env_id, 1).close()
        assert clock() is None
        mujoco.set_mjcb_time(lambda: 1.0)
        envs.make(env_id, 1).close()
        assert clock() is not None
        assert mujoco.get_mjcb_time()() == 1.0
    finally:
        mujoco.set_mjcb_time(None)
