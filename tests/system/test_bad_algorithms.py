"""Bad algorithm files as their writers meet them: one clear line, exit code 2, and no run that hangs."""

import sys
from typing import NamedTuple

import pytest

from tests.system.conftest import said_in
from tests.system.test_algorithm_example import code_blocks

GOOD = code_blocks("A complete example: REDQ")[0]
TOPOLOGY = '[run]\nenv = "{env}"\nalgorithm = "redq:REDQ"\nstop = {{ minutes = 1 }}\n[algorithm]\n{options}\n'
ON_POLICY = """
from spreeze_zmq.algorithms.pqn import PQN

class REDQ(PQN):
    def targets_of(self, rollouts):
        return {name: value[1:] for name, value in super().targets_of(rollouts).items()}
"""
ONE_LEARNER = """
from spreeze_zmq.algorithms.dqn import DQN

class REDQ(DQN):
    def critic_loss(self, batch):
        found = super().critic_loss(batch)
        return found._replace(loss=found.loss / 0 * 0)
"""
LOSS = "Loss((q_tm1 - target_tm1).square().mean(1).sum()"
FROZEN = "    @dataclass(frozen=True)\n"


def changed(old, new):
    """The README's example with one mistake in it."""
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new)


class Case(NamedTuple):
    """An algorithm file, what the one line must say, and the rest of the topology."""

    code: str
    says: tuple[str, ...]
    env: str = "Pendulum-v1"
    options: str = "learning_starts = 64\nbatch_size = 64"


BEFORE = {
    "syntax error": Case(changed("networks(self):", "networks(self:"), ("redq.py:", "never closed")),
    "leaves at its import": Case(
        changed("import torch\n", "import torch\nraise SystemExit(0)\n"), ("redq.py:", "SystemExit: 0")
    ),
    "leaves in a method": Case(
        changed("networks(self):\n", "networks(self):\n        raise SystemExit(0)\n"),
        ("networks, ", "redq.py:", "SystemExit: 0"),
    ),
    "missing module": Case(changed("import torch\n", "import torhc\n"), ("no module is called 'torhc'",)),
    "missing method": Case(changed("def critic_loss", "def critic_los"), ("critic_loss must be defined",)),
    "a misspelt hook": Case(
        changed("def after_critic_step", "def after_critic_steps"),
        ("never calls after_critic_steps", 'did you mean "after_critic_step"?'),
    ),
    "Options that are no dataclass": Case(changed(FROZEN, ""), ("write @dataclass(frozen=True)",)),
    "Options without a group": Case(changed("(ReplayOptions)", ""), ("ReplayOptions or RolloutOptions",)),
    "a misspelt option": Case(GOOD, ("num_critic", "num_critics"), options="num_critic = 5"),
    "an action space that it cannot serve": Case(
        GOOD, ("REDQ: TanhNormal acts in box", "Categorical or EpsilonGreedy could"), "CartPole-v1"
    ),
    "no acting network": Case(changed('"policy": policy', '"actor": policy'), ("'policy'", "'actor'")),
}
LATER = {
    "no scalar": Case(changed(".mean(1).sum()", ""), ("critic_loss", "shape (10, 64)", "scalar")),
    "nothing trained": Case(changed(LOSS, "Loss(target_tm1.mean()"), ("critic_loss", "nothing can be")),
    "not a number": Case(ONE_LEARNER, ("critic_loss is nan at update 1", "learning_rate"), "CartPole-v1"),
    "a loss that raises": Case(
        changed("batch.reward ", "batch.rewards "),
        ("critic_loss: ", "redq.py:", """no 'rewards'; did you mean "reward"?"""),
    ),
    "targets of a wrong shape": Case(ON_POLICY, ("targets_of gives ", "expected ["), "CartPole-v1", ""),
}


#: Further mistakes of a kind, each found by the check that finds another one here.
THOROUGH = {
    "Options that are no dataclass",
    "Options without a group",
    "a loss that raises",
    "missing module",
    "no acting network",
    "no scalar",
    "nothing trained",
    "targets of a wrong shape",
}


def each(cases):
    """The names of cases, as parameters of a test."""
    return [pytest.param(name, marks=pytest.mark.thorough if name in THOROUGH else ()) for name in cases]


def write(folder, case):
    """The case's two files in a folder of its own."""
    folder.mkdir()
    (folder / "redq.py").write_text(case.code)
    (folder / "mine.toml").write_text(TOPOLOGY.format(env=case.env, options=case.options))


@pytest.mark.parametrize("name", each(BEFORE))
def test_what_can_be_known_before_starts_nothing(tmp_path, monkeypatch, name):
    """One line, exit code 2, no traceback, nothing on disk."""
    folder = tmp_path / "bad"
    write(folder, BEFORE[name])
    monkeypatch.setattr(sys, "path", [*sys.path])  # each case has a redq.py of its own
    try:
        code, _, err = said_in(folder, "mine.toml")
    finally:
        sys.modules.pop("redq", None)
    assert code == 2, err
    assert "Traceback" not in err
    for fragment in BEFORE[name].says:
        assert fragment in err.strip().splitlines()[-1], err
    assert len(err.strip().splitlines()) <= 2, err
    assert not (folder / "runs").exists()


@pytest.mark.long("a sampler imports torch for a user's algorithm")
@pytest.mark.parametrize("name", each(LATER))
def test_what_a_learner_finds_ends_the_run_with_that_line_last(launch, tmp_path, monkeypatch, name):
    """Exit code 2, no traceback on the screen, no second attempt, nothing left running."""
    folder = tmp_path / "bad"
    write(folder, LATER[name])
    monkeypatch.chdir(folder)
    run = launch("--without", "evaluator", topology="mine.toml")
    assert run.end() == 2, run.said()
    said = run.output.read_text()
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith(("critic_learner-0: redq:REDQ: ", "actor_learner-0: redq:REDQ: ")), said
    for fragment in LATER[name].says:
        assert fragment in last, said
    assert said.count("started again (restart") == 0
    assert run.leftovers() == []
