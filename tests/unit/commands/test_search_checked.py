"""What a search would run is looked at before its first trial: each value is allowed, and has an effect."""

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.search.checked import checked
from spreeze_zmq.commands.search.space import parse_all

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
    ],
)
def test_a_key_without_effect_is_not_searched_over(stated, overs, said):
    """Trials would differ by chance alone; a value of another key that is varied may give it one."""
    space = parse_all(overs)
    if not said:
        assert len(checked("pendulum", stated, STOP, space)) == 1 + 2 * len(space)
        return
    with pytest.raises(InputError, match=f"^--over {space[0].key}, at .*{said}"):
        checked("pendulum", stated, STOP, space)


def test_advice_about_the_topology_is_said_once(capsys):
    """As before a run of it."""
    checked("pendulum", ["algorithm.priority_alpha=0.5"], STOP, parse_all(["algorithm.tau=0.01,0.02,0.03"]))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("advice")]
    assert said == [
        "advice: algorithm.priority_alpha = 0.5 has no effect while algorithm.prioritized is false"
    ]
