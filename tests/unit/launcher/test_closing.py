"""Why a run is no success, by what its broker has written."""

import json

import pytest

from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher import closing
from spreeze_zmq.launcher.closing import why_no_episode, why_no_step
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder

RESUMED = {"t_s": 60.12345, "counts": {"env_steps": 500, "trained_transitions": 4096, "episodes": 5}}
LOOKS = [{"env_steps": 250, "mean_return": -900.0}, {"env_steps": 500, "mean_return": -800.0}]


@pytest.fixture
def inherited():
    """What a run shows that goes on from another one and has done nothing in the three seconds since."""
    run = RunRecord(topology.load("pendulum"))
    for t_s, look in zip((30.0, 60.12345), LOOKS, strict=True):
        run.evaluations.take({**look, "std_return": 1.0, "num_episodes": 5, "best": False}, t_s)
    run.resume(RESUMED)
    return run.summary("", RESUMED["t_s"] + 3.0, final=True)


@pytest.fixture
def folder(tmp_path, inherited):
    """Writes the summary of a run, and returns its folder."""

    def make(**changes):
        made = RunFolder(tmp_path)
        made.summary.write_text(json.dumps({**inherited, **changes}))
        return made

    return make


def test_a_resumed_run_without_a_step_of_its_own_has_failed(folder):
    """What was trained on before is its parent's; an offline run takes no step, and trains all the same."""
    waiting = {"critic_learner-0": {"ready": False}}
    assert why_no_step(folder(), waiting) == (
        "no env step was taken in 3.0 s: critic_learner-0 waited for its own start"
    )
    assert why_no_step(folder(trained_transitions=4097), waiting) == ""
    assert why_no_step(folder(samples={"produced": 1}), waiting) == ""
    assert why_no_step(folder(resumed=None), waiting) == ""


def test_a_run_that_was_given_up_says_that_its_last_checkpoint_is_incomplete(folder):
    """Before the first failure, which is why it has failed."""
    outcome = Outcome(folder(unfinished_checkpoint=["actor_learner"]), topology.load("pendulum"))
    outcome.give_up("sampler-0 is not started again: 4 crashes within 60 s", saves=True)
    outcome.fail("sampler-0", "no licence")
    *_, left_out, _, failure = outcome.lines()
    assert left_out.startswith("the last checkpoint is incomplete: no part has come from actor_learner; ")
    assert failure == "the first failure was sampler-0: no licence"
    assert outcome.why == "sampler-0: no licence"


def test_a_resumed_run_is_not_saved_by_its_parents_episodes(folder, inherited):
    """Nor by its evaluations, where the environment failed all of its own."""
    rows = [
        {"name": name, "kind": "", "summary": "ValueError: no", "count": 3, "t_s": 1.0, "survived": True}
        for name in ("sampler-0", "evaluator-0")
    ]
    assert why_no_episode(folder(failure_kinds=rows)).endswith(": ValueError: no")
    assert why_no_episode(folder(failure_kinds=rows, episodes=6)) == ""
    looks = [*inherited["evaluations"], [61.0, 600, -700.0, 1.0]]
    assert why_no_episode(folder(failure_kinds=rows, evaluations=looks)) == ""
    assert why_no_episode(folder(failure_kinds=rows, resumed=None)) == ""


@pytest.mark.parametrize(
    ("listens", "nodes", "more"),
    [
        ("", None, ""),
        ("127.0.0.1", None, " --listen 127.0.0.1"),
        ("127.0.0.1:23000-23099", "ssh:desk2", " --listen 127.0.0.1:23000-23099 --nodes ssh:desk2"),
    ],
)
def test_the_command_that_goes_on_listens_again(folder, monkeypatch, listens, nodes, more):
    """As the run was told to, so that a firewall's ports are those: without that a run with a role for
    another machine is refused.
    """
    plan, words = topology.load("pendulum", ["placement.evaluator=node"]), ()
    if listens:
        listening = Listening.at(listens, plan, nodes=nodes)
        plan, words = listening.plan, listening.words
    made = folder()
    monkeypatch.setattr(closing, "latest", lambda checkpoints: made.path)
    monkeypatch.setattr(closing, "outcome", lambda *about: [])
    ended = Outcome(made, plan, words, stop_reason="minutes 5.00 >= 5")
    [line] = [each for each in ended.lines() if "--resume" in each]
    assert line.endswith(f"--resume {made.shown}{more} --set run.stop.minutes=10.0")
