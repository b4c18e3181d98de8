"""The trial of an environment before a run: each mistake in one line, with the file and line."""

import inspect
import time

import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs import trial
from tests.unit.envs import mistaken_environments as mistaken

HERE = "tests.unit.envs.mistaken_environments"


@pytest.mark.parametrize("name", ["Right", "Mended", "NoMetadata", "NoOptions"])
def test_an_environment_that_samplers_can_step_passes(name):
    """Also one whose wrapper mends what is inside."""
    envs.try_out(f"{HERE}:{name}")


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5", "CartPole-v1", "MountainCar-v0"])
def test_shipped_environments_pass(env_id):
    """Native ones and Gymnasium's."""
    envs.try_out(env_id)


class FailsLater(mistaken.Right):
    """Fails in every step after its first five, by a KeyError; its info has a name."""

    taken = 0

    def step(self, action):
        """As the class says."""
        self.taken += 1
        if self.taken > 5:
            raise KeyError("joint_7")
        return *super().step(action)[:4], {"height": 1.0}


class SlowAtFirst(mistaken.Right):
    """Its first steps load what all of them need."""

    taken = 0

    def step(self, action):
        """As the class says."""
        self.taken += 1
        if self.taken <= 4:
            time.sleep(0.0012)
        return super().step(action)


class SlowReset(mistaken.Right):
    """A reset takes longer than those that are made once more to see what seeds do."""

    def reset(self, **options):
        """As the class says."""
        time.sleep(1.2 * trial.SLOW_RESET_S)
        return super().reset(**options)

    def step(self, action):
        """With a name in the info."""
        return *super().step(action)[:4], {"height": 1.0}


class Talks(mistaken.Right):
    """Its info has more names than are used."""

    def step(self, action):
        """As the class says."""
        return *super().step(action)[:4], {f"number {n}": 1.0 for n in range(70)} | {"height": 1.0}


def test_the_first_steps_do_not_make_an_environment_slow():
    """By which an on-policy run's samplers would be as many as of one that waits for a robot."""
    assert envs.look(f"{__name__}:SlowAtFirst").timing.step_s < 0.001


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Talks", "its info has 71 names: evaluations average the first 64 numbers of it"),
        ("FailsLater", "a later call failed: {env}: environment 0 of 1 raised in step: KeyError: 'joint_7'"),
        ("SlowReset", "a reset takes 1.2 s: what its seeds do was not looked at"),
    ],
)
def test_what_keeps_a_look_from_being_complete_is_a_remark(name, said):
    """And what was seen until then, or without resets, is kept."""
    found = envs.look(f"{__name__}:{name}")
    (line,) = found.remarks
    assert line.startswith(said.format(env=f"{__name__}:{name}"))
    assert not found.fault
    assert "height" in found.facts["info"]


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        ("OldStep", "step", "step returned 4 values, as in Gym before 0.26; step(self, action) returns (obs"),
        (
            "OldReset",
            "reset",
            "reset was refused: OldReset.reset() got an unexpected keyword argument 'seed'",
        ),
        ("NoInfo", "reset", "reset returned [0. 0. 0.]; reset(self, *, seed=None, options=None) returns"),
        ("FailsInStep", None, "step raised ZeroDivisionError: float division by zero"),
        ("NoStep", "", "step is not defined; step(self, action) returns"),
        ("OtherShape", "reset", "reset returned an observation of shape (4,); observation_space has (3,)"),
        ("NotANumber", "step", "step returned an observation that is not finite: [nan nan nan]"),
        ("NoReward", "step", "step returned the reward None; expected a finite number"),
        (
            "SeveralRewards",
            "step",
            "step returned the reward [1. 2.]; expected a finite number (mo_",
        ),
        ("Weighted", "reward", "step raised AttributeError: 'Weighted' object has no attribute 'weights'"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(name, method, said):
    """The place is the method, the class, or the very line that raised."""
    kind = getattr(mistaken, name)
    lines, first = inspect.getsourcelines(getattr(kind, method) if method else kind)
    if "raised" in said:
        first += next(number for number, line in enumerate(lines) if "1.0 /" in line or "return" in line)
    with pytest.raises(InvalidEnvironment) as caught:
        envs.try_out(f"{HERE}:{name}")
    message = str(caught.value)
    assert message.startswith(f"{HERE}:{name}: {mistaken.__file__}:{first}: {said}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FailsInInit", "it could not be made: KeyError: 'arm.xml' [{file}:"),
        ("NoSpaces", "it has no observation_space (set self.observation_space in its __init__)"),
        ("NoEnv", "it returned a tests.unit.envs.mistaken_environments.NoEnv, not a gymnasium.Env"),
    ],
)
def test_what_cannot_even_be_made_says_why(name, said):
    """Found already when its spaces are read."""
    with pytest.raises(InvalidEnvironment) as caught:
        envs.probe(f"{HERE}:{name}")
    assert str(caught.value).startswith(f"{HERE}:{name}: {said.format(file=mistaken.__file__)}")
