"""Observer: calls the user's callbacks with what the run says, and passes on what they ask for."""

import sys
import time

from spreeze_zmq.callbacks.named import made
from spreeze_zmq.callbacks.observers import Observers
from spreeze_zmq.component import Component, run
from spreeze_zmq.plan.roles import EVALUATOR, FEED, HURRIED_S, OBSERVER
from spreeze_zmq.wire.channels import Subscriber

WAIT_S = 0.1
#: Longest wait, at the end, for what the broker says of the evaluator, which has ended before.
LAST_S = 1.0
#: Part of ``stop_grace_s`` that callbacks are not given: for ``LAST_S``, and to leave; at most half of it.
LEAVE_S = LAST_S + 2.0


def main(component: Component) -> None:
    """Make the callbacks and serve them until the run is over."""
    feed = component.open(FEED, Subscriber)  # first: what comes while their modules are imported waits there
    callbacks = [made(name) for name in component.options["callbacks"]]
    component.ready()
    observers = Observers(component.plan, callbacks, feed, component.report, component.name)
    while component.running:
        component.poll([feed], timeout_s=WAIT_S)
        observers.serve()
    grace_s = component.plan.components[OBSERVER].stop_grace_s
    last_s = min(LAST_S, grace_s / 2 * LAST_S / LEAVE_S)
    until_s = time.monotonic() + last_s * component.plan.components[EVALUATOR].launched
    while not observers.has_seen_end_of(f"{EVALUATOR}-0") and time.monotonic() < until_s:
        component.poll([feed], timeout_s=WAIT_S, draining=True)
        observers.serve()
    if observers.is_interrupted:
        grace_s = min(grace_s, HURRIED_S)
    observers.finish(component.breathe, grace_s - min(LEAVE_S, grace_s / 2))


if __name__ == "__main__":
    sys.exit(run("observer", main))
