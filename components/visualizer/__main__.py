"""Visualizer: shows the run and its newest policy at work on a web page; settings may be changed there."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.files import plain
from spreeze_zmq.component import Component, run
from spreeze_zmq.plan.roles import EVALUATOR, FEED
from spreeze_zmq.screen.page import address, story
from spreeze_zmq.wire.channels import Subscriber

if TYPE_CHECKING:
    from spreeze_zmq.screen.page.server import Server

#: Longest wait, at the end, for what the broker says of the evaluator, which has ended before.
LAST_S = 1.0
#: Requests of browsers that wait to be sent; older ones are left out.
MOST_ASKED = 16


def main(component: Component) -> None:
    """Serve the page and forward to it what the broker publishes."""
    try:
        from spreeze_zmq.screen.page.agent import PolicyPlayer
        from spreeze_zmq.screen.page.neighbours import Neighbours
        from spreeze_zmq.screen.page.policies import live_policies
        from spreeze_zmq.screen.page.server import Server
    except ModuleNotFoundError as error:
        raise InputError(f"the page needs the package {error.name}: pip install {error.name}") from None
    listener = address.inherited()
    if listener is None:
        listener = address.open_port(component.options["port"])
        print(f"the page of this run: {address.publish(component.folder, listener)}", file=sys.stderr)
    plan, folder = component.plan, component.folder
    agent = PolicyPlayer(
        plan.environment,
        lambda: live_policies(plan, component.name),
        lambda: (folder.logs, Path(plan.socket_dir)),
        why_not="" if component.options["show_agent"] else "components.visualizer.show_agent is false",
        cpu_share=component.options["cost_share"],
    )
    token = address.token_of(folder.page_address)
    asked: deque[dict[str, Any]] = deque(maxlen=MOST_ASKED)
    server = Server(
        listener,
        token,
        lambda: [story.run_entry(plan, live=True), *story.journal(folder)],
        agent,
        Neighbours(folder.path, plan.environment.id),
        asked.append,
    )
    feed = component.open(FEED, Subscriber)
    server.start()
    component.ready()
    has_ended = False
    while component.running:
        component.poll([feed], timeout_s=1.0)
        while asked:
            component.report("request", asked.popleft())
        has_ended |= forward(feed, server)
    until_s = time.monotonic() + LAST_S * plan.components[EVALUATOR].launched
    while server.num_visitors and not has_ended and time.monotonic() < until_s:
        component.poll([feed], timeout_s=0.1, draining=True)
        has_ended = forward(feed, server)
    server.send({"topic": "over", "t_s": 0.0, "about": {"reason": component.stop_reason}})
    server.close()


def forward(feed: Subscriber, server: Server) -> bool:
    """Send browsers what has come; returns whether that says that the evaluator has ended for good."""
    has_ended = False
    while (message := feed.receive()) is not None:
        fields = message.fields
        try:
            topic, about = fields["topic"], fields["about"]
            if server.num_visitors and topic in story.SHOWN:
                server.send(plain(story.entry_of(topic, fields["t_s"], about)))
            is_exit = topic == "exited" and not about.get("restarting")
            has_ended |= is_exit and about.get("name") == f"{EVALUATOR}-0"
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"{fields['topic']!r:.40} cannot be shown: {type(error).__name__}: {error}"
            feed.refuse(WireError("bad_entry", what), message.sender, message.kind)
    return has_ended


if __name__ == "__main__":
    sys.exit(run("visualizer", main))
