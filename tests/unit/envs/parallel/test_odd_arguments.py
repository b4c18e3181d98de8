"""Arguments of ``envs.make`` that another library has made, or that name nothing."""

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from tests.unit.envs.own_environments import Count

OWN = "tests.unit.envs.own_environments"
NAMED = "an environment's name is expected, such as .*'my_module:MyEnv', .* not "


@pytest.mark.parametrize("num_workers", [0, 1])
def test_numbers_of_numpy_are_whole_numbers(num_workers, make):
    """Gymnasium itself refuses a seed that is none of Python's, and JSON all of them."""
    numbers = {"seed": 3, "first_index": 0, "batch_size": 2, "num_workers": num_workers}
    numbers |= {"step_cap": 2, "max_episode_steps": 4}
    env, same = (
        make(f"{OWN}:Count", kind(2), **{name: kind(number) for name, number in numbers.items()}, length=9)
        for kind in (np.int64, int)
    )
    np.testing.assert_array_equal(env.reset()[0], same.reset()[0])
    assert (env.max_episode_steps, same.max_episode_steps) == (2, 2)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        (f"{OWN}:Count", {"seed": 0.5}, "seed is a whole number, not 0.5"),
        (f"{OWN}:Count", {"batch_size": 2.0}, "batch_size is a whole number, not 2.0"),
        (f"{OWN}:Count", {"step_cap": 2.5}, "step_cap is a whole number, not 2.5"),
        (f"{OWN}:Count", {"step_cap": 0}, "step_cap is at least 1, not 0"),
        (Count, {}, f"{NAMED}.*Count"),
        (lambda: Count(), {}, f"{NAMED}.*lambda"),
    ],
    ids=["a seed", "a size", "a limit", "no limit", "a class", "a function"],
)
def test_what_names_no_environment_is_refused_in_words(env_id, kwargs, says):
    """Not in those of the line that it would break in."""
    with pytest.raises(InvalidEnvironment, match=says):
        envs.make(env_id, 2, **kwargs)
