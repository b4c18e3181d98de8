"""What a learner has counted outlives it in its checkpoint."""

from types import SimpleNamespace

import pytest

from spreeze_zmq.learner.experience import Counts
from spreeze_zmq.learner.lag import MOST_LIMITED
from spreeze_zmq.learner.rounds import RoundExperience
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC_LEARNER


def test_counts_go_on_from_a_checkpoint():
    """Each of them."""
    saved = Counts(version=3, env_steps=400, trained=3200, sampled=390, trained_version=2)
    restored = Counts(env_steps=7)
    restored.restore(saved.state())
    assert restored == saved


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"version": 9, "env_steps": 5, "trained": 40, "sampled": 5}, Counts(9, 5, 40, 5)),
        ({"version": 9, "env_steps": 5, "trained": 40}, Counts(9, 5, 40)),
        (
            {"version": 9, "env_steps": 5, "trained": 40, "sampled": 5, "policy_version": 6},
            Counts(6, 5, 40, 5),
        ),
        (
            {"rounds": 4, "env_steps": 5, "trained": 40, "sampled": 5, "trained_version": 8},
            Counts(0, 5, 40, 5, 8),
        ),
        (
            {
                "rounds": 4,
                "env_steps": 5,
                "trained": 40,
                "sampled": 5,
                "trained_version": 8,
                "policy_version": 6,
            },
            Counts(6, 5, 40, 5, 8),
        ),
    ],
    ids=["critics", "policy", "alone", "critics-rounds", "policy-rounds"],
)
def test_counters_of_an_older_checkpoint_are_understood(saved, expected):
    """Each learner saved its own, and a policy's version apart from that of its publications."""
    restored = Counts()
    restored.restore(saved)
    assert restored == expected


def rounds(role, alone=False, **balance):
    """What a learner of PPO learns from, in a run of 1,000 env steps, of which it has received 600."""
    limits = {
        "run": {"env": "CartPole-v1", "algorithm": "pqn" if alone else "ppo", "stop": {"env_steps": 1000}}
    }
    plan = topology.load({**limits, "balance": balance, "components": {"sampler": {"count": 1}}})
    kind, options = algorithm_of(plan)
    handlers = []
    component = SimpleNamespace(
        plan=plan,
        role=role,
        options={"device": "cpu"},
        environment=plan.environment,
        open=lambda *_: SimpleNamespace(),
        figures={},
        stopping_roles=set(),
        send_report=lambda: None,
        on=lambda kind, handler: handlers.append(handler),
    )
    half = SimpleNamespace(algorithm=kind(options, plan.environment))
    outlet = SimpleNamespace(
        cadence=None,
        limits=SimpleNamespace(meet=lambda num_samplers: False),
        of_policy=role == ACTOR_LEARNER,
        versions=SimpleNamespace(newest=9),
    )
    others = None if alone else SimpleNamespace(num_taken=0)
    return RoundExperience(component, half, outlet, others, Counts(env_steps=600)), handlers


def test_a_learner_of_rounds_keeps_few_of_thousands_of_lives():
    """The newest of each sampler among them."""
    experience, _ = rounds(CRITIC_LEARNER)
    for life in range(3 * MOST_LIMITED):
        experience._consume(SimpleNamespace(stream=f"sampler-0/{life}", produced=life + 1))
        experience._consume(SimpleNamespace(stream="sampler-1/7", produced=life + 1))
        assert len(experience.consumed) <= 2 * MOST_LIMITED
    ends = {"sampler-0/4199": 4200, "sampler-1/7": 4200}
    assert {stream: experience.consumed[stream] for stream in ends} == ends


@pytest.mark.parametrize("mode", ["free", "lockstep"])
def test_a_restarted_learner_of_rounds_hears_how_many_transitions_the_run_has(mode):
    """From the first weights of the other one; later ones may be ahead by what is on its way. In order nobody
    restarts, and each counts what it has received.
    """
    for role, kind, fields in (
        (CRITIC_LEARNER, "policy", {"version": 7, "extras": {"env_steps": 900}}),
        (ACTOR_LEARNER, "critic", {"policy_version": 7, "env_steps": 900}),
    ):
        experience, _ = rounds(role, mode=mode)
        for experience.others.num_taken in (1, 2):
            experience.meet(SimpleNamespace(kind=kind, fields=fields, incarnation=1))
            assert experience.counts.env_steps == (900 if mode == "free" else 600)
            (fields.get("extras") or fields)["env_steps"] += 50


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("mode", "expected"), [("free", 1000), ("lockstep", 600)])
def test_a_critic_learner_that_was_started_again_hears_it_of_the_broker(mode, expected, alone):
    """So that the run ends where it was told to, and schedules do not go back: there may be no other learner,
    or it was started again too, from the same checkpoint.
    """
    experience, handlers = rounds(CRITIC_LEARNER, alone, mode=mode)
    for received in (900, 700, "x", None, 1000):
        for handler in handlers:
            handler({"env_steps": received})
    assert experience.counts.env_steps == expected


def test_an_actor_learner_of_rounds_hears_it_of_the_broker_once():
    """Later counts may be ahead of its own by what is on its way to it, which would be counted twice."""
    experience, handlers = rounds(ACTOR_LEARNER)
    for received in (900, 1000):
        for handler in handlers:
            handler({"env_steps": received})
    assert experience.counts.env_steps == 900


@pytest.mark.parametrize(("mode", "goes_on"), [("free", True), ("lockstep", False)])
def test_an_actor_learner_that_has_received_all_keeps_no_rollout_from_one_that_has_not(mode, goes_on):
    """A critic-learner that was started again lacks what was lost with the one before, and the samplers give
    both the same: it says when the run has enough.
    """
    (actor, _), (critic, _) = rounds(ACTOR_LEARNER, mode=mode), rounds(CRITIC_LEARNER, mode=mode)
    assert actor.wants
    assert critic.wants
    actor.counts.env_steps = critic.counts.env_steps = 2048
    assert (actor.wants, critic.wants) == (goes_on, False)
