"""Deadlines that follow from what one environment took before the run."""

import time

from spreeze_zmq.commands.advice import advice
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.topology import deadlines
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
        self.compile("step", 0.5)
        return super().step(action)

    def compile(self, what, seconds):
        """Once in each process."""
        if what not in self.compiled:
            time.sleep(seconds)
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
