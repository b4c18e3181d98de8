"""Every process of a run is hit while it trains: what it did is taken up, and nothing is left behind. One run
for each road that learners can take; hits at random, hundreds of them, by ``python -m tests.system.chaos``.
"""

import os
import signal

import pytest

from tests.system import chaos
from tests.system.conftest import SWINGS_UP, thorough_but
from tests.system.test_algorithms import ENDLESS, ROADS, started

#: Who is hit in turn, and how; on other roads what differs there: the sampler and each learner.
BLOWS = (
    ("sampler", "SIGKILL"),
    ("critic_learner", "SIGTERM"),
    ("actor_learner", "SIGKILL"),
    ("evaluator", "SIGTERM"),
    ("broker", "SIGKILL"),
    ("sampler", "SIGSTOP"),
)
OTHERS = (("sampler", "SIGTERM"), ("critic_learner", "SIGKILL"), ("actor_learner", "SIGSEGV"))


def strike(run, role, blow, number):
    """Hit the first process of a role and wait for its successor, for that of a learner until it trains. The
    blow has this number in the run.
    """
    name = f"{role}-0"
    hit, what = run.pid(name), f"after {blow} of {name}"
    os.kill(hit, getattr(signal, blow))
    run.until(lambda: run.pid(name) not in (None, hit), f"another one {what}")
    run.until(lambda: run.summary().get("restarts") == number, f"restart {number} in the summary {what}")
    if role not in run.summary()["learners"]:
        return
    trained, steps = run.updates(), run.summary()["env_steps"]
    run.until(lambda: run.updates() > trained + 50, f"training {what}")
    run.until(lambda: run.summary()["env_steps"] > steps + 500, f"samples {what}")


@pytest.mark.long("a process of each kind is hit, starts again and is waited for")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("road", thorough_but("sac", "ppo", of=ROADS))
def test_whoever_is_hit_comes_back_and_the_run_goes_on(launch, road):
    """Killed, hung, or asked to leave by somebody else, as by a daemon that is short of memory. A successor
    takes over, a learner's with what the replay held; training goes on, and the policy still learns. In the
    end the account adds up, Ctrl-C leaves a checkpoint, and no process, socket or hidden file is left.
    """
    hung_s = ("--set", "components.broker.heartbeat_timeout_s=5")
    looked_at = ("--set", "components.evaluator.cost_share=0.2")  # soon after the last blow
    settings = (*ENDLESS, *hung_s, *looked_at)
    run = launch(*settings, *SWINGS_UP) if road == "sac" else started(launch, road, *settings)
    run.until_training()
    run.until(lambda: list((run.folder / "checkpoints").glob("*/MANIFEST.json")), "a checkpoint")
    roles = run.plan()["components"]
    blows = [each for each in (BLOWS if road == "sac" else OTHERS) if each[0] in roles]
    for number, (role, blow) in enumerate(blows, 1):
        strike(run, role, blow, number)
    if road == "sac":
        chaos.recover(run)
    run.interrupt()
    summary = chaos.conclude(run)
    assert summary["exit_reason"] == "interrupted by the user"
    for role, blow in blows:
        said = "longer than heartbeat_timeout_s" if blow == "SIGSTOP" else blow
        told = [failure["summary"] for failure in summary["failures"] if failure["name"] == f"{role}-0"]
        assert any(said in each for each in told), (role, blow, summary["failures"])
    learners = [role for role, _ in blows if role in summary["learners"]]
    if road in ("sac", "td3", "dqn"):
        assert run.said().count("the replay is back") == len(learners)
    assert "the first failure was" in run.output.read_text()
    assert list((run.folder / "checkpoints").glob("*/MANIFEST.json"))
    assert not (run.folder / "broker.json").exists()


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_harassed_run_still_learns_and_leaves_nothing(tmp_path):
    """Whoever is hit at random comes back; at the end the account closes, and nothing is left."""
    num_events = int(os.environ.get("SPREEZE_CHAOS", "8"))
    summary, hits, _ = chaos.whole(tmp_path / "run", num_events, seed=1)
    assert hits.total() == num_events
    assert summary["restarts"] > 0
