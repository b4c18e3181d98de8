"""What a process says of itself."""

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
