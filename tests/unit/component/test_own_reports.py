"""What a process says of itself."""

import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from spreeze_zmq.component import Component
from spreeze_zmq.component.long_work import reporting_while
from spreeze_zmq.component.reporting import Reporting
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan


def test_components_of_one_process_report_the_cpu_time_of_their_threads():
    """With --inproc all are threads of the launcher's process: each would report all of its time."""
    found, own = {}, Reporting("broker", "broker-0")

    def live():
        component = Reporting("sampler", "sampler-0")
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        found["sampler"] = component.own_report()["cpu_s"]

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    assert 0.02 <= found["sampler"] < time.process_time() - time.thread_time() + 0.02
    assert own.own_report()["cpu_s"] >= 0.9 * time.process_time()  # the kernel counts in ticks


def test_uptime_begins_with_the_process():
    """The broker's is the time of the run, its limit of minutes and all mean rates."""
    code = "import time; from spreeze_zmq.component.reporting import Reporting; "
    code += "print(time.monotonic() - Reporting('broker', 'broker-0').uptime_s)"
    before_s = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    after_s = time.monotonic()
    began_s = float(child.communicate()[0])
    assert before_s - 0.05 <= began_s <= after_s + 0.05


def test_uptime_does_not_follow_the_wall_clock(monkeypatch):
    """It may be set between the start and the first report, as where the network is late."""
    before_s = Reporting("broker", "broker-0").uptime_s
    set_s = time.time() + 3600.0
    monkeypatch.setattr(time, "time", lambda: set_s)
    assert before_s - 0.05 < Reporting("broker", "broker-0").uptime_s < before_s + 60.0


def test_a_broker_that_has_not_heard_the_hello_is_told_again():
    """It went with the broker before, which had not said anything yet: a learner that is never ready would be
    killed, and the run would have no checkpoint.
    """
    own, unheard = Reporting("sampler", "sampler-0"), {"pid": os.getpid(), "ready": False}

    def is_unheard(**row):
        return own._is_unheard({"processes": {"sampler-0": {**unheard, **row}}})

    assert not is_unheard()  # it is not ready itself
    own._is_ready = True
    assert is_unheard()
    assert not is_unheard(ready=True)
    assert not is_unheard(pid=1)  # the life before
    assert not own._is_unheard({})
    own._hello_s = time.monotonic()
    assert not is_unheard()  # it is on its way


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    """One that reports each 40 ms, without peers; what it reports is in ``told``."""
    for module in ("component", "long_work"):
        monkeypatch.setattr(f"spreeze_zmq.component.{module}.REPORT_INTERVAL_S", 0.04)
    plan, sockets = write_plan(topology.load("pendulum"), RunFolder.create("alone", str(tmp_path / "run")))
    made, made.told = Component("sampler", plan, 0), []
    monkeypatch.setattr(made, "report", lambda kind, fields, *more: made.told.append(fields))
    yield made
    for channel in made._channels.values():
        channel.close()
    sockets.remove()


def _spans(told):
    """By report after the first: seconds that its clocks have gone on, and those that have passed."""
    sums = [(sum(each["clock_s"].values()), each["uptime_s"]) for each in told]
    return [(clocks - before, now - then) for (before, then), (clocks, now) in pairwise(sums)]


def test_a_report_has_the_wait_that_goes_on(sampler):
    """It comes in the middle of most waits: without that half of the reports of a learner that starves for
    seven tenths of its time say that it is busy for all of it, on as many cores as its CPU time is more than
    the little that is left.
    """
    for wait_s in (0.07, 0.09):
        sampler.poll(timeout_s=wait_s, charge="starved")
    assert len(sampler.told) >= 2
    for clocks_s, passed_s in _spans(sampler.told):
        assert clocks_s == pytest.approx(passed_s, abs=1e-6)
    first, *_, last = (each["clock_s"] for each in sampler.told)
    assert last["starved"] >= first["starved"] + 0.03
    assert last["busy"] == pytest.approx(first["busy"], abs=0.03)


def test_a_report_has_the_work_that_goes_on(sampler):
    """As the files of a checkpoint, which a thread writes."""
    reporting_while(sampler, lambda: time.sleep(0.15))
    assert len(sampler.told) >= 2
    for clocks_s, passed_s in _spans(sampler.told):
        assert clocks_s == pytest.approx(passed_s, abs=1e-6)
