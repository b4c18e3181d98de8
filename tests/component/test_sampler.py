"""The sampler as a real process; the test is its learners, its broker and its source of policies."""

import contextlib
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.component.conftest import DEADLINE_S, Run
from tests.component.samplers import CRITIC, publish_zero, start
from tests.pace import slowness


def test_a_broker_that_is_started_again_is_greeted_again(peers):
    """It cannot know who is ready; while the same one goes on, once is enough."""
    start(peers)
    peers.next("hello")
    peers.until("", "its subscription to control", lambda: peers.ends["control"].subscriptions)
    for incarnation in (1, 1, 2):
        peers.ends["control"].incarnation = incarnation
        peers.publish("control", "stop", roles=["visualizer"], reason="nobody looks")
        peers.later_report()
        peers.later_report()
    peers.until("", "another hello", lambda: len(peers.between(None, None, "hello")) >= 2)
    for _ in range(2):
        peers.later_report()
    assert len(peers.between(None, None, "hello")) == 2


@pytest.mark.parametrize(
    "peers", [["run.env=HalfCheetah-v5", "components.sampler.use=sampler_cpp"]], indirect=True
)
def test_it_joins_a_run_whose_topology_uses_another_program(peers):
    """Which has fewer options: its own defaults stand in for them."""
    start(peers)
    assert peers.next("rollout").fields["num_envs"] == peers.plan.components["sampler"].options["envs"]


def test_whoever_was_started_by_hand_ends_when_the_launcher_is_gone(by_command, peers):
    """The kernel tells it of no death; the lock on the run's folder of sockets does."""
    process = start(peers)
    peers.next("rollout")
    peers.sockets.remove()
    assert process.wait(30) == 0
    assert "stopped: the launcher of the run is gone" in peers.lives[0].words()[-1]


def test_a_learner_that_does_not_take_blocks_it_until_it_is_told_to_stop(peers):
    """It counts the time, and stops at once when told."""
    peers.holding = {CRITIC}
    process = start(peers)
    peers.report(lambda fields: fields["waiting_for"].startswith("critic_learner to take a rollout"))
    assert peers.report()["clock_s"]["blocked"] >= 1
    peers.publish("control", "stop", roles=["sampler"], reason="enough")
    assert peers.next("bye").fields["reason"] == "enough"
    assert process.wait(30) == 0


def test_what_it_says_it_pushed_is_what_arrives(peers):
    """After SIGTERM learners find every transition that the last report counts, and the broker has heard of
    every episode that ends in them.
    """

    def ended():
        rollouts = peers.between(None, None, "rollout", CRITIC)
        return sum(int((m.arrays["terminated"] | m.arrays["truncated"]).sum()) for m in rollouts)

    process = start(peers)
    peers.until("", "the end of an episode", ended)
    process.terminate()
    said = peers.next("bye").fields["pushed"]
    assert process.wait(30) == 0  # nothing of it comes after it has ended but what is under way

    def arrived():
        pushed = {name: peers.between(None, None, "rollout", f"experience.{name}") for name in said}
        return {name: found[-1].fields["produced"] for name, found in pushed.items()}

    peers.wait(DEADLINE_S, lambda: arrived() == said)
    assert arrived() == said
    told = [message.arrays["lengths"] for message in peers.between(None, None, "episodes")]
    assert sum(map(len, told)) == ended() > 0


@pytest.mark.parametrize("failing", [False, True])
def test_of_slow_environments_a_rollout_is_left_when_it_is_to_stop(tmp_path, forked, failing):
    """Its end would come after the launcher's patience. The environment is closed, also where it fails; no
    episode of the rollout is reported, which nobody gets.
    """
    held = tmp_path / "held"
    overrides = ["run.env=tests.component.samplers:Robot", f"run.env_kwargs.held={held}"]
    overrides += [f"run.env_kwargs.fails_at={20 if failing else -1}", "components.sampler.max_failures=1"]
    overrides += ["components.sampler.envs=1", "components.sampler.rollout_steps=1000"]
    with contextlib.closing(Run(tmp_path / "run", overrides)) as peers:
        process = start(peers)
        peers.next("hello")
        assert held.exists()
        if not failing:
            peers.wait(1.5)  # two episodes
            process.terminate()
        assert process.wait(30) == int(failing)
        assert not held.exists()
        assert peers.between(None, None, "rollout") == peers.between(None, None, "episodes") == []


def test_a_second_sampler_of_the_same_index_is_refused(peers):
    """A name lives once; the error names the process that has it."""
    first = start(peers)
    peers.next("hello")
    assert peers.start().wait(30) == 1
    assert f"sampler-0 is taken by process {first.pid}" in peers.logs()


def test_a_recording_that_ends_early_is_said_to_the_run(peers):
    """Once, among the failures that are survived: its log alone would be read by nobody."""
    path = peers.folder.run_file
    path.write_text(replace(peers.plan, recording={"sampler-0": 0.2}).to_json())
    start(peers)
    said = peers.next("failure").fields
    assert said["summary"] == (
        f"{peers.folder.recordings}/sampler-0.recording: --record-mb 0.2 is reached: what comes from now on "
        "is not recorded"
    )
    peers.report()
    peers.publish("control", "stop", roles=["sampler"], reason="enough")
    peers.next("bye")
    assert len(peers.between(None, None, "failure")) == 1


STRAYS = (
    "run.env=tests.unit.envs.own_environments:Strays",
    "run.env_kwargs={ length = 90, max_episode_steps = 95 }",
)


@pytest.mark.parametrize("peers", [STRAYS], indirect=True)
def test_an_observation_that_leaves_its_space_later_is_reported(peers):
    """The first steps, which are tried before a run, were within it."""
    start(peers)
    assert not peers.plan.tried.get("outside")
    gauges = peers.report(lambda fields: "outside_place" in fields["gauges"])["gauges"]
    assert (gauges["outside_place"], gauges["outside_bound"]) == (0, 30)
    assert 31 <= gauges["outside_value"] <= 90
    assert gauges["outside_steps"] % (16 * peers.plan.components["sampler"].options["envs"]) == 0
    later = peers.report(lambda fields: fields["counters"] or fields["gauges"])["gauges"]
    assert {name: later[name] for name in later if "outside" in name} == {
        name: gauges[name] for name in gauges if "outside" in name
    }


@pytest.mark.parametrize("peers", [("run.env=HalfCheetah-v5", "components.sampler.envs=64")], indirect=True)
def test_a_sampler_of_64_cheetahs_is_small_and_soon_at_work(by_command, peers):
    """At most 200 MB resident, and a second or so of CPU time until the first rollout of 1,024 steps came,
    with the imports that no server has made for it.
    """
    process = psutil.Process(start(peers).pid)
    peers.next("rollout", CRITIC)
    cpu_s = sum(process.cpu_times()[:2])
    peers.next("rollout", CRITIC)
    megabytes = process.memory_info().rss / 1e6
    print(f"\nsampler of 64 HalfCheetahs: {megabytes:.0f} MB, first rollout after {cpu_s:.2f} CPU s")
    assert megabytes < 200
    assert cpu_s < 3 * slowness()


WORKING = (
    "run.env=tests.unit.envs.own_environments:Count",
    "run.env_kwargs={ length = 50 }",
    "components.sampler.workers=2",
)


@pytest.mark.parametrize("peers", [WORKING], indirect=True)
def test_the_work_of_its_workers_is_its_own(peers):
    """What a report says of CPU time includes the processes that step the environments: all of it, and no
    more, once a limit has them rest.
    """
    position = 5000
    process = psutil.Process(start(peers, until={"*": position}).pid)
    reports = pairwise(iter(peers.report, None))

    def rests(later, fields):
        return fields["pushed"] == later["pushed"] and later["pushed"][CRITIC.rpartition(".")[2]] >= position

    while True:
        next(later for fields, later in reports if rests(later, fields))
        family = [process, *process.children(recursive=True)]
        before_s = [sum(one.cpu_times()[:4]) for one in family]
        assert len(family) >= 3
        if sum(before_s[1:]) > 0.1:
            break
        position *= 2  # a quick core has had too little to do
        publish_zero(peers, until={"*": position})
    # It looks for child processes that are new to it every few seconds.
    said_s = peers.later_report(lambda fields: fields["cpu_s"] >= sum(before_s) - 0.05)["cpu_s"]
    after_s = [sum(one.cpu_times()[:4]) for one in family]
    assert said_s <= sum(after_s) + 0.05


SLOW = (
    "run.env=tests.benchmarks.napping:make",
    "run.env_kwargs={ nap_s = 0.25 }",
    "components.sampler.envs=1",
    "components.sampler.rollout_steps=64",
)


@pytest.mark.parametrize("peers", [SLOW], indirect=True)
def test_a_sampler_of_slow_environments_reports_while_it_collects(peers):
    """A rollout of 64 steps takes sixteen seconds; whoever watches it hears of it before it is there."""
    start(peers)
    peers.next("hello")
    first = peers.next("report").fields
    assert first["pushed"] == {"critic_learner": 0, "actor_learner": 0}
    busy = peers.report(lambda fields: fields["clock_s"]["busy"] > first["clock_s"]["busy"])
    assert busy["pushed"] == first["pushed"]


WAITING = (
    "run.env=tests.benchmarks.napping:make",
    "run.env_kwargs={ nap_s = 0.05 }",
    "components.sampler.envs=8",
    "components.sampler.rollout_steps=8",
)


@pytest.mark.parametrize("peers", [WAITING, (*WAITING, "components.sampler.workers=0")], indirect=True)
def test_environments_that_wait_do_so_together(peers):
    """A rollout of 8 steps of 8 environments takes 8 times 50 ms in a worker for each, 64 times in turn."""
    in_turn = peers.plan.components["sampler"].options["workers"] == 0
    times_s = [time.monotonic()]
    process = psutil.Process(start(peers).pid)
    # The quickest of some: neighbours may hold up any, and nothing is quicker than its naps.
    while len(times_s) < (2 if in_turn else 8):
        peers.next("rollout", CRITIC)
        times_s.append(time.monotonic())
    assert len(process.children(recursive=True)) == (0 if in_turn else 1 + 8)
    assert (min(after - before for before, after in pairwise(times_s)) > 1.6) == in_turn


@pytest.mark.parametrize(
    ("peers", "publisher"),
    [((), "actor_learner"), (("run.env=CartPole-v1", "run.algorithm=dqn"), "critic_learner")],
    indirect=["peers"],
)
def test_a_sampler_without_a_policy_names_the_learner_that_publishes_it(peers, publisher):
    """The actor-learner, or the critic-learner of an algorithm that has no other."""
    peers.play("sampler")
    peers.start()
    owed = peers.report(lambda fields: fields["waiting_for"])["waiting_for"]
    assert owed.startswith(f"a policy from {publisher} (")


@pytest.mark.parametrize(
    ("peers", "needs"),
    [
        ([], False),
        (["algorithm.network=parts", "run.env=tests.unit.envs.own_environments:Parts"], True),
        (["algorithm.network=mlp", "run.env=tests.unit.envs.own_environments:Parts"], False),
        (["run.env=tests.system.swing:Swing"], True),
    ],
    indirect=["peers"],
)
def test_what_its_policies_need_is_imported_before_it_is_ready(by_command, peers, needs):
    """The import of torch may take longer than a process may be silent."""
    peers.play("sampler")
    process = peers.start()
    peers.next("hello")
    loaded = "libtorch_cpu" in Path(f"/proc/{process.pid}/maps").read_text()
    assert loaded == needs
