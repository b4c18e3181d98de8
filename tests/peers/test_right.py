"""``spreeze conform`` of right programs in runs that are out of the ordinary: none is called broken."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import envs
from spreeze_zmq.peers import physics, rollout_checks
from spreeze_zmq.peers.clauses import Broken
from spreeze_zmq.peers.peers import NotSeen
from tests.peers.broken import sampler
from tests.peers.test_conform import WHOLE_S, broken_of, judged, ours, unseen_of

#: Environments whose steps are repeated in none that is made here: each is another one.
VARIED = {
    "randomized": {"on": "hopper", "overrides": ("run.randomize={body_mass=[0.8,1.2]}",)},
    "numbered": {
        "overrides": (
            "run.env=gymnasium.envs.classic_control.pendulum:PendulumEnv",
            'run.env_kwargs={g="{index}",max_episode_steps=200}',
        )
    },
}


@pytest.mark.long("a whole act of a sampler")
@pytest.mark.parametrize("name", VARIED)
def test_environments_that_vary_break_no_sampler(name, forked):
    """By models that each episode draws, or by the number of each environment."""
    found, text = judged("sampler", ours("sampler"), ("X8",), patience_s=WHOLE_S, **VARIED[name])
    assert not broken_of(found), text
    assert {"X8", "X9", "X15"} <= unseen_of(found), text


@pytest.mark.long("a learner has two lives and is left waiting")
def test_our_critic_learner_of_a_run_in_lockstep_keeps_every_clause(native_layers, forked):
    """It may drop rollouts that are a version too old: those of the played sampler name the first one."""
    overrides = ["balance.mode=lockstep", "algorithm.batch_size=256", "algorithm.hidden_sizes=[16]"]
    found, text = judged("critic_learner", ours("critic_learner"), ("T1",), overrides, WHOLE_S, tier="must")
    assert not broken_of(found), text
    assert {found[number][0][0] for number in ("T1", "T3", "T5", "T7", "T8", "M5")} == {"ok"}, text


def test_what_wraps_a_time_limit_may_go_on_beyond_it(monkeypatch):
    """That limit is the environment's, but a sampler that steps it sees no end there."""
    spec = envs.probe("tests.unit.envs.test_batched:trials")
    arrays = {"obs": np.zeros((7, 1, 3)), "truncated": np.array([[False]] * 5 + [[True]])}
    steps = [(arrays, 0, t, arrays["truncated"][t]) for t in range(6)]
    monkeypatch.setattr(physics, "steps", lambda peers: steps)
    with pytest.raises(NotSeen, match="goes on beyond it"):
        rollout_checks._true_ends(SimpleNamespace(plan=SimpleNamespace(environment=spec)))
    pendulum = replace(envs.probe("Pendulum-v1", {}), max_episode_steps=3)
    with pytest.raises(Broken, match="it goes on beyond 3 steps"):
        rollout_checks._true_ends(SimpleNamespace(plan=SimpleNamespace(environment=pendulum)))


def test_a_sampler_that_tells_no_episodes_keeps_what_it_must(tmp_path, forked):
    """To tell of them is a should: nobody waits for the broker all the same."""
    path = tmp_path / "sampler.py"
    path.write_text(sampler(["H9"]))
    found, text = judged("sampler", [sys.executable, str(path)], ["H10"], patience_s=WHOLE_S)
    assert [verdict for verdict, _ in found["H10"]] == ["ok"], text


@pytest.mark.long("its environments are made by worker processes")
def test_our_sampler_may_report_in_a_long_start(forked):
    """Its workers make the environments, of which it tells after half a second."""
    overrides = ["run.env=Acrobot-v1", "components.sampler.workers=2", "run.stop={minutes=1}"]
    found, text = judged("sampler", ours("sampler"), ("H1",), overrides, WHOLE_S, on="cartpole", tier="must")
    assert not broken_of(found), text
