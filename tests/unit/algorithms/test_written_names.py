"""A name that is almost one of the library's is refused: nothing would read it, and the shipped one train. So
is one that the library sets.
"""

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.written_names import misspelt
from spreeze_zmq.base.errors import InputError

HEADER = """
from dataclasses import dataclass
from spreeze_zmq.algorithms import Loss, RolloutOptions, option
from spreeze_zmq.algorithms.{module} import {base}

class Mine({base}):
"""
HELPERS = (
    *("policy_logits", "policy_noise", "critic_target", "value_loss", "loss_weight", "reward_bonus"),
    *("q_values", "step_size", "target_noise", "soft_update", "intrinsic", "encode", "advantage", "acting"),
    *("after_burner", "nets", "distance", "actions_of", "critic_and_policy", "bonus_of"),
)


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """Write the body of a class that inherits a shipped algorithm; returns its ``module:Class``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body, module="sac"):
        name = f"own_{abs(hash(request.node.name))}"
        text = HEADER.format(module=module, base=module.upper())
        (tmp_path / f"{name}.py").write_text(text + "".join(f"    {line}\n" for line in body))
        return f"{name}:Mine"

    return write


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (["def policy_los(self, batch): ..."], 'py:7: the library never calls policy_los; .*"policy_loss"'),
        (["def critic_losss(self, batch): ..."], 'never calls critic_losss; did you mean "critic_loss"'),
        (["def after_critic_stepp(self): ..."], 'did you mean "after_critic_step"'),
        (["def after_critic_update(self): ..."], 'did you mean "after_critic_step"'),
        (["def distribtion(self): ..."], 'did you mean "distribution"'),
        (["policy_field = ('obs',)"], 'never reads policy_field; did you mean "policy_fields"'),
        (["@property", "def policy_los(self): ..."], 'did you mean "policy_loss"'),
        (["def targets_of(self, rollouts): ..."], "never calls targets_of without rounds"),
        (
            [
                "@dataclass(frozen=True)",
                "class Options(SAC.Options):",
                '    learning_rat: float = option(1e-3, "")',
            ],
            'nothing reads its option learning_rat; did you mean "learning_rate"',
        ),
        (
            ["@dataclass(frozen=True)", "class Options(SAC.Options):", "    learning_rate = 1e-3"],
            "its learning_rate in class Options changes no default",
        ),
    ],
)
def test_a_name_that_is_nearly_inherited_is_refused(own, body, said):
    """The line has the place and the name that was meant."""
    with pytest.raises(InputError, match=said):
        algorithms.get(own(body))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (["offline = True"], 6),
        (["@property", "def offline(self): return 0.5"], 7),
        (["def after_critic_step(self):", "    self.offline = 0.5"], 8),
        (["def env_steps(self): return 5"], 7),
        (["reward_divisor = 10.0"], 6),
    ],
)
def test_a_name_that_the_library_sets_is_refused(own, body, line):
    """Else a run on data alone, of a class that was written before there was ``offline``, loses its own."""
    said = rf"\.py:{line}: the library sets \w+ itself; give yours another name"
    with pytest.raises(InputError, match=said):
        algorithms.get(own(body))


def test_helpers_of_ones_own_are_not(own):
    """Whatever they are called, as long as they are no misspelt hooks."""
    algorithms.get(own([f"def {name}(self): ..." for name in HELPERS]))


def test_a_name_that_the_file_reads_is_not(own):
    """It has a purpose of its own."""
    body = ["def policy_los(self): return 1.0", "def critic_loss(self, batch): return self.policy_los()"]
    algorithms.get(own(body))


def test_an_inherited_misspelling_is_named_too(own, tmp_path):
    """The hook of a base class of the user's own."""
    module = own(["def after_critic_steps(self): ..."]).partition(":")[0]
    text = f"from {module} import Mine\nclass Heir(Mine):\n    def policy_loss(self, batch): ...\n"
    (tmp_path / f"{module}_heir.py").write_text(text)
    with pytest.raises(InputError, match='did you mean "after_critic_step"'):
        algorithms.get(f"{module}_heir:Heir")


@pytest.mark.parametrize("name", algorithms.names())
def test_shipped_algorithms_have_no_such_name(name):
    """Inherited as a user does."""
    assert misspelt(type("Mine", (algorithms.get(name),), {"__module__": __name__})) == []
