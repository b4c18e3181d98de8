"""What is legal by Gymnasium's interface and odd works, or is refused in one line that says why."""

import os
from contextlib import closing

import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment

ODD = "tests.unit.envs.odd_environments"


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("odd", {"of": "huge"}, r"step returned the reward 10{59}; expected a finite number$"),
        ("odd", {"of": "no parts"}, r"the part 'a' of its observations is a Dict without parts, which does"),
        (
            "odd",
            {"of": "choices"},
            r"Discrete\(100000000\), but policies here choose among 1,000,000 at most",
        ),
        (
            "odd",
            {"of": "numbers"},
            r"the part 'at' of its .* is a Discrete of more than 1,000,000 choices, which",
        ),
        ("odd", {"of": "ragged"}, r"returned from reset the observation \[\[1.0\], \[2.0, 3.0\]\], expected"),
        ("odd", {"of": "narrow"}, r"not all below its highest .* in float32, in which policies act"),
        (
            "odd",
            {"of": "least"},
            r"holds -9\.22337e\+18 at \[0\], expected a finite number of at most 1e\+15",
        ),
        ("OnceUnplugged", {}, r"raised in step: OSError: the arm is not plugged in \[.*odd_environments.py:"),
        ("Bare", {}, r"no observation_space, .* \(super\(\).__init__\(env\) sets what a Wrapper needs"),
    ],
)
def test_what_no_policy_takes_is_refused_in_a_line_that_says_why(name, kwargs, said):
    """Not by an exception of this package's own, nor by what is not the case."""
    with pytest.raises(InvalidEnvironment, match=said):
        envs.try_out(f"{ODD}:{name}", kwargs)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("ends", "code"), [("well", 0), ("with a code", 3), ("in words", 1), ("raises", 1)])
def test_a_process_that_an_environment_forks_ends_and_does_not_go_on_as_its_sampler(num_workers, ends, code):
    """By what it raises, as it would without a batch around it; the environment itself has not failed."""
    pid = os.getpid()
    with closing(envs.make(f"{ODD}:Forks", 1, num_workers=num_workers, ends=ends, max_failures=0)) as env:
        env.reset()
        reward = env.step(env.random_actions())[1]
        if os.getpid() != pid:
            os._exit(99)
        assert reward.tolist() == [code]
    assert not envs.look(f"{ODD}:Forks", {"ends": ends}).fault


def test_environments_that_fill_one_info_have_each_their_own():
    """As an argument of a method's that is made once, which evaluations would average."""
    with closing(envs.make(f"{ODD}:OneInfo", 3, number="{index}")) as env:
        assert env.reset()[1]["number"].tolist() == [0, 1, 2]
        assert env.step(env.random_actions())[4]["number"].tolist() == [0, 1, 2]
