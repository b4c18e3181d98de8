"""What a process says of itself."""

import os
import subprocess
import sys
import threading
import time

from spreeze_zmq.component.reporting import Reporting


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
