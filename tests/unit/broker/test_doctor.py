"""What keeps a run from learning is named from its figures, once, and leaves when it no longer holds."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import options_from
from spreeze_zmq.broker.doctor import Doctor
from tests.unit.broker.lived import Lived


def test_a_healthy_run_gets_no_word():
    """Ordinary rewards, observations and episodes, whatever they are called."""
    run = Lived()
    for mean in np.linspace(-1200.0, -200.0, 30):
        run.look(mean)
        assert run.live(4) == []
    assert run.record.summary("", 1.0, final=True)["findings"] == []


@pytest.mark.parametrize(
    ("device", "size", "starved", "found"),
    [
        ("cuda:0", 256, 0.0, ["small_batches"]),
        ("cuda:0", 256, 0.5, []),
        ("cuda:0", 4096, 0.0, []),
        ("cpu", 256, 0.0, []),
    ],
)
def test_a_gpu_that_trains_on_few_transitions_at_once_is_named(device, size, starved, found):
    """Unless it waits for samples anyway."""
    run = Lived(f"algorithm.batch_size={size}")
    plan = json.loads(run.record.plan.to_json())
    plan["components"]["critic_learner"]["options"]["device"] = device
    run.record.doctor.vitals.plan = plan
    run.waits = {"critic_learner": {"starved": starved}}
    assert run.live(30) == found
    plan["measured"]["batch_size"] = {}
    assert run.live(30) == [], "what auto chose is not advised again"


@pytest.mark.parametrize(("share", "found"), [(0.01, ["small_batches"]), (0.3, [])])
def test_a_gpu_that_computes_much_of_what_it_could_is_not_named(share, found):
    """A batch of 512 images is work for it."""
    run = Lived("algorithm.batch_size=512")
    plan = json.loads(run.record.plan.to_json())
    plan["components"]["critic_learner"]["options"]["device"] = "cuda:0"
    run.record.doctor.vitals.plan = plan
    run.live(1)
    run.limit_flops_per_s, run.flops_per_s = 1e12, share * 1e12 * run.record._num_cores
    assert run.live(30) == found


@pytest.mark.parametrize(
    ("idle", "more", "starved", "found"),
    [
        (12.0, "groups.count=1", 0.0, ["idle_cpus"]),
        (12.0, "groups.count=2", 0.0, []),
        (12.0, "balance.mode=lockstep", 0.0, []),
        (12.0, "placement.critic_learner=node", 0.0, []),
        (12.0, "groups.count=1", 0.5, []),
        (4.0, "groups.count=1", 0.0, []),
    ],
)
def test_cpus_that_one_model_cannot_use_are_named(idle, more, starved, found):
    """Of sixteen, unless the learner waits for samples, which more samplers make, or runs elsewhere."""
    run = Lived(more, "components.critic_learner.device=cpu")
    run.record.cores.row = lambda now_s: {"cpus": 16.0, "cpus_of_others": 0.0, "cpus_idle": idle}
    run.waits = {"critic_learner": {"starved": starved}}
    assert run.live(30) == found


@pytest.mark.parametrize(("starved", "found"), [(0.6, ["slow_link"]), (0.0, [])])
def test_a_link_that_holds_up_rollouts_is_named(starved, found):
    """Its machine and what it carries: samplers there are blocked while the learner starves. A learner that
    has enough blocks them, too.
    """
    run = Lived()
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 7.5, "memory_bytes": 1 << 30}
    about |= {"sent_bytes_per_s": 11.9e6, "received_bytes_per_s": 2e5}
    about |= {"most": 8, "samplers": 1}
    run.record.machines.take({**about, "processes": ["sampler-0"], "gone": False})
    run.waits = {
        "sampler": {"busy": 0.2, "blocked": 0.8},
        "critic_learner": {"busy": 1.0 - starved, "starved": starved},
    }
    assert run.live(12) == found
    for row in run.heard:
        assert row["seen"] == (
            "samplers on desk2 are blocked 80% of the time while critic_learner starves 60%: "
            "the link to desk2 carries 11.9 MB/s"
        )


@pytest.mark.parametrize(
    ("name", "gauges"),
    [
        ("end_atoms", {"mass_at_v_max": 0.7, "mass_at_v_min": 0.0}),
        ("outlying_returns", {"return_spread": 1e6}),
        ("temperature", {"temperature": 1e-7}),
        ("temperature", {"temperature": 1e4}),
        ("values_diverge", {"q_mean": 1e7}),
    ],
)
def test_what_the_learners_report_is_named(name, gauges):
    """Each from one figure."""
    run = Lived()
    run.gauges |= gauges
    assert run.live(12) == [name]


def test_an_end_that_still_follows_the_returns_is_not_named():
    """Rewards are divided by more and more while the policy improves; the remedy fits what is stated."""
    run = Lived()
    for second in range(12):
        run.gauges |= {"mass_at_v_max": 0.7, "mass_at_v_min": 0.0, "reward_divisor": 1.0 + second}
        assert run.live(1) == []
    run.record.plan.algorithm.update(v_min="auto", v_max="auto")
    assert run.live(12) == ["end_atoms"]
    assert run.heard[-1]["try"] == "algorithm.v_max = 540, algorithm.v_min = -60"


@pytest.mark.parametrize(
    ("algorithm", "options", "gauges", "found"),
    [
        ("sac", {}, {"mass_at_v_max": 0.7, "reward_divisor": 12.0}, "end_atoms"),
        ("dqn", {"num_atoms": 51}, {"mass_at_v_min": 0.7, "reward_divisor": 1e-3}, "end_atoms"),
        ("sac", {"v_min": -5.0, "v_max": 9.0}, {"mass_at_v_max": 0.7}, "end_atoms"),
        (
            "sac",
            {"v_min": -5.0, "v_max": 9.0, "normalize_rewards": True},
            {"mass_at_v_max": 0.7, "reward_divisor": 2.0},
            "end_atoms",
        ),
        ("sac", {"num_atoms": 1, "initial_temperature": 1e-6}, {"temperature": 1e-7}, "temperature"),
        ("discrete_sac", {"entropy_share": 0.99}, {"temperature": 1e4}, "temperature"),
    ],
)
def test_what_the_doctor_tells_to_state_can_be_stated(algorithm, options, gauges, found):
    """Every option of a remedy, beside those that the run has."""
    task = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    run = Lived(name={"run": {"env": task, "algorithm": algorithm}, "algorithm": options})
    run.gauges = gauges
    assert found in run.live(12)
    remedy = next(row["try"] for row in run.heard if row["name"] == found)
    told = re.findall(r"algorithm\.(\w+) = (\S+?)(?:,|$| )", remedy)
    assert told
    stated = {name: value for name, value in run.record.plan.algorithm.items() if name != "name"}
    stated |= {name: tomllib.loads(f"value = {value}")["value"] for name, value in told}
    made = options_from(algorithms.get(algorithm).Options, stated)
    if found == "end_atoms":
        assert made.largest_return is None, "the range that it tells is one of rewards as they are"


@pytest.mark.parametrize(
    ("algorithm", "options", "value", "told"),
    [
        ("sac", {}, 1e-7, "a larger algorithm.target_entropy"),
        ("sac", {}, 1e4, "a smaller algorithm.target_entropy"),
        ("sac", {"learn_temperature": False}, 1e-7, "a larger algorithm.initial_temperature"),
        ("discrete_sac", {}, 1e4, "a smaller algorithm.entropy_share"),
    ],
)
def test_a_temperature_whose_options_are_the_usual_ones_is_moved_by_what_moves_it(
    algorithm, options, value, told
):
    """The remedy is no setting that holds already."""
    task = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    run = Lived(name={"run": {"env": task, "algorithm": algorithm}, "algorithm": options})
    run.gauges = {"temperature": value}
    assert "temperature" in run.live(12)
    assert run.heard[0]["try"].startswith(told)


@pytest.mark.parametrize(
    ("gauges", "found"),
    [
        ({"temperature": 1e-7}, "temperature"),
        ({"entropy": -9.0}, "exploration"),
        ({"q_mean": 1e7}, "values_diverge"),
    ],
)
def test_no_option_is_told_that_an_algorithm_of_ones_own_lacks(gauges, found):
    """Its losses report names that the rules know; its options are the least that it may declare."""
    run = Lived("algorithm.num_atoms=1")
    known = run.record.doctor.vitals.plan["algorithm"]
    own = {one.name: known[one.name] for one in fields(algorithms.ReplayOptions) if one.name in known}
    run.record.doctor.vitals.plan["algorithm"] = {**own, "name": "mine:Mine", "normalize_rewards": False}
    run.gauges = gauges
    assert found in run.live(12)
    remedy = next(row["try"] for row in run.heard if row["name"] == found)
    assert set(re.findall(r"algorithm\.(\w+)", remedy)) <= own.keys()


def test_entropy_that_is_gone_is_named_without_a_temperature():
    """Of a policy that has none, such as PPO's, in box and choices; not while the return rises."""
    for name, entropy in (("halfcheetah_ppo", 6 * (-6.0 + 1.42)), ("cartpole", 0.0001)):
        run = Lived(name=name)
        run.gauges = {"entropy": entropy}
        assert "exploration" in run.live(12)
    for mean in range(10):
        run.look(100.0 * mean)
    assert "exploration" not in run.live(30)


@pytest.mark.parametrize(("name", "good", "bad"), [("temperature", 0.1, 1e-7), ("entropy", -1.0, -9.0)])
def test_of_two_losses_with_one_name_the_policys_figure_is_judged(name, good, bad):
    """The critics' is another one's, such as the entropy of a distribution of returns."""
    found = "exploration" if name == "entropy" else name
    for critics, policys in ((bad, good), (good, bad)):
        run = Lived()
        run.gauges = {name: critics, f"policy_{name}": policys}
        assert (found in run.live(12)) is (policys == bad)


def test_a_choice_among_few_legal_actions_is_no_lack_of_entropy():
    """Of 2 of 512 it is at most 0.7 nats, and 0 where one is legal."""
    run = Lived(name="cartpole")
    plan = json.loads(run.record.plan.to_json())
    run.gauges = {"entropy": 0.0001}
    assert "exploration" in run.live(12)
    plan["environment"]["action_mask"] = True
    run.record.doctor.vitals.plan = plan
    assert "exploration" not in run.live(30)


def test_a_crowded_machine_is_named_and_leaves():
    """Once when it comes, once when it is over."""
    run = Lived()
    run.others = 1.4
    assert run.live(12) == ["crowded"]
    run.others = 0.2
    assert run.live(30) == []
    assert [(row["name"], row["holds"]) for row in run.heard] == [("crowded", True), ("crowded", False)]


def test_what_comes_seldom_is_heard():
    """From a broker that is slow, say."""
    run = Lived()
    run.gauges["temperature"], run.apart_s = 1e-7, 3.0
    run.see(reward=1e5 * run.rollout.reward)
    assert run.live(8) == ["temperature", "large_rewards"]


@pytest.mark.parametrize("apart_s", [3.0, 12.0])
def test_what_cannot_be_judged_for_want_of_figures_does_not_leave(apart_s):
    """They come too seldom, or not at all, as while a learner starts again; then they say that it is over."""
    run, reward = Lived(), Lived().rollout.reward
    run.gauges["q_mean"] = 1e9
    run.see(reward=1e3 * reward)
    assert run.live(12) == ["values_diverge", "large_rewards"]
    run.apart_s = apart_s
    run.live(10)
    run.gauges.pop("q_mean")
    assert run.live(10) == ["values_diverge", "large_rewards"]
    assert all(row["holds"] for row in run.heard)
    run.gauges["q_mean"], run.apart_s = 1.0, 1.0
    run.see(reward=reward)
    assert run.live(40) == []
    assert {row["name"]: row["holds"] for row in run.heard} == {
        "values_diverge": False,
        "large_rewards": False,
    }


def test_few_updates_are_named_with_their_cause():
    """Below one a second; other programs are named as the reason where they hold the cores."""
    run = Lived()
    assert run.live(40, steps=10, updates=1) == []
    run = Lived()
    run.others = 1.8
    for _ in range(12):
        run.live(3, steps=10, updates=0)
        run.live(1, steps=10, updates=1)
    rows = {row["name"]: row for row in run.record.doctor.rows()}
    assert rows["few_updates"]["why"] == "other programs hold the CPUs"


@pytest.mark.parametrize(
    ("others", "name", "why"),
    [
        (1.8, "crowded", "this run takes 0.0385 updates/s beside them"),
        (0.0, "few_updates", "the learner waits for samples, of which 0.0385 come in a second"),
    ],
)
def test_what_comes_once_in_half_a_minute_is_not_said_to_come_never(others, name, why):
    """A sample and an update in 26 s."""
    run = Lived()
    run.others, run.waits["critic_learner"] = others, {"busy": 0.1, "starved": 0.9}
    for _ in range(4):
        run.live(25, steps=0, updates=0)
        run.live(1, steps=1, updates=1)
    [row] = [row for row in run.record.doctor.rows() if row["name"] == name]
    assert row["why"] == why


@pytest.mark.parametrize(
    ("before", "waits_for", "remedy", "told"),
    [
        (0, 1_008, "a smaller algorithm.learning_starts", {}),
        (490_000, 49_008, "run.save_replay = true", {}),
        (490_000, 20_008, "run.save_replay = true", {"rows_each": 5}),
        (490_000, 20_008, "run.save_replay = true", {"rows_each": None}),  # of an older release
    ],
)
def test_a_first_update_that_does_not_come_is_named_with_what_it_waits_for(before, waits_for, remedy, told):
    """A run that goes on without its replay waits for a tenth of it and a batch, as its learner does: of the
    transitions themselves, where most of its million are kept in hindsight.
    """
    run = Lived("algorithm.learning_starts=1000")
    if before:
        plan = json.loads(run.record.plan.to_json())
        plan["learning"] |= told
        plan["algorithm"] |= {"hindsight": "future" if told else "off", "hindsight_goals": 4}
        plan["run"]["resume_from"] = "runs/a/checkpoints/1"
        run.record.doctor = Doctor(plan)
        run.record.resume({"counts": {"env_steps": before, "critic_updates": 1e6}, "t_s": 0.0})
        run.env_steps, run.updates = before, 10**6
    run.waits["critic_learner"] = {"busy": 0.1, "starved": 0.9}
    run.live(1, steps=0, updates=0)
    run.live(60, steps=10, updates=0)
    [row] = [row for row in run.record.doctor.rows() if row["name"] == "few_updates"]
    assert f" of {waits_for:,} transitions" in row["seen"]
    assert remedy in row["try"]


@pytest.mark.parametrize(
    ("limit", "updates", "in_order", "found"),
    [
        (500_000, 0, False, ["never_trains_again"]),
        (500_000, 10, False, []),
        (600_000, 0, False, []),
        (500_000, 0, True, []),
        (491_000, 0, True, ["never_trains_again"]),
    ],
)
def test_a_resumed_run_that_ends_before_its_first_update_is_named(limit, updates, in_order, found):
    """The tenth of its replay that it waits for is more than is left; in order it waits for none of it."""
    order = ["balance.mode=lockstep", "run.save_replay=false"] * in_order
    run = Lived(f"run.stop.env_steps={limit}", *order)
    run.record.doctor = Doctor(
        json.loads(run.record.plan.resuming(Path("runs/a/checkpoints/1"), ()).to_json())
    )
    run.record.resume({"counts": {"env_steps": 490_000, "critic_updates": 1e6}, "t_s": 0.0})
    run.env_steps, run.updates = 490_000, 10**6
    run.live(1, steps=0, updates=0)
    assert run.live(10, steps=100, updates=updates) == found


@pytest.mark.parametrize("by_looks", [True, False])
@pytest.mark.parametrize("rose", [True, False])
def test_a_resumed_run_has_reached_what_the_runs_before_it_have(rose, by_looks):
    """At their plateau nothing rises: what has been learned looks like a lack of exploration. Goals that
    were reached before are not reached yet, and are known.
    """
    run = Lived()
    plan = json.loads(run.record.plan.to_json())
    plan["run"]["resume_from"] = "runs/a/checkpoints/1"
    run.record.doctor = Doctor(plan)
    for number in range(60):
        mean = -900.0 + 10.0 * number * rose + number % 2
        status = {"episodes": {"mean_return": mean}, "experience": {"reward_min": 0.0, "reward_max": 100.0}}
        run.record.doctor.take("status", number, {"state": "training", "inherited": True, **status})
        look = {"mean_return": mean, "info": {"success": float(rose)}, "inherited": True}
        if by_looks:
            run.record.doctor.take("evaluation", number, look)
    assert run.record.doctor.rows() == []
    run.t_s, run.gauges["q_mean"] = 60.0, 50.0
    run.gauges.pop("temperature")
    run.see(action=np.full((16, 16, 1), 2.0, np.float32), reward=np.zeros((16, 16), np.float32))
    for number in range(25):
        if by_looks:
            run.look(mean - number % 2, {"success": 0.0})
        names = run.live(3, episodes=0)
    found = set() if rose else {"saturated_actions"} | ({"no_success"} if by_looks else set())
    assert set(names) & {"saturated_actions", "values_diverge", "constant_reward", "no_success"} == found


@pytest.mark.parametrize(("last", "found"), [(-1000.0, ["no_rise"]), (-600.0, [])])
def test_a_return_that_does_not_rise_is_named(last, found):
    """After enough updates, seconds and looks; not where the last looks are above the first episodes."""
    run = Lived()
    for index in range(42):
        run.look(-1000.0 + 10 * (index % 5) if index < 10 else last + 10 * (index % 5))
        names = run.live(3)
    assert names == found


def test_no_success_in_many_looks_is_named():
    """Where the environment says of each episode whether it succeeded."""
    run = Lived()
    for mean in np.linspace(-1200.0, -200.0, 40):
        run.look(mean, {"is_success": 0.0})
        names = run.live(2)
    assert names == ["no_success"]
    run.look(-200.0, {"is_success": 0.2})
    assert run.live(20) == []


def test_one_success_among_many_looks_is_not_forgotten():
    """However many looks follow."""
    run = Lived()
    run.live(2)
    for number in range(2_000):
        run.t_s += 0.5
        run.look(-1200.0, {"is_success": 0.2 * (number == 1_001)})
    assert run.live(20) == []


def test_what_was_well_for_long_hides_nothing_of_the_last_minutes():
    """A hundred thousand updates and episodes, then none, and failures."""
    run = Lived()
    assert run.live(10, updates=20_000, episodes=4_000) == []
    run.draw = lambda size: np.full(size, -200.0)
    failure = {"name": "sampler-0", "summary": "step 3 raised ValueError"}
    for _ in range(70):
        run.record.failures.take(failure, run.t_s, survived=True)
        run.t_s += 9.0
        names = run.live(1, updates=0, episodes=1)
    assert {*names} == {"few_updates", "many_failures"}
    rows = {row["name"]: row for row in run.record.doctor.rows()}
    assert "in the last 10 minutes" in rows["many_failures"]["seen"]


def test_failures_of_no_training_episode_are_not_laid_to_the_samplers():
    """An evaluator's environment, and a sampler that is killed, leave nothing to learn from."""
    run = Lived()
    run.live(15, episodes=4)
    for taker, name in (("evaluator-0", "evaluator-0"), ("launcher", "sampler-0")):
        for _ in range(25):
            run.record.take_failure(taker, {"name": name, "summary": "raised", "traceback": ""}, run.t_s)
    assert "many_failures" not in run.live(10, episodes=0)
    for _ in range(25):
        raised = {"name": "sampler-0", "summary": "raised", "traceback": ""}
        run.record.take_failure("sampler-0", raised, run.t_s)
    assert "many_failures" in run.live(10, episodes=0)
    rows = {row["name"]: row for row in run.record.doctor.rows()}
    assert rows["many_failures"]["seen"].startswith("25 failures beside ")


def test_a_learner_that_has_gone_back_is_named_while_that_is_news():
    """It has trained on since."""
    run = Lived()
    run.live(5)
    nan = {"name": "critic_learner-0", "summary": "critic_loss is nan", "updates": 900, "checkpoint": "1"}
    run.record.take_failure("critic_learner-0", nan, run.t_s)
    assert run.live(5) == ["not_finite"]
    for _ in range(11):
        run.record.take_failure("critic_learner-0", nan, run.t_s)
        run.live(1)
    [found] = run.record.doctor.rows()
    assert found["seen"] == "a learner went back to a checkpoint 12 times"  # and a status has rows of eight
    run.t_s += 600.0
    assert run.live(20) == []
