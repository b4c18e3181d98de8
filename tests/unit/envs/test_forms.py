"""All environments of a run have the spaces that its policy was made for."""

import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import SpreezeError

VARIED = "tests.unit.envs.odd_environments:Varied"
UNLIKE = [
    ("bounds", r"actions Box\(-2.0, 2.0, \(1,\), float32\), not Box\(-1.0, 1.0, \(1,\), float32\)"),
    ("choices", r"actions Discrete\(3\), not Discrete\(2\)"),
    ("shape", r"observations float32 \[4\], not float32 \[3\]"),
    ("start", r"observations a \[3\] from \[1\], not a \[3\] from \[0\]"),
    ("pixels", r"observations uint8 \[8\] up to 4, not uint8 \[8\] up to 3"),
]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("of", "said"), UNLIKE)
def test_environments_with_other_spaces_than_the_first_are_refused(num_workers, of, said):
    """The actions of a policy would be clipped to the first one's bounds, and mean something else."""
    with pytest.raises(SpreezeError, match=f"environment 1 was made with other spaces.* {said}: one policy"):
        envs.make(VARIED, 2, num_workers=num_workers, of=of, number="{index}")


@pytest.mark.parametrize(("of", "said"), UNLIKE)
def test_spaces_that_change_in_a_reset_are_a_fault_before_the_run(of, said):
    """As those of a curriculum, of which a policy knows the first step alone."""
    found = envs.look(VARIED, {"of": of, "grows": True})
    assert "returned from reset with other spaces than it was made with" in found.fault
    with pytest.raises(SpreezeError, match=said):
        found.tried()


def test_bounds_of_observations_may_differ():
    """Nothing is scaled by them, and one environment may be larger than the next."""
    env = envs.make(VARIED, 2, of="limits", number="{index}")
    env.reset()
    env.close()
    assert not envs.look(VARIED, {"of": "limits", "grows": True}).fault
