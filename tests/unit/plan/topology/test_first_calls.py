"""Deadlines that follow from what one environment took before the run."""

import json
import time
from dataclasses import replace

from spreeze_zmq.commands.advice import advice
from spreeze_zmq.commands.search.search import contents_of
from spreeze_zmq.commands.setting import setting_of
from spreeze_zmq.envs import Timing
from spreeze_zmq.plan import topology, tuning
from spreeze_zmq.plan.plan import differing, digests_of
from spreeze_zmq.plan.topology import deadlines
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.run.history import read_run
from tests.unit.envs.mistaken_environments import Right

HERE = "tests.unit.plan.topology.test_first_calls"


class Compiles(Right):
    """Its first reset and its first step take long, as those that compile."""

    compiled: set[str] = set()  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        """Compile."""
        self.compile("reset", 0.2)
        return super().reset(seed=seed)

    def step(self, action):
        """Compile."""
        self.compile("step", 0.55)  # of which the kernel may count a tick as time without a core
        return super().step(action)

    def compile(self, what, seconds):
        """Once in each process. A task that sleeps and is moved to another core meanwhile, Linux can count as
        one that waited for a core.
        """
        until_s = time.thread_time() + seconds
        while what not in self.compiled and time.thread_time() < until_s:
            pass
        self.compiled.add(what)


def test_the_first_call_of_each_process_may_take_as_long_as_it_did(monkeypatch):
    """Neither the silence of a process nor the step of a worker counts as hanging then; what is written
    stays. Later resets are fast, and the first one is not taken for one of them.
    """
    monkeypatch.setattr(deadlines, "WORTH_S", 0.3)
    monkeypatch.setattr(deadlines, "LONGER", 20)
    plan = topology.load({"run": {"env": f"{HERE}:Compiles", "algorithm": "sac"}})
    assert plan.timing["first_call_s"] >= 0.5
    assert plan.timing["reset_s"] < 0.2
    assert plan.components["broker"].options["heartbeat_timeout_s"] >= 15 + 20 * 0.5
    assert plan.components["sampler"].options["step_timeout_s"] >= 60 + 20 * 0.5
    assert plan.components["evaluator"].start_timeout_s >= 30 + 20 * 0.5
    assert not [line for line in advice(plan, None) if "step_timeout_s" in line]
    written = ["components.broker.heartbeat_timeout_s=7", "components.sampler.step_timeout_s=8"]
    plan = topology.load({"run": {"env": f"{HERE}:Compiles", "algorithm": "sac"}}, written)
    assert plan.components["broker"].options["heartbeat_timeout_s"] == 7
    assert plan.components["sampler"].options["step_timeout_s"] == 8


def test_what_one_environment_took_makes_no_other_run(tmp_path):
    """Two tries never take as long: a resumed run, a study that goes on, a comparison and the count of
    samplers that is known are those of the run before.
    """
    plan = topology.load("pendulum", cores=4)
    plans = [
        replace(
            plan, components=deadlines.with_time_to_start(plan.components, {}, Timing("", first_call_s=s))
        )
        for s in (3.1, 30.0)
    ]
    settings = []
    for number, each in enumerate(plans):
        folder = RunFolder.create("run", str(tmp_path / str(number)))
        write_plan(each, folder)[1].remove()
        settings.append(setting_of(read_run(folder.path)))
    assert plans[0].components != plans[1].components
    assert not differing(json.loads(plans[0].to_json()), plans[1])
    assert settings[0] == settings[1]
    for of in (lambda plan: digests_of(plan)[0], lambda plan: contents_of(plan)[0], tuning.subject_of):
        assert of(plans[0]) == of(plans[1])
