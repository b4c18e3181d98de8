"""Work of a process that takes longer than it may be silent, such as that on the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from spreeze_zmq.component.reporting import REPORT_INTERVAL_S

if TYPE_CHECKING:
    from spreeze_zmq.component.component import Component

T = TypeVar("T")


def reporting_while(component: Component, work: Callable[[], T]) -> T:
    """Do ``work`` in a thread, and send the component's reports until it is done; returns what it returns.

    Control messages wait until then: nothing changes what ``work`` writes. Each report before
    ``component.ready()`` counts as a step of the start.

    Raises:
        Exception: what ``work`` raises.
    """
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        while wait([done], REPORT_INTERVAL_S).not_done:
            component.count_step()
            component.send_report()
    return done.result()
