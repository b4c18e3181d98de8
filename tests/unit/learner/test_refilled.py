"""A learner that goes on with its replay trains at once, and one that has lost it makes up for nothing."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.cadence import Cadence
from spreeze_zmq.learner.delayed import DelayExperience
from spreeze_zmq.learner.experience import Counts
from spreeze_zmq.learner.lag import CollectionLimits
from spreeze_zmq.learner.ratio import RatioExperience
from spreeze_zmq.learner.rounds import RoundExperience
from spreeze_zmq.learner.setup import PART_OF, algorithm_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC_LEARNER
from spreeze_zmq.replay import Relabelling
from spreeze_zmq.wire import Message
from tests.unit.learner.test_sources import many
from tests.unit.replay.made import save

SMALL = ("hidden_sizes=[8]", "batch_size=64", "learning_starts=1000", "replay_capacity=20000")
ENV_STEPS, STARTS = 6000, 1000


def learned_from(kind, role, algorithm="sac", *others, **options):
    """What a learner learns from that goes on at 6,000 env steps, its peers without messages."""
    small = SMALL[:1] if kind is RoundExperience else SMALL
    told = [*small, *(f"{name}={value}" for name, value in options.items())]
    settings = [*(f"algorithm.{each}" for each in told), *others]
    run = {"env": "Pendulum-v1"} if kind is RoundExperience else None
    plan = topology.load({"run": run} if run else "pendulum", [f"run.algorithm={algorithm}", *settings])
    component = SimpleNamespace(
        plan=plan,
        role=role,
        environment=plan.environment,
        options={**plan.components[role].options, "device": "cpu"},
        open=lambda *_: SimpleNamespace(),
        figures={},
        on=lambda *_: None,
        stopping_roles=set(),
    )
    half = algorithms.make(PART_OF[role], *algorithm_of(plan), plan.environment, "cpu", 1)
    outlet = SimpleNamespace(
        cadence=Cadence(1e9, 0), limits=CollectionLimits(plan), observe=lambda rollout: None, owed=[]
    )
    outlet.of_policy = False
    others = SimpleNamespace(num_taken=1, version=1)
    return kind(component, half, outlet, others, Counts(env_steps=ENV_STEPS))


def whole(env, num_steps):
    """A rollout of episodes that are as long."""
    rollout = random_rollout(env, num_steps)
    ended = np.zeros_like(rollout.terminated)
    ended[-1] = True
    index = np.argwhere(ended).astype(np.int32)
    return replace(rollout, terminated=ended, final_obs=rollout.obs[-1], final_index=index)


@pytest.mark.parametrize("times", [0, 1], ids=["plain", "relabelled"])
def test_a_critic_learner_whose_replay_came_back_trains_after_one_more_rollout(tmp_path, times):
    """What the replay has of samplers counts as received and trained on; each step once, though its episode
    is kept once more in hindsight.
    """
    before, after = (learned_from(RatioExperience, CRITIC_LEARNER) for _ in range(2))
    for one in (before, after):
        if times:
            one.replay.relabel_by(Relabelling(partial(many, times), None, 1))
    before.replay.add(whole(before.component.environment, ENV_STEPS // 16))
    save(before.replay, tmp_path)
    after.replay.load(tmp_path)
    assert len(after.replay) == ENV_STEPS * (1 + times)
    after.restore(before.state())
    gate = after.gate
    assert (after.replay.num_sampled, after.refill) == (ENV_STEPS, 0)
    assert (gate.received, gate.trained) == (ENV_STEPS, int(gate.replay_ratio * (ENV_STEPS - STARTS)))
    assert not gate.may_update
    assert "replay_ratio" not in after.gauges()
    after.add(random_rollout(after.component.environment))
    assert gate.may_update
    assert after.gauges()["replay_ratio"] == 0.0


@pytest.mark.parametrize(
    ("capacity", "num_rollouts", "says", "refill"),
    [(500, 24, True, 0), (500, 24, False, 0), (20_000, 1, True, 574)],
    ids=["forgot most", "of an earlier release", "saved while it waited"],
)
def test_a_replay_that_came_back_lost_nothing_but_what_it_lacked(
    tmp_path, capacity, num_rollouts, says, refill
):
    """What a small one had forgotten is not waited for where it is given more room, unlike what had not come
    again yet when it was saved.
    """
    before = learned_from(RatioExperience, CRITIC_LEARNER, learning_starts=64, replay_capacity=capacity)
    for _ in range(num_rollouts):
        before.replay.add(random_rollout(before.component.environment))
    save(before.replay, tmp_path)
    state = before.state()
    if not says:
        del state["num_sampled"]
    after = learned_from(RatioExperience, CRITIC_LEARNER, learning_starts=64)
    after.replay.load(tmp_path)
    assert len(after.replay) < ENV_STEPS / 10
    after.restore(state)
    assert after.replay.num_sampled == (before.replay.num_sampled if says else ENV_STEPS)
    assert after.refill == refill
    after.add(random_rollout(after.component.environment))
    assert after.gate.may_update == (not refill)


@pytest.mark.parametrize("role", [CRITIC_LEARNER, ACTOR_LEARNER])
def test_a_learner_that_joins_other_groups_waits_as_one_that_lost_its_replay(role):
    """Both, from what has come by then on; one whose replay holds that much, or a run that is as new, waits
    for nothing more.
    """
    kind = RatioExperience if role == CRITIC_LEARNER else DelayExperience
    joins = learned_from(kind, role, learning_starts=100)
    rollout = random_rollout(joins.component.environment)
    late, new, restarted = joins, *(learned_from(kind, role, learning_starts=100) for _ in range(2))
    for one, env_steps in ((late, 50_000), (new, 900)):
        one.add(rollout)
        one.join(env_steps)
    for _ in range(10):
        restarted.add(rollout)
    restarted.join(20_000)
    assert (late.refill, new.refill, restarted.refill) == (2000, 0, 0)
    missing = f"{2000 - rollout.num_transitions:,} more transitions"
    assert late.lacks().startswith(missing)
    if role == CRITIC_LEARNER:
        assert late.gate.learning_starts == 2000
        assert new.gate.learning_starts == restarted.gate.learning_starts == 100
        while late.lacks():
            assert not late.gate.may_update
            late.add(rollout)
        assert late.gate.trained == 0
    else:
        late.gate.meet(0)
        late.gate.hear(1000)
        while late.lacks():
            assert not late.ready
            late.add(rollout)
        assert late.gate.critic_updates == 0


def test_an_actor_learner_that_lost_its_replay_makes_up_for_no_update():
    """Those of the critics meanwhile count for nothing, once as much has come as it waits for."""
    actor = learned_from(DelayExperience, ACTOR_LEARNER, "td3")
    actor.restore(actor.state())
    assert actor.refill == STARTS
    rollout = random_rollout(actor.component.environment)

    def meet(updates):
        fields = {"critic_updates": updates, "env_steps": ENV_STEPS}
        actor.meet(Message("critic", fields, {}, "critic_learner-0", 1))

    meet(100)
    for updates in range(1100, 5100, 1000):
        meet(updates)
        assert not actor.ready
        actor.add(rollout)
    assert actor.replay.num_sampled >= STARTS
    assert not actor.ready
    meet(4104)
    num_updates = 0
    while actor.gate.may_update:
        actor.trained(None)
        num_updates += 1
    assert num_updates == (4 + actor.gate.slack) // actor.options.policy_delay


def counted(kind, algorithm, rewards, *settings):
    """One that has counted the returns of these rewards, and what it divides them by."""
    one = learned_from(kind, CRITIC_LEARNER, algorithm, *settings, normalize_rewards="true")
    rollout = random_rollout(one.component.environment, len(rewards))
    rollout = replace(rollout, reward=np.repeat(np.float32(rewards)[:, None], rollout.num_envs, 1))
    if kind is RoundExperience:
        one.rewards(rollout)
        return one, one.rewards
    one.replay.scale.add(rollout)
    return one, one.replay.scale


@pytest.mark.parametrize(
    ("kind", "algorithm"), [(RatioExperience, "sac"), (RoundExperience, "ppo")], ids=["replay", "rounds"]
)
@pytest.mark.parametrize(
    ("other", "anew"),
    [
        ("algorithm.gamma=0.5", True),
        ("run.env_kwargs={g = 1.0}", True),
        ("run.env_kwargs={max_episode_steps = 50}", False),
        ("", False),
    ],
    ids=["gamma", "env_kwargs", "time limit", "same"],
)
def test_returns_that_were_paid_otherwise_count_no_more(kind, algorithm, other, anew, caplog):
    """What rewards are divided by would never fall to what they are now."""
    before, _ = counted(kind, algorithm, [100.0, -300.0])
    after, scale = counted(kind, algorithm, [1.0, 2.0], *filter(None, [other]))
    own, state = scale.sums().tolist(), before.state()
    with caplog.at_level("INFO"):
        after.restore(state)
    assert (scale.sums().tolist() == own) == anew
    assert ("what rewards are divided by begins anew" in caplog.text) == anew
    after.restore({name: each for name, each in state.items() if name != "paid"})  # of an earlier release
    assert scale.sums().tolist() != own


def test_returns_of_a_replay_that_came_back_count_on(tmp_path):
    """Its rewards are drawn, however they were paid."""
    told = {"normalize_rewards": "true", "learning_starts": 64}
    before = learned_from(RatioExperience, CRITIC_LEARNER, **told)
    before.replay.add(random_rollout(before.component.environment))
    save(before.replay, tmp_path)
    after = learned_from(RatioExperience, CRITIC_LEARNER, "sac", "run.env_kwargs={g = 1.0}", **told)
    after.replay.load(tmp_path)
    after.restore(before.state())
    assert after.replay.scale.divisor == before.replay.scale.divisor != 1.0
