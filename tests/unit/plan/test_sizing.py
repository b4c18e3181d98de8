"""What of the learners is left to the machine: measured once, kept, and followed by what depends on it."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from spreeze_zmq.base import machine
from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.envs import Timing
from spreeze_zmq.learner import measure_updates
from spreeze_zmq.nn.native import library as native_library
from spreeze_zmq.plan import sizing, topology, tuning
from spreeze_zmq.plan.roles import LEARNERS
from spreeze_zmq.plan.sizing import Curves
from spreeze_zmq.plan.topology import Plan
from spreeze_zmq.plan.topology.algorithm import SLOW_STEP_S
from spreeze_zmq.plan.topology.resolve import usual_step_s

AUTO = "algorithm.batch_size=auto"
SMALL = "algorithm.max_batch_size=128"
CURVES = Curves({256: 100.0, 512: 180.0, 1024: 190.0}, "flat", {1: 50.0, 2: 95.0, 3: 100.0}, 1.5)


#: Where nothing is measured yet, but native layers are compiled, which takes longer than measuring.
pytestmark = pytest.mark.usefixtures("nothing_measured")


def plan(*overrides, cores=2):
    """The pendulum topology: learning rate 3e-3, tau 0.02, both for a batch of 256."""
    return topology.load("pendulum", [AUTO, *overrides], cores=cores)


def cached(plan):
    """The cache's file for a plan's curves."""
    return machine.file_of(sizing.subject_of(plan))


def test_what_the_topology_leaves_open_waits_for_a_measurement():
    """The batch where it is "auto"; threads where the rule leaves more than one and no seed must repeat."""
    threads = ("components.critic_learner.threads", "components.actor_learner.threads")
    assert plan().to_measure == ("algorithm.batch_size",)
    assert topology.load("pendulum").to_measure == ()
    two = "components.sampler.count=2"
    assert topology.load("pendulum", [two], cores=8).to_measure == threads
    assert topology.load("pendulum", [two], cores=4).to_measure == ()
    written = "components.critic_learner.threads=3"
    assert topology.load("pendulum", [two, written], cores=8).to_measure == ()
    assert topology.load("pendulum", [two, "balance.mode=lockstep"], cores=8).to_measure == ()


def test_a_written_batch_is_taken_as_it_is():
    """Nothing is measured, and nothing is scaled from the reference."""
    written = topology.load("pendulum", ["algorithm.batch_size=1024"])
    assert sizing.settle(written) == written
    assert (written.algorithm["learning_rate"], written.algorithm["tau"]) == (3e-3, 0.02)


def test_everything_follows_from_the_curves():
    """512 reaches 95 % of the best and is twice the reference; two threads reach 95 %."""
    settled = sizing.resolved(plan("components.sampler.count=2", cores=8), CURVES, "by hand")
    assert settled.algorithm["batch_size"] == 512
    assert settled.algorithm["learning_rate"] == pytest.approx(3e-3 * 2**0.5)
    assert settled.algorithm["tau"] == pytest.approx(1 - 0.98**2)
    assert [settled.components[role].threads for role in ("critic_learner", "actor_learner")] == [2, 2]
    assert settled.to_measure == ()
    assert settled.measured["batch_size"] == {
        "chosen": 512,
        "reaches": 0.947,
        "curve": [[256, 100.0], [512, 180.0], [1024, 190.0]],
        "ended": "flat",
    }
    assert settled.measured["threads"]["chosen"] == 2
    assert Plan.from_json(settled.to_json()) == settled


def test_the_log_says_choice_curve_and_rule_in_figures():
    """One line each."""
    settled = sizing.resolved(plan(), CURVES, "by hand")
    assert sizing.lines(settled.measured) == [
        "batch_size 512 trains 95 % of the most transitions a second (256: 100, 512: 180, 1,024: 190; "
        "more gains nothing), by hand",
        "for 2 times the batch of 256: learning_rate 0.003 x sqrt(2) = 0.004243 (arXiv 2205.10287), "
        "tau 1 - (1 - 0.02)^2 = 0.0396 (arXiv 2307.13813)",
    ]
    assert sizing.lines({}) == []


def test_the_second_run_does_not_measure_again(monkeypatch):
    """A real measurement, then the cache alone; another seed, stop or learning rate is the same work."""
    first = sizing.settle(plan(SMALL))
    assert first.algorithm["batch_size"] in (64, 128)
    assert [size for size, _ in first.measured["batch_size"]["curve"]] == [64, 128]
    assert first.measured["batch_size"]["ended"] == "last"
    assert first.measured["source"].startswith("measured in")
    monkeypatch.setattr(sizing, "MEASURE", ("false",))
    second = sizing.settle(plan(SMALL, "run.seed=9", "run.stop.minutes=1"))
    assert second.algorithm == first.algorithm
    assert second.measured["source"] == "as measured on this machine before"
    other = sizing.settle(plan(SMALL, "algorithm.learning_rate=1e-3"))
    assert other.measured["batch_size"] == first.measured["batch_size"]
    with pytest.raises(ComponentFailed, match="measuring failed"):
        sizing.settle(plan(SMALL), remeasure=True)


@pytest.mark.parametrize(
    "found",
    [
        lambda plan, _: sizing.settle(plan).measured["batch_size"]["curve"],
        lambda plan, rate: usual_step_s(plan.environment, Timing("gymnasium", step_s=rate * SLOW_STEP_S)),
    ],
    ids=["batch sizes", "a step"],
)
def test_runs_that_begin_together_take_what_one_of_them_measured(found, monkeypatch):
    """Beside each other each would measure its share of the machine, and train with a batch of its own."""
    recalled, meet, rates = machine.recall, threading.Barrier(3), iter((1.0, 1.1, 1.2))

    def recall(subject, read):
        kept = recalled(subject, read)
        with contextlib.suppress(threading.BrokenBarrierError):
            meet.wait(0.5)  # long enough for the others to come here, were it not for the lock
        return kept

    monkeypatch.setattr(machine, "recall", recall)
    monkeypatch.setattr(sizing, "measure", lambda plan: replace(CURVES, batch_sizes={256: next(rates)}))
    given = plan()
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(lambda rate: found(given, rate), (1.0, 1.1, 1.2))
    assert others == [first] * 2


def test_an_algorithm_of_the_users_is_measured_whatever_it_prints(tmp_path, monkeypatch):
    """Its module is beside the topology, and prints where it is imported: where it is measured too. A file of
    the current folder is none of the library's, whatever its name.
    """
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text("raise RuntimeError('not the one of the library')\n")
    monkeypatch.chdir(tmp_path / "here")
    code = "from spreeze_zmq.algorithms.sac import SAC as Mine\nprint('hello')\n"
    (tmp_path / "talking.py").write_text(code)
    own = '[run]\nenv = "Pendulum-v1"\nalgorithm = "talking:Mine"\n'
    (tmp_path / "own.toml").write_text(own)
    settled = sizing.settle(topology.load(str(tmp_path / "own.toml"), [AUTO, SMALL]))
    assert [size for size, _ in settled.measured["batch_size"]["curve"]] == [64, 128]


def test_threads_are_measured_at_the_batch_of_the_run(one_thread, monkeypatch):
    """A real measurement of one to three threads; where the time is over before the third, of fewer."""
    monkeypatch.setattr(measure_updates, "THREADS_BUDGET_S", 0.1)
    given = topology.load("pendulum", ["components.sampler.count=2"], cores=8)
    curves = Curves.read({**measure_updates.measure(given), "took_s": 1.0})
    settled = sizing.resolved(given, curves, "measured")
    found = settled.measured["threads"]
    assert [number for number, _ in found["curve"]] in ([1], [1, 2], [1, 2, 3])
    assert settled.components["critic_learner"].threads == found["chosen"]
    assert settled.components["actor_learner"].threads == found["chosen"]
    assert settled.algorithm == given.algorithm


@pytest.mark.parametrize(
    "override",
    [
        "run.env=MountainCarContinuous-v0",
        "algorithm.hidden_sizes=[32]",
        "algorithm.max_batch_size=256",
        "algorithm.precision=fp32",
    ],
)
def test_other_work_is_measured_again(override):
    """Shapes, networks, precision and limit all decide about the curve."""
    assert cached(plan(override)) != cached(plan())


@pytest.mark.parametrize(
    "found",
    [
        {},
        [],
        None,
        {"batch_sizes": {}, "ended": "flat", "threads": {}, "took_s": 1.0},
        {"batch_sizes": {"64": -1.0}, "ended": "flat", "threads": {}, "took_s": 1.0},
        {"batch_sizes": {"64": float("nan")}, "ended": "flat", "threads": {}, "took_s": 1.0},
        {"batch_sizes": {"x": 1.0}, "ended": "flat", "threads": {}, "took_s": 1.0},
        {"batch_sizes": {"64": 1.0}, "ended": "why", "threads": {}, "took_s": 1.0},
        {"batch_sizes": [64], "ended": "flat", "threads": {}, "took_s": 1.0},
    ],
)
def test_a_senseless_cache_is_passed_over(found, monkeypatch, caplog):
    """One line that says what to do, then a measurement; here one that is known."""
    monkeypatch.setattr(sizing, "measure", lambda plan: CURVES)
    path = cached(plan())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"of": sizing.subject_of(plan()), "found": found}))
    assert sizing.settle(plan()).algorithm["batch_size"] == 512
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert str(path) in warnings[0]


@pytest.mark.parametrize("subject_of", [sizing.subject_of, tuning.subject_of])
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"])
def test_another_gpu_of_the_machine_is_measured_again(monkeypatch, subject_of, name):
    """cuda:0 is the first that the environment names; a run on the CPU has none."""
    on_cpu = plan()
    learner = on_cpu.components["critic_learner"]
    on_gpu = replace(learner, options={**learner.options, "device": "cuda:0"})
    on_gpu = replace(on_cpu, components={**on_cpu.components, "critic_learner": on_gpu})
    monkeypatch.delenv(name, raising=False)
    before = subject_of(on_gpu), subject_of(on_cpu)
    monkeypatch.setenv(name, "1")
    assert subject_of(on_gpu) != before[0]
    assert subject_of(on_cpu) == before[1]


@pytest.mark.parametrize("subject_of", [sizing.subject_of, tuning.subject_of])
@pytest.mark.parametrize(("name", "value"), [("PATH", ""), ("SPREEZE_NATIVE", "0")])
def test_figures_without_the_native_layers_are_none_with_them(monkeypatch, tmp_path, subject_of, name, value):
    """As before a compiler was installed: an update took twice as long. On a GPU there are none."""
    monkeypatch.setattr(native_library, "CARRIED", tmp_path)  # a wheel's need no compiler
    on_cpu = plan()
    components = {
        role: replace(part, options={**part.options, "device": "cuda:0"}) if role in LEARNERS else part
        for role, part in on_cpu.components.items()
    }
    on_gpu = replace(on_cpu, components=components)
    before = subject_of(on_cpu), subject_of(on_gpu)
    monkeypatch.setenv(name, value)
    assert subject_of(on_cpu) != before[0]
    assert subject_of(on_gpu) == before[1]


def test_a_limit_of_memory_is_not_kept(monkeypatch):
    """What is free now says nothing of the next run."""
    monkeypatch.setattr(sizing, "measure", lambda plan: replace(CURVES, ended="memory"))
    sizing.settle(plan())
    assert not cached(plan()).exists()


def test_threads_of_an_on_policy_learner_are_measured(one_thread, monkeypatch):
    """On a round of rollouts, since it has no replay."""
    assert topology.load("halfcheetah_ppo", cores=8).to_measure  # as it ships
    monkeypatch.setattr(measure_updates, "THREADS_BUDGET_S", 0.1)
    plan = replace(topology.load("cartpole_pqn"), to_measure=("components.critic_learner.threads",))
    learner = replace(plan.components["critic_learner"], threads=2)
    plan = replace(plan, components={**plan.components, "critic_learner": learner})
    curves = Curves.read({**measure_updates.measure(plan), "took_s": 1.0})
    assert not curves.batch_sizes
    assert 1 in curves.threads
    assert sizing.resolved(plan, curves, "measured").components["critic_learner"].threads in (1, 2)


def test_one_batch_size_at_a_time_holds_memory_of_a_gpu(one_thread, monkeypatch):
    """The largest one may take nine tenths of it, beside which no graph of another one has room."""
    trial = measure_updates.Rehearsal(plan(SMALL))
    trial.device = torch.device("cuda")  # of which it waits for the work, here on a CPU
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    for size in (64, 128, 64):
        assert trial.rate(size) > 0
        assert len(trial.half._launch[True]._courses) == 1


def test_memory_limits_the_batch():
    """Beside both full replays, by an estimate before anything is allocated; a GPU of its own holds one.
    Groups have as many of each.
    """
    cheetah = topology.load("halfcheetah", [AUTO])  # 17 observations, 6 actions
    row, obs = 2 * 17 * 4 + 6 * 4 + 8, 17 * 4
    critics, policy = 2 * (256 + 256 + 1 + 3), 256 + 256 + 2 * 6  # an ensemble's biases are matrices
    update = 4 * (9 * (2 * critics + policy) + 8 * 17)  # targets too
    free = 4e9
    room = 0.9 * free - 1_000_000 * (row + obs)
    assert measure_updates.largest_batch(cheetah, int(free)) == int(room) // (2 * (row + update))
    apart = cheetah.components["critic_learner"]
    apart = replace(apart, options={**apart.options, "device": "cuda:0"})
    alone = replace(cheetah, components={**cheetah.components, "critic_learner": apart})
    room = 0.9 * free - 1_000_000 * row
    assert measure_updates.largest_batch(alone, int(free)) == int(room) // (row + update)
    groups = replace(alone, groups=replace(alone.groups, count=2))
    room = 0.9 * free - 2 * 1_000_000 * row
    assert measure_updates.largest_batch(groups, int(free)) == int(room) // (2 * (row + update))


def test_what_does_not_fit_is_refused_with_the_way_out():
    """Before anything is allocated."""
    huge = plan("algorithm.replay_capacity=1000", "algorithm.hidden_sizes=[200000]")
    with pytest.raises(InputError, match=r"has 200.0 MB free; the replays take 0\.\d MB.*lower algorithm"):
        measure_updates.largest_batch(huge, 200_000_000)
    with pytest.raises(InputError, match="replay_capacity"):
        sizing.settle(plan("algorithm.replay_capacity=1_000_000_000_000"))


def test_the_curve_of_a_camera_is_none_of_as_many_numbers():
    """Its pixels go through an encoder."""
    camera = plan("run.env=tests.system.camera:Camera", "algorithm.replay_capacity=1000")
    flat = replace(camera, environment=replace(camera.environment, obs_parts=()))
    assert camera.environment.obs_shape == flat.environment.obs_shape
    assert cached(camera) != cached(flat)
