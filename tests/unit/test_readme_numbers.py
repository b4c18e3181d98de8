"""The numbers in the text of launch/README.md are those of the code."""

from pathlib import Path

import pytest

from spreeze_zmq.broker.windows import LENGTHS_S, MIN_GRANULES
from spreeze_zmq.evaluation import arena
from spreeze_zmq.launcher.outcome import whose
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.plan import topology

README = Path(__file__).parents[2] / "launch" / "README.md"
#: Of each sentence what it takes from the code, by the heading that it stands under.
SAID = {
    "What an evaluation says": (
        f"whose step takes {1000 * arena.SLOW_STEP_S:.0f} ms or waits for {1000 * arena.WAITS_S:.0f}, whose "
        f"reset takes {arena.SLOW_RESET_S:.0f} s, or of which one takes more than "
        f"{arena.SLOW_TOGETHER_S:.0f} s to make, or all more than {arena.SLOW_TO_MAKE_S:.0f},"
    ),
    "How many samplers": (
        f"From {LENGTHS_S[0]:.0f} s of steady rates (up to {LENGTHS_S[-1]:.0f} s, where {MIN_GRANULES} "
        "rollouts or updates take longer)"
    ),
    "Groups": f"{whose('member-0').partition(' (')[0].capitalize()} is the process `member-0`",
}


def text_under(heading):
    """The text under a heading as one line."""
    return " ".join(README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0].split())


@pytest.mark.parametrize(("heading", "said"), SAID.items())
def test_a_sentence_has_the_numbers_of_the_code(heading, said):
    """Else a reader waits for what comes later, or looks where nothing is."""
    assert said in text_under(heading)


def test_a_run_of_sac_takes_as_many_ports_as_are_said():
    """The rule of a firewall has to let them all through, those of several runs in the example's range."""
    listening = Listening.at("127.0.0.1", topology.load("pendulum"))
    listening.close()
    text = text_under("Several machines")
    assert f"which are {len(listening.claims)} in a run of SAC" in text
    assert "ADDRESS:5550-5589" in text
    assert len(range(5550, 5590)) >= 2 * len(listening.claims)
