"""The broker's record: counters, the account, stop conditions, and what a restart keeps."""

import json
import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.files import write_json
from spreeze_zmq.base.machine import physical_cores
from spreeze_zmq.broker import cores
from spreeze_zmq.broker.machines import in_words
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.returns import EVALUATIONS_KEPT
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.ending import outcome
from spreeze_zmq.screen.terminal.numbers import core_shares
from spreeze_zmq.wire import KINDS

#: What the status says of the balance; the record only hands it on.
BALANCE = {"movable": True, "settled": False, "last_change": ""}


def record(*overrides):
    """An empty record of the pendulum topology."""
    return RunRecord(topology.load("pendulum", overrides))


def report(role, pid=1, **figures):
    """The fields of a report."""
    clock = {"busy": 1.0, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
    base = {"role": role, "name": f"{role}-0", "pid": pid, "time_s": 0.0, "uptime_s": 1.0, "cpu_s": 0.5}
    return {**base, "rss_bytes": 1000, "clock_s": clock, "counters": {}, "gauges": {}, **figures}


def evaluation(mean):
    """The fields of an evaluation by an evaluator that does not send ``confirmed``."""
    about = {"version": 1, "env_steps": 500, "num_episodes": 10, "mean_length": 200.0, "best": True}
    return {**about, "mean_return": mean, "std_return": 1.0}


def fresh(mean, num_episodes=30, best=True):
    """The fields of an evaluation by fresh episodes of a policy that was chosen before them."""
    return {**evaluation(mean), "confirmed": True, "num_episodes": num_episodes, "best": best}


def test_the_account_joins_what_both_ends_report():
    """A sampler's count and a learner's receipts, separately for each channel."""
    run = record()
    run.take_report(
        "sampler-0", 7, report("sampler", pushed={"critic_learner": 512, "actor_learner": 256}), 1.0
    )
    taken = {"sampler-0/7": {"first": 0, "last": 256, "received": 256, "refused": 0, "lost": 0}}
    run.take_report("critic_learner-0", 8, report("critic_learner", taken=taken), 1.0)
    samples = run.status("training", BALANCE, 1.0)["samples"]
    assert samples == {"produced": 512, "received": 256, "dropped": 0, "in_flight": 256}
    run.lose("sampler-0", "was killed by SIGKILL")
    summary = run.summary("", 2.0, final=True)
    why = "sent and never received; its sampler: was killed by SIGKILL"
    assert summary["undelivered"]["experience.critic_learner"] == {why: 256}
    assert f"dropped 256 transitions: {why}" in outcome(summary, "")
    channels = summary["samples_by_channel"]
    assert channels["experience.critic_learner"] == {
        "produced": 512,
        "received": 256,
        "dropped": 256,
        "in_flight": 0,
    }
    assert channels["experience.actor_learner"]["produced"] == 256


def test_the_account_closes_over_a_sampler_whose_end_nobody_has_told():
    """The broker was gone too when it died: the broker knows a later process of that name, or only its
    rollouts.
    """
    run = record()
    run.take_report("sampler-0", 7, report("sampler", pushed={"critic_learner": 512}), 1.0)
    receipts = {"first": 0, "last": 256, "received": 256, "refused": 0, "lost": 0}
    taken = {"sampler-0/7": receipts, "sampler-0/8": receipts}
    run.take_report("critic_learner-0", 8, report("critic_learner", taken=taken), 1.0)
    run.take_report("sampler-0", 9, report("sampler", pushed={"critic_learner": 0}), 2.0)
    run.lose("sampler-0", "stopped")
    summary = run.summary("", 2.0, final=True)
    assert summary["samples"] == {"produced": 768, "received": 512, "dropped": 256, "in_flight": 0}
    [cause] = summary["undelivered"]["experience.critic_learner"]
    assert cause == "sent and never received; its sampler: had started again"


def test_the_shares_of_a_process_are_those_since_its_last_report():
    """Half a second blocked in the last second is 50 %, whatever came before."""
    run = record()
    run.take_report("sampler-0", 7, report("sampler"), 1.0)
    clock = {"busy": 1.5, "blocked": 0.5, "starved": 0.0, "idle": 0.0}
    run.take_report("sampler-0", 7, report("sampler", clock_s=clock, cpu_s=0.75), 2.0)
    row = run.status("training", BALANCE, 2.0)["workers"]["sampler"]
    assert (row["count"], row["busy"], row["blocked"], row["cpu_percent"]) == (1, 0.5, 0.5, 25.0)


def test_the_summary_says_what_each_learner_spends_on_publications():
    """By role, in the summary and the status."""
    run = record()
    dear = {"interval_s": 0.25, "cost": 0.02, "bytes": 1_000_000}
    cheap = {"interval_s": 0.05, "cost": 0.01, "bytes": 1000}
    run.take_report("critic_learner-0", 1, report("critic_learner", publication=dear), 1.0)
    run.take_report("actor_learner-0", 2, report("actor_learner", publication=cheap), 1.0)
    run.take_report("evaluator-0", 3, report("evaluator"), 1.0)
    expected = {"critic_learner": dear, "actor_learner": cheap}
    assert run.summary("", 2.0, final=True)["publication"] == expected
    assert run.status("training", BALANCE, 2.0)["publication"] == expected


def test_the_summary_says_what_each_gpu_does():
    """By the process that uses it; processes without a GPU are left out."""
    run = record()
    gpu = {"busy": 0.95, "memory_bytes": 2_000_000_000, "memory_free_bytes": 10_000_000_000}
    run.take_report("critic_learner-1", 1, report("critic_learner", device=gpu), 1.0)
    run.take_report("actor_learner-0", 2, report("actor_learner", device={}), 1.0)
    assert run.summary("", 2.0, final=True)["devices"] == {"critic_learner-1": gpu}


def test_efficiency_is_the_learners_arithmetic_beside_what_their_devices_could():
    """Both on CPUs: the limit is that of one core times their number. One on a GPU: its limit is added to
    that of the cores. The status has the present value, the summary that of the run; None before the first
    report.
    """
    for on_gpu in (False, True):
        run = record()
        if on_gpu:
            actor = run.plan.components["actor_learner"]
            actor = replace(actor, options={**actor.options, "device": "cuda:0"})
            run.plan = replace(run.plan, components={**run.plan.components, "actor_learner": actor})
        cores = len(physical_cores(os.sched_getaffinity(os.getppid())))
        assert run.summary("", 1.0, final=False)["efficiency"] is None
        for t_s in (0.0, 10.0):
            critic, actor = {"critic_flops": 3e9 * t_s}, {"actor_flops": 1e9 * t_s}
            slow, fast = {"limit_flops_per_s": 8e10}, {"limit_flops_per_s": 8e10 * (1000 if on_gpu else 1)}
            run.take_report(
                "critic_learner-0", 1, report("critic_learner", device=slow, counters=critic), t_s
            )
            run.take_report("actor_learner-0", 2, report("actor_learner", device=fast, counters=actor), t_s)
        limit = 8e10 * cores + (8e13 if on_gpu else 0)
        expected = {"flops_per_s": 4e9, "limit_flops_per_s": limit, "share": 4e9 / limit}
        assert run.status("training", BALANCE, 10.0)["efficiency"] == pytest.approx(expected)
        halved = {**expected, "flops_per_s": 2e9, "share": 2e9 / limit}
        assert run.summary("", 20.0, final=True)["efficiency"] == pytest.approx(halved)


def test_the_cores_time_is_told_by_its_uses_since_the_first_update(monkeypatch):
    """Of four CPUs: what the kernel counts as busy, the processes' own reports, products at their rate alone.
    What was spent before the first update counts nowhere; the shares add up.
    """
    busy_s = 0.0
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: busy_s)
    monkeypatch.setattr(cores, "core_time", lambda pid: 4)
    run, spent = record(), Counter()
    assert run.summary("", 1.0, final=False)["cores"] is None

    def live(t_s, updates, **seconds):
        spent.update(seconds)
        flops = {"critic_updates": updates, "critic_flops": 1e9 * updates}
        for index, role in enumerate(spent):
            more = (
                {"counters": flops, "device": {"limit_flops_per_s": 1e10}} if role == "critic_learner" else {}
            )
            run.take_report(f"{role}-0", index + 1, report(role, cpu_s=spent[role], **more), t_s)

    ours = {"critic_learner": 5.0, "actor_learner": 5.0, "sampler": 5.0, "evaluator": 5.0, "broker": 5.0}
    live(5.0, 0, **ours)
    live(10.0, 1, critic_learner=1.0)
    assert run.summary("", 12.0, final=False)["cores"] is None
    busy_s = 10.0
    live(15.0, 16, critic_learner=4.0, sampler=3.0)
    before, run = run, record()
    run.restore(json.loads(json.dumps(before.to_dict())), 16.0)  # a broker that was started again counts on
    busy_s = 30.0
    live(20.0, 31, critic_learner=4.0, actor_learner=6.0, sampler=4.0, evaluator=2.0, broker=1.0)
    found = run.summary("", 20.0, final=True)["cores"]
    used = {"products": 3.0, "updates": 11.0, "sampling": 7.0, "evaluation": 2.0, "messages": 1.0}
    expected = {**used, "others": 6.0, "idle": 10.0}
    assert found == pytest.approx({name: seconds / 40.0 for name, seconds in expected.items()})
    assert "8% products of updates, 28% the rest of the learners, 18% sampling" in core_shares(found)


def test_a_learner_that_says_nothing_of_its_device_hides_no_others_limit():
    """A learner in another language may not report it; both run on the same cores."""
    run = record()
    for t_s in (0.0, 10.0):
        counters, device = {"actor_flops": 1e9 * t_s}, {"limit_flops_per_s": 8e10}
        run.take_report("critic_learner-0", 1, report("critic_learner"), t_s)
        run.take_report("actor_learner-0", 2, report("actor_learner", device=device, counters=counters), t_s)
    cores = len(physical_cores(os.sched_getaffinity(os.getppid())))
    assert run.summary("", 10.0, final=True)["efficiency"]["limit_flops_per_s"] == 8e10 * cores


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["run.stop.return=-200"], "return -150 >= -200"),
        (["run.stop.return=0", "run.stop.env_steps=1000"], "env_steps 1200 >= 1000"),
        (
            ["run.stop.return=0", "run.stop.env_steps=1201", "run.stop.trained_transitions=9_000"],
            "trained_transitions 9600 >= 9000",
        ),
        (["run.stop.return=0", "run.stop.trained_transitions=9_601"], ""),
        (["run.stop.return=0", "run.stop.minutes=1"], "minutes 1.50 >= 1"),
        (["run.stop.return=0", "run.stop.minutes=2"], ""),
    ],
)
def test_a_run_ends_when_a_stop_condition_holds(overrides, reason):
    """After an evaluation of -150, 1,200 env steps, 9,600 trained transitions and 90 seconds."""
    run = record(*overrides)
    assert run.stop_condition(0.0) == ""
    run.evaluations.take(evaluation(-150.0), 60.0)
    counters = {"env_steps": 1200, "trained_transitions": 9600}
    run.take_report("critic_learner-0", 1, report("critic_learner", counters=counters), 90.0)
    assert run.stop_condition(90.0) == reason


def test_a_return_ends_the_run_when_thirty_fresh_episodes_confirm_it():
    """Of the policy that was kept. A look at the goal does not end the run, nor do few episodes, another
    policy, episodes that time has cut, or those that did not fail where most did; later looks change
    nothing.
    """
    run = record("run.stop.return=-200")
    look = {**evaluation(-100.0), "confirmed": False, "best": False}
    few, other, cut = fresh(-100.0, 5), fresh(-100.0, best=False), {**fresh(-47.2), "timed_out": True}
    easy = {**fresh(-20.0), "num_failed": 31}
    for reached in (look, {**look, "best": True}, few, other, cut, easy):
        run.evaluations.take(reached, 1.0)
        assert run.stop_condition(1.0) == ""
    run.evaluations.take(fresh(-201.0), 2.0)
    assert run.stop_condition(2.0) == ""
    run.evaluations.take(fresh(-190.0), 3.0)
    run.evaluations.take({**look, "mean_return": -500.0}, 4.0)
    assert run.stop_condition(4.0) == "return -190 >= -200"
    run.evaluations.take(fresh(0.9234), 5.0)
    assert run.evaluations.reached(0.92, 30) == "return 0.9234 >= 0.92"


def test_the_curve_is_of_looks_and_the_best_return_of_fresh_episodes():
    """A policy was chosen for a lucky look: its fresh episodes are its score."""
    run = record()
    look = {**evaluation(-100.0), "confirmed": False, "best": False}
    run.evaluations.take(look, 1.0)
    run.evaluations.take({**fresh(-150.0), "interval_low": -160.0, "interval_high": -140.0}, 2.0)
    run.evaluations.take({**fresh(-400.0, best=False)}, 3.0)
    summary = run.summary("", 4.0, final=True)
    assert summary["evaluations"] == [[1.0, 500, -100.0, 1.0]]
    assert (summary["best_return"], summary["best"]["num_episodes"]) == (-150.0, 30)
    shown = run.status("training", BALANCE, 4.0)["evaluation"]
    assert (shown["last"]["mean_return"], shown["last"]["interval"]) == (-100.0, None)
    assert (shown["best"]["interval"], shown["best"]["confirmed"]) == ([-160.0, -140.0], True)


def test_products_of_earlier_runs_are_no_gain_of_a_resumed_one():
    """A learner that fetches its checkpoint from another machine reports before it has restored it."""
    run = record()
    run.resume({"t_s": 100.0, "counts": {"critic_updates": 1000, "critic_flops": 1e12}})
    for now_s, updates, flops in ((101.0, 0, 0.0), (102.0, 1000, 1e12), (110.0, 1500, 1.5e12)):
        counters = {"critic_updates": updates, "critic_flops": flops}
        run.take_report("critic_learner-0", 1, report("critic_learner", counters=counters), now_s)
    assert run.learning.mean_rates(10.0)["critic_flops_per_s"] == 5e10


def test_rates_of_a_resumed_run_leave_out_what_came_before():
    """It began at 10,000 steps and is at 12,000 after ten seconds: 200 a second."""
    run = record()
    for now_s, steps in ((0.0, 10_000), (10.0, 12_000)):
        run.take_report("critic_learner-0", 1, report("critic_learner", counters={"env_steps": steps}), now_s)
    summary = run.summary("", 10.0, final=False)
    assert summary["env_steps"] == 12_000
    assert summary["env_steps_per_s"] == 200


def test_a_restarted_broker_keeps_the_counts_and_rates_of_the_whole_run():
    """With reports before and after its restart, and without later reports if the learners have left."""
    run = record("run.stop.env_steps=2000")
    for now_s, steps in ((0.0, 0), (10.0, 2000)):
        run.take_report("critic_learner-0", 1, report("critic_learner", counters={"env_steps": steps}), now_s)
    again = record("run.stop.env_steps=2000")
    again.restore(json.loads(json.dumps(run.to_dict())), 11.0)
    assert again.learning.counts["env_steps"] == 2000
    assert again.stop_condition(11.0) == "env_steps 2000 >= 2000"
    counters = {"env_steps": 4000}
    again.take_report("critic_learner-0", 1, report("critic_learner", counters=counters), 20.0)
    assert again.summary("", 20.0, final=True)["env_steps_per_s"] == 200


def test_core_seconds_are_those_of_all_lives_on_all_machines():
    """Also across a restart of the broker, and on top of those of a run that it goes on from."""
    run = record()
    run.resume({"t_s": 100.0, "counts": {"env_steps": 1000, "core_s": 150.0}})
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 7.5, "memory_bytes": 1 << 30}
    about |= {"sent_bytes_per_s": 1e6, "received_bytes_per_s": 0.0, "most": 8, "samplers": 1}
    run.machines.take({**about, "processes": ["sampler-8"], "gone": False})
    for name, incarnation, cpu_s in (("sampler-0", 1, 2.0), ("sampler-0", 2, 1.0), ("sampler-8", 1, 4.0)):
        run.take_report(name, incarnation, report("sampler", cpu_s=cpu_s), 101.0)
    again = record()
    again.restore(json.loads(json.dumps(run.to_dict())), 102.0)
    assert again.summary("", 102.0, final=True)["core_s"] == 157.0
    again.take_report("sampler-0", 2, report("sampler", cpu_s=3.0), 103.0)
    assert again.status("training", BALANCE, 103.0)["core_s"] == 159.0


def test_the_best_evaluation_outlives_thousands_of_later_ones():
    """Older evaluations are thinned out, except that of the saved policy."""
    run = record()
    run.evaluations.take(fresh(-150.0), 0.0)
    look = {**evaluation(-300.0), "confirmed": False, "best": False}
    for number in range(EVALUATIONS_KEPT):
        run.evaluations.take(look, float(number))
    assert len(run.evaluations.all) < EVALUATIONS_KEPT
    assert run.summary("", 1.0, final=True)["best_return"] == -150.0


def test_a_count_is_noted_once_with_its_reason():
    """The history of a role has time, count and reason."""
    run = record()
    run.take_workers("sampler", 1, "as the topology says", 0.5)
    run.take_workers("sampler", 1, "again", 0.7)
    run.take_workers("sampler", 2, "starved 60 %", 9.0)
    history = run.summary("", 10.0, final=False)["workers"]["sampler"]
    assert history == [[0.5, 1, "as the topology says"], [9.0, 2, "starved 60 %"]]


def test_a_restarted_broker_goes_on_with_the_record():
    """Evaluations, failures, the account and the counts survive in a JSON file; reports bring the rest."""
    run = record()
    run.take_report("sampler-0", 7, report("sampler", pushed={"critic_learner": 512}), 1.0)
    run.evaluations.take(evaluation(-300.0), 2.0)
    run.take_failure("launcher", {"name": "sampler-0", "summary": "was killed", "traceback": ""}, 3.0)
    run.episodes.take(np.array([-900.0], np.float32), np.array([200], np.int32))
    run.take_move("sampler", "envs", 32, "environments in each sampler 16 -> 32: because", 3.5)
    run.restarts = 1
    refused = {
        "sender": "sampler-9",
        "kind": "rollout",
        "word": "bad_shape",
        "first": "it is [3]",
        "count": 4,
    }
    run.take_refused("sampler-0", 7, {"refused": [refused]}, 3.6)
    again = record()
    again.restore(json.loads(json.dumps(run.to_dict())), 4.0)
    before, after = (r.summary("", 5.0, final=True) for r in (run, again))
    assert before == after
    assert (after["refusals"][0]["count"], again.processes["sampler-0"].ready) == (4, False)
    assert again.take_refused("sampler-0", 7, {"refused": [refused]}, 5.0) == []
    assert again.refusals.mistakes == 4
    assert after["moves"] == {"sampler.envs": [[3.5, 32, "environments in each sampler 16 -> 32: because"]]}
    assert (again.moved("sampler", "envs"), again.moved("sampler", "workers")) == (32, None)


def test_the_replay_ratio_can_be_repeated_from_the_summary():
    """What comes in while the run stops, or before the ratio counts, does not, and while nothing has counted
    there is none: 0.00 of 8 is no figure of a warm-up. Without a count of that, env steps do.
    """
    for counters, sampled, measured in (
        ({"env_steps": 1300, "sampled_transitions": 1000, "trained_transitions": 8000}, 1000, 8.0),
        ({"env_steps": 1600, "trained_transitions": 8000}, 1600, 5.0),
        ({"env_steps": 900, "sampled_transitions": 0, "trained_transitions": 0}, 0, None),
    ):
        run = record()
        fields = report("critic_learner", counters=counters, gauges={"replay_ratio": 9.0})
        run.take_report("critic_learner-0", 1, fields, 1.0)
        summary = run.summary("", 2.0, final=True)
        assert (summary["sampled_transitions"], summary["replay_ratio"]["measured"]) == (sampled, measured)


def test_failures_of_one_kind_differ_in_numbers_only():
    """The count and the newest of each kind; the launcher itself shows its own failures."""
    run = record()
    for step in (7, 120):
        summary = f"Reach-v0: environment {step % 5} of 16 gave the reward nan (step {step} of this batch)"
        run.take_failure("sampler-0", {"name": "sampler-0", "summary": summary, "traceback": "Tr"}, step)
    run.take_failure("launcher", {"name": "sampler-0", "summary": "was killed", "traceback": ""}, 200.0)
    status = run.status("training", BALANCE, 201.0)
    assert status["num_failures"] == 3
    rows = [(row["summary"], row["count"], row["t_s"], row["survived"]) for row in status["failures"]]
    assert rows == [(summary, 2, 120, True), ("was killed", 1, 200.0, False)]
    assert [failure["traceback"] for failure in run.summary("", 9.0, final=True)["failures"]] == [
        "Tr",
        "Tr",
        "",
    ]


def test_the_greatest_lag_and_what_was_dropped_as_stale_are_those_of_all_lives():
    """A restarted critic-learner counts from 0; also after a restart of the broker."""
    run = record()
    for life, p99, stale in ((7, 5, 512), (7, 6, 768), (8, 0, 0), (8, 2, 256)):
        lag = {"p50": 1, "p99": p99, "max": p99, "stale": stale}
        run.take_report("critic_learner-0", life, report("critic_learner", policy_lag=lag), 1.0)
    again = record()
    again.restore(json.loads(json.dumps(run.to_dict())), 2.0)
    for one in (run, again):
        lag = one.summary("", 3.0, final=True)["policy_lag"]
        quantiles = {"p50": 1, "p99": 2, "recent_p50": 1, "recent_p99": 2}  # one that sends no recent ones
        assert lag == {**quantiles, "max": 6, "stale": 1024, "bound": None}


def test_another_life_of_a_process_is_another_process():
    """A new incarnation is not ready before its hello; the old one is no longer shown."""
    run = record()
    run.take_hello("sampler-0", 7, {"role": "sampler", "pid": 10}, 1.0)
    assert run.status("", BALANCE, 1.0)["processes"]["sampler-0"]["ready"]
    run.lose("sampler-0", "was killed by SIGKILL")
    assert "sampler-0" not in run.status("", BALANCE, 1.0)["processes"]
    run.take_report("sampler-0", 8, report("sampler", pid=11), 2.0)
    process = run.status("", BALANCE, 2.0)["processes"]["sampler-0"]
    assert (process["pid"], process["ready"]) == (11, False)


def test_what_was_measured_for_the_plan_is_in_the_summary():
    """Nothing if the topology fixes everything."""
    run = record()
    assert run.summary("", 1.0, final=True)["auto"] == {}
    run.plan = replace(run.plan, measured={"batch_size": {"chosen": 512}})
    assert run.summary("", 1.0, final=True)["auto"] == {"batch_size": {"chosen": 512}}


def test_a_new_life_of_the_critic_learner_counts_on_from_its_checkpoint():
    """What was trained after the checkpoint is undone, what was sampled is not; the old figures stay until
    the new process reports.
    """
    run = record("run.stop.env_steps=1000")
    counters = {"env_steps": 900, "critic_updates": 70, "trained_transitions": 7200}
    run.take_report("critic_learner-0", 1, report("critic_learner", counters=counters), 1.0)
    run.lose("critic_learner-0", "is gone")
    assert (run.learning.counts["env_steps"], run.stop_condition(1.0)) == (900, "")
    counters = {"env_steps": 850, "critic_updates": 60, "trained_transitions": 6800}
    run.take_report("critic_learner-0", 2, report("critic_learner", counters=counters), 2.0)
    assert [run.learning.counts[name] for name in counters] == [900, 60, 6800]
    counters["env_steps"] = 1000
    run.take_report("critic_learner-0", 2, report("critic_learner", counters=counters), 3.0)
    assert run.stop_condition(3.0) == "env_steps 1000 >= 1000"
    run.lose("critic_learner-0", "done")
    summary = run.summary("", 3.0, final=True)
    assert (summary["env_steps"], summary["critic_updates"]) == (1000, 60)
    assert summary["trained_transitions"] == 6800


def test_a_process_elsewhere_is_load_of_its_own_machine():
    """Its CPU time is not subtracted from what is busy here, and its row says what it makes there."""
    run = record()
    run.take_report("sampler-0", 1, report("sampler", cpu_s=2.0), 1.0)
    assert run.cores.cpu_s.total() == 2.0
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 7.5, "memory_bytes": 1 << 30}
    about |= {"sent_bytes_per_s": 1e6, "received_bytes_per_s": 0.0}
    about |= {"most": 8, "samplers": 1}
    run.machines.take({**about, "processes": ["sampler-8"], "gone": False})
    run.take_report("sampler-8", 1, report("sampler", cpu_s=40.0, pushed={"critic_learner": 640}), 1.0)
    assert run.cores.cpu_s.total() == 2.0
    run.status("training", BALANCE, 1.0)
    later = {"cpu_s": 41.0, "pushed": {"critic_learner": 1280}, "clock_s": {"busy": 3.0}}
    run.take_report("sampler-8", 1, report("sampler", **later), 3.0)
    [row] = run.status("training", BALANCE, 3.0)["machines"].values()
    assert (row["host"], row["busy"], row["samplers"]) == ("desk2", 7.5, 1)
    assert row["env_steps_per_s"] == 320
    assert row["runs"] == "sampler-8"
    assert "processes" not in row
    run.machines.take({**about, "processes": [], "gone": True})
    assert "machines" not in run.status("training", BALANCE, 4.0)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["nonsense", "sampler-8"], "sampler-8"),
        (["sampler-9", "sampler-8", "evaluator-0", "sampler-10"], "evaluator-0, sampler-8 to sampler-10"),
        (["sampler-8", "sampler-10", "sampler-11"], "sampler-8, sampler-10 to sampler-11"),
        ([f"sampler-{2 * index}" for index in range(256)], "sampler-0, sampler-2"),
    ],
)
def test_the_processes_of_a_machine_are_told_in_few_words(names, words):
    """A status has a row for each machine and fits one message."""
    assert in_words(names).startswith(words)
    assert len(in_words(names)) <= 80


def test_the_keys_of_status_and_summary_stay(tmp_path):
    """Programs of others, and later versions that read this run's folder, look for them by name."""
    run = record()
    counts = ("env_steps", "critic_updates", "actor_updates", "trained_transitions")
    shared = ["learners", *counts, "sampled_transitions", "core_s", "replay_ratio", "policy_lag"]
    shared += ["publication", "devices", *(f"{name}_per_s" for name in counts)]
    status = ["t_s", "state", *shared, "samples", "workers", "episodes", "evaluation", "stop", "processes"]
    status += ["gauges", "experience", "machine", "findings", "efficiency", "balance", "refusals"]
    status += ["num_refused", "went_back", "num_went_back", "num_failures"]
    status += ["num_sampler_failures", "failures"]
    assert list(run.status("training", BALANCE, 1.0)) == status
    few = ("others", "machines", "groups", "reports_late_s", "requests", "values")  # runs have them
    assert KINDS["status"].fields.keys() <= {*status, *few}
    summary = ["exit_reason", "wall_s", "env", "algorithm", "seed", *shared, "sampled_transitions_per_s"]
    summary += ["critic_flops_per_s", "actor_flops_per_s", "efficiency", "cores", "samples"]
    summary += [
        "samples_by_channel",
        "undelivered",
        "workers",
        "moves",
        "went_back",
        "restarts",
        "resumed",
        "failures",
        "num_failures",
    ]
    summary += ["failure_kinds", "pinning", "auto", "evaluations", "best_return", "best", "episodes"]
    summary += ["refusals", "findings", "disturbances", "unfinished_checkpoint"]
    made, folder = run.summary("", 1.0, final=False), RunFolder(tmp_path)
    assert {*made} == {*summary}
    write_json(folder.summary, made)
    folder.mark_failed()
    assert {*json.loads(folder.summary.read_text())} == {*summary, "failed"}


def test_a_broker_of_this_release_goes_on_with_the_state_of_an_earlier_one():
    """Which kept no count of samplers' failures nor of the times that learners went back."""
    before, run = record(), record()
    before.take_failure("sampler-0", {"name": "sampler-0", "summary": "raised", "traceback": ""}, 1.0)
    nan = {"name": "critic_learner-0", "summary": "nan", "updates": 900, "checkpoint": "1"}
    before.take_failure("critic_learner-0", {**nan, "traceback": ""}, 2.0)
    state = json.loads(json.dumps(before.to_dict()))
    del state["failures"]["of_samplers"], state["num_went_back"]
    run.restore(state, 3.0)
    assert (run.failures.count, run.failures.of_samplers) == (before.failures.count, 0)
    assert run.num_went_back == len(run.went_back) == 1
