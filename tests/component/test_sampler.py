"""The sampler as a real process; the test is its learners, its broker and its source of policies."""

import math
import re
import signal
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import psutil
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.wire import Message, channels, rollout_from
from tests.component.conftest import DEADLINE_S

CRITIC, ACTOR = "experience.critic_learner", "experience.actor_learner"


@pytest.fixture
def policy(peers):
    """Publishes real policies of the run's algorithm."""
    algorithm = algorithms.get("sac")
    half = algorithms.make(
        "policy", algorithm, algorithm.Options(hidden_sizes=(16,)), peers.plan.environment, "cpu", 1
    )

    def publish(version, **more):
        fields = {
            **more,
            "version": version,
            "critic_updates": version,
            "actor_updates": version,
            "description": half.description(),
            "extras": {},
        }
        peers.peer("policy", "sampler").publish(Message("policy", fields, half.policy_arrays()))

    return publish


def start(peers, policy, **more):
    """A sampler with every peer in place and the policy of version 0, with ``more`` in its fields."""
    for channel in (CRITIC, ACTOR, "report", "control"):
        peers.peer(channel, "sampler")
    policy(0, **more)
    return peers.start("sampler")


def test_each_learner_gets_the_fields_that_it_asks_for(peers, policy):
    """The critic-learner everything, the actor-learner observations alone, of the same steps."""
    start(peers, policy)
    full, lean = peers.wait(CRITIC, "sampler"), peers.wait(ACTOR, "sampler")
    steps, envs = full.fields["num_steps"], full.fields["num_envs"]
    assert (steps, envs) == (16, 16)
    assert set(full.arrays) == set(peers.plan.channels[CRITIC].fields)
    assert full.arrays["obs"].shape == (steps + 1, envs, 3)
    assert full.arrays["action"].shape == (steps, envs, 1)
    assert set(lean.arrays) == {"obs"}
    assert np.array_equal(full.arrays["obs"], lean.arrays["obs"])


def test_rollouts_follow_one_another_without_a_seam(peers, policy):
    """The last observation of one is the first of the next; sequence and position count on."""
    start(peers, policy)
    first, second = (rollout_from(peers.wait(CRITIC, "sampler")) for _ in range(2))
    assert np.array_equal(first.obs[-1], second.obs[0])
    assert (first.sequence, second.sequence) == (0, 1)
    assert (first.produced, second.produced) == (256, 512)
    assert first.sampler == "sampler-0"
    assert first.incarnation == second.incarnation > 0


def test_an_episode_ends_with_its_true_final_observation(peers, policy):
    """Pendulum truncates after 200 steps: the final observation is of the same swing, not of the next."""
    start(peers, policy)

    def take_observations():
        while peers.peer(ACTOR, "sampler").pull() is not None:
            pass

    for _ in range(13):
        rollout = rollout_from(peers.wait(CRITIC, "sampler", meanwhile=take_observations))
    assert rollout.truncated.sum() == 16
    assert not rollout.terminated.any()
    step = 200 - 12 * 16 - 1
    assert rollout.final_index.tolist() == [[step, n] for n in range(16)]
    before, final, after = rollout.obs[step], rollout.final_obs, rollout.obs[step + 1]
    swing = np.abs(np.arctan2(final[:, 1], final[:, 0]) - np.arctan2(before[:, 1], before[:, 0]))
    assert np.minimum(swing, 2 * np.pi - swing).max() <= 8 * 0.05 + 1e-3
    assert np.abs(after[:, 2]).max() <= 1.0
    assert np.abs(final[:, 2]).max() > 1.0


def test_a_broker_that_is_started_again_is_greeted_again(peers, policy):
    """It cannot know who is ready; while the same one goes on, once is enough."""
    control = peers.peer("control", "sampler")
    start(peers, policy)
    peers.wait("report", "sampler", "hello")
    aside = Message("stop", {"roles": ["visualizer"], "reason": "nobody looks"})
    for control.incarnation in (1, 1, 2):
        control.publish(aside)
        peers.wait("report", "sampler", "report")
        peers.wait("report", "sampler", "report")
    peers.wait("report", "sampler", "report")
    assert [message.kind for message in peers.seen].count("hello") == 2


def test_the_newest_policy_acts(peers, policy):
    """Once version 3 is out, rollouts say so; versions before it are passed over."""
    start(peers, policy)
    assert peers.wait(CRITIC, "sampler").fields["policy_version"] == 0
    for version in (1, 2, 3):
        policy(version)

    def take_observations():
        while peers.peer(ACTOR, "sampler").pull() is not None:
            pass

    versions = [0]
    while versions[-1] < 3:
        message = peers.wait(CRITIC, "sampler", meanwhile=take_observations)
        versions.append(message.fields["policy_version"])
    assert versions == sorted(versions)


def versions_of(peers, count):
    """The versions of the next ``count`` rollouts, after which none may come for half a second."""
    versions, until_s = [], time.monotonic() + DEADLINE_S
    while len(versions) < count and time.monotonic() < until_s:
        peers.peer(ACTOR, "sampler").pull()
        message = peers.peer(CRITIC, "sampler").pull(0.05)
        versions += [message.fields["policy_version"]] if message else []
    while (message := peers.peer(CRITIC, "sampler").pull(0.5)) is not None:
        versions.append(message.fields["policy_version"])
    while peers.peer(ACTOR, "sampler").pull() is not None:
        pass
    return versions


def test_a_policy_is_used_as_far_as_it_says(peers, policy):
    """Two rollouts, then it waits, starved; the same version with a further limit lets it go on."""
    start(peers, policy, collect_until={"*": 512})
    assert peers.wait(CRITIC, "sampler").fields["policy_version"] == 0
    assert versions_of(peers, 1) == [0]
    while peers.wait("report", "sampler", "report").fields["clock_s"]["starved"] == 0:
        pass
    policy(0, collect_until={"*": 768})
    assert versions_of(peers, 1) == [0]


@pytest.mark.parametrize("peers", [["balance.mode=lockstep"]], indirect=True)
def test_in_order_every_version_has_its_turn(peers, policy):
    """Newer ones are there already, yet each is used up to its limit, and none is passed over."""
    start(peers, policy, collect_until={"*": 256})
    first = peers.wait(CRITIC, "sampler").fields["policy_version"]
    for version in (1, 2, 3):
        policy(version, collect_until={"*": 256 + 512 * version})
    assert [first, *versions_of(peers, 6)] == [0, 1, 1, 2, 2, 3, 3]


def test_a_learner_that_does_not_take_blocks_it_and_is_named(peers, policy):
    """Backpressure: it stops producing, says for whom it waits, and still stops at once when told."""
    process = start(peers, policy)
    report = peers.wait("report", "sampler", "report")
    while not report.fields.get("waiting_for"):
        report = peers.wait("report", "sampler", "report")
    assert report.fields["waiting_for"].startswith("critic_learner to take a rollout")
    pushed = report.fields["pushed"]
    report = peers.wait("report", "sampler", "report")
    assert report.fields["pushed"] == pushed
    assert report.fields["clock_s"]["blocked"] >= 1
    peers.peer("control", "sampler").publish(Message("stop", {"roles": ["sampler"], "reason": "enough"}))
    bye = peers.wait("report", "sampler", "bye")
    assert bye.fields["reason"] == "enough"
    assert process.wait(30) == 0


def test_what_it_says_it_pushed_is_what_arrives(peers, policy):
    """After a stop learners that take whatever comes at once, as ours do, find every transition that the
    last report counts, and the broker has heard of every episode that ends in them.
    """
    process = start(peers, policy)
    ends = {peers.peer(f"experience.{name}", "sampler"): name for name in ("critic_learner", "actor_learner")}
    taken, ended = {}, 0

    def note(name, message):
        nonlocal ended
        taken[name] = message.fields["produced"]
        if name == "critic_learner":
            ended += int((message.arrays["terminated"] | message.arrays["truncated"]).sum())

    def take():
        while ready := channels.poll(ends, timeout_s=0.02):
            for end in ready:
                note(ends[end], end.pull())

    while not ended:
        for name in ends.values():
            note(name, peers.wait(f"experience.{name}", "sampler"))
    process.send_signal(signal.SIGTERM)
    bye = peers.wait("report", "sampler", "bye", meanwhile=take)
    take()
    assert taken == bye.fields["pushed"]
    told = [message.arrays["lengths"] for message in peers.seen if message.kind == "episodes"]
    assert sum(map(len, told)) == ended > 0
    assert process.wait(30) == 0


def test_a_second_sampler_of_the_same_index_is_refused(peers, policy):
    """A name lives once; the error names the process that has it."""
    first = start(peers, policy)
    peers.wait(CRITIC, "sampler")
    second = peers.start("sampler")
    assert second.wait(30) == 1
    assert f"sampler-0 is taken by process {first.pid}" in peers.logs()


BROKEN = (
    "run.env=tests.unit.envs.own_environments:Count",
    "run.env_kwargs={ length = 50, fails_at = 20 }",
    "components.sampler.envs=2",
)


@pytest.mark.parametrize("peers", [BROKEN, (*BROKEN, "components.sampler.workers=2")], indirect=True)
def test_an_environment_that_fails_is_reported_and_cut_off(peers, policy):
    """The broker hears of it with its traceback; learners see a truncation, not the bad step."""
    start(peers, policy)
    _, rollout = (rollout_from(peers.wait(CRITIC, "sampler")) for _ in range(2))
    failure = peers.wait("report", "sampler", "failure").fields
    assert failure["name"] == "sampler-0"
    assert "of 2 raised in step: ZeroDivisionError: the floor is gone" in failure["summary"]
    assert "own_environments.py" in failure["traceback"]
    assert np.flatnonzero(rollout.truncated[:, 0]).tolist() == [3]  # the 20th step
    assert not rollout.terminated.any()
    assert rollout.reward[3].tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(rollout.final_obs, rollout.obs[3])
    assert rollout.obs[4, :, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("peers", [("run.env=HalfCheetah-v5", "components.sampler.envs=64")], indirect=True)
def test_a_sampler_of_64_cheetahs_is_small_and_soon_at_work(peers, policy):
    """At most 200 MB resident, and a second or so of CPU time until the first rollout of 1,024 steps came."""
    process = psutil.Process(start(peers, policy).pid)
    peers.wait(CRITIC, "sampler")
    cpu_s = sum(process.cpu_times()[:2])
    peers.wait(CRITIC, "sampler")
    megabytes = process.memory_info().rss / 1e6
    print(f"\nsampler of 64 HalfCheetahs: {megabytes:.0f} MB, first rollout after {cpu_s:.2f} CPU s")
    assert megabytes < 200
    assert cpu_s < 3


WORKING = (
    "run.env=tests.unit.envs.own_environments:Count",
    "run.env_kwargs={ length = 50 }",
    "components.sampler.workers=2",
)


@pytest.mark.parametrize("peers", [WORKING], indirect=True)
def test_the_work_of_its_workers_is_its_own(peers, policy):
    """What a report says of CPU time includes the processes that step the environments."""
    process = psutil.Process(start(peers, policy).pid)
    for _ in range(20):
        peers.wait(CRITIC, "sampler")
        peers.wait(ACTOR, "sampler")
    family = [process, *process.children(recursive=True)]
    own_s, *workers_s = (sum(one.cpu_times()[:2]) for one in family)
    assert len(workers_s) >= 2
    assert sum(workers_s) > 0
    reports = [peers.wait("report", "sampler", "report") for _ in range(12)]
    assert reports[-1].fields["cpu_s"] >= own_s + sum(workers_s)


SLOW = (
    "run.env=tests.benchmarks.napping:make",
    "run.env_kwargs={ nap_s = 0.25 }",
    "components.sampler.envs=1",
)


@pytest.mark.parametrize("peers", [SLOW], indirect=True)
def test_a_sampler_of_slow_environments_reports_while_it_collects(peers, policy):
    """A rollout of 16 steps takes four seconds; whoever watches it hears of it all the while."""
    start(peers, policy)
    peers.wait("report", "sampler", "hello")
    reports = [peers.wait("report", "sampler", "report").fields for _ in range(4)]
    assert reports[-1]["pushed"] == {"critic_learner": 0, "actor_learner": 0}
    spans = [later["time_s"] - earlier["time_s"] for earlier, later in pairwise(reports)]
    assert min(spans) < 2.0
    assert reports[-1]["clock_s"]["busy"] > reports[0]["clock_s"]["busy"]


WAITING = (
    "run.env=tests.benchmarks.napping:make",
    "run.env_kwargs={ nap_s = 0.05 }",
    "components.sampler.envs=8",
    "components.sampler.rollout_steps=8",
)


@pytest.mark.parametrize("peers", [WAITING, (*WAITING, "components.sampler.workers=0")], indirect=True)
def test_environments_that_wait_do_so_together(peers, policy):
    """A rollout of 8 steps of 8 environments takes 8 times 50 ms in a worker for each, 64 times in turn."""
    in_turn = peers.plan.components["sampler"].options["workers"] == 0
    process = psutil.Process(start(peers, policy).pid)
    peers.wait(CRITIC, "sampler")
    peers.wait(ACTOR, "sampler")
    began_s = time.monotonic()
    peers.wait(CRITIC, "sampler")
    took_s = time.monotonic() - began_s
    assert len(process.children(recursive=True)) == (0 if in_turn else 1 + 8)
    assert (took_s > 1.6) == in_turn


def plays(peers, env_id, **env_kwargs):
    """Let the run be of another environment, and its critic-learner ask for ``log_prob`` too."""
    about = peers.plan.channels[CRITIC]
    asking = replace(about, fields=(*about.fields, "log_prob"))
    peers.plan = replace(
        peers.plan,
        run=replace(peers.plan.run, env=env_id),
        environment=envs.probe(env_id, env_kwargs),
        channels={**peers.plan.channels, CRITIC: asking},
    )
    peers.folder.run_file.write_text(peers.plan.to_json())


def publish(peers, version, output, distribution, **arrays):
    """A policy of one linear layer that gives ``output`` for every observation."""
    spec = peers.plan.environment
    (size,), output = spec.obs_shape, np.asarray(output, np.float32)
    description = {
        "observation": {"shape": [size], "normalize": False, "clip": 10.0},
        "layers": [{"kind": "linear", "in": size, "out": output.size}],
        "distribution": distribution,
    }
    if spec.has_bounds:
        arrays |= {"action_low": spec.action_low, "action_high": spec.action_high}
    fields = {"version": version, "critic_updates": 0, "actor_updates": 0, "extras": {}}
    parameters = np.concatenate([np.zeros(size * output.size, np.float32), output])
    peers.peer("policy", "sampler").publish(
        Message("policy", {**fields, "description": description}, {"parameters": parameters, **arrays})
    )


def sampled(peers, version, output, distribution, **arrays):
    """The first rollout of a sampler under this policy."""
    for channel in (CRITIC, ACTOR, "report", "control"):
        peers.peer(channel, "sampler")
    publish(peers, version, output, distribution, **arrays)
    peers.start("sampler")
    return rollout_from(peers.wait(CRITIC, "sampler"))


def test_a_categorical_policy_plays_cart_pole(peers):
    """The rollout holds int64 actions [T, N] with the log probability that each was drawn with; poles fall
    within it, and the learner that does not ask for it gets none.
    """
    plays(peers, "CartPole-v1")
    rollout = sampled(peers, 3, [0.0, math.log(3.0)], {"kind": "categorical", "sizes": [2]})
    assert rollout.action.dtype == np.int64
    assert rollout.action.shape == (16, 16)
    assert rollout.log_prob.dtype == np.float32
    np.testing.assert_allclose(rollout.log_prob, np.log([0.25, 0.75])[rollout.action], atol=1e-6)
    assert 0.6 < rollout.action.mean() < 0.9
    assert rollout.terminated.any()
    # Pushed to the right the cart gains speed within the step, pushed to the left it loses some.
    faster = rollout.obs[1:, :, 1] > rollout.obs[:-1, :, 1]
    going = ~rollout.terminated
    assert np.array_equal(faster[going], rollout.action[going] == 1)
    assert "log_prob" not in peers.wait(ACTOR, "sampler").arrays


def test_version_zero_plays_cart_pole_at_random(peers):
    """Either action alike, and log 1/2 says so."""
    plays(peers, "CartPole-v1")
    rollout = sampled(peers, 0, [0.0, 50.0], {"kind": "categorical", "sizes": [2]})
    assert 0.3 < rollout.action.mean() < 0.7
    np.testing.assert_allclose(rollout.log_prob, -math.log(2.0), rtol=1e-6)


NORMAL = {"kind": "normal", "log_std_min": -5.0, "log_std_max": 2.0}


def test_a_normal_policy_is_clipped_for_the_environment_alone(peers):
    """The rollout keeps what was drawn beyond Pendulum's torque of 2, with its density; the reward is that of
    the torque that was applied.
    """
    plays(peers, "Pendulum-v1")
    rollout = sampled(peers, 3, [0.5, 0.0], NORMAL)
    u = rollout.action[..., 0].astype(np.float64) / 2.0
    assert (np.abs(u) > 1.5).any()
    np.testing.assert_allclose(u.mean(), 0.5, atol=0.3)
    density = -0.5 * (u - 0.5) ** 2 - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(rollout.log_prob, density, atol=1e-5)
    cos, sin, speed = np.moveaxis(rollout.obs[:-1].astype(np.float64), -1, 0)
    torque = np.clip(rollout.action[..., 0], -2.0, 2.0)
    reward = -(np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    np.testing.assert_allclose(rollout.reward, reward, atol=1e-3)


SPREAD = {
    "kind": "epsilon_greedy",
    "num_actions": 2,
    "epsilon": 0.5,
    "spread": 400.0,
    "atoms": 1,
    "v_min": 0.0,
    "v_max": 0.0,
}


@pytest.mark.parametrize(
    ("peers", "publisher"),
    [((), "actor_learner"), (("run.env=CartPole-v1", "run.algorithm=dqn"), "critic_learner")],
    indirect=["peers"],
)
def test_a_sampler_without_a_policy_names_the_learner_that_publishes_it(peers, publisher):
    """The actor-learner, or the critic-learner of an algorithm that has no other."""
    for channel in ("report", "control", *(name for name in peers.plan.channels if "experience" in name)):
        peers.peer(channel, "sampler")
    peers.start("sampler")
    while not (owed := peers.wait("report", "sampler", "report").fields["waiting_for"]):
        pass
    assert owed.startswith(f"a policy from {publisher} (")


@pytest.mark.parametrize("peers", [["components.sampler.count=2"]], indirect=True)
def test_environments_explore_by_their_place_among_all_samplers(peers):
    """Of two samplers with 16 environments each the first one's first explores half the time, and even its
    second one (0.5 ** (1 + 400 / 31)) hardly ever.
    """
    plays(peers, "CartPole-v1")
    rollout = sampled(peers, 3, [0.0, 1.0], SPREAD)
    epsilon = 0.5 ** (1 + 400.0 * np.arange(16) / 31)
    assert 0 < (rollout.action[:, 0] == 0).sum() < 16
    assert (rollout.action[:, 2:] == 1).all()
    expected = np.log(epsilon / 2 + (1 - epsilon) * (rollout.action == 1))
    np.testing.assert_allclose(rollout.log_prob, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("output", "distribution", "why"),
    [
        ([0.0, 0.0], {"kind": "beta"}, "bad_policy: unknown distribution 'beta'; there is tanh_normal"),
        ([0.0] * 3, {"kind": "categorical", "sizes": [2, 1]}, r"actions are int64 \[16, 2\]"),
        ([0.0, 0.0], NORMAL, r"actions are float32 \[16, 1\], the environments take int64 \[16\]"),
        ([0.0], {"kind": "deterministic", "noise_min": 0.1, "noise_max": 0.1}, "no log_prob"),
    ],
)
def test_a_policy_that_cannot_be_used_ends_the_sampler_in_one_line(peers, output, distribution, why):
    """Which version it was and why, no traceback, and the exit code of a run that no restart would mend."""
    plays(peers, "CartPole-v1")
    bounds = {"action_low": np.float32([-1.0]), "action_high": np.float32([1.0])}
    for channel in (CRITIC, ACTOR, "report", "control"):
        peers.peer(channel, "sampler")
    publish(peers, 3, output, distribution, **(bounds if distribution["kind"] == "deterministic" else {}))
    process = peers.start("sampler")
    peers.wait("report", "sampler", "hello", meanwhile=peers.peer("policy", "sampler").serve)
    until_s = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < until_s:
        peers.peer("policy", "sampler").serve()
        time.sleep(0.02)
    assert process.wait(1) == 2
    words = peers.logs().splitlines()
    assert re.match(rf"sampler: policy version 3 cannot be used: .*{why}", words[-1])
    assert "Traceback" not in peers.logs()
