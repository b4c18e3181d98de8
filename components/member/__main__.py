"""Member: one more group of the run. Its samplers, learners and broker run below a launcher in this process.

Its learners share their model with those of the other groups by the channels ``models`` and ``fused``; this
process tells the run's own broker only that the group lives.
"""

import logging
import sys

from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.launcher.member import MemberRun

log = logging.getLogger("spreeze")

LOOK_S = 0.2


def main(component: Component) -> None:
    """Launch the group, and end it when this process is stopped."""
    life = component.seed_sequence().generate_state(1).tolist()
    group = MemberRun(component.plan, component.index, life)
    group.start()
    component.ready()
    while component.running and group.is_alive():
        component.poll(timeout_s=LOOK_S)
    if not component.running:
        group.stop(component.stop_reason)
    while group.is_alive():
        component.poll(timeout_s=LOOK_S, draining=True)
    if (failure := group.failure(asked=not component.running)) is not None:
        raise failure


if __name__ == "__main__":
    sys.exit(run("member", main))
