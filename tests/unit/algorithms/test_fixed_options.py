"""What a checkpoint depends on: options that are not marked as fixed leave every saved array its shape."""

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.base.schema import options_of
from tests.unit.algorithms.shipped import BOX, DISCRETE

pytestmark = pytest.mark.usefixtures("one_thread")


def shapes(state, prefix=""):
    """Every saved value by its path: the shape of an array, the type of anything else."""
    found = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= shapes(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = tuple(value.shape) if hasattr(value, "shape") else None
    return found


def saved(name, **changes):
    """The shapes of an algorithm's checkpoints, of small networks."""
    kind = algorithms.get(name)
    env = BOX if "box" in kind.acts_in else DISCRETE
    options = algorithms.options_from(kind.Options, {"hidden_sizes": [6, 4], "precision": "fp32", **changes})
    parts = PARTS if kind.has_policy_loss() else PARTS[:1]
    return [shapes(algorithms.make(part, kind, options, env, "cpu", 0).state_dict()) for part in parts]


def another(option):
    """A value of the option that is not its default."""
    if option.choices:
        return next(choice for choice in reversed(option.choices) if choice != option.default)
    if isinstance(option.default, bool):
        return not option.default
    if isinstance(option.default, str):
        return 3
    if option.default is None:
        return 0.5
    return 0.5 * option.default + 0.01 if isinstance(option.default, float) else option.default + 1


@pytest.mark.parametrize("name", algorithms.names())
def test_options_that_are_not_fixed_leave_checkpoints_as_they_are(name):
    """Each of them changed alone."""
    before = saved(name)
    for option in options_of(algorithms.get(name).Options):
        if not option.fixed and option.name not in ("precision", "random_shift"):
            assert saved(name, **{option.name: another(option)}) == before, option.name


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("sac", "hidden_sizes", [6]),
        ("sac", "num_atoms", 5),
        ("td3", "layer_norm", True),
        ("dqn", "dueling", True),
        ("ppo", "hidden_sizes", [6, 5]),
    ],
)
def test_a_fixed_option_makes_other_networks(name, option, value):
    """So that the mark is not set for nothing."""
    assert saved(name, **{option: value}) != saved(name)


@pytest.mark.parametrize(
    ("name", "other", "off", "on"),
    [
        ("sac", "prioritized", False, True),
        ("sac", "num_atoms", 1, 51),
        ("sac", "memory_size", 0, 8),
        ("sac", "hindsight", "off", "final"),
        ("sac", "learn_temperature", False, True),
        ("sac", "batch_size", 256, "auto"),
    ],
)
def test_an_option_is_idle_where_another_is_off(name, other, off, on):
    """A class of the user's own may have it on by default: only the value that is off says so."""
    which = [option for option in options_of(algorithms.get(name).Options) if option.only_with == other]
    assert which
    for option in which:
        assert option.has_effect({other: on})
        assert not option.has_effect({other: off})


@pytest.mark.parametrize("name", algorithms.names())
def test_whoever_depends_on_another_option_says_at_which_values(name):
    """By those at which it has an effect, or by those at which it has none."""
    for option in options_of(algorithms.get(name).Options):
        assert bool(option.only_with) == bool(option.only_at) ^ bool(option.idle_at), option.name
