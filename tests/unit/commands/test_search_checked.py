"""What a search would run is looked at before its first trial: each value is allowed, and has an effect."""

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.search.checked import checked
from spreeze_zmq.commands.search.space import parse_all
from spreeze_zmq.plan import topology

STOP = ("--minutes", "run.stop={minutes = 1}")
ALPHA = "algorithm.priority_alpha=0.3,0.9"
WHY = "has no effect while algorithm.prioritized is false"
INTERVAL = "components.critic_learner.publish_interval_s=0.1,0.5"


@pytest.mark.parametrize(
    ("stated", "overs", "said"),
    [
        ([], [ALPHA], WHY),
        ([], ["algorithm.prioritized=false,true", ALPHA], ""),
        (["algorithm.prioritized=true"], [ALPHA], ""),
        (
            ["balance.mode=bounded"],
            [INTERVAL, "algorithm.tau=0.01,0.02"],
            "no effect: weights go by count",
        ),
        ([], [INTERVAL], ""),
        (["algorithm.prioritized=true"], ["algorithm.hidden_sizes=[8],3"], "expected"),
        ([], ["algorithm.priority_alpha=0.6,0.9"], WHY),  # the first is the default
        ([], ["components.evaluator.confirm_episodes=2,3"], "no effect: components.evaluator.episodes is"),
        ([], ["components.evaluator.confirm_episodes=3,50"], ""),
        (["components.evaluator.episodes=40"], ["components.evaluator.confirm_episodes=30,35"], "no effect"),
        (["balance.mode=lockstep"], ["components.sampler.max_restarts=2,3"], "no effect in a fixed order"),
    ],
)
def test_a_key_without_effect_is_not_searched_over(stated, overs, said):
    """Trials would differ by chance alone; a value of another key that is varied may give it one, and one
    without any may be the other side of a comparison.
    """
    space = parse_all(overs)
    if not said:
        assert len(checked("pendulum", stated, STOP, space)) == 1 + 2 * len(space)
        return
    with pytest.raises(InputError, match=f"^--over {space[0].key}[,:] .*{said}"):
        checked("pendulum", stated, STOP, space)


def test_advice_about_the_topology_is_said_once(capsys):
    """As before a run of it."""
    checked("pendulum", ["algorithm.priority_alpha=0.5"], STOP, parse_all(["algorithm.tau=0.01,0.02,0.03"]))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("advice")]
    assert said == [
        "advice: algorithm.priority_alpha = 0.5 has no effect while algorithm.prioritized is false"
    ]


def test_a_key_without_effect_is_found_beside_any_number_of_others(monkeypatch):
    """Beside each value of them alone; all their combinations are looked at where these are few."""
    names = ("tau", "gamma", "learning_rate", "n_step")
    others = [f"algorithm.{name}=0.011,0.012,0.013,0.014" for name in names[:3]] + [
        "algorithm.n_step=1,2,3,4"
    ]
    load, loads = topology.load, []
    monkeypatch.setattr(topology, "load", lambda *about, **named: loads.append(1) or load(*about, **named))
    few = parse_all([ALPHA, *others[:1]])
    with pytest.raises(InputError, match=WHY):
        checked("pendulum", [], STOP, few)
    loads.clear()
    many = parse_all([ALPHA, *others])
    assert len(checked("pendulum", [], STOP, many)) == 1 + 2 + 4 * len(others)
    assert len(loads) == 2 + (2 + 4 * len(others)) + 2 * 4 * len(others)
    gives_it_one = parse_all([ALPHA, *others[:3], "algorithm.prioritized=false,true"])
    assert checked("pendulum", [], STOP, gives_it_one)
