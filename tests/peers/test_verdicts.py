"""Verdicts on programs that do not get far enough to be judged, or send what cannot be read."""

import time
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq import peers as conform
from spreeze_zmq.commands import spreeze
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.peers import evaluator, learner_acts
from spreeze_zmq.peers.clauses import judge
from spreeze_zmq.peers.every_role import begin_again
from spreeze_zmq.peers.peers import Peers, Stalled
from spreeze_zmq.peers.policies import heads, rich_policy, unusable_policy
from spreeze_zmq.peers.program import Life
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import experience_of
from spreeze_zmq.wire import Message, encode
from spreeze_zmq.wire.frames import rollout_message
from tests.protocol.golden_messages import MESSAGES, REPORT


@pytest.fixture
def peers_of(tmp_path):
    """Makes the peers of a role, which have heard nothing yet."""
    made = []

    def make(role, on="pendulum", overrides=(), **environment):
        plan = topology.load(on, list(overrides))
        plan = replace(plan, environment=replace(plan.environment, **environment))
        peers = Peers(plan, role, ["true"], tmp_path / "run", "should", 1.0)
        made.append(peers)
        return peers

    yield make
    for peers in made:
        peers.close()


def verdict(peers, number, stalled=None):
    """The verdict on one clause."""
    clause = next(clause for clause in conform.clauses_of(peers.role) if clause.number == number)
    return judge(clause, peers, stalled).verdict


def test_versions_are_not_seen_before_the_first_policy(peers_of):
    """Of a learner whose first message is refused."""
    peers = peers_of("actor_learner")
    peers.mark("begun")
    assert verdict(peers, "T2", Stalled("M3", "1 refused")) == "not verified"


def test_a_policy_that_cannot_be_used_breaks_its_clause(peers_of):
    """Its bytes are a message of the protocol, its network is none."""
    peers = peers_of("actor_learner")
    peers.mark("begun")
    peers.hear("policy", encode(unusable_policy(peers.plan.environment)))
    assert not peers.refusals
    assert verdict(peers, "T2") == "broken"


@pytest.mark.parametrize(
    ("on", "stalled", "said"),
    [("pendulum", None, "not verified"), ("cartpole_dqn", Stalled("T2", "no policy came"), "broken")],
    ids=["one of a pair", "alone"],
)
def test_versions_are_those_of_the_learner_that_publishes_the_policy(peers_of, on, stalled, said):
    """A critic-learner publishes it where it trains alone."""
    peers = peers_of("critic_learner", on)
    peers.open()
    peers.mark("begun")
    assert verdict(peers, "T2", stalled) == said


@pytest.mark.parametrize(
    ("allowed", "over", "said"),
    [(True, "truncated", "kept"), (False, "truncated", "broken"), (False, "terminated", "kept")],
)
def test_the_mask_after_a_truncation_allows_an_action(peers_of, allowed, over, said):
    """From there learners bootstrap; after a termination none need be legal."""
    peers = peers_of("sampler", "cartpole", action_mask=True)
    rollout = random_rollout(peers.plan.environment)
    ended = np.zeros(rollout.truncated.shape, bool)
    ended[1, 0] = True
    finals = {"final_obs": rollout.obs[2, :1], "final_index": np.array([[1, 0]], np.int32)}
    finals["final_action_mask"] = np.full((1, 2), allowed)
    message = rollout_message(replace(rollout, sampler="sampler-0", **{over: ended}, **finals))
    peers.hear(experience_of("critic_learner"), encode(message))
    assert not peers.refusals
    peers.mark("moved")
    assert verdict(peers, "X17") == said


@pytest.mark.parametrize("number", ["T6", "X1"])
def test_an_act_that_ends_early_is_told_whatever_clause_that_breaks(number, monkeypatch):
    """Also one of another role's: the others still have their rows."""

    def learn(peers):
        raise Stalled(number, "it did not come")

    monkeypatch.setitem(learner_acts.ACTS, "learn", learn)
    plan = topology.load("cartpole_dqn")
    results = [*conform.run("critic_learner", ["false"], plan, only=frozenset({"T3"}))]
    told = {result.clause.number: result.verdict for result in results}
    assert (told[number], told["T3"]) == ("broken", "not verified")
    assert all(result.clause.expected for result in results)


@pytest.mark.parametrize(("trained", "said"), [(32 * 100, "kept"), (32 * 1100, "broken")])
def test_a_learner_makes_up_for_no_first_samples(peers_of, trained, said):
    """Pendulum's ratio is 32, and learning starts after 1,000 transitions."""
    peers = peers_of("critic_learner")
    peers.mark("begun")
    counters = {"env_steps": 1100, "trained_transitions": trained}
    peers.hear(
        "report", encode(Message("report", {**REPORT, "counters": counters}, {}, "critic_learner-0", 7))
    )
    peers.mark("waited")
    assert verdict(peers, "T1") == said


def test_the_usage_of_a_process_that_has_ended_is_not_seen(peers_of):
    """It reported once, and was gone when it was measured."""
    peers = peers_of("sampler")
    life = peers.start(3)
    assert isinstance(life, Life)
    life.process.wait()
    peers.mark("hello")
    peers.hear("report", encode(Message("report", REPORT, {}, "sampler-3", 7)))
    life.measure()
    peers.mark("starved")
    assert not peers.refusals
    assert verdict(peers, "H7") == "not verified"


@pytest.mark.parametrize(("held_up", "said"), [(True, "kept"), (False, "broken")])
def test_the_silence_of_a_judge_who_was_held_up_is_nobodys(peers_of, held_up, said):
    """Reports that came meanwhile were read late; where it looked all the while, none came."""
    peers = peers_of("sampler")
    peers.mark("hello")
    for step_s in (0.02, 1.8):
        until_s = time.monotonic() + step_s
        if held_up:
            time.sleep(step_s)
        peers.wait(until_s - time.monotonic())
        peers.hear("report", encode(Message("report", REPORT, {}, "sampler-3", 7)))
    peers.mark("starved")
    assert verdict(peers, "H2") == said


@pytest.mark.parametrize(("uptime_s", "said"), [(0.1, "broken"), (0.6, "kept")])
def test_a_start_that_takes_long_has_reports_before_its_end(peers_of, uptime_s, said):
    """They come twice a second; who is up for less has nothing to report."""
    peers, about = peers_of("sampler"), {**REPORT, "uptime_s": uptime_s}
    name, pid = "sampler-3", peers.start(3).process.pid
    peers.hear("report", encode(Message("report", about, {}, name, 7)))
    hello = {**MESSAGES["hello"].fields, "role": "sampler", "name": name, "pid": pid}
    peers.hear("report", encode(Message("hello", hello, {}, name, 7)))
    peers.mark("hello")
    assert not peers.refusals
    assert verdict(peers, "H1") == said


#: Environments whose episodes are not repeated here: one that no program makes, one of which the evaluator
#: plays other models, and one without an end of an episode.
UNREPEATED = {
    "described": {"id": "crane", "described": True},
    "randomized": {
        "on": "hopper",
        "overrides": ("run.randomize={body_mass=[0.8,1.2]}", "components.evaluator.randomize=true"),
    },
    "endless": {"overrides": ("run.env=gymnasium.envs.classic_control.pendulum:PendulumEnv",)},
    "cut": {},
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", UNREPEATED)
def test_episodes_that_cannot_be_played_again_are_not_judged(peers_of, name, monkeypatch):
    """Nor keep the rest from being judged, or go on for ever."""
    monkeypatch.setattr(evaluator, "REPEATED_S", 0.2, raising=False)
    peers = peers_of("evaluator", **UNREPEATED[name])
    spec, about = peers.plan.environment, MESSAGES["evaluation"].fields
    peers.notes["policy"] = rich_policy(spec, heads(spec)[0])
    cut = 3 if name == "cut" else 0
    fields = {**about, "num_episodes": 3, "num_truncated": cut}
    peers.hear("report", encode(Message("evaluation", fields, {}, "evaluator-0", 7)))
    peers.mark("ended")
    assert not peers.refusals
    assert verdict(peers, "E1") == "not verified"


@pytest.fixture
def sleeper(peers_of):
    """The peers of a program that does nothing, in its first life, of incarnation 7."""
    peers = peers_of("sampler")
    peers.command, peers.notes["incarnation"] = ["sh", "-c", "exec sleep 60"], 7
    peers.start(3)
    return peers


def test_a_judge_that_was_held_up_receives_what_came_before_it_judges(sleeper):
    """However late it is: the time that was to be waited is over at its first look."""
    looks = []
    sleeper.meanwhile = lambda: looks.append(time.monotonic())

    def came():
        time.sleep(0.0 if looks else 0.1)
        return looks

    assert sleeper.until("H1", "a look", came, 0.05)


def test_a_time_in_which_the_judge_is_still_held_up_is_a_pause(sleeper):
    """As between a process's bye and the look that finds it ended."""
    sleeper.pump(0.0)
    began_s = time.monotonic()
    time.sleep(0.6)
    assert sleeper.paused_s(began_s, time.monotonic()) >= 0.6


def test_the_late_words_of_a_life_that_was_killed_are_not_those_of_the_next_one(sleeper):
    """They stand before its mark, though they came after that."""

    def speak():
        if not sleeper.between("second", None, "hello"):
            for life in (7, 8):
                sleeper.hear("report", encode(Message("report", REPORT, {}, "sampler-3", life)))
            sleeper.hear("report", encode(MESSAGES["hello"]._replace(sender="sampler-3", incarnation=8)))

    sleeper.meanwhile = speak
    begin_again(sleeper, sleeper.lives[0], 3, "second")
    assert [message.incarnation for message in sleeper.between(None, "second", "report")] == [7]
    assert [message.incarnation for message in sleeper.between("second", None, "report")] == [8]


def test_a_program_that_cannot_be_started_is_bad_input(capsys):
    """One line that names it."""
    assert spreeze.main(["conform", "sampler", "--only", "L1", "--", "./no-such-program"]) == 2
    assert "./no-such-program" in capsys.readouterr().err
