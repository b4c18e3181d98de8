"""What is legal by Gymnasium's interface and odd works, or is refused in one line that says why."""

import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment

ODD = "tests.unit.envs.odd_environments"


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("odd", {"of": "huge"}, r"step returned the reward 10{59}; expected a finite number$"),
        ("odd", {"of": "no parts"}, r"the part 'a' of its observations is a Dict without parts, which does"),
        ("odd", {"of": "narrow"}, r"not all below its highest .* in float32, in which policies act"),
        (
            "odd",
            {"of": "least"},
            r"holds -9\.22337e\+18 at \[0\], expected a finite number of at most 1e\+15",
        ),
        ("Bare", {}, r"no observation_space, .* \(super\(\).__init__\(env\) sets what a Wrapper needs"),
    ],
)
def test_what_no_policy_takes_is_refused_in_a_line_that_says_why(name, kwargs, said):
    """Not by an exception of this package's own, nor by what is not the case."""
    with pytest.raises(InvalidEnvironment, match=said):
        envs.try_out(f"{ODD}:{name}", kwargs)
