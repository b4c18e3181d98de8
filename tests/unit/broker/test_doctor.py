"""What keeps a run from learning is named from its figures, once, and leaves when it no longer holds."""

import json
import random
import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq import envs
from spreeze_zmq.base.files import plain
from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.broker.doctor import Doctor, findings_at_start, findings_of
from spreeze_zmq.broker.doctor.trend import MOST_POINTS, Trend
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.sightings import Sightings, experience_row
from spreeze_zmq.commands.check import advice
from spreeze_zmq.envs import facts
from spreeze_zmq.envs.facts import Bounds, facts_of, lost_digits
from spreeze_zmq.envs.packed import Packing
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.plan import topology

BALANCE = {"movable": True, "settled": False, "last_change": ""}


class Lived:
    """A run as its broker records it, fed with the messages that its processes send."""

    def __init__(self, *overrides, name="pendulum", journal=None):
        self.record = RunRecord(topology.load(name, overrides))
        self.record.cores.row = lambda now_s: {"cpus": 2.0, "cpus_of_others": self.others, "cpus_idle": 0.0}
        self.experience = Sightings(self.record.plan.environment)
        self.rollout = random_rollout(self.record.plan.environment)
        self.experience.rollout = self.rollout
        self.t_s, self.others, self.journal, self.num_episodes = 0.0, 0.0, journal, 0
        self.draw = lambda size: np.linspace(-1300.0, -700.0, size)
        self.gauges = {"critic_loss": 1.0, "q_mean": -10.0, "temperature": 0.1, "entropy": -1.0}
        self.env_steps = self.updates = 0
        self.heard = []
        self.waits = {}

    def see(self, **arrays):
        """Have the sampler's newest rollout hold these arrays."""
        self.experience.rollout = replace(self.experience.rollout, **arrays)

    def report(self, role, **figures):
        """A report of the first process of a role."""
        clock = {"busy": self.t_s, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
        clock |= {name: share * self.t_s for name, share in self.waits.get(role, {}).items()}
        fields = {
            "role": role,
            "name": f"{role}-0",
            "pid": 1,
            "cpu_s": self.t_s,
            "rss_bytes": 1,
            "clock_s": clock,
        }
        fields |= {"counters": {}, "gauges": {}, **figures}
        if self.t_s == 0:
            self.record.take_hello(f"{role}-0", 1, fields, 0.0)
        self.record.take_report(f"{role}-0", 1, fields, self.t_s)

    def note(self, kind, about):
        """One line of the journal."""
        if self.journal is not None:
            self.journal.write(kind, self.t_s, about)
        self.record.doctor.take(kind, self.t_s, about)

    def episodes(self, returns, lengths):
        """Training episodes end."""
        returns, lengths = np.array(returns, np.float32), np.array(lengths, np.int32)
        self.record.episodes.take(returns, lengths)
        about = {"count": returns.size, "mean": float(returns.mean()), "std": float(returns.std())}
        about |= {"min": float(returns.min()), "max": float(returns.max())}
        self.note("episodes", about)

    def look(self, mean, info=None):
        """A policy is evaluated."""
        fields = {"version": 3, "env_steps": 500, "mean_return": mean, "std_return": 1.0, "num_episodes": 5}
        fields |= {"mean_length": 200.0, "confirmed": False, "best": False, "info": info or {}}
        self.record.evaluations.take(fields, self.t_s)
        self.note("evaluation", fields)

    def live(self, seconds, steps=1000, updates=200, episodes=4):
        """Some seconds, each with a status; returns the names of what is found at their end."""
        for _ in range(seconds):
            self.report("sampler", gauges=self.experience.figures())
            self.env_steps, self.updates = self.env_steps + steps, self.updates + updates
            counters = {"env_steps": self.env_steps, "critic_updates": self.updates}
            self.report("critic_learner", counters=counters, gauges=self.gauges)
            if episodes:
                self.episodes(self.draw(episodes), [200] * episodes)
            self.note("status", plain(self.record.status("training", BALANCE, self.t_s)))
            self.heard += self.record.doctor.news()
            self.t_s += 1.0
        return [row["name"] for row in self.record.doctor.rows()]


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


@pytest.mark.parametrize(
    ("idle", "groups", "starved", "found"),
    [(12.0, 1, 0.0, ["idle_cpus"]), (12.0, 2, 0.0, []), (12.0, 1, 0.5, []), (4.0, 1, 0.0, [])],
)
def test_cpus_that_one_model_cannot_use_are_named(idle, groups, starved, found):
    """Of sixteen, unless the learner waits for samples, which more samplers make."""
    run = Lived(f"groups.count={groups}", "components.critic_learner.device=cpu")
    run.record.cores.row = lambda now_s: {"cpus": 16.0, "cpus_of_others": 0.0, "cpus_idle": idle}
    run.waits = {"critic_learner": {"starved": starved}}
    assert run.live(30) == found


def constant(shape, value):
    """An array of one value."""
    return np.full(shape, value, np.float32)


SHAPE = (16, 16)


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
    ("name", "seen"),
    [
        ("large_rewards", lambda run: {"reward": 1e5 * run.rollout.reward}),
        ("small_rewards", lambda run: {"reward": 1e-5 * run.rollout.reward}),
        ("small_observations", lambda run: {"obs": 1e-4 * run.rollout.obs}),
        ("large_observations", lambda run: {"obs": 1e6 + run.rollout.obs}),
        ("constant_observations", lambda run: {"obs": constant(run.rollout.obs.shape, 0.5)}),
        ("saturated_actions", lambda run: {"action": constant((*SHAPE, 1), 2.0)}),
    ],
)
def test_what_a_sampler_sees_is_named_within_seconds(name, seen):
    """From one rollout a report, beside an ordinary rest."""
    run = Lived()
    run.see(**seen(run))
    assert run.live(12) == [name]
    assert 3.0 <= run.heard[0]["t_s"] <= 12.0


def test_packed_observations_have_the_figures_of_flat_ones():
    """A camera beside joints is reported as ever."""
    run = Lived("run.env=tests.system.camera:Camera", "algorithm.network=mlp")
    found, packing = run.experience.figures(), Packing.of(run.record.plan.environment)
    run.see(obs=packing.flat(run.rollout.obs))
    assert run.rollout.obs.dtype == np.uint8
    assert run.experience.figures() == found
    assert found["obs_mean"] > 100.0


def test_actions_beside_one_bound_are_named_later():
    """Noise moves them off it; policies that learn begin there for some seconds, too."""
    run = Lived()
    run.see(action=constant((*SHAPE, 1), -1.9))
    assert run.live(12) == []
    assert run.live(18) == ["saturated_actions"]
    run = Lived()
    run.see(action=np.linspace(-2.0, 2.0, 256, dtype=np.float32).reshape(*SHAPE, 1))
    assert run.live(30) == []


def test_an_option_against_it_silences_a_finding():
    """What the algorithm normalises may have any size."""
    run = Lived("algorithm.normalize_observations=true")
    run.see(obs=1e6 * run.rollout.obs)
    assert run.live(12) == []


def test_rewards_that_never_differ_are_named():
    """With the same return in each episode, or with rewards of 0 before any has ended; survival is no such
    case: with 1 a step, the return is the length.
    """
    run = Lived()
    run.see(reward=constant(SHAPE, -1.0))
    run.draw = lambda size: np.full(size, -200.0)
    assert run.live(20) == ["constant_reward"]
    run = Lived()
    run.see(reward=constant(SHAPE, 0.0))
    assert run.live(20, episodes=0) == ["constant_reward"]
    run = Lived()
    run.see(reward=constant(SHAPE, 1.0))
    assert run.live(2) == []
    run.draw = lambda size: np.full(size, 500.0)  # a policy that always survives
    assert run.live(20) == []


def test_episodes_that_are_all_the_same_are_named():
    """Rewards differ within an episode, returns do not between them."""
    run = Lived()
    run.draw = lambda size: np.full(size, -200.0)
    assert run.live(20) == ["identical_episodes"]


def test_observations_that_leave_their_space_later_are_named():
    """With the number, its bound, and when: once, though they come back. Those of bytes cannot."""
    run = Lived()
    run.experience = Sightings(run.record.plan.environment, Box(-1.0, 1.0, (3,), np.float32))
    within = np.clip(run.rollout.obs, -1.0, 1.0)
    run.experience.take(replace(run.rollout, obs=within))
    assert run.live(6) == []
    strayed = within.copy()
    strayed[-1, -1, 2] = -1.5
    run.experience.take(replace(run.rollout, obs=strayed))
    assert run.live(6) == ["outside_box"]
    run.experience.take(replace(run.rollout, obs=within))
    assert run.live(20) == ["outside_box"]
    [said] = [row["seen"] for row in run.heard]
    steps = 2 * run.rollout.num_transitions
    assert said == (
        "number 2 of an observation was -1.5, observation_space allows at least -1, "
        f"after {steps:,} env steps of its sampler"
    )
    assert not Bounds(Box(0, 255, (4, 4), np.uint8)).exist


@pytest.mark.parametrize(
    ("overrides", "found"), [((), []), (("run.env_kwargs={max_episode_steps=-1}",), ["never_ending"])]
)
def test_episodes_that_never_end_are_named(overrides, found):
    """From 2,500 steps of each environment on; below a time limit nothing is late."""
    run = Lived(*overrides)
    assert run.live(45 if found else 6, episodes=0) == found


def test_episodes_that_end_after_all_are_no_longer_said_to_be_endless():
    """What the plan shows is judged again by what is seen."""
    run = Lived("run.env_kwargs={max_episode_steps=-1}")
    plan = {**json.loads(run.record.plan.to_json()), "tried": {"unended_steps": 1500}}
    run.record.doctor = Doctor(plan)
    assert run.live(20, steps=10, episodes=0) == ["never_ending"]
    assert run.live(20, steps=10) == []


def test_a_limit_that_is_reported_as_terminated_is_named():
    """All episodes of one length, terminated; not where they are truncated, or of different lengths."""
    for lengths, terminated, found in (
        ([200] * 40, True, ["limit_as_termination"]),
        ([200] * 40, False, []),
        ([*range(10, 50)], True, []),
        ([*range(10, 50), *[500] * 40], True, ["limit_as_termination"]),
        ([7, 8, 9, 9] * 20, True, []),
    ):
        run = Lived()
        run.experience.ended(np.array(lengths), np.full(len(lengths), terminated))
        assert run.live(12) == found


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
    assert "algorithm.v_max = 45, algorithm.v_min = -5 and" in run.heard[-1]["try"]


def test_entropy_that_is_gone_is_named_without_a_temperature():
    """Of a policy that has none, such as PPO's, in box and choices; not while the return rises."""
    for name, entropy in (("halfcheetah_ppo", 6 * (-6.0 + 1.42)), ("cartpole", 0.0001)):
        run = Lived(name=name)
        run.gauges = {"entropy": entropy}
        assert "exploration" in run.live(12)
    for mean in range(10):
        run.look(100.0 * mean)
    assert "exploration" not in run.live(30)


def test_a_crowded_machine_is_named_and_leaves():
    """Once when it comes, once when it is over."""
    run = Lived()
    run.others = 1.4
    assert run.live(12) == ["crowded"]
    run.others = 0.2
    assert run.live(30) == []
    assert [(row["name"], row["holds"]) for row in run.heard] == [("crowded", True), ("crowded", False)]


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


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("learning_rate", ["algorithm.learning_rate=1.0"]),
        ("target_entropy", ["algorithm.target_entropy=100.0"]),
        ("target_entropy", ["algorithm.target_entropy=-100.0"]),
        ("never_trains", ["algorithm.learning_starts=5000", "run.stop.env_steps=4000"]),
        ("never_trains", ["balance.replay_ratio=0.05", "run.stop.env_steps=4000"]),
        ("replay_ratio", ["balance.replay_ratio=100000"]),
        ("replay_ratio", ["balance.replay_ratio=0.0001"]),
        ("learning_rate", ["algorithm.learning_rate=0"]),
        ("still_targets", ["algorithm.tau=0"]),
        ("still_targets", ["algorithm.tau=1"]),
        ("cut_sums", ["algorithm.n_step=10"]),
        ("early_schedules", ["algorithm.tau={from=0.1, to=0.01, over={env_steps=500}}"]),
    ],
)
def test_an_option_out_of_reach_is_named_before_the_run(name, overrides):
    """From the plan alone, and at second 0 of the run."""
    plan = json.loads(topology.load("pendulum", overrides).to_json())
    assert [finding.name for finding in findings_at_start(plan)] == [name]
    assert Doctor(plan).rows()[0]["t_s"] == 0.0


@pytest.mark.parametrize(
    ("topology_name", "overrides", "said"),
    [
        ("pendulum", ["algorithm.n_step=50"], "n_step is 50, but .* of 16 steps: they have 8.5 rewards"),
        ("pendulum", ["algorithm.n_step=8"], ""),
        ("pendulum", ["algorithm.n_step=10", "components.sampler.rollout_steps=40"], ""),
        ("pendulum", ["algorithm.tau={from=0.1, to=0.01, over={env_steps=2000}}"], ""),
        (
            "halfcheetah_ppo",
            ["algorithm.batch_size=100_000"],
            "is 100,000, but a round .* has [0-9,]+ transi",
        ),
        ("cartpole_dqn", ["algorithm.exploration_steps=800_000", "run.stop.env_steps=400_000"], "52% of"),
        ("cartpole_dqn", ["algorithm.tau=1"], "target_every = 1_000"),
        ("cartpole_dqn", ["algorithm.tau=1", "algorithm.target_every=500"], ""),
    ],
)
def test_what_an_option_comes_to_is_said_in_figures(topology_name, overrides, said):
    """And nothing is said of options that do what their values say."""
    plan = json.loads(topology.load(topology_name, overrides).to_json())
    found = [f"{finding.seen} {finding.why} {finding.remedy}" for finding in findings_at_start(plan)]
    assert len(found) == bool(said)
    assert all(re.search(said, line) for line in found), found


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("goal_observation", "Goal"),
        ("image_beside_vector", "Camera"),
        ("action_mask", "Masked"),
        ("wrapper_statistics", "own_statistics"),
        ("ignored_seed", "IgnoresSeed"),
        ("outside_box", "Outside"),
        ("lost_digits", "Timestamps"),
        ("never_ending", "NeverEnding"),
        (None, "Healthy"),
    ],
)
def test_what_the_environment_shows_is_named_before_the_run(name, env, monkeypatch):
    """From its spaces, and from a few steps of it; here they may take long."""
    monkeypatch.setattr(facts, "STEPS_S", 10.0)
    monkeypatch.setattr(facts, "UNLIMITED_S", 60.0)
    env_id = f"tests.benchmarks.sick_environments:{env}"
    options = ["algorithm.replay_capacity=2000", *(["algorithm.network=mlp"] if env == "Camera" else [])]
    plan = topology.load({"run": {"env": env_id, "algorithm": "sac"}}, options)
    with closing(envs.make(env_id, 1)) as batch:
        plan = replace(plan, tried=facts_of(batch))
    found = findings_at_start(json.loads(plan.to_json()))
    assert [finding.name for finding in found] == ([name] if name else [])


@pytest.mark.parametrize(
    ("offset", "scale", "is_lost"),
    [
        (1.7e9, 1.0, True),
        (1e8, 1.0, True),
        (1e6, 1.0, False),  # a step of 0.06, which normalising leaves
        (1.0, 1e-9, True),
        (1.0, 1e-15, False),  # float64's own rounding of a 1
        (0.0, 1e-12, False),
        (1e12, 1e12, False),
        (1.7e9, 0.0, False),
    ],
)
def test_digits_that_float32_does_not_keep_are_told_before_the_run(offset, scale, is_lost):
    """Where they say something, and only there; whatever they are in the environment's own dtype."""
    vary = np.random.default_rng(0).uniform(-1.0, 1.0, (21, 2)) * (0.0, 1.0)
    said = lost_digits(offset + scale * vary)
    assert said.startswith("number 1 of an observation is around ") == is_lost, said
    assert bool(said) == is_lost
    assert lost_digits((offset + scale * vary).astype(np.float32)) == ""


def test_lost_digits_are_not_said_to_be_mended_by_normalising():
    """Neither by the advice before the run nor by what samplers report."""
    plan = topology.load("pendulum")
    obs = np.array([[1.7e9, 0.0], [1.7e9 + 0.1, 0.0], [1.7e9 + 0.2, 0.0]])
    assert "normalize_observations" in advice(plan, obs)[0]
    assert advice(replace(plan, tried={"lost_digits": lost_digits(obs)}), obs) == ()
    run = Lived()
    run.see(obs=1e6 + run.rollout.obs)
    run.record.doctor.vitals.plan["tried"] = {"lost_digits": "number 0"}
    assert run.live(12) == []


def test_no_shipped_topology_has_a_finding_before_its_run():
    """As far as its environment is installed; some with what a few steps of theirs show."""
    tried = ("pendulum", "cartpole", "hopper", "halfcheetah_td3")
    for name in (*tried, "ant", "humanoid", "cartpole_pqn", "cartpole_dqn", "walker2d", "hopper_ppo"):
        plan = topology.load(name)
        for backend in ("auto", "gymnasium") if name in tried else ():
            with closing(envs.make(plan.run.env, 1, backend=backend)) as batch:
                plan = replace(plan, tried=facts_of(batch))
            assert findings_at_start(json.loads(plan.to_json())) == []
        assert findings_at_start(json.loads(plan.to_json())) == []
        assert advice(plan, None) == ()


def test_a_past_run_is_judged_as_the_live_one_was(tmp_path):
    """From the journal that the live run has written, by the same rules."""
    run = Lived("algorithm.learning_rate=1.0", journal=Journal(tmp_path / "metrics.jsonl"))
    run.see(reward=1e5 * run.rollout.reward)
    run.live(15)
    run.journal.close()
    plan = json.loads(run.record.plan.to_json())
    rows = findings_of(plan, read_journal(tmp_path / "metrics.jsonl"))
    assert rows == run.record.doctor.rows()
    assert [row["name"] for row in rows] == ["learning_rate", "large_rewards"]


def test_a_curve_is_thinned_evenly_in_time_however_often_it_came():
    """The journal of a long run has ever fewer lines; all at one time are no more either."""
    trend, dense = Trend(), Trend()
    for second in range(100_000):
        dense.add(second, float(second))
        if second % (1 + second // 1800) == 0:
            trend.add(second, float(second))
    for found in (trend, dense):
        assert MOST_POINTS // 3 < len(found.values) <= MOST_POINTS
        apart = np.diff(found.values)
        assert apart.max() < 1.5 * apart.min()
    for _ in range(10 * MOST_POINTS):
        trend.add(1.0, 1e6)
    assert len(trend.values) <= MOST_POINTS


def test_a_journal_of_an_earlier_version_has_no_findings():
    """What it lacks is not judged."""
    plan = json.loads(topology.load("pendulum").to_json())
    old = [{"kind": "status", "t_s": float(t), "state": "training", "env_steps": 100 * t} for t in range(30)]
    assert findings_of(plan, [*old, {"kind": 3}, {}]) == []


def test_a_strangers_journal_breaks_nothing():
    """Any value in any field of a real status, or of the plan, from one look to the next."""
    draw, odd = random.Random(0), [None, [], {}, "x", -1, 1e308, True, float("nan"), {"a": None}, 1.0]
    run = Lived()
    run.live(3)
    real = plain(run.record.status("training", BALANCE, 3.0))
    plan, figures = (
        json.loads(run.record.plan.to_json()),
        ("count", "mean", "std", "min", "max", "mean_return"),
    )

    def spoiled(fields):
        """Some fields replaced; of maps some of theirs."""
        return {
            name: draw.choice(odd)
            if draw.random() < 0.1
            else (spoiled(value) if isinstance(value, dict) else value)
            for name, value in fields.items()
        }

    for _ in range(200):
        journal = [{**spoiled(real), "kind": "status", "t_s": float(t)} for t in range(12)]
        for kind in ("evaluation", "episodes"):
            journal += [{**{name: draw.choice(odd) for name in figures}, "kind": kind, "t_s": 1.0}]
        draw.shuffle(journal)
        findings_of(plan, journal)
        findings_of(spoiled(plan), journal)


def test_the_figures_of_several_samplers_become_one_row():
    """The least and greatest of all, sums of counts; a sampler in another language may send none."""
    one = {"reward_min": -1.0, "reward_max": 2.0, "terminated": 3.0, "terminated_longest": 50.0}
    one |= {"terminated_at_longest": 3.0, "terminated_shortest": 50.0, "truncated": 0.0}
    other = {**one, "reward_min": -5.0, "terminated_longest": 40.0, "reward_max": float("nan")}
    row = experience_row([one, {}, other])
    assert (row["reward_min"], row["reward_max"], row["terminated"]) == (-5.0, 2.0, 6.0)
    assert (row["terminated_longest"], row["terminated_at_longest"]) == (50.0, 3.0)
    assert experience_row([{}]) == {}
